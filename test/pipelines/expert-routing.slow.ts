/**
 * @file Gradients of experts and routers at every degree, however tokens are spread: even, and all to one expert, so that ranks have
 * none. Gradients are not clipped, so that a factor of ep or of micro-batches in all of them would be seen too.
 */
import test from 'ava';
import type { Dispatch } from '../../src/ir/experts/dispatch-experts.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { alone, type Task, train } from './compiled-training.js';
import { type Left, worstDifference } from './difference.js';

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

for (const model of MODELS)
  for (const capacityFactor of [null, 1.25])
    test.serial(`${model}, capacity ${capacityFactor ?? 'whole'}: gradients of one rank at every degree`, async (t) => {
      const taskOf = (microBatches: number, dispatch: Dispatch): Task => ({
        model,
        microBatches,
        training: {
          loss: { kind: 'mse', moeBalance: 0.5 },
          optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1 },
        },
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
