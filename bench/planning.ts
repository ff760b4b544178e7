/**
 * @file `npm run bench:planning`: how long planning takes, on transformers of 2 and 32 layers, by cluster and degrees.
 * `npm run bench:planning -- FILE [CLUSTER DP TP BATCH]`: a training step of one model, part by part, from file to plan; FILE
 * may be a generated family. 8x8:h100-sxm-80, dp 8, tp 8 and a batch of 8 where they are left out.
 *
 * Processor time is printed beside wall time: on a machine that does other work only processor time is reliable. The
 * first line of each layer count also includes compiling the planner's own code.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gpt } from '../models/gpt.js';
import { llama } from '../models/llama.js';
import { generatedFile } from '../src/api/models/generated.js';
import { importModel } from '../src/api/models/import.js';
import { type NestedPlanningOptions, plan } from '../src/api/plan.js';
import type { Graph } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { trainingParts } from './model-parts.js';
import { PART_HEADER, PartClock, partLine, together } from './part-clock.js';

const SIZES = { batch: 8, sequence: 512, width: 512, heads: 16, vocabulary: 8192 };

const MODELS: Readonly<Record<string, (layers: number) => Graph>> = {
  llama: (layers) => llama('llama', { ...SIZES, layers, keyHeads: 2, feedForward: 1408 }, 1),
  gpt: (layers) => gpt('gpt', { ...SIZES, layers }, 1),
};

const CASES: readonly NestedPlanningOptions[] = [
  { cluster: '1x4:h100-sxm-80', degrees: { tp: 4 } },
  { cluster: '1x8:h100-sxm-80', degrees: { tp: 8 } },
  { cluster: '1x8:h100-sxm-80' },
  { cluster: '2x8:h100-sxm-80', degrees: { dp: 2, tp: 8 } },
  { cluster: '2x8:h100-sxm-80' },
];

const [file, clusterText = '8x8:h100-sxm-80', dp = '8', tp = '8', batch = '8'] = process.argv.slice(2);
if (file === undefined) await measureGenerated();
else await measureTraining(file);

async function measureTraining(model: string): Promise<void> {
  const path = model.endsWith('.onnx') ? model : await generatedFile(model);
  const clock = new PartClock();
  const says = await trainingParts(path, clusterText, { dp: Number(dp), tp: Number(tp) }, Number(batch), clock);
  console.log(`${basename(model)} in training on ${clusterText}, dp ${dp}, tp ${tp}: ${says}\n${PART_HEADER}`);
  for (const part of clock.parts()) console.log(partLine(part));
  console.log(partLine(together('import to plan', clock.parts())));
}

async function measureGenerated(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
  try {
    console.log('model   layers  operators  cluster          degrees           wall   processor');
    for (const layers of [2, 32]) {
      for (const [name, build] of Object.entries(MODELS)) {
        const file = join(folder, 'model.onnx');
        writeFileSync(file, writeOnnx(build(layers)));
        const imported = await importModel(file, {});
        for (const options of CASES) {
          const used = process.cpuUsage();
          const start = performance.now();
          await plan(imported, options);
          const wall = performance.now() - start;
          const { user, system } = process.cpuUsage(used);
          const degrees = Object.entries(options.degrees ?? {}).map(([axis, size]) => `${axis} ${size}`);
          console.log(
            name.padEnd(7),
            String(layers).padStart(6),
            String(imported.graph.nodes.length).padStart(10),
            ` ${options.cluster ?? ''}`.padEnd(17),
            (degrees.join(' ') || 'chosen').padEnd(13),
            `${wall.toFixed(0)} ms`.padStart(9),
            `${((user + system) / 1000).toFixed(0)} ms`.padStart(9),
          );
        }
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
