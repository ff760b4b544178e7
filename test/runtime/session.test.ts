/**
 * @file Sessions: steps on other inputs, state that is read and written between them, and ends that leave nothing.
 */
import { renameSync } from 'node:fs';
import { cp, rm } from 'node:fs/promises';
import test from 'ava';
import { readProgram } from '../../src/program/reader.js';
import { AutoparError } from '../../src/program/values.js';
import { openSession, startSession } from '../../src/runtime/session.js';
import { axis, float32, floats, programOf, stageOf, tensor, tinyMatmul, tinyModel, writeTiny } from './tiny-program.js';

const x = float32([1, -1, 2, 3, -4, 5, 6, 7], [2, 4]);
const zeros = float32([0, 0, 0, 0, 0, 0, 0, 0], [2, 4]);

/**
 * w := w + x over two ranks, each with half of w; the output y is w as it was, doubled. w begins with zeros that no file holds.
 */
async function tinyState(): Promise<string> {
  const half = () => tensor([4], [2], [['tp']]);
  const add = tinyModel(
    [{ op: 'Add', inputs: ['a', 'b'], outputs: ['c'] }],
    [
      { name: 'a', shape: [2] },
      { name: 'b', shape: [2] },
    ],
    [{ name: 'c', shape: [2] }],
  );
  const program = programOf({
    mesh: [axis('tp', 2)],
    inputs: [{ name: 'x', dtype: 'float32', shape: [4], stage: 0, tensor: 'x' }],
    outputs: [{ name: 'y', dtype: 'float32', shape: [4], stage: 0, tensor: 'y' }],
    state: [{ stage: 0, from: 'next', to: 'w' }],
    stages: [
      stageOf({
        tensors: { x: half(), y: half(), next: half(), w: tensor([4], [2], [['tp']], { lifetime: 'run' }) },
        segments: {
          add: {
            file: 'segments/add.onnx',
            inputs: ['a', 'b'],
            weights: [],
            outputs: ['c'],
            flops: 2,
            operators: ['Add'],
          },
        },
        weights: {
          w: { file: null, key: 'w', axes: ['tp'], dtype: 'float32', localShape: [2], zeroUnlessFirst: [] },
        },
        phases: {
          forward: [
            { kind: 'compute', segment: 'add', inputs: ['x', 'w'], weights: [], outputs: ['next'], label: 'next' },
            { kind: 'free', tensors: ['x'] },
            { kind: 'compute', segment: 'add', inputs: ['w', 'w'], weights: [], outputs: ['y'], label: 'double' },
            { kind: 'free', tensors: ['w'] },
          ],
        },
      }),
    ],
  });
  return writeTiny(program, { 'add.onnx': add });
}

test.serial('every step may have its own inputs; without any, those of the last are taken', async (t) => {
  const dir = await tinyMatmul();
  const session = await openSession(dir);
  const first = await session.step({ x });
  const none = await session.step({ x: zeros });
  const again = await session.step();
  const third = await session.step({ x });
  t.deepEqual(floats(none.outputs.y), [0, 0, 0, 0, 0, 0]);
  t.deepEqual(floats(again.outputs.y), floats(none.outputs.y));
  t.deepEqual(floats(third.outputs.y), floats(first.outputs.y));
  t.notDeepEqual(floats(first.outputs.y), floats(none.outputs.y));
  const some = await session.step(undefined, { outputs: ['offset'], collect: ['p'] });
  t.deepEqual([Object.keys(some.outputs), Object.keys(some.tensors)], [['offset'], ['p']]);
  await session.close();
  await rm(dir, { recursive: true });
});

test.serial('state is exchanged, read and written; its first zeros are in no file', async (t) => {
  const dir = await tinyState();
  const session = await openSession(dir);
  const given = float32([1, 2, 3, 4], [4]);
  t.deepEqual(floats((await session.read(['w'])).w), [0, 0, 0, 0]);
  for (let step = 0; step < 3; step++) {
    const { outputs, tensors } = await session.step({ x: given }, { collect: ['w', 'next'] });
    t.deepEqual(floats(outputs.y), [2 * step, 4 * step, 6 * step, 8 * step]);
    t.deepEqual(floats(tensors.w), [step, 2 * step, 3 * step, 4 * step], 'w as the step began with it');
    t.deepEqual(floats((await session.read(['w'])).w), floats(tensors.next));
  }
  await session.write({ w: float32([10, 20, 30, 40], [4]) });
  t.deepEqual(floats((await session.step()).outputs.y), [20, 40, 60, 80]);
  t.deepEqual(floats((await session.read(['w'])).w), [11, 22, 33, 44]);
  // Tensors of 8 bytes each: w, x and next at first; x is gone when y is there.
  t.is((await session.step()).ranks[0]?.peakBytes, 24);
  for (const [names, code] of [
    [['y'], 'unknown-tensor'],
    [['w', 'x'], 'unknown-tensor'],
  ] as const) {
    const error = await t.throwsAsync(() => session.read(names), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, code);
  }
  for (const wrong of [float32([1, 2], [2]), { ...given, dtype: 'int32' as const }]) {
    const error = await t.throwsAsync(() => session.write({ w: wrong }), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, 'wrong-input');
  }
  t.deepEqual(floats((await session.read(['w'])).w), [12, 24, 36, 48], 'a refused question ends nothing');
  await session.close();
  await rm(dir, { recursive: true });
});

test.serial('a wrong input is refused, and the session goes on', async (t) => {
  const dir = await tinyMatmul();
  const session = await openSession(dir);
  for (const inputs of [undefined, {}, { x: float32([1], [1]) }, { x, z: x }])
    await t.throwsAsync(() => session.step(inputs), { instanceOf: AutoparError });
  t.is((await session.step({ x })).ranks.length, 2);
  await session.close();
  await rm(dir, { recursive: true });
});

test.serial('two sessions of one folder know nothing of each other', async (t) => {
  const dir = await tinyState();
  const [one, other] = await Promise.all([openSession(dir), openSession(dir)]);
  const inputs = { x: float32([1, 1, 1, 1], [4]) };
  await Promise.all([one.step(inputs), other.step(inputs).then(() => other.step(inputs))]);
  t.deepEqual(floats((await one.read(['w'])).w), [1, 1, 1, 1]);
  t.deepEqual(floats((await other.read(['w'])).w), [2, 2, 2, 2]);
  await Promise.all([one.close(), other.close()]);
  await rm(dir, { recursive: true });
});

test.serial('closed, interrupted and failed sessions have no ranks left, and say so when they are asked', async (t) => {
  const dir = await tinyMatmul();
  const before = resources();
  const closed = await openSession(dir);
  await closed.step({ x });
  await closed.close();
  await closed.close();
  const controller = new AbortController();
  const interrupted = await openSession(dir, { signal: controller.signal });
  controller.abort();
  const failed = await openSession(dir, { fault: { rank: 1, instruction: 6, kind: 'exit' } });
  await failed.step({ x });
  const first = await t.throwsAsync(() => failed.step(), { instanceOf: AutoparError });
  t.regex(first?.message ?? '', /rank 1 failed at instruction 1 .*tensor y/);
  for (const [session, code] of [
    [closed, 'session-closed'],
    [interrupted, 'interrupted'],
    [failed, 'rank-failed'],
  ] as const) {
    const error = await t.throwsAsync(() => session.step({ x }), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, code);
    await session.close();
  }
  const meanwhile = await openSession(dir, { fault: { rank: 0, instruction: 1, kind: 'stall' } });
  const stuck = t.throwsAsync(() => meanwhile.step({ x }), { instanceOf: AutoparError });
  await meanwhile.close();
  t.is(((await stuck) as AutoparError).code, 'session-closed');
  t.deepEqual(resources(), before);
  await rm(dir, { recursive: true });
});

/** Threads and lines to them that keep this process. */
function resources(): readonly string[] {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'Worker' || kind === 'MessagePort');
}

test('an error of a callback while ranks load ends them and is the answer', async (t) => {
  const dir = await tinyState();
  const onLoaded = () => {
    throw new Error('mine');
  };
  await t.throwsAsync(openSession(dir, { onLoaded }), { message: 'mine' });
  await rm(dir, { recursive: true });
});

test('a program whose folder is replaced while it is loaded is refused, and says to run again', async (t) => {
  const refusal = { instanceOf: AutoparError, code: 'folder-replaced' };
  const [state, matmul] = [await tinyState(), await tinyMatmul()];
  // By another program, before its files are read: they are of that one.
  await t.throwsAsync(startSession(await readProgram(matmul), state, {}), refusal);
  // By the same one, perhaps with other weights, when a rank has loaded and another has not.
  const [copy, aside] = [`${state}-copy`, `${state}-aside`];
  await cp(state, copy, { recursive: true });
  const onLoaded = (rank: number) => {
    if (rank !== 0) return;
    renameSync(state, aside);
    renameSync(copy, state);
  };
  await t.throwsAsync(openSession(state, { onLoaded }), refusal);
  await Promise.all([state, aside, matmul].map((folder) => rm(folder, { recursive: true })));
});
