/**
 * @file Every fourth of the plans in which each two of model, dp, sp, tp, pp, ep and method meet, trained against one rank: every
 * gradient, losses over some steps, and the counted peak of memory is the predicted one.
 */
import test from 'ava';
import { DISPATCHES, type Dispatch } from '../../src/ir/experts/dispatches.js';
import { SP_METHODS } from '../../src/sharding-propagation/roles.js';
import { shortened, thinned } from '../selection.js';
import { alone, type Pipeline, type Task, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import { pairwise } from './pairwise.js';

const TOLERANCE = 1e-5;
const STEPS = shortened(20);

interface Choice extends Required<Pick<Pipeline, 'spMethod' | 'dp' | 'sp' | 'tp' | 'ep' | 'stages'>> {
  readonly model: (typeof MODELS)[number];
  /** Capacity factor of experts; `whole`: they take all tokens. */
  readonly capacity: number | 'whole' | null;
  readonly dispatch: Dispatch;
}

const ROUTED = [
  'routed-experts',
  'batched-experts',
  'operator-experts',
  'unrolled-experts',
  'skewed-experts',
  'chosen-experts',
  'einsum-experts',
] as const;
const MODELS = [
  'gpt',
  'llama',
  'encoder-decoder',
  'windows',
  'documents',
  'sinks',
  'soft-experts',
  'moe',
  'capacity-experts',
  ...ROUTED,
] as const;

function everyChoice(): readonly Choice[] {
  const choices: Choice[] = [];
  for (const model of MODELS)
    for (const spMethod of SP_METHODS)
      for (const [dp, sp, tp] of [
        [1, 2, 1],
        [2, 2, 1],
        [1, 2, 2],
        [1, 3, 1],
        [1, 4, 1],
        [2, 2, 2],
      ] as const)
        for (const stages of [1, 2])
          for (const ep of [1, 2, 4]) {
            const isRouted = (ROUTED as readonly string[]).includes(model);
            const hasExperts = /moe|experts/.test(model);
            const fits = (dp * sp) % ep === 0 && (ep === 1 || hasExperts);
            // Four heads; in two models two of keys, which four ranks repeat.
            const cut = spMethod !== 'ulysses' || model === 'encoder-decoder' || 4 % sp === 0;
            const written =
              spMethod !== 'ulysses' || ['gpt', 'llama', 'windows', 'documents', 'sinks', 'moe'].includes(model);
            if (fits && cut && written && stages * dp * sp * tp <= 8)
              for (const capacity of isRouted ? ([1, 1.25, 'whole'] as const) : [null])
                for (const dispatch of capacity === null ? (['padded'] as const) : DISPATCHES)
                  choices.push({ model, spMethod, dp, sp, tp, stages, ep, capacity, dispatch });
          }
  return choices;
}

for (const { model, capacity, dispatch, ...degrees } of thinned(pairwise(everyChoice()), 4)) {
  test.serial(
    `${model} ${capacity === null ? '' : `${dispatch} ${capacity} `}${JSON.stringify(degrees)}`,
    async (t) => {
      const training: Task['training'] = capacity === null ? {} : { loss: { kind: 'mse', moeBalance: 0.5 } };
      const written: Task = { model, training, microBatches: model === 'moe' || model === 'capacity-experts' ? 1 : 2 };
      const factor = typeof capacity === 'number' ? { capacityFactor: capacity } : {};
      const task: Task = capacity === null ? written : { ...written, sent: { dispatch, ...factor } };
      const pipeline: Pipeline = { ...degrees, ...(degrees.stages > 1 ? { kind: '1f1b' } : {}) };
      const whole: Task = capacity === null ? written : { ...written, sent: { dispatch: 'padded', ...factor } };
      const one = await alone({ ...(capacity === 'whole' ? written : whole), microBatches: 1 }, STEPS);
      const all = await train(task, STEPS, pipeline);
      const worst = [worstDifference(one.first, all.first), difference(one.losses, all.losses)];
      t.log(worst.map((each) => each.toExponential(1)).join(' '));
      t.deepEqual(all.peaks.counted, all.peaks.predicted);
      // Thirds of what a collective sends are rounded when they are predicted.
      const { counted, predicted } = all.sent;
      if (degrees.sp !== 3 && dispatch === 'variable')
        for (const [stage, bytes] of counted.entries()) t.true(bytes <= (predicted[stage] ?? 0));
      else if (degrees.sp !== 3) t.deepEqual(counted, predicted);
      t.true(Math.max(...worst) <= TOLERANCE);
      // Six pieces do not divide the positions.
      if (model === 'documents' && degrees.spMethod === 'ring')
        t.is(all.plan.sequence?.order, degrees.sp === 3 ? 'contiguous' : 'zigzag');
    },
  );
}
