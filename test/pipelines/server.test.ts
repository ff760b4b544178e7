/**
 * @file With a parameter server ranks train as one rank does; the server alone holds the optimizer's state, and what passes
 * through it grows with the ranks that it serves.
 */
import test from 'ava';
import { elementCount } from '../../src/ir/graph.js';
import { EVERYTHING, slowTests } from '../selection.js';
import type { Pipeline, Task } from './compiled-training.js';
import { train } from './compiled-training.js';
import { checkRanks, checkServer, SERVED } from './server-mode.js';

const slow = slowTests(test.serial);

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'mlp', microBatches: 2 },
    { stages: 1, dp: 2, tp: 2 },
  ],
  [
    { model: 'shared-layer', microBatches: 4 },
    { kind: '1f1b', stages: 2, dp: 2, recompute: 'full' },
  ],
];

for (const [task, pipeline] of EVERYTHING ? CASES : CASES.slice(0, 1))
  test.serial(`${task.model} ${JSON.stringify(pipeline)}`, async (t) => {
    const { program } = await checkServer(t, task, pipeline);
    const state = new Set((program.state ?? []).map(({ to }) => to));
    const alone = program.stages.flatMap(({ tensors }) =>
      Object.entries(tensors).filter(([name, { first }]) => state.has(name) && first),
    );
    t.true(alone.length > 0);
  });

slow('without clipping the server and all-reduce leave the same bits', async (t) => {
  const task: Task = { model: 'gpt', microBatches: 2, training: { optimizer: { kind: 'adam', learningRate: 0.01 } } };
  const all = await train(task, 3, { dp: 2, zero: 0 });
  for (const request of [SERVED, { ...SERVED, bucket: 5000 }]) {
    const served = await train(task, 3, { dp: 2, request });
    t.deepEqual(served.losses, all.losses);
    t.deepEqual(served.state, all.state);
    checkRanks(t, served);
  }
});

slow('bytes and buffers of the server grow with its ranks, and other ranks hold no optimizer state', async (t) => {
  const task: Task = { model: 'gpt', microBatches: 2, training: { optimizer: { kind: 'adam', learningRate: 0.01 } } };
  const through: number[] = [];
  for (const dp of [2, 4]) {
    const { sentByRank, peakByRank, lowered } = await train(task, 1, { dp, request: SERVED });
    const [server = 0, ...others] = sentByRank;
    const losses = sentByRank.length - 1;
    t.is(new Set(others).size, 1);
    // The loss is all-reduced as without a server.
    const loss = (2 * losses * 4) / dp;
    t.is(server - loss, (dp - 1) * ((others[0] ?? 0) - loss));
    through.push(server - loss);
    const [{ sharded } = { sharded: undefined }] = lowered;
    const held = [...(sharded?.state ?? [])].flatMap(({ to }) => sharded?.tensors.get(to) ?? []);
    const alone = held.filter(({ first }) => first).reduce((sum, { shape }) => sum + 4 * elementCount(shape), 0);
    for (const peak of peakByRank.slice(1)) t.true((peakByRank[0] ?? 0) - peak >= alone, `${peakByRank} ${alone}`);
  }
  t.is((through[1] ?? 0) / (through[0] ?? 1), 3);
});
