/**
 * @file `npm run bench:interleave`: a training step in undivided micro-batches, in twice as many, and in two interleaved halves
 * of each, predicted and on emulated ranks (milliseconds). Against twice as many micro-batches, halves save the communication
 * that they hide: on emulated ranks the saving is to be within a tenth of the predicted one.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mlp } from '../models/mlp.js';
import { emulationOf } from '../src/api/execution/emulation.js';
import { compile } from '../src/api/index.js';
import { readRunnable } from '../src/api/models/compiled-model.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import type { Emulation } from '../src/runtime/messages.js';
import { runProgram } from '../src/runtime/run-program.js';
import type { Plan } from '../src/strategy/plan.js';
import { milliseconds, SLOWED, slowed } from './slowed.js';

const STEPS = 3;
const LAYERS = 12;
const WIDTH = 2048;
const BATCH = 4096;
const COLLECTIVES = /^(all-reduce|reduce-scatter|all-gather|all-to-all)/;
/** Share of the predicted saving. */
const TOLERANCE = 0.1;
/** One device a node: tp goes over the network. */
const CLUSTER = '4x1:v100-sxm2-32';
const CASES = [
  { dp: 1, tp: 4, pp: 1, microBatches: 1 },
  { dp: 1, tp: 4, pp: 1, microBatches: 4 },
  { dp: 2, tp: 2, pp: 1, microBatches: 2 },
  { dp: 1, tp: 2, pp: 2, microBatches: 4 },
] as const;

interface Measured {
  readonly predicted: number;
  readonly emulated: number;
  readonly peakBytes: number;
}

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const model = join(folder, 'model.onnx');
  const widths = Array.from({ length: LAYERS + 1 }, () => WIDTH);
  writeFileSync(model, writeOnnx(mlp('mlp', { batch: BATCH, widths }, 1)));
  console.log(`mlp ${LAYERS} × ${WIDTH}, batch ${BATCH}, ${CLUSTER}`);
  console.log('degrees       micro-batches   predicted  emulated     peak   hidden: predicted  emulated');
  for (const { microBatches, ...degrees } of CASES) {
    const whole = await measured(model, degrees, microBatches, 1);
    const twice = await measured(model, degrees, 2 * microBatches, 1);
    const halves = await measured(model, degrees, microBatches, 2);
    const name = Object.entries(degrees).flatMap(([axis, size]) => (size > 1 ? [`${axis} ${size}`] : []));
    const row = (what: string, { predicted, emulated, peakBytes }: Measured, more = '') =>
      console.log(
        `${name.join(' ').padEnd(13)} ${what.padEnd(14)} ${milliseconds(predicted).padStart(10)}` +
          `${milliseconds(emulated).padStart(10)} ${`${(peakBytes / 1e6).toFixed(0)} MB`.padStart(8)} ${more}`,
      );
    row(`${microBatches}`, whole);
    row(`${2 * microBatches}`, twice);
    const [wanted, found] = [twice.predicted - halves.predicted, twice.emulated - halves.emulated];
    const isWithin = Math.abs(found - wanted) <= TOLERANCE * wanted;
    const saved = `${milliseconds(wanted).padStart(18)}${milliseconds(found).padStart(10)}${isWithin ? '' : '  missed'}`;
    row(`${microBatches} in halves`, halves, saved);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** The link on which the collectives of a plan without halves take their predicted time. */
function linkAsPriced(plan: Plan): Emulation['link'] {
  const seconds = Object.entries(plan.predicted.parts).reduce(
    (sum, [part, own]) => sum + (COLLECTIVES.test(part) ? own : 0),
    plan.predicted.hiddenSeconds ?? 0,
  );
  return { bytesPerSecond: plan.predicted.bytesCommunicated / seconds, latency: 0 };
}

async function measured(
  model: string,
  degrees: { readonly dp: number; readonly tp: number; readonly pp: number },
  microBatches: number,
  interleave: 1 | 2,
): Promise<Measured> {
  const directory = join(folder, 'out');
  const { plan } = await compile({
    ...{ model, output: directory, force: true, cluster: CLUSTER, interleave, ...degrees },
    training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches },
  });
  const { program } = await readRunnable(directory);
  const emulation = slowed({ ...emulationOf(program, plan, undefined), link: linkAsPriced(plan) });
  const { stepSeconds } = await runProgram(directory, {}, { steps: STEPS, emulation });
  return {
    predicted: plan.predicted.stepSeconds,
    emulated: Math.min(...stepSeconds) / SLOWED,
    peakBytes: Math.max(...plan.predicted.peakBytes),
  };
}
