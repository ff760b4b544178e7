/**
 * @file Gradients of experts and routers at every degree, however tokens are spread: even, and all to one expert, so that ranks
 * have none; and however experts are written. Gradients are not clipped, so that a factor of ep or of micro-batches in all of
 * them would be seen too.
 */
import test from 'ava';
import type { Dispatch } from '../../src/ir/experts/dispatches.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { thinned } from '../selection.js';
import { alone, type Pipeline, type Task, train } from './compiled-training.js';
import { type Left, worstDifference } from './difference.js';
import { pairwise } from './pairwise.js';

const TOLERANCE = 1e-5;

const MODELS = ['routed-experts', 'skewed-experts'] as const;

const PLANS: readonly (readonly [dp: number, ep: number, microBatches: number, dispatch: Dispatch])[] = [
  [2, 1, 1, 'padded'],
  [2, 2, 2, 'variable'],
  [4, 1, 2, 'variable'],
  [4, 2, 1, 'padded'],
  [4, 4, 2, 'padded'],
  [4, 4, 1, 'variable'],
];

/** Momentum of a first step is the gradient. */
function gradients({ state }: Left): readonly (readonly [string, readonly number[]])[] {
  return Object.entries(state).flatMap(([name, value]) =>
    name.endsWith('/momentum') ? [[name, numbersOf(value).map(Number)] as const] : [],
  );
}

function normOf(of: Left, pick: (name: string) => boolean = () => true): number {
  const all = gradients(of).filter(([name]) => pick(name));
  return Math.sqrt(all.flatMap(([, values]) => values).reduce((sum, value) => sum + value * value, 0));
}

const TRAINING: Task['training'] = {
  loss: { kind: 'mse', moeBalance: 0.5 },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1 },
};

const ROUTED = MODELS.flatMap((model) => [null, 1.25].map((capacityFactor) => ({ model, capacityFactor })));

for (const { model, capacityFactor } of thinned(ROUTED, 3))
  test.serial(`${model}, capacity ${capacityFactor ?? 'whole'}: gradients of one rank at every degree`, async (t) => {
    const taskOf = (microBatches: number, dispatch: Dispatch): Task => ({
      model,
      microBatches,
      training: TRAINING,
      sent: { dispatch, ...(capacityFactor === null ? {} : { capacityFactor }) },
    });
    const one = await alone(taskOf(1, 'padded'), 1);
    const isRouter = (name: string) => name.includes('router');
    // A router that is sure of its choice has no gradient.
    const picks = model === 'skewed-experts' ? [() => true] : [() => true, isRouter];
    t.true(picks.every((pick) => normOf(one, pick) > 1e-3));
    for (const [dp, ep, microBatches, dispatch] of PLANS) {
      const found = await train(taskOf(microBatches, dispatch), 1, { stages: 1, dp, ep });
      const name = `dp ${dp}, ep ${ep}, ${microBatches} micro-batches, ${dispatch}`;
      t.true(worstDifference(one, found) <= TOLERANCE, name);
      for (const pick of picks)
        t.true(Math.abs(normOf(found, pick) / normOf(one, pick) - 1) <= TOLERANCE, `${name}: norm`);
      for (const [stage, peak] of found.peaks.counted.entries())
        t.true(peak <= (found.peaks.predicted[stage] ?? 0), `${name}: ${peak} bytes`);
    }
  });

/** Written forms that sequence-experts.slow.ts has not. */
const FORMS = [
  ...(['quantised-experts', 'separate-experts', 'together-experts', 'gathered-experts', 'lookup-experts'] as const),
];

const BESIDE: Readonly<Record<string, Pipeline>> = {
  'ep 2': { stages: 1, dp: 2, ep: 2 },
  'ep 4': { stages: 1, dp: 4, ep: 4 },
  'sp 2, ep 4': { stages: 1, dp: 2, sp: 2, ep: 4 },
  'tp 2, ep 2': { stages: 1, dp: 2, tp: 2, ep: 2 },
  'pp 2, ep 2': { stages: 2, kind: '1f1b', dp: 2, ep: 2 },
};

const WRITTEN = FORMS.flatMap((model) =>
  Object.keys(BESIDE).flatMap((degrees) => [null, 'padded', 'variable'].map((sent) => ({ model, degrees, sent }))),
);

for (const { model, degrees, sent } of pairwise(WRITTEN))
  test.serial(
    `${model}, ${degrees}, ${sent ?? 'every token through every expert'}: gradients of one rank`,
    async (t) => {
      const dispatch = sent as Dispatch | null;
      const task: Task = { model, microBatches: 2, training: TRAINING, ...(dispatch ? { sent: { dispatch } } : {}) };
      const one = await alone({ model, microBatches: 1, training: TRAINING }, 1);
      const found = await train(task, 1, BESIDE[degrees]);
      t.true(worstDifference(one, found) <= TOLERANCE);
      t.true(normOf(one, (name) => name.includes('router')) > 1e-3);
    },
  );
