/**
 * @file Programs that recompute train as those that keep everything do, and hold less: a mesh for each kind here, all of them in
 * recompute.slow.ts.
 */
import test from 'ava';
import { checkRecompute, MESHES } from './recomputing.js';

const STEPS = 3;

test.serial('layers that keep their inputs alone, on two stages of two ranks', async (t) => {
  const task = { model: 'gpt', microBatches: 4 } as const;
  const [full] = await checkRecompute(t, task, { ...MESHES['f-then-b'], tp: 2 }, ['full'], STEPS);
  t.true(full?.freed.every((bytes) => bytes > 0));
});

test.serial('dropout draws the same bits again, in every micro-batch', async (t) => {
  const [full] = await checkRecompute(t, { model: 'dropout', microBatches: 2 }, MESHES['1f1b'], ['full'], STEPS);
  t.true((full?.freed[0] ?? 0) > 0);
});

test.serial('some layers of a class recompute, the others keep what they make', async (t) => {
  const [some] = await checkRecompute(t, { model: 'gpt', microBatches: 2 }, MESHES['dp 2'], ['full:2-3'], STEPS);
  t.deepEqual(
    some?.plan.layerClasses.map(({ recompute }) => recompute),
    [[false, true]],
  );
  t.deepEqual(some?.plan.requested, { recompute: 'full:2-3' });
});

test.serial('operators of a model without repeated layers', async (t) => {
  await checkRecompute(t, { model: 'recurrent', microBatches: 2 }, MESHES['dp 2'], ['operators'], STEPS);
});
