/**
 * @file `npm run bench:iopddl-draw -- DIR [FILES] [--seed N] [--kinds a,b]`: writes instances for `npm run bench:iopddl`, drawn
 * from a seed, to which no solver is tuned: those of bench/contest/draw.ts, and changed ones of FILES.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { AutoparError } from '../src/ir/error.js';
import { CHANGES, FROM_SCRATCH } from './contest/draw.js';
import { type ContestInstance, readInstance } from './contest/instance.js';

try {
  main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof AutoparError)) throw error;
  console.error(`error[${error.code}]: ${error.message}`);
  if (error.hint) console.error(`  hint: ${error.hint}`);
  process.exitCode = error.exit === 'usage' ? 2 : 3;
}

function main(words: readonly string[]): void {
  const { values, positionals } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: { seed: { type: 'string', default: '1' }, kinds: { type: 'string' } },
  });
  const [folder, ...files] = positionals;
  const seed = Number(values.seed);
  const kinds = values.kinds?.split(',');
  const unknown = kinds?.find((kind) => !(kind in CHANGES) && !(kind in FROM_SCRATCH));
  if (folder === undefined || !Number.isSafeInteger(seed) || unknown !== undefined) {
    throw new AutoparError(
      'bad-usage',
      'usage',
      folder === undefined
        ? 'no folder is named'
        : unknown === undefined
          ? '--seed takes a whole number'
          : `no kind is called ${unknown}`,
      {},
      `npm run bench:iopddl-draw -- DIR [FILES] [--seed N] [--kinds ${Object.keys({ ...CHANGES, ...FROM_SCRATCH }).join(',')}]`,
    );
  }
  mkdirSync(folder, { recursive: true });
  const wanted = (kind: string) => kinds === undefined || kinds.includes(kind);
  for (const [kind, make] of Object.entries(FROM_SCRATCH)) {
    if (wanted(kind) && (kinds !== undefined || files.length === 0)) write(join(folder, `${kind}-${seed}`), make(seed));
  }
  for (const file of files) {
    const instance = readInstance(file);
    const name = basename(file).replace(/\.json(\.gz)?$/, '');
    for (const [kind, change] of Object.entries(CHANGES)) {
      if (wanted(kind)) write(join(folder, `${name}-${kind}-${seed}`), change(instance, seed));
    }
  }
}

function write(path: string, { name, costs, usages, intervals, edges, edgeCosts, limit }: ContestInstance): void {
  const problem = {
    name,
    nodes: { intervals, costs, usages },
    edges: { nodes: edges, costs: edgeCosts },
    usage_limit: limit,
  };
  writeFileSync(`${path}.json.gz`, gzipSync(JSON.stringify({ problem }), { level: 1 }));
  console.log(`${path}.json.gz`);
}
