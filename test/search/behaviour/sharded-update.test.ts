/**
 * @file Updates of weights over data-parallel ranks: large ones are shared out, as ZeRO's first stage has it (Rajbhandari et al.
 * 2020), found by cost alone; small ones where memory asks for it.
 */
import test from 'ava';
import { elementCount } from '../../../src/ir/graph.js';
import { onlyStage } from '../../../src/partition/lower-stages.js';
import type { PlanResult } from '../../../src/search/plan.js';
import { trainedPlan } from './trained-plan.js';

const ASKED = { cluster: '1x8:h100-sxm-80', batch: 64, dp: 8, tp: 1, axes: 'roles' } as const;

/** Share of the moments' elements that each of the eight ranks has for itself. */
function sharedOut({ lowered }: PlanResult): number {
  const sharded = onlyStage(lowered);
  const moments = sharded.state.filter(({ to }) => /\/(mean|square)$/.test(to));
  const held = moments.map(({ to }) => sharded.tensors.get(to));
  const sizeOf = (shape: readonly number[] = []) => elementCount(shape);
  const whole = held.reduce((sum, tensor) => sum + sizeOf(tensor?.shape), 0);
  const cut = held.filter((tensor) => sizeOf(tensor?.localShape) * 8 === sizeOf(tensor?.shape));
  return cut.reduce((sum, tensor) => sum + sizeOf(tensor?.shape), 0) / whole;
}

test('moments of large weights are shared out, gradients scattered, and new weights gathered', async (t) => {
  const found = await trainedPlan('mlp:layers=2,hidden=8192', ASKED);
  t.true(sharedOut(found) > 0.999);
  const kinds = onlyStage(found.lowered).nodes.flatMap((node) =>
    node.kind === 'communicate' ? [node.collective.kind] : [],
  );
  const count = (kind: string) => kinds.filter((item) => item === kind).length;
  // Two matrices; small tensors (biases, the loss) are reduced whole.
  t.is(count('reduce-scatter'), 2);
  t.is(count('all-gather'), 2);
  t.is(found.boundNanoseconds, found.costNanoseconds);
});

test('where weights are small every rank updates them whole, but where memory is short', async (t) => {
  const found = await trainedPlan('mlp:layers=1,hidden=1024', ASKED);
  t.is(sharedOut(found), 0);
  const short = Math.floor(0.75 * (found.prediction.peakBytes[0] ?? 0));
  const fitting = await trainedPlan('mlp:layers=1,hidden=1024', { ...ASKED, memory: short });
  t.true(sharedOut(fitting) > 0.4);
  t.true((fitting.prediction.peakBytes[0] ?? Infinity) <= short);
});
