/** @file Micro-batches in two interleaved halves beside everything else that a plan may hold (interleaved.ts). */
import test from 'ava';
import { thinned } from '../selection.js';
import type { Pipeline, Task } from './compiled-training.js';
import { checkInterleaved, isInterleaved } from './interleaved.js';
import { checkRecompute } from './recomputing.js';
import { SERVED } from './server-mode.js';

/** Bit for bit what twice as many micro-batches give, which few steps show; those run 20 against one rank in compiled.slow.ts. */
const STEPS = 3;

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'mlp', microBatches: 1 },
    { stages: 1, tp: 2 },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { stages: 1, dp: 2, tp: 2, zero: 2, request: { bucket: 5000 } },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { stages: 1, dp: 2, tp: 2, zero: 3, recompute: 'full' },
  ],
  [
    { model: 'llama', microBatches: 2 },
    { kind: '1f1b', stages: 2, tp: 2 },
  ],
  [
    { model: 'llama', microBatches: 4 },
    { kind: 'interleaved-1f1b', stages: 2, chunks: 2, tp: 2 },
  ],
  [
    { model: 'encoder-decoder', microBatches: 4 },
    { kind: 'zero-bubble', stages: 2, dp: 1, tp: 2, recompute: 'selective' },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { kind: '1f1b', stages: 2, sp: 2, spMethod: 'ulysses', request: { offload: 'activations:host' } },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { stages: 1, dp: 2, tp: 2, zero: 3, request: { bucket: 20_000 } },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { kind: '1f1b', stages: 2, dp: 2, tp: 2, request: { ...SERVED, bucket: 5000 } },
  ],
];

for (const [task, pipeline] of thinned(CASES, 3))
  test.serial(`${task.model}, ${task.microBatches} micro-batches, ${JSON.stringify(pipeline)}`, (t) =>
    checkInterleaved(t, task, pipeline, STEPS),
  );

test.serial('both halves of the last micro-batch keep what the others recompute', async (t) => {
  const task = { model: 'gpt', microBatches: 2 } as const;
  const pipeline = { kind: 'f-then-b', stages: 2, tp: 2, request: { interleave: 2 } } as const;
  const kinds = ['full:except-last', 'stage:except-last'];
  for (const [index, halves] of (await checkRecompute(t, task, pipeline, kinds, STEPS)).entries()) {
    t.deepEqual(halves.sent.counted, halves.sent.predicted);
    // Whole stages take more than they free where micro-batches are few.
    if (index === 0) t.true(halves.freed.every((bytes) => bytes > 0));
    for (const phase of ['backward', 'backward (last)'])
      t.deepEqual(
        halves.program.schedule.filter((own) => own.stage === 0 && own.phase === phase).map((own) => own.microBatch),
        [phase === 'backward' ? 0 : 2],
      );
    t.true(isInterleaved(halves));
  }
  // In one stage it is the fullest, and keeps what all would.
  const one = { stages: 1, tp: 2, request: { interleave: 2 } } as const;
  const [alone] = await checkRecompute(t, task, one, ['full:except-last'], STEPS);
  t.deepEqual(alone?.freed, [0]);
  const [only] = await checkRecompute(t, { ...task, microBatches: 1 }, one, ['full:except-last'], 1);
  t.deepEqual(
    only?.program.schedule.map(({ phase }) => phase),
    ['micro', 'step'],
  );
});
