/**
 * @file Images cut in space train as one rank does: losses over 20 steps, every gradient, weights, momentum and running statistics;
 * counted bytes and the counted peak are the predicted ones, and borders are exchanged.
 */
import test from 'ava';
import { type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;

const DEGREES: readonly Pipeline[] = [
  { stages: 1, sp: 2 },
  { stages: 1, sp: 4 },
  { stages: 1, dp: 2, sp: 2 },
  { stages: 1, sp: 2, tp: 2 },
];

const TASKS: readonly Task[] = [
  { model: 'resnet', microBatches: 1 },
  { model: 'u-net', microBatches: 1 },
];

for (const task of TASKS) {
  const alone = (() => {
    let known: Promise<readonly [Trained, Trained]> | undefined;
    return () => (known ??= Promise.all([train(task, 1), train(task, 20)]));
  })();
  for (const degrees of DEGREES)
    test.serial(`${task.model} ${JSON.stringify(degrees)}`, async (t) => {
      const [one, twenty] = await alone();
      const first = await train(task, 1, degrees);
      const all = await train(task, 20, degrees);
      const worst = [worstDifference(one, first), difference(twenty.losses, all.losses)];
      const exchanged = all.lowered.flatMap(({ sharded }) =>
        sharded.nodes.filter((node) => node.kind === 'communicate' && node.collective.kind === 'permute'),
      );
      t.log(`${worst.map((each) => each.toExponential(1)).join(' ')}, ${exchanged.length} exchanges of borders`);
      t.true(Math.max(...worst) <= TOLERANCE);
      t.true(exchanged.length > 0);
      t.deepEqual(all.peaks.counted, all.peaks.predicted);
      t.deepEqual(all.sent.counted, all.sent.predicted);
    });
}
