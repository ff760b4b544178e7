/**
 * @file The space of a search over training steps: every micro-batch, the given parts of a pipeline, and the fastest by
 * simulation of the priced configurations.
 */
import test from 'ava';
import { prepareStep, searchPrepared, searchStep } from '../../../src/api/planning/search-step.js';
import { type SimulateOptions, simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { fasterLinks } from '../../../src/cost-model/faster-links.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { PricedConfiguration } from '../../../src/search/configurations/priced.js';
import { type Combination, combinations, divisors, variants } from '../../../src/search/configurations/space.js';
import { pricingOf } from '../../../src/search/configurations/step-pricing.js';
import { slowTests } from '../../selection.js';
import { BASE, FASTEST } from './base.js';

const slow = slowTests(test);

const LOSS = { kind: 'cross_entropy' } as const;

slow('no micro-batch of a batch that is no power of two is faster than the one that is taken', async (t) => {
  const asked: SimulateOptions = {
    generate: 'gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1000',
    cluster: '1x2:a100-sxm-80',
    globalBatch: 150,
    loss: LOSS,
  };
  const { simulation } = await searchStep({ ...asked, ...FASTEST });
  const { microBatch } = simulation.configuration;
  t.true(microBatch > 64 && (microBatch & (microBatch - 1)) !== 0, `${microBatch}`);
  for (const dp of [1, 2]) {
    for (const size of divisors(150 / dp)) {
      const { stepSeconds } = await simulate({ ...asked, dp, sp: 2 / dp, zero: 1, microBatch: size });
      t.true(stepSeconds >= simulation.stepSeconds, `dp ${dp}, micro-batches of ${size}: ${stepSeconds}`);
    }
  }
});

test('a micro-batch of hundreds of samples costs in a search what simulate says of it', async (t) => {
  const asked = {
    generate: 'gpt:layers=3,hidden=256,heads=8,seq=128,vocab=51200',
    cluster: '4x4:a100-sxm-80',
    globalBatch: 1536,
    ...{ dp: 4, sp: 2, tp: 2, pp: 1, ep: 1, zero: 1 as const },
    meshOrder: ['pp', 'dp', 'sp', 'tp'] as const,
    loss: LOSS,
  };
  const { works, cluster, space } = await prepareStep(asked);
  const [combination] = combinations(space);
  for (const microBatch of [8, 384]) {
    const [configuration] = [...variants(combination as Combination, microBatch, space)];
    // Continued from what is read of smaller ones.
    const seconds = pricingOf(cluster, works).seconds(configuration as StepConfiguration);
    const { stepSeconds } = await simulate({ ...asked, microBatch });
    t.is(stepSeconds, seconds, `${microBatch}`);
  }
});

const FACTS = { layers: 8, sequence: 128, heads: 4, experts: 1 };
const spaceOf = (decided: Parameters<typeof combinations>[0]['decided'], globalBatch: number) => ({
  ...{ devices: 8, perNode: 8, globalBatch, facts: FACTS, decided },
  base: { ...BASE, globalBatch },
});

test('no program of state-space layers shards sequences; estimates of other software may', async (t) => {
  const stateful = (decided: Parameters<typeof spaceOf>[0]) => {
    const space = spaceOf(decided, 8);
    return combinations({ ...space, facts: { ...FACTS, carriesState: true } });
  };
  t.true(combinations(spaceOf({}, 8)).some(({ degrees }) => degrees.sp > 1));
  t.true(stateful({}).every(({ degrees }) => degrees.sp === 1));
  t.true(
    stateful({ sp: 2 }).every(({ reason }) => /^sp 2 shards sequences, and state-space layers/.test(reason ?? '')),
  );
  const asked = {
    generate:
      'hybrid:hidden=64,heads=4,kv_heads=2,head_width=16,ffn=64,state_heads=2,groups=1,state=16,seq=32,vocab=64,pattern=M*-M',
    ...{ cluster: '1x8:h100-sxm-80', globalBatch: 8, loss: LOSS },
  };
  const spaces = async (program: { readonly program?: true }) =>
    combinations((await prepareStep({ ...asked, ...program })).space);
  t.true((await spaces({ program: true })).every(({ degrees }) => degrees.sp === 1));
  t.true((await spaces({})).some(({ degrees }) => degrees.sp > 1));
});

test('a combination has the micro-batches for which the schedule that is asked for has an order', (t) => {
  const sizes = combinations(spaceOf({ pp: 4, dp: 2, schedule: 'interleaved-1f1b' }, 48)).map(
    ({ microBatches }) => microBatches,
  );
  // 24 samples on each rank: 24, 12, 8 and 4 micro-batches are multiples of four stages.
  t.deepEqual(sizes, [[1, 2, 3, 6]]);
});

for (const [decided, reason] of [
  [{ pp: 4, dp: 1, tp: 2, schedule: 'interleaved-1f1b', microBatch: 4 }, /groups of its 4 stages, and there are 2$/],
  [{ pp: 2, schedule: 'interleaved-1f1b', virtualStages: 1 }, /1 virtual stage is one chunk/],
  [{ pp: 2, schedule: 'zero-bubble', virtualStages: 3 }, /zero-bubble runs one chunk a stage, not 3 virtual stages/],
  [{ pp: 2, schedule: 'zbv', virtualStages: 4 }, /zbv runs 2 chunks a stage, not 4/],
  [{ pp: 8, schedule: 'zbv' }, /pp 8 with 2 chunks a stage needs 16 layers, and the model has 8/],
  [{ pp: 1, tp: 1, sp: 1, schedule: 'zbv' }, /schedule zbv needs a pipeline, and pp is 1/],
  [{ pp: 4, virtualStages: 3 }, /pp 4 with 3 chunks a stage needs 12 layers, and the model has 8/],
  [{ pp: 1, tp: 1, sp: 1, virtualStages: 2 }, /2 virtual stages need a pipeline, and pp is 1/],
] as const) {
  test(`what a pipeline is asked for and cannot be is a reason: ${JSON.stringify(decided)}`, async (t) => {
    for (const { microBatches, reason: said } of combinations(spaceOf(decided, 8))) {
      t.deepEqual(microBatches, []);
      t.regex(said ?? '', reason);
    }
    const asked = {
      generate: 'gpt:layers=8,hidden=64,heads=4,seq=128,vocab=100',
      cluster: '1x8:a100-sxm-80',
      globalBatch: 8,
      loss: LOSS,
    };
    const error = await t.throwsAsync(searchStep({ ...asked, ...FASTEST, ...decided }), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, 'no-combination');
    t.regex(error?.message ?? '', reason);
    // Nor does `simulate` take it.
    await t.throwsAsync(simulate({ ...asked, ...decided }), { instanceOf: AutoparError });
  });
}

slow('of all that was priced none is faster by simulation than what is taken', async (t) => {
  // Here the best closed form is that of chunks of 3 and 4 layers beside some of 2, which wait for each other.
  const on = fasterLinks(parseCluster('2x8:h100-sxm-80', undefined), 'between', 2);
  const prepared = await prepareStep({
    generate: 'gpt:layers=30,hidden=1024,heads=16,seq=2048,vocab=51200',
    on,
    globalBatch: 96,
    loss: LOSS,
    memory: 6e9,
    ...FASTEST,
  });
  const { best, fitting } = await searchPrepared(prepared);
  const [first] = best as readonly [PricedConfiguration];
  t.is(first.priceLevel, 'simulated');
  const { cluster, works } = prepared;
  const pricing = pricingOf(cluster, works);
  const closer = fitting.filter(({ configuration }) => pricing.seconds(configuration) < first.seconds);
  t.true(closer.length > 0);
  for (const { configuration } of closer)
    t.true(pricing.exactly(configuration).seconds >= first.seconds, JSON.stringify(configuration));
});

test('where nothing fits but with a tp that is not looked at, the refusal says so, and with it a step fits', async (t) => {
  const asked = {
    generate: 'gpt:layers=2,hidden=128,heads=2,seq=2048,vocab=32000',
    cluster: '1x6:a100-sxm-80',
    globalBatch: 32,
    memory: 4e9,
    loss: LOSS,
  };
  const error = await t.throwsAsync(searchStep({ ...asked, ...FASTEST }), { instanceOf: AutoparError });
  const [, tp, milliseconds] = /^--tp (\d+), .* fits, at ([\d.]+) ms/.exec((error as AutoparError).hint ?? '') ?? [];
  const { simulation } = await searchStep({ ...asked, ...FASTEST, tp: Number(tp) });
  t.true(simulation.fits);
  t.is((simulation.stepSeconds * 1e3).toPrecision(3), milliseconds ?? '');
});

slow('a tp that does not divide the heads of a state-space layer cuts it elsewhere', async (t) => {
  const asked = {
    generate: 'hybrid:pattern=MM-,hidden=128,heads=8,kv_heads=8,head_width=64,ffn=256,groups=1,seq=512,vocab=1000',
    cluster: '1x8:a100-sxm-80',
    globalBatch: 16,
    loss: LOSS,
    ...FASTEST,
  };
  const heldOver = async (tp: number) => {
    const { layers } = await searchStep({ ...asked, tp });
    return layers.work.layers.map(({ part }) => part.parameters);
  };
  // Four heads.
  const [whole, eighth] = [await heldOver(1), await heldOver(8)];
  for (const [kind, parameters] of whole.entries()) t.true((eighth[kind] ?? parameters) < 1.1 * (parameters / 8));
});
