/**
 * @file Micro-batches in two interleaved halves: bit for bit what twice as many micro-batches give, and one rank's losses and state
 * within rounding; as many bytes and the peak that are predicted; and instructions of one half while a collective of the other is
 * under way.
 */
import test from 'ava';
import type { Instruction } from '../../src/program/program.js';
import { EVERYTHING } from '../selection.js';
import { type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { worstDifference } from './difference.js';
import { checkRecompute } from './recomputing.js';
import { checkRanks, SERVED } from './server-mode.js';

const STEPS = EVERYTHING ? 20 : 3;

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

for (const [task, pipeline] of EVERYTHING
  ? CASES
  : [CASES[0], CASES[1], CASES[3], CASES[7], CASES[8]].flatMap((own) => (own ? [own] : [])))
  test.serial(`${task.model}, ${task.microBatches} micro-batches, ${JSON.stringify(pipeline)}`, async (t) => {
    const { request, ...others } = pipeline;
    const halves = await train(task, STEPS, { ...others, request: { ...request, interleave: 2 } });
    t.is(halves.plan.schedule.interleave, 2);
    t.is(halves.plan.schedule.microBatches, 2 * task.microBatches);
    t.deepEqual(halves.peaks.counted, halves.peaks.predicted);
    t.deepEqual(halves.sent.counted, halves.sent.predicted);
    if (halves.plan.server) checkRanks(t, halves);
    t.true(isInterleaved(halves));
    const twice = await train({ ...task, microBatches: 2 * task.microBatches }, STEPS, pipeline);
    t.deepEqual(halves.losses, twice.losses);
    t.deepEqual(halves.state, twice.state);
    t.deepEqual(halves.sentByRank, twice.sentByRank);
    const alone = await train({ ...task, microBatches: 1 }, STEPS);
    t.true(worstDifference(alone, halves) < 1e-5);
  });

test.serial('both halves of the last micro-batch keep what the others recompute', async (t) => {
  const task = { model: 'gpt', microBatches: 2 } as const;
  const pipeline = { kind: 'f-then-b', stages: 2, tp: 2, request: { interleave: 2 } } as const;
  const kinds = EVERYTHING ? ['full:except-last', 'stage:except-last'] : ['full:except-last'];
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

/** Whether each collective within a micro-batch but those of the last turn waits behind something that the other half computes. */
function isInterleaved({ program }: Trained): boolean {
  const lists = program.stages.flatMap(({ phases }) => Object.values(phases));
  const hidden = lists.flatMap((list) => list.filter((each, index) => isHidden(list, each, index)));
  return hidden.some(({ half }) => half === 1) && hidden.some(({ half }) => half === undefined);
}

function isHidden(list: readonly Instruction[], start: Instruction, from: number): boolean {
  if (start.kind !== 'start') return false;
  const to = list.findIndex((each) => each.kind === 'wait' && each.id === start.id);
  return list.slice(from, to).some(({ kind, half }) => kind === 'compute' && half !== start.half);
}
