/**
 * @file `npm run bench:import -- FILE…`: time and memory of every part of importing and planning a model for eight devices;
 * the shipped models where no file is named. Each is measured in a process of its own, since a second model finds the
 * program's code compiled; the parts of planning likewise.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AutoparError } from '../src/ir/error.js';
import { importParts, planningParts } from './model-parts.js';
import { PART_HEADER, PartClock, partLine, together } from './part-clock.js';

const CLUSTER = '1x8:h100-sxm-80';
const program = fileURLToPath(import.meta.url);
const [only, ...words] = process.argv.slice(2);

if (only === '--import' || only === '--planning') await measure(only, words[0] ?? '');
else process.exitCode = measureAll(only === undefined ? shipped() : [only, ...words]);

function shipped(): readonly string[] {
  const models = join(dirname(dirname(dirname(program))), 'models');
  return readdirSync(models).flatMap((file) => (file.endsWith('.onnx') ? [join(models, file)] : []));
}

function measureAll(files: readonly string[]): number {
  let refused = 0;
  for (const file of files) {
    const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
    console.log(`${basename(file)}, ${(size / 1e6).toFixed(2)} MB, ${CLUSTER}`);
    const parts = ['--import', '--planning'].map((part) =>
      spawnSync(process.execPath, [program, part, file], { stdio: 'inherit' }),
    );
    if (parts.some(({ status }) => status !== 0)) refused += 1;
    console.log('');
  }
  console.log(`${files.length - refused} measured, ${refused} refused of ${files.length}`);
  return 0;
}

async function measure(part: '--import' | '--planning', file: string): Promise<void> {
  const clock = new PartClock();
  try {
    if (part === '--import') console.log(PART_HEADER);
    const graph = part === '--import' ? await importParts(file, clock) : await planningParts(file, CLUSTER, clock);
    const parts = clock.parts();
    for (const item of parts) console.log(partLine(item));
    const name = graph ? `import, ${graph.nodes.length} operators` : 'planning';
    console.log(partLine(together(name, parts)));
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    console.log(`refused: ${error.code}: ${error.message}`);
    process.exitCode = 3;
  }
}
