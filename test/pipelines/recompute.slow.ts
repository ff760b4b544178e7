/**
 * @file Recompute of a small GPT on every mesh and under every schedule: every second kind on each, in turn; and
 * every fourth pair of a mesh and another model, with one kind.
 */
import test from 'ava';
import { shortened, thinned } from '../selection.js';
import { checkRecompute, KINDS, MESHES } from './recomputing.js';

const STEPS = shortened(10);
const OTHERS = ['llama', 'dropout', 'encoder-decoder'] as const;

for (const [index, [name, mesh]] of Object.entries(MESHES).entries()) {
  test.serial(`gpt, ${name}`, async (t) => {
    const kinds = KINDS.filter((_, place) => (place + index) % 2 === 0);
    await checkRecompute(t, { model: 'gpt', microBatches: 4 }, mesh, kinds, STEPS);
  });
}

const PAIRS = Object.entries(MESHES).flatMap(([name, mesh], index) =>
  OTHERS.map((model, place) => ({ name, mesh, model, kind: KINDS[(index + place) % KINDS.length] ?? 'full' })),
);

for (const { name, mesh, model, kind } of thinned(PAIRS, 4))
  test.serial(`${model}, ${name}`, async (t) => {
    await checkRecompute(t, { model, microBatches: 4 }, mesh, [kind], STEPS);
  });

test.serial('two chunks a stage', async (t) => {
  const mesh = { stages: 2, chunks: 2, kind: 'interleaved-1f1b' } as const;
  await checkRecompute(t, { model: 'gpt', microBatches: 4 }, mesh, KINDS, STEPS);
});

test.serial('the last micro-batch keeps what the others recompute', async (t) => {
  const task = { model: 'gpt', microBatches: 4 } as const;
  const kinds = ['stage:except-last', 'full:except-last'];
  const all = await checkRecompute(t, task, MESHES['f-then-b'], kinds, STEPS);
  for (const { program, freed } of all) {
    t.true(freed.every((bytes) => bytes > 0));
    const runs = program.schedule.filter(({ stage, phase }) => stage === 0 && phase === 'backward (last)');
    t.deepEqual(
      runs.map(({ microBatch }) => microBatch),
      [3],
    );
  }
  // In one stage it is the fullest, and keeps what all would.
  const [alone] = await checkRecompute(t, task, { stages: 1, tp: 2 }, ['full:except-last'], STEPS);
  t.deepEqual(alone?.freed, [0]);
});

test.serial('dropout draws the same bits again, in every micro-batch', async (t) => {
  const kinds = ['stage:except-last', 'full', 'stage'];
  const all = await checkRecompute(t, { model: 'dropout', microBatches: 4 }, MESHES['f-then-b'], kinds, STEPS);
  t.true(all.every(({ freed }) => (freed[0] ?? 0) > 0));
});
