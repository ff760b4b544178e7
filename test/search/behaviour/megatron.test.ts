/**
 * @file A transformer in training on tensor-parallel ranks: Megatron's columns and rows (Shoeybi et al. 2019), its sequence
 * parallelism (Korthikanti et al. 2022), its vocabulary over ranks, with no annotation.
 */
import test from 'ava';
import { onlyStage } from '../../../src/partition/lower-stages.js';
import { cutAlong, trainedPlan } from './trained-plan.js';

const ASKED = { cluster: '1x4:a100-sxm-80', batch: 4, dp: 1, tp: 4, axes: 'roles' } as const;

test(
  'GPT with a fused projection: columns inside each of query, key and value, then rows; the vocabulary ' + 'over ranks',
  async (t) => {
    const found = await trainedPlan('gpt:layers=2,hidden=2048,heads=16', ASKED);
    const along = (name: string) => cutAlong(found, name).join();
    for (const layer of ['/layers.0', '/layers.1']) {
      t.is(along(`${layer}/attention/qkv/MatMul`), 'n.1');
      t.deepEqual(found.assignment.strategies.get(`${layer}/attention/qkv/MatMul`)?.pieces, { n: [3, 2048] });
      t.is(along(`${layer}/attention/Attention`), 'h');
      t.is(along(`${layer}/attention/output/MatMul`), 'k');
      t.is(along(`${layer}/feed_forward/up/MatMul`), 'n');
      t.is(along(`${layer}/feed_forward/Gelu`), 'a2');
      t.is(along(`${layer}/feed_forward/down/MatMul`), 'k');
      // Norms along the sequence, neither whole nor along features.
      t.is(along(`${layer}/feed_forward_norm/LayerNormalization`), 'a1');
    }
    t.is(along('/embed/Gather'), 'v');
    t.is(along('/head/MatMul'), 'n');
    // Each layer gathers and scatters twice forward and twice backward; beside that only norms' gradients are reduced.
    const of = (pattern: RegExp) =>
      onlyStage(found.lowered).nodes.flatMap((node) =>
        node.kind === 'communicate' && pattern.test(node.origin) ? [node.collective.kind] : [],
      );
    const twice = ['all-gather', 'reduce-scatter', 'all-gather', 'reduce-scatter'];
    t.deepEqual(of(/^\/layers\.1\/(?!.*gradient)/), twice);
    t.deepEqual(of(/^\/layers\.1\/.*gradient/), twice);
    t.deepEqual(of(/^layers\.1\./), ['all-reduce', 'all-reduce', 'all-reduce', 'all-reduce']);
    t.deepEqual(of(/^layers\.1\..*norm\.(weight|bias)/).length, 4);
  },
);

test('Llama with grouped key heads: query, key, value, gate and up by columns, their partners by rows', async (t) => {
  const found = await trainedPlan('llama:layers=1,hidden=2048,heads=16,kv_heads=4,seq=1024', ASKED);
  const along = (name: string) => cutAlong(found, `/layers.0/${name}`).join();
  t.is(along('attention/query/MatMul'), 'n');
  // Two pieces each: keys and values, gate and up.
  for (const name of ['attention/key_value/MatMul', 'feed_forward/up/MatMul']) t.is(along(name), 'n.1', name);
  t.is(along('attention/output/MatMul'), 'k');
  t.is(along('feed_forward/down/MatMul'), 'k');
});
