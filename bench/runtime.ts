/**
 * @file `npm run bench:runtime`: the bundled runtime against plain onnxruntime-node, on models where compute dominates.
 *
 * One rank against one session, both with one thread (aim: at most 1.05 times as long); two ranks of one thread against
 * one session of two threads (aim: dp no slower, tp at most 1.15 times as long).
 *
 * The two take short turns, and their fastest steps are compared: other work of the machine can only add time. The medians,
 * which include such time, are printed beside them. `-- ROUNDS` sets the number of turns (8).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { llama } from '../models/llama.js';
import { mlp } from '../models/mlp.js';
import { compile } from '../src/api/compile.js';
import { randomInputs } from '../src/api/execution/inputs.js';
import { importModel } from '../src/api/models/import.js';
import type { Graph } from '../src/ir/graph.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { runProgram } from '../src/runtime/run-program.js';
import { median, plainSeconds } from './measure.js';

const ROUNDS = Number(process.argv[2] ?? 8);
const STEPS = 10;
const WARMUP = 2;

const MODELS: readonly { readonly name: string; readonly build: () => Graph }[] = [
  {
    name: 'mlp 4 × 1024, batch 512',
    build: () => mlp('mlp', { batch: 512, widths: [1024, 1024, 1024, 1024, 1024] }, 1),
  },
  {
    name: 'llama 4 layers × 512, 8 × 128 tokens',
    build: () =>
      llama(
        'llama',
        { batch: 8, sequence: 128, layers: 4, width: 512, heads: 8, keyHeads: 4, feedForward: 1376, vocabulary: 2048 },
        1,
      ),
  },
];

const CASES = [
  { name: 'one rank', threads: 1, ranks: 1, degrees: {}, aim: 1.05 },
  { name: 'dp 2', threads: 2, ranks: 2, degrees: { dp: 2 }, aim: 1 },
  { name: 'tp 2', threads: 2, ranks: 2, degrees: { tp: 2 }, aim: 1.15 },
] as const;

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
let missed = 0;
try {
  console.log(`${availableParallelism()} cores, Node ${process.version}, fastest of ${ROUNDS * STEPS} steps`);
  for (const { name, build } of MODELS) {
    const model = join(folder, 'model.onnx');
    writeFileSync(model, writeOnnx(build()));
    const inputs = randomInputs((await importModel(model, {})).graph, 0);
    console.log(`\n${name}`);
    for (const { name: title, threads, ranks, degrees, aim } of CASES) {
      const output = join(folder, 'compiled');
      await compile({ model, output, devices: ranks, degrees, axes: 'roles', force: true });
      const plain: number[] = [];
      const ours: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        plain.push(...(await plainSeconds(model, inputs, { threads, steps: STEPS, warmup: WARMUP })));
        const options = { steps: STEPS, warmup: WARMUP, threadsPerRank: 1 };
        ours.push(...(await runProgram(join(output, 'program'), inputs, options)).stepSeconds);
      }
      const ratio = Math.min(...ours) / Math.min(...plain);
      if (ratio > aim) missed += 1;
      const fastest = `${milliseconds(Math.min(...ours))} against ${milliseconds(Math.min(...plain))} ms`;
      const middle = `median ${milliseconds(median(ours))} against ${milliseconds(median(plain))}`;
      const verdict = `(aim ≤ ${aim})${ratio > aim ? '  missed' : ''}`;
      console.log(`  ${title.padEnd(9)} ${fastest}: ${ratio.toFixed(3)} × ${verdict}; ${middle}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(`\n${MODELS.length * CASES.length} measured, ${missed} missed their aim`);

function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(2);
}
