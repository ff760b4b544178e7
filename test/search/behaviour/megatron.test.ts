/**
 * @file A transformer in training on tensor-parallel ranks: Megatron's columns and rows (Shoeybi et al. 2019), its sequence
 * parallelism (Korthikanti et al. 2022), its vocabulary over ranks, with no annotation.
 */
import test from 'ava';
import { cutAlong, trainedPlan } from './trained-plan.js';

const ASKED = { cluster: '1x4:a100-sxm-80', batch: 4, dp: 1, tp: 4, axes: 'roles' } as const;

test('GPT with a fused projection: columns inside each of query, key and value, then rows; the vocabulary over ranks', async (t) => {
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
  const inside = found.sharded.nodes.flatMap((node) =>
    node.kind === 'communicate' && node.origin.startsWith('/layers.1/') && !node.origin.includes('gradient')
      ? [node.collective.kind]
      : [],
  );
  t.deepEqual(new Set(inside), new Set(['all-gather', 'reduce-scatter']));
});

test('Llama with grouped key heads: query, key, value, gate and up by columns, their partners by rows', async (t) => {
  const found = await trainedPlan('llama:layers=1,hidden=2048,heads=16,kv_heads=4,seq=1024', ASKED);
  const along = (name: string) => cutAlong(found, `/layers.0/${name}`).join();
  for (const name of found.assignment.strategies.keys())
    if (/\/(attention\/(query|key|value)|feed_forward\/(gate|up))\/MatMul$/.test(name))
      t.is(cutAlong(found, name).join(), 'n', name);
  t.is(along('attention/output/MatMul'), 'k');
  t.is(along('feed_forward/down/MatMul'), 'k');
});
