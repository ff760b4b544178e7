/**
 * @file `npm run bench:buckets`: exposed time of a step's gradient reductions, and under ZeRO 3 of its parameter all-gathers,
 * with and without buckets, predicted and on emulated ranks (milliseconds). The model's backward takes as long as its reduction:
 * with buckets the exposed time is to be at most half of that without, wherever that is predicted.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mlp } from '../models/mlp.js';
import { emulationOf } from '../src/api/execution/emulation.js';
import { compile } from '../src/api/index.js';
import { readRunnable } from '../src/api/models/compiled-model.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import type { Program } from '../src/program/program.js';
import { type RunResult, runProgram } from '../src/runtime/run-program.js';
import { milliseconds, SLOWED, slowed } from './slowed.js';

const STEPS = 3;
const LAYERS = 12;
const WIDTH = 1024;
const BATCH = 8192;
/** One device a node: dp goes over the network. */
const CLUSTER = '4x1:v100-sxm2-32';
const CASES = [
  { dp: 4, tp: 1, pp: 1 },
  { dp: 2, tp: 1, pp: 2 },
  { dp: 4, tp: 1, pp: 1, zero: 3 },
] as const;
const SIZES = [undefined, 1e6, 5e6, 25e6, 100e6];
const REDUCTIONS = /^(all-reduce|reduce-scatter|all-gather)/;

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const model = join(folder, 'model.onnx');
  const widths = Array.from({ length: LAYERS + 1 }, () => WIDTH);
  writeFileSync(model, writeOnnx(mlp('mlp', { batch: BATCH, widths }, 1)));
  console.log(`mlp ${LAYERS} × ${WIDTH}, batch ${BATCH} in 2 micro-batches, ${CLUSTER}`);
  console.log('degrees          bucket  messages  predicted  emulated      step');
  for (const degrees of CASES)
    for (const bucket of SIZES) {
      const directory = join(folder, 'out');
      const { plan } = await compile({
        ...{ model, output: directory, force: true, cluster: CLUSTER, ...degrees },
        training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches: 2 },
        ...(bucket === undefined ? {} : { bucket }),
      });
      const predicted = Object.entries(plan.predicted.parts).reduce(
        (sum, [part, seconds]) => sum + (REDUCTIONS.test(part) ? seconds : 0),
        0,
      );
      const { program } = await readRunnable(directory);
      const emulation = slowed(emulationOf(program, plan, undefined));
      const run = await runProgram(directory, {}, { steps: STEPS, emulation });
      const cells = [
        bucket === undefined ? 'none' : `${bucket / 1e6} MB`,
        String(messagesIn(program)),
        milliseconds(predicted),
        milliseconds(exposed(run) / SLOWED),
        milliseconds(Math.min(...run.stepSeconds) / SLOWED),
      ];
      const name = Object.entries(degrees).flatMap(([axis, size]) => (size > 1 ? [`${axis} ${size}`] : []));
      console.log(`${name.join(' ').padEnd(14)} ${cells.map((cell) => cell.padStart(9)).join(' ')}`);
    }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Messages that a micro-batch and the end of a step start, over all stages. */
function messagesIn({ stages }: Program): number {
  const starts = stages.flatMap(({ phases }, stage) =>
    Object.values(phases)
      .flat()
      .flatMap((each) => (each.kind === 'start' ? [`${stage} ${each.bucket ?? `alone ${each.id}`}`] : [])),
  );
  return new Set(starts).size;
}

/** Seconds of a step that the first rank spends in collectives. */
function exposed({ ranks }: RunResult): number {
  return Object.entries(ranks[0]?.byKind ?? {}).reduce(
    (sum, [kind, { seconds }]) => sum + (REDUCTIONS.test(kind) ? seconds : 0),
    0,
  );
}
