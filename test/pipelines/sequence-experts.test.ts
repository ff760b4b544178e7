/**
 * @file Sequence and expert parallelism train as one rank does: losses, every gradient, weights and momentum; the counted peak of
 * memory is the predicted one.
 */
import test from 'ava';
import { EVERYTHING } from '../selection.js';
import { alone, type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;

/** More of them, of models and of degrees in sequence-experts.slow.ts. */
const STEPS = 3;

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'windows', microBatches: 1 },
    { stages: 1, sp: 2, spMethod: 'ring' },
  ],
  [
    { model: 'moe', microBatches: 1 },
    { stages: 1, dp: 2, sp: 2, ep: 4 },
  ],
  [
    { model: 'gpt', microBatches: 1 },
    { stages: 1, sp: 2, spMethod: 'gather' },
  ],
  [
    { model: 'llama', microBatches: 1 },
    { stages: 1, sp: 4, spMethod: 'ulysses' },
  ],
  [
    { model: 'llama', microBatches: 1 },
    { stages: 1, sp: 4, spMethod: 'ring' },
  ],
  [
    {
      model: 'unrolled-experts',
      microBatches: 2,
      training: { loss: { kind: 'mse', moeBalance: 0.5 } },
      sent: { dispatch: 'padded', capacityFactor: 1 },
    },
    { stages: 1, dp: 2, tp: 2, ep: 2 },
  ],
];

for (const [task, pipeline] of EVERYTHING ? CASES : CASES.slice(0, 2)) {
  test.serial(`${task.model} ${JSON.stringify(pipeline)}`, async (t) => {
    const [one, all] = [await alone(task, STEPS), await train(task, STEPS, pipeline)];
    const worst = [worstDifference(one.first, all.first), difference(one.losses, all.losses)];
    t.log(worst.map((each) => each.toExponential(1)).join(' '));
    t.true(Math.max(...worst) <= TOLERANCE);
    t.deepEqual(all.peaks.counted, all.peaks.predicted);
    t.deepEqual(all.sent.counted, all.sent.predicted);
    if (pipeline.spMethod === 'ring') t.is(all.plan.sequence?.order, 'zigzag');
    if (task.model === 'llama' && pipeline.spMethod === 'ring') {
      t.deepEqual(sendsOfRing(all), RING_SENDS);
      const sends = RING_SENDS.forward + RING_SENDS.backward;
      t.deepEqual(all.permutesByRank, [sends, sends, sends, sends]);
    }
  });
}

/** Sends of four layers on four ranks: keys and values in forward; those and their gradients in backward. */
const RING_SENDS = { forward: 4 * 3 * 2, backward: 4 * 3 * 4 };

function sendsOfRing({ lowered }: Trained): Readonly<Record<'forward' | 'backward', number>> {
  const sends = lowered.flatMap(({ sharded }) =>
    sharded.nodes.flatMap((node) => (node.kind === 'communicate' && node.collective.kind === 'permute' ? [node] : [])),
  );
  const forward = sends.filter(({ phase }) => phase === 'forward').length;
  return { forward, backward: sends.length - forward };
}
