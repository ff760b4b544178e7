/**
 * @file Choices that the price of training steps must prefer, for the reason that people give: tensor parallelism inside a node
 * and pipelines across, ZeRO-1 under a pipeline, experts on ep, long sequences on sp.
 */
import test from 'ava';
import { type SimulateOptions, type Simulation, simulate } from '../../../src/api/simulate.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

function step(generate: string, cluster: string, globalBatch: number) {
  return (options: Partial<SimulateOptions>): Promise<Simulation> =>
    simulate({ generate, cluster, globalBatch, loss: { kind: 'cross_entropy' }, ...options });
}

test(
  'two nodes: eight-way tensor parallelism in each and a pipeline between them, not sixteen-way, nor the ' +
    'other way round',
  async (t) => {
    const price = step('gpt:layers=8,hidden=8192,heads=64,seq=2048', '2x8:a100-sxm-80', 64);
    const inside = await price({ tp: 8, pp: 2 });
    const sixteen = await price({ tp: 16 });
    const swapped = await price({ tp: 8, pp: 2, meshOrder: ['dp', 'sp', 'tp', 'pp'] });
    t.true(inside.stepSeconds < 0.85 * sixteen.stepSeconds);
    t.true(inside.stepSeconds < 0.9 * swapped.stepSeconds);
    // The reason: the same bytes of tp, over the network.
    t.is(swapped.bytes.tp, inside.bytes.tp);
    t.true(swapped.parts.tp > 2 * inside.parts.tp);
  },
);

test(
  'under a pipeline ZeRO-1 is preferred: 2 scatters gradients after every micro-batch, 3 gathers ' +
    'parameters besides',
  async (t) => {
    const price = step('gpt:layers=8,hidden=5120,heads=40,seq=2048', '4x8:a100-sxm-80', 128);
    const [none, one, two, three] = await Promise.all(
      ([0, 1, 2, 3] as const).map((zero) => price({ pp: 4, tp: 2, zero })),
    );
    if (!none || !one || !two || !three) return t.fail();
    t.true(one.stepSeconds <= none.stepSeconds);
    t.true(one.stepSeconds < two.stepSeconds && two.stepSeconds < three.stepSeconds);
    const m = one.microBatches;
    t.is(m, 32);
    // A scatter of fp32 gradients and a gather of 16-bit parameters per step; then a scatter of each micro-batch's gradients.
    t.is(one.bytes.dp / none.bytes.dp, (4 + 2) / (2 * 4));
    t.true(Math.abs(two.bytes.dp / one.bytes.dp - (4 * m + 2) / 6) < 1e-9);
    t.true(Math.abs(three.bytes.dp / one.bytes.dp - ((2 * 2 + 4) * m) / 6) < 1e-9);
    // With one micro-batch there is nothing to choose between 1 and 2.
    const single = step('gpt:layers=8,hidden=2048,heads=16', '1x8:a100-sxm-80', 8);
    const [alone, both] = [await single({ zero: 1 }), await single({ zero: 2 })];
    t.is(alone.microBatches, 1);
    t.is(alone.stepSeconds, both.stepSeconds);
  },
);

slow('a mixture of experts goes onto ep: it fits where dp and tp do not, and takes less time', async (t) => {
  const price = step('moe:layers=16,hidden=2048,heads=16,ffn=1408,experts=64,topk=6', '1x8:h100-sxm-80', 64);
  const [experts, data, tensor] = [await price({ ep: 8 }), await price({}), await price({ tp: 8, microBatch: 8 })];
  t.true(experts.fits && !data.fits && !tensor.fits);
  t.true(experts.stepSeconds < data.stepSeconds && experts.stepSeconds < tensor.stepSeconds);
  // A dense model has no experts to share out.
  const dense = step('llama:layers=4,hidden=2048,heads=16', '1x8:h100-sxm-80', 64);
  await t.throwsAsync(dense({ ep: 8 }), { code: 'degree-does-not-fit' });
  // FLOPs of the model do not depend on how it is spread, but for the router's, which every rank of tp does.
  t.true(Math.abs(tensor.modelFlops / experts.modelFlops - 1) < 0.02);
});

slow('a sequence of 131,072 goes onto sp: data parallelism cannot cut it, tensor parallelism sends more', async (t) => {
  const model = 'llama:layers=32,kv_heads=8,ffn=14336,vocab=128256,seq=131072';
  const price = step(model, '1x8:h100-sxm-80', 8);
  const saving = { recompute: 'full', zero: 3 } as const;
  const [data, tensor, sequence] = [
    await price(saving),
    await price({ ...saving, tp: 8 }),
    await price({ ...saving, sp: 8 }),
  ];
  t.true(!data.fits && tensor.fits && sequence.fits);
  t.true(sequence.stepSeconds < 0.95 * tensor.stepSeconds);
  t.true(sequence.parts.sp < tensor.parts.tp / 4);
  // On short sequences sp saves no less, and costs more than data parallelism.
  const short = step(model.replace('131072', '4096'), '1x8:h100-sxm-80', 16);
  t.true((await short({ zero: 3 })).stepSeconds < (await short({ zero: 3, sp: 8 })).stepSeconds);
});
