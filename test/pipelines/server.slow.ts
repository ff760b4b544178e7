/**
 * @file A parameter server beside every other parallelism, recompute, offload, precisions and optimizers.
 */
import test from 'ava';
import { thinned } from '../selection.js';
import { type Pipeline, type Task, train } from './compiled-training.js';
import { checkRanks, checkServer, SERVED } from './server-mode.js';

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'gpt', microBatches: 1 },
    { stages: 1, dp: 4 },
  ],
  [
    { model: 'llama', microBatches: 1 },
    { stages: 1, dp: 2, tp: 2 },
  ],
  [
    { model: 'gpt', microBatches: 4 },
    { kind: 'zero-bubble', stages: 2, dp: 2 },
  ],
  [
    { model: 'llama', microBatches: 4 },
    { kind: 'interleaved-1f1b', stages: 2, chunks: 2, dp: 2 },
  ],
  [
    { model: 'encoder-decoder', microBatches: 2 },
    { kind: '1f1b', stages: 2, dp: 2, tp: 2, recompute: 'full' },
  ],
  [
    { model: 'same-weight-twice', microBatches: 2 },
    { kind: '1f1b', stages: 2, dp: 2 },
  ],
  [
    { model: 'soft-experts', microBatches: 2 },
    { stages: 1, dp: 4, ep: 2 },
  ],
  [
    { model: 'soft-experts', microBatches: 2 },
    { kind: '1f1b', stages: 2, dp: 2, sp: 2, ep: 4 },
  ],
  [
    { model: 'gpt', microBatches: 2 },
    { stages: 1, dp: 2, sp: 2, spMethod: 'ulysses' },
  ],
  [
    { model: 'batch-norm', microBatches: 1 },
    { stages: 1, dp: 2 },
  ],
  [
    { model: 'lookup', microBatches: 2 },
    { stages: 1, dp: 2, tp: 2 },
  ],
  [
    {
      model: 'cnn',
      microBatches: 2,
      training: { optimizer: { kind: 'lamb', learningRate: 0.01, weightDecay: 0.1, clipNorm: 0.05 } },
    },
    { stages: 1, dp: 4 },
  ],
];

for (const [task, pipeline] of thinned(CASES, 3))
  test.serial(`${task.model} ${JSON.stringify(pipeline)}`, async (t) => {
    await checkServer(t, task, pipeline);
  });

for (const training of [
  { precision: 'fp16', lossScale: 'dynamic', optimizer: { kind: 'adam', learningRate: 0.01, clipNorm: 0.05 } },
  { precision: 'bf16', optimizer: { kind: 'sgd', learningRate: 0.1 } },
] as const)
  test.serial(`${training.precision} leaves what all-reduce leaves`, async (t) => {
    const task: Task = { model: 'gpt', microBatches: 2, training };
    for (const pipeline of [
      { dp: 2, tp: 2 },
      { kind: '1f1b', stages: 2, dp: 2 },
    ] as const) {
      const all = await train(task, 3, { ...pipeline, zero: 0 });
      const served = await train(task, 3, { ...pipeline, request: SERVED });
      t.deepEqual(served.losses, all.losses);
      checkRanks(t, served);
    }
  });

test.serial('what the server keeps leaves its device', async (t) => {
  const task: Task = { model: 'gpt', microBatches: 2, training: { optimizer: { kind: 'adam', learningRate: 0.01 } } };
  const plain = await train(task, 3, { dp: 2, request: SERVED });
  for (const offload of ['optimizer:host', 'optimizer:disk,gradients:host', 'parameters:host']) {
    const away = await train(task, 3, { dp: 2, request: SERVED }, { offload });
    t.deepEqual(away.losses, plain.losses);
    t.deepEqual(away.state, plain.state);
    checkRanks(t, away);
    if (offload.startsWith('optimizer')) t.true((away.peakByRank[0] ?? 0) < (plain.peakByRank[0] ?? 0));
  }
});
