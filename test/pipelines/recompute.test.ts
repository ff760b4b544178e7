/**
 * @file Programs that recompute train as those that keep everything do, and hold less: a mesh for each kind here, all of them in
 * recompute.slow.ts.
 */
import test from 'ava';
import type { ProgramStage } from '../../src/program/program.js';
import { slowTests } from '../selection.js';
import { train } from './compiled-training.js';
import { checkRecompute, MESHES } from './recomputing.js';

const slow = slowTests(test.serial);

const STEPS = 3;

/** Tensors that forward lists make and backward lists read. */
function keptForBackward({ phases, tensors }: ProgramStage): readonly string[] {
  const lists = (isForward: boolean) =>
    Object.entries(phases).flatMap(([phase, list]) => (phase.startsWith('forward') === isForward ? list : []));
  const read = new Set(lists(false).flatMap((own) => (own.kind === 'compute' ? own.inputs : [])));
  const made = lists(true).flatMap((own) =>
    own.kind === 'compute' ? own.outputs : own.kind === 'start' ? [own.output] : [],
  );
  return made.filter((name) => read.has(name) && tensors[name]?.lifetime === 'micro').sort();
}

slow('less memory than a plan needs that keeps everything is enough for one that recomputes', async (t) => {
  const task = { model: 'gpt', microBatches: 4 } as const;
  const mesh = { stages: 1, tp: 2 };
  const kept = await train(task, 1, mesh);
  const again = await train(task, 1, { ...mesh, recompute: 'full' });
  const [most = 0, least = 0] = [...kept.peaks.predicted, ...again.peaks.predicted];
  t.true(least < most);
  const memory = Math.ceil((least + most) / 2);
  const within = await train(task, 1, { ...mesh, recompute: 'full', memory });
  t.true((within.peaks.counted[0] ?? Number.POSITIVE_INFINITY) <= memory);
  t.deepEqual(within.peaks.counted, within.peaks.predicted);
});

slow('layers that keep their inputs alone, on two stages of two ranks', async (t) => {
  const task = { model: 'gpt', microBatches: 4 } as const;
  const [full] = await checkRecompute(t, task, { ...MESHES['f-then-b'], tp: 2 }, ['full'], STEPS);
  t.true(full?.freed.every((bytes) => bytes > 0));
  // For each micro-batch in flight the first stage, which has two layers, stores the input of each.
  t.deepEqual(keptForBackward(full?.program.stages[0] as ProgramStage), ['/Add_output', '/h.0/mlp/Add_output']);
});

slow('stages that keep their inputs alone hold one micro-batch and the inputs of the others', async (t) => {
  const task = { model: 'gpt', microBatches: 8 } as const;
  const mesh = { stages: 2, recompute: 'stage' } as const;
  const all = await train(task, 1, { ...mesh, kind: 'f-then-b' });
  const one = await train(task, 1, { ...mesh, kind: 'naive' });
  for (const { peaks } of [all, one]) t.deepEqual(peaks.counted, peaks.predicted);
  t.deepEqual(keptForBackward(all.program.stages[0] as ProgramStage), []);
  // Token ids enter the first stage; the activations of 2 samples of 8 tokens, and targets, the second.
  const inputs = [2 * 8 * 8, 2 * 8 * 16 * 4 + 2 * 8 * 32 * 4];
  // At the fullest moment the first micro-batch is through, whose gradients are summed, and the second runs.
  const waiting = task.microBatches - 2;
  t.deepEqual(
    all.peaks.counted.map((bytes, stage) => bytes - (one.peaks.counted[stage] ?? 0)),
    inputs.map((bytes) => waiting * bytes),
  );
});

test('some layers of a class recompute, the others keep what they make', async (t) => {
  const [some] = await checkRecompute(t, { model: 'gpt', microBatches: 2 }, MESHES['dp 2'], ['full:2-3'], STEPS);
  t.deepEqual(
    some?.plan.layerClasses.map(({ recompute }) => recompute),
    [[false, false, true, true]],
  );
  t.deepEqual(some?.plan.requested, { recompute: 'full:2-3' });
});

test.serial('operators of a model without repeated layers', async (t) => {
  await checkRecompute(t, { model: 'recurrent', microBatches: 2 }, MESHES['dp 2'], ['operators'], STEPS);
});

slow('where the last micro-batch has lists of its own, each collective has a number of its own', async (t) => {
  const { program } = await train({ model: 'gpt', microBatches: 2 }, 1, {
    ...{ stages: 1, dp: 2, tp: 2, recompute: 'full:except-last' },
    request: { gradientSync: 'parameter-server' },
  });
  const lists = Object.values(program.stages[0]?.phases ?? {});
  const begun = lists.flat().flatMap((one) => (one.kind === 'start' ? [one.id] : []));
  t.true(begun.length > 0);
  t.is(new Set(begun).size, begun.length);
});
