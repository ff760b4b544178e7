/**
 * @file The work read off a layer's sharded graph against what is published of transformer layers: FLOPs (Narayanan et al. 2021),
 * kept activations (Korthikanti et al. 2022), collectives (Shoeybi et al. 2019).
 */
import test from 'ava';
import { modelWork } from '../../../src/api/planning/step-works.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { attentionSeconds } from '../../../src/cost-model/kernel-price.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { flopsOf } from '../../../src/cost-model/step/model-flops.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import type { PartWork, StepWork } from '../../../src/cost-model/step/work.js';
import { seenShare } from '../../../src/partition/kernels.js';
import { gptSizes } from './sizes.js';
import { trained } from './trained.js';

const cluster = parseCluster('1x8:a100-sxm-80', undefined);

async function layer(sizes: Parameters<typeof gptSizes>[0], tp: number): Promise<PartWork> {
  const [found] = (await modelWork(gptSizes(sizes), tp, cluster)).layers;
  if (!found) throw new Error('a model without layers');
  return found.part;
}

const flops = (works: readonly StepWork[]) => works.reduce((sum, work) => sum + flopsOf(work), 0);

test('a layer has 24 b s h² (1 + s / 6h) FLOPs forward and twice that backward, shared out by tp', async (t) => {
  const [b, s, h] = [2, 1024, 1024];
  for (const tp of [1, 2, 4]) {
    const { forward, backward } = await layer({ batch: b, sequence: s, hidden: h, heads: 16 }, tp);
    const expected = (24 * b * s * h * h * (1 + s / (6 * h))) / tp;
    t.is(flops(forward), expected);
    t.is(flops(backward), 2 * expected);
  }
});

test('a layer with dropout keeps s b h (10 + 24 / t + 5 a s / h t) bytes from forward to backward', async (t) => {
  for (const [h, a, s, b] of [
    [1024, 16, 1024, 2],
    [2048, 16, 512, 4],
  ] as const) {
    for (const tp of [1, 2]) {
      const { saved, savedMasks } = await layer({ batch: b, sequence: s, hidden: h, heads: a, dropout: 0.1 }, tp);
      t.is(2 * saved + savedMasks, s * b * h * (10 + 24 / tp + (5 * a * s) / h / tp));
    }
  }
});

test('with sequence parallelism and selective recompute a stage keeps 32 s b h / t a layer, and dropout 2 more', async (t) => {
  const sizes = gptSizes({ hidden: 1024, heads: 16, sequence: 512 });
  const work = await modelWork(sizes, 4, cluster);
  const configuration = {
    ...trained({ tp: 4 }),
    tpSequence: true,
    recompute: 'selective' as const,
    attention: 'parts' as const,
  };
  const perLayer = (32 * 512 * 1024) / 4;
  const [stage] = stageMemory({ ...work, first: { ...work.first, saved: 0, savedRepeated: 0 } }, configuration);
  t.is(stage?.activations, 2 * perLayer);
});

test('checkpoints by operator keep the input, every second product and attention: 13 s b h bytes', async (t) => {
  const work = await modelWork(gptSizes({ hidden: 1024, heads: 16, sequence: 512 }), 1, cluster);
  const configuration = { ...trained({}), recompute: 'operators' as const };
  const [stage] = stageMemory({ ...work, first: { ...work.first, saved: 0, savedRepeated: 0 } }, configuration);
  // Results of h · (3 + 1 + 4 + 1) columns, half of them kept; attention's h; the input's h.
  t.is(stage?.activations, 2 * 13 * 512 * 1024);
});

test('a plain loss over a vocabulary takes 14 bytes a logit, 19 in eager software', async (t) => {
  const sizes = gptSizes({ layers: 2, hidden: 64, heads: 1, sequence: 512, vocabulary: 51200 });
  const work = await modelWork(sizes, 1, cluster);
  for (const [software, bytes] of [
    ['compiled', 14],
    ['eager', 19],
  ] as const) {
    const [stage] = stageMemory(work, { ...trained({}), loss: 'plain', software });
    t.is(stage?.temporaries, bytes * 512 * 51200);
  }
});

test("tensor parallelism costs Megatron's two all-reduces forward and two backward", async (t) => {
  for (const sizes of [
    { hidden: 512, heads: 8, sequence: 256 },
    // The gradient of what the shared expert reads is summed with those of the router and the others, which every rank has whole.
    {
      hidden: 512,
      heads: 8,
      sequence: 256,
      gated: true,
      bias: false,
      experts: { count: 4, chosen: 2, feedForward: 256, shared: 256, dense: 0 },
    },
    {
      hidden: 512,
      heads: 8,
      keyHeads: 4,
      sequence: 256,
      norm: 'rms',
      positions: 'rotary',
      gated: true,
      bias: false,
    } as const,
  ]) {
    const { forward, backward } = await layer(sizes, 2);
    for (const works of [forward, backward]) {
      const exchanges = works.filter(({ kind }) => kind === 'exchange');
      t.is(exchanges.length, 2);
      for (const exchange of exchanges)
        t.like(exchange, { collective: 'all-reduce', elements: 512 * 256, activation: true });
    }
    t.is((await layer(sizes, 1)).forward.filter(({ kind }) => kind === 'exchange').length, 0);
  }
});

test('experts share out their tokens: as many FLOPs as a feed-forward block of topk times the width', async (t) => {
  const sizes = { hidden: 512, heads: 8, sequence: 512, bias: false, gated: true };
  const sparse = await layer({ ...sizes, experts: { count: 16, chosen: 2, feedForward: 256, shared: 0, dense: 0 } }, 1);
  const dense = await layer({ ...sizes, feedForward: 512 }, 1);
  const router = 2 * 512 * 512 * 16;
  t.is(flops(sparse.forward) - router, flops(dense.forward));
  t.is(sparse.expertParameters, 16 * 3 * 512 * 256);
});

test('attention in a window looks at the pairs that lie in it, and is never priced above the whole triangle', (t) => {
  const device = parseCluster('1x1:h100-sxm-80', undefined).device;
  const shape = {
    kind: 'attention',
    backward: false,
    batch: 1,
    heads: 8,
    keyHeads: 8,
    width: 64,
    valueWidth: 64,
  } as const;
  for (const [keys, window] of [
    [64, 8],
    [100, 37],
    [512, 512],
    [512, 2048],
  ] as const) {
    for (const queries of [1, 16, keys / 2, keys]) {
      let pairs = 0;
      for (let query = keys - queries; query < keys; query++) pairs += Math.min(query + 1, window);
      // But for half of the diagonal, which the half of a causal mask leaves out too.
      const share = seenShare({ queries, keys, causal: true, window });
      t.true(Math.abs(share - pairs / (queries * keys)) < 1 / keys, `${queries} of ${keys} ${window}`);
      // The first keys are seen by as many queries as the last queries see keys.
      t.is(seenShare({ queries: keys, keys: queries, causal: true, window }), share);
    }
    const work = { ...shape, queries: keys, keys, causal: true };
    const seconds = (also: object) =>
      attentionSeconds({ ...work, ...also }, device, { attention: 'fused', precision: 'bf16' }, STEP_CONSTANTS);
    t.true(seconds({ window }) <= seconds({}) * (1 + 1e-12));
    t.true(flopsOf({ ...work, window }) <= flopsOf(work));
  }
});
