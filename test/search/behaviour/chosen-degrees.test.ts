/**
 * @file Choices of the search over training steps where no option decides, for the reason that people give: experts on ep, a long
 * sequence on sp, ZeRO-1 under a pipeline. Rejected choices are searched by themselves.
 */
import test from 'ava';
import {
  prepareStep,
  type StepSearch,
  type StepSearchOptions,
  searchPrepared,
} from '../../../src/api/planning/search-step.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

type Asked = Omit<StepSearchOptions, 'loss'>;

/** Searches with each of some pins; the model's layers are read once. */
async function searchWith(asked: Asked, ...pins: readonly Partial<Asked>[]): Promise<readonly StepSearch[]> {
  const options = { ...asked, loss: { kind: 'cross_entropy' } } as const;
  const { read } = await prepareStep(options);
  return Promise.all(pins.map(async (pin) => searchPrepared(await prepareStep({ ...options, ...pin }, read))));
}

const chosen = ({ best }: StepSearch) => {
  const [first] = best;
  if (!first) throw new Error('a search that returns has a best configuration');
  return first.configuration;
};

const MOE = {
  generate: 'moe:layers=4,hidden=1024,heads=8,ffn=704,experts=16,topk=2,seq=1024',
  cluster: '1x4:h100-sxm-80',
  globalBatch: 16,
};

slow('a mixture of experts is put onto ep, and every choice without it takes half as long again', async (t) => {
  const [free, without] = await searchWith(MOE, {}, { ep: 1 });
  if (!free || !without) return t.fail();
  t.is(chosen(free).degrees.ep, 4);
  t.true(without.simulation.stepSeconds > 1.5 * free.simulation.stepSeconds);
  // The reason: a rank without ep runs all sixteen experts, with it four; and reduces the gradients of all.
  t.true(without.simulation.parts.launch > 3 * free.simulation.parts.launch);
  t.true(without.simulation.bytes.dp > 2 * free.simulation.bytes.dp);
});

const LONG = {
  generate: 'llama:layers=4,hidden=2048,heads=16,kv_heads=4,seq=65536',
  cluster: '1x4:h100-sxm-80',
  globalBatch: 1,
};

test('one long sequence is put onto sp: tensor parallelism sends activations, sp keys and values', async (t) => {
  const [free, without] = await searchWith(LONG, {}, { sp: 1 });
  if (!free || !without) return t.fail();
  t.deepEqual(chosen(free).degrees, { pp: 1, dp: 1, sp: 4, tp: 1, ep: 1 });
  t.is(chosen(without).degrees.tp, 4);
  t.true(without.simulation.stepSeconds > 1.1 * free.simulation.stepSeconds);
  t.true(without.simulation.bytes.tp > 2 * (free.simulation.bytes.sp + free.simulation.bytes.dp));
});

test('as many tokens in short sequences are put onto dp', async (t) => {
  const short = { ...LONG, generate: LONG.generate.replace('65536', '2048'), globalBatch: 32 };
  const [free] = await searchWith(short, {});
  t.deepEqual(free && chosen(free).degrees, { pp: 1, dp: 4, sp: 1, tp: 1, ep: 1 });
});

const PIPELINE = {
  generate: 'gpt:layers=4,hidden=2048,heads=16,seq=1024',
  cluster: '1x4:a100-sxm-80',
  globalBatch: 64,
  pp: 2,
};

test(
  'under a pipeline ZeRO-1 is chosen; 2 and 3 take longer, because gradients are scattered after every ' +
    'micro-batch',
  async (t) => {
    const [free, none, one, two, three] = await searchWith(
      PIPELINE,
      ...([{}, { zero: 0 }, { zero: 1 }, { zero: 2 }, { zero: 3 }] as const),
    );
    if (!free || !none || !one || !two || !three) return t.fail();
    t.is(chosen(free).zero, 1);
    t.is(one.simulation.stepSeconds, free.simulation.stepSeconds);
    for (const other of [none, two, three]) t.true(other.simulation.stepSeconds > one.simulation.stepSeconds);
    // The best with ZeRO-2 is the same step, but that dp takes longer: a scatter of fp32 gradients and a gather of 16-bit
    // parameters per step with the first, a scatter after each micro-batch with the second.
    t.deepEqual({ ...chosen(two), zero: 1 }, chosen(one));
    const { dp, ...rest } = one.simulation.parts;
    t.like(two.simulation.parts, rest);
    t.true(two.simulation.parts.dp > 2 * dp, `${two.simulation.parts.dp} ${dp}`);
    t.true(three.simulation.stepSeconds > two.simulation.stepSeconds);
    const m = one.simulation.microBatches;
    t.true(m > 1);
    t.true(Math.abs(two.simulation.bytes.dp / one.simulation.bytes.dp - (4 * m + 2) / (4 + 2)) < 1e-9);
  },
);
