/**
 * @file Every pair of schedule, stages, micro-batches, chunks, inner degrees, recompute and model in some pipeline, each compiled
 * and run against one rank: losses of steps with clipping active, weights and momentum after the first; and the counted peak
 * of memory is the predicted one.
 */
import test from 'ava';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { shortened } from '../selection.js';
import { alone, type Pipeline, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import { pairwise } from './pairwise.js';

const TOLERANCE = 1e-5;
const STEPS = shortened(20);

const MODELS = [
  ...(['gpt', 'llama', 'mlp', 'cnn', 'resnet', 'u-net', 'skips', 'encoder-decoder', 'shared-layer'] as const),
  'same-weight-twice',
] as const;

/** Models with repeated layers, which may keep their inputs alone. */
const LAYERED: ReadonlySet<string> = new Set(['gpt', 'llama', 'encoder-decoder', 'shared-layer']);

/** Models whose normalisation takes statistics of the samples. */
const NORMALISED: ReadonlySet<string> = new Set(['resnet', 'u-net']);

interface Choice extends Required<Pick<Pipeline, 'kind' | 'stages' | 'chunks' | 'dp' | 'tp' | 'recompute'>> {
  readonly model: (typeof MODELS)[number];
  readonly microBatches: number;
  /** dp and tp together. */
  readonly inner: string;
}

/** All that schedules and models allow: chunks are for interleaving, whose micro-batches are a multiple of the stages. */
function everyChoice(): readonly Choice[] {
  const choices: Choice[] = [];
  for (const model of MODELS)
    for (const kind of SCHEDULE_KINDS)
      for (const stages of [2, 3, 4])
        for (const microBatches of new Set([stages, 4, 8]))
          for (const [dp, tp] of [
            [1, 1],
            [2, 1],
            [1, 2],
            [2, 2],
          ] as const) {
            const isInterleaved = kind.startsWith('interleaved');
            const chunks = isInterleaved || kind === 'zbv' ? 2 : 1;
            const fits = !isInterleaved || microBatches % stages === 0;
            // x · w · w · w has three operators.
            const hasUnits = model !== 'same-weight-twice' || stages * chunks <= 3;
            if (!fits || !hasUnits) continue;
            const inner = `${dp}x${tp}`;
            for (const recompute of LAYERED.has(model) ? ['none', 'operators', 'full'] : ['none', 'operators'])
              choices.push({ model, kind, stages, microBatches, chunks, dp, tp, recompute, inner });
          }
  return choices;
}

for (const { model, microBatches, inner: _, ...pipeline } of pairwise(everyChoice())) {
  test.serial(`${model} in ${microBatches} ${JSON.stringify(pipeline)}`, async (t) => {
    const training = NORMALISED.has(model) ? { batchStatistics: 'micro-batch' as const } : {};
    const task = { model, microBatches, training };
    const [one, all] = [await alone(task, STEPS), await train(task, STEPS, pipeline)];
    t.is(all.losses.length, STEPS);
    const worst = [worstDifference(one.first, all.first), difference(one.losses, all.losses)];
    t.log(worst.map((each) => each.toExponential(1)).join(' '));
    t.deepEqual(all.peaks.counted, all.peaks.predicted);
    t.true(Math.max(...worst) <= TOLERANCE);
  });
}
