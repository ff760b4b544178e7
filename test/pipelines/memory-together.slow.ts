/**
 * @file Savings of memory together: ZeRO levels with and without recompute, offload and buckets, on the stages of a
 * pipeline. Losses and state are those of one rank; ranks count the peak, the bytes sent and those kept outside that each plan
 * predicts; and recompute and offload each lower the peak of the fullest rank at every level.
 */
import test from 'ava';
import { thinned } from '../selection.js';
import { type Asked, alone, type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { worstDifference } from './difference.js';
import { gatheredBytes } from './kept-bytes.js';
import { checkCounted, LEVELS, TOLERANCE } from './zero-levels.js';

const TASK: Task = { model: 'gpt', microBatches: 4 };
const MESH: Partial<Pipeline> = { kind: '1f1b', stages: 2, dp: 2 };
const STEPS = 2;

const SAVINGS: readonly (readonly [what: string, pipeline: Partial<Pipeline>, asked: Asked])[] = [
  ['recompute', { recompute: 'full' }, {}],
  ['offload', {}, { offload: 'optimizer:host,activations:disk' }],
  ['both in buckets', { recompute: 'full', request: { bucket: 5000 } }, { offload: 'optimizer:host,activations:disk' }],
];

for (const zero of thinned(LEVELS, 3))
  test.serial(`ZeRO ${zero} on two stages`, async (t) => {
    const one = await alone(TASK, STEPS);
    const check = (what: string, trained: Trained) => {
      t.true(worstDifference(one, trained) <= TOLERANCE, `${what}: ${worstDifference(one, trained)}`);
      checkCounted(t, trained, what);
      const { predicted, counted } = trained.outside;
      t.deepEqual(counted, predicted.length === 0 ? [] : counted.map((_, rank) => predicted[Math.floor(rank / 2)]));
      const { most, layer } = gatheredBytes(trained.lowered);
      t.true(zero < 3 || most <= 2 * layer, `${what}: ${most} B of whole parameters, ${layer} B a layer`);
      return Math.max(...trained.peaks.counted);
    };
    const whole = check('nothing', await train(TASK, STEPS, { ...MESH, zero }));
    const peaks = new Map<string, number>();
    for (const [what, pipeline, asked] of SAVINGS)
      peaks.set(what, check(what, await train(TASK, STEPS, { ...MESH, zero, ...pipeline }, asked)));
    t.log(`${whole} B; ${[...peaks].map(([what, bytes]) => `${what} ${bytes} B`).join(', ')}`);
    for (const [what, bytes] of peaks) t.true(bytes < whole, `${what}: ${bytes} of ${whole} B`);
  });
