/**
 * @file Pipelines train as one rank does: losses, weights and momentum after several steps with clipping active, under every
 * schedule, alone and with data and tensor parallelism; tied tables, skips over stages, labels on the last stage and several
 * chunks included.
 */
import test from 'ava';
import { EVERYTHING, slowTests } from '../selection.js';
import { type Pipeline, type Task, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';

const slow = slowTests(test.serial);

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;
const STEPS = 5;

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'mlp', microBatches: 4 },
    { kind: 'f-then-b', stages: 3, tp: 2 },
  ],
  [
    { model: 'same-weight-twice', microBatches: 2 },
    { kind: 'zero-bubble', stages: 2 },
  ],
  [
    { model: 'skips', microBatches: 4 },
    { kind: '1f1b', stages: 4 },
  ],
  [
    { model: 'encoder-decoder', microBatches: 4 },
    { kind: 'interleaved-1f1b', stages: 2, chunks: 2 },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { kind: 'zero-bubble', stages: 2, dp: 2 },
  ],
];

for (const [task, pipeline] of EVERYTHING ? CASES : CASES.slice(0, 2)) {
  test.serial(`${task.model} ${JSON.stringify(pipeline)}`, async (t) => {
    const alone = await train(task, STEPS);
    const staged = await train(task, STEPS, pipeline);
    t.is(staged.program.stages.length, pipeline.stages);
    t.log(`worst ${worstDifference(alone, staged).toExponential(1)}`);
    t.true(worstDifference(alone, staged) <= TOLERANCE);
  });
}

test.serial('a loss scale that follows the gradients is one of all stages', async (t) => {
  const task: Task = { model: 'mlp', microBatches: 2, training: { precision: 'fp16' } };
  const alone = await train(task, STEPS);
  const staged = await train(task, STEPS, { kind: '1f1b', stages: 2 });
  t.log(`worst ${worstDifference(alone, staged).toExponential(1)}`);
  t.true(worstDifference(alone, staged) <= TOLERANCE);
});

slow('AdamW, whose moments and scalars every stage keeps, loses as on one rank', async (t) => {
  const task: Task = {
    model: 'llama',
    microBatches: 2,
    training: { optimizer: { kind: 'adamw', learningRate: 1e-2, clipNorm: 0.5, schedule: { warmup: 3 } } },
  };
  const alone = await train(task, STEPS);
  const staged = await train(task, STEPS, { kind: '1f1b', stages: 3 });
  t.true(difference(alone.losses, staged.losses) <= TOLERANCE);
  t.true((alone.losses.at(-1) ?? Number.NaN) < (alone.losses[0] ?? Number.NaN));
});

slow('schedules of one plan give the same bits', async (t) => {
  const task: Task = { model: 'shared-layer', microBatches: 4 };
  const [first, ...others] = await Promise.all(
    (['naive', 'f-then-b', '1f1b', 'zero-bubble'] as const).map((kind) => train(task, STEPS, { kind, stages: 2 })),
  );
  for (const other of others) {
    t.deepEqual(other.losses, first?.losses);
    t.deepEqual(other.state, first?.state);
  }
});
