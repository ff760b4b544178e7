/**
 * @file Orders of the mesh's axes and the host's memory in the search: the plans that it finds and keeps, and that none that it
 * leaves out is better.
 */
import test from 'ava';
import fc from 'fast-check';
import {
  prepareStep,
  type StepSearchOptions,
  searchPrepared,
  searchStep,
} from '../../../src/api/planning/search-step.js';
import { type Cluster, parseCluster } from '../../../src/cost-model/cluster.js';
import { type CollectiveKind, collectiveSeconds } from '../../../src/cost-model/collective-price.js';
import { evenPlace, groupPlace } from '../../../src/cost-model/group-place.js';
import { neverSlower } from '../../../src/cost-model/place-dominance.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { EVERYTHING, slowTests } from '../../selection.js';
import { drawnFactors, FASTEST } from './base.js';
import { againstBruteForce, ORDERED_STEP } from './every-order.js';

const slow = slowTests(test);

test('the search finds what brute force over all orders and offload finds, on the host where nothing else fits', async (t) => {
  const options = {
    ...ORDERED_STEP,
    ...FASTEST,
    cluster: '2x2:a100-pcie-80',
    schedule: '1f1b',
    zero: 1,
    sp: 1,
  } as const;
  const taken = await againstBruteForce(t, options, [2.2e9, 2.3e9, 8e10]);
  t.deepEqual(
    taken.map((configuration) => configuration?.offload ?? 'none'),
    ['optimizer', 'none', 'none'],
  );
});

slow('the search finds what brute force finds where groups straddle nodes', async (t) => {
  const generate = 'gpt:layers=6,hidden=768,heads=12,seq=384,vocab=1024';
  const options = { ...ORDERED_STEP, ...FASTEST, generate, globalBatch: 12, cluster: '3x4:a100-pcie-80' } as const;
  await againstBruteForce(t, { ...options, zero: 1, pp: 1 }, [8e10]);
  await againstBruteForce(t, { ...options, schedule: '1f1b', zero: 1, tp: 3 }, [8e10]);
});

/** So little work that the host's launches decide. */
const LAUNCHES = 'llama:layers=3,hidden=512,heads=16,seq=128,vocab=8192';
const { microBatch: _, ...STEP } = ORDERED_STEP;

slow(
  'norms are whole on every rank of tp where brute force finds that fastest, and not where it does not',
  async (t) => {
    const options = { ...STEP, cluster: '1x4:a100-sxm-80', zero: 1, dp: 1, sp: 1, pp: 1 } as const;
    const [small] = await againstBruteForce(t, { ...options, generate: LAUNCHES, globalBatch: 4 }, [8e10]);
    t.is(small?.tpSequence, false);
    const [large] = await againstBruteForce(t, { ...options, globalBatch: 32 }, [8e10]);
    t.is(large?.tpSequence, true);
  },
);

slow('norms are whole where runs have shown layers to be the faster for it, however large', async (t) => {
  const factorOf = (_: unknown, { tpSequence, degrees }: StepConfiguration) =>
    tpSequence ? 3 : degrees.tp === 1 ? 1 : 0.3;
  const on = { ...parseCluster('1x4:a100-sxm-80', undefined), layerFactors: { factorOf } };
  const options = { ...STEP, on, zero: 1, sp: 1, pp: 1, globalBatch: 32 } as const;
  const [large] = await againstBruteForce(t, options, [8e10]);
  t.true((large?.degrees.tp ?? 1) > 1 && large?.tpSequence === false, JSON.stringify(large));
});

slow('brute force finds the same where layers take what was measured, however they differ', async (t) => {
  const options = { ...ORDERED_STEP, ...FASTEST, schedule: '1f1b', zero: 1, sp: 1 } as const;
  const { microBatch: _, ...free } = options;
  for (const seed of EVERYTHING ? [1, 2, 3] : [1]) {
    const on = { ...parseCluster('2x2:a100-pcie-80', undefined), layerFactors: drawnFactors(seed) };
    await againstBruteForce(t, { ...options, on }, [2.3e9, 8e10]);
    await againstBruteForce(t, { ...free, offload: 'none', on }, [8e10]);
  }
});

test('a place that is never slower is not, for any kind and size', (t) => {
  const members = fc.constantFrom<number>(1, 2, 4, 8);
  const even = fc.tuple(members, members).map((counts) => () => evenPlace(counts));
  // Groups out of 192 ranks, most of which straddle nodes of eight.
  const run = fc.record({ stride: fc.constantFrom(1, 2, 3, 4, 6, 8), ranks: fc.constantFrom(2, 3, 4, 6, 8, 12) });
  const uneven = run.map(
    (own) =>
      ({ levels }: Cluster) =>
        groupPlace({ runs: [own], devices: 192 }, levels),
  );
  const place = fc.oneof(even, uneven);
  const clusters = ['8x8:a100-sxm-80', '8x8:h100-sxm-80', '8x8:v100-sxm2-32', '8x8:mi300x-192', '8x8:tpu-v5e'].map(
    (text) => parseCluster(text, undefined),
  );
  let told = 0;
  fc.assert(
    fc.property(
      fc.constantFrom(...clusters),
      fc.constantFrom<CollectiveKind>('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'permute'),
      place,
      place,
      fc.array(fc.double({ min: 0, max: 10, noNaN: true }), { minLength: 6, maxLength: 6 }),
      (cluster, kind, first, second, sizes) => {
        const [one, other] = [first(cluster), second(cluster)];
        if (!neverSlower(kind, one, other, cluster)) return;
        told++;
        for (const size of sizes) {
          const bytes = 10 ** size;
          const [a, b] = [one, other].map((own) => collectiveSeconds(kind, bytes, own, cluster));
          t.true((a ?? 0) <= (b ?? 0) * (1 + 1e-12), `${cluster.device.id} ${kind} ${one.key} ${other.key} ${bytes}`);
        }
      },
    ),
    { numRuns: 800 },
  );
  t.true(told > 100, `${told}`);
});

slow('an order that is asked for is kept, and no other is slower than the one that is found', async (t) => {
  const options: StepSearchOptions = { ...ORDERED_STEP, ...FASTEST, cluster: '2x4:a100-pcie-80', tp: 2, pp: 2, sp: 1 };
  const free = await searchStep(options);
  for (const meshOrder of [
    ['pp', 'dp', 'sp', 'tp'],
    ['tp', 'dp', 'sp', 'pp'],
    ['dp', 'sp', 'tp', 'pp'],
  ] as const) {
    const { simulation, decided } = await searchStep({ ...options, meshOrder });
    t.deepEqual(simulation.configuration.meshOrder, meshOrder);
    t.deepEqual(decided.meshOrder, meshOrder);
    t.true(simulation.stepSeconds >= free.simulation.stepSeconds * (1 - 1e-12));
  }
});

slow(
  'a search whose time is over gives the best so far, with what the best can be; before any plan what ' + 'fits first',
  async (t) => {
    const options: StepSearchOptions = { ...ORDERED_STEP, ...FASTEST, cluster: '2x4:a100-pcie-80' };
    const free = await searchStep(options);
    t.false(free.isCutOff);
    let previous = Number.POSITIVE_INFINITY;
    for (const asks of [4, 30, 60, 100_000]) {
      let left = asks;
      const found = await searchStep({ ...options, deadline: { isOver: () => left-- <= 0 } });
      t.is(found.isCutOff, asks < 100_000, `${asks}`);
      t.true(found.bound <= free.simulation.stepSeconds * (1 + 1e-12), `${asks}: ${found.bound}`);
      t.true(found.simulation.stepSeconds >= free.simulation.stepSeconds);
      t.true(found.simulation.stepSeconds <= previous);
      previous = found.simulation.stepSeconds;
    }
    t.is(previous, free.simulation.stepSeconds);
    const first = await searchStep({ ...options, timeLimit: 0 });
    t.true(first.isUncompared && first.isCutOff);
    t.is(first.priced, 1);
    t.true(first.bound <= free.simulation.stepSeconds && free.simulation.stepSeconds <= first.simulation.stepSeconds);
    const error = await t.throwsAsync(searchStep({ ...options, timeLimit: 0, memory: 1e9 }));
    t.regex(error?.message ?? '', /the time limit ended before any plan was found: nothing fits .* \d+ configurations/);
  },
);

test('where nothing else fits the host is taken, and none of it where that is said', async (t) => {
  const options: StepSearchOptions = { ...ORDERED_STEP, ...FASTEST, cluster: '1x1:a100-sxm-80' };
  const prepared = await prepareStep(options);
  const all = await searchPrepared({ ...prepared, limitBytes: 8e10 });
  t.is(all.simulation.configuration.offload, undefined);
  // One device: 50 M parameters take 12 bytes of state each, which is most of what they take.
  const { stages } = all.simulation;
  const limitBytes = (stages[0]?.total ?? 0) - 3.5e8;
  const small = await searchPrepared({ ...prepared, limitBytes });
  t.true(
    ['optimizer', 'activations', 'all'].includes(small.simulation.configuration.offload ?? 'none') ||
      small.simulation.configuration.recompute !== 'none',
  );
  const tiny = await searchPrepared({ ...prepared, limitBytes: (stages[0]?.total ?? 0) - 6e8 });
  t.true((tiny.simulation.configuration.offload ?? 'none') !== 'none', JSON.stringify(tiny.simulation.configuration));
  const error = await t.throwsAsync(
    (async () => {
      const without = await prepareStep({ ...options, offload: 'none' });
      return searchPrepared({ ...without, limitBytes: (stages[0]?.total ?? 0) - 6e8 });
    })(),
  );
  t.regex(error?.message ?? '', /nothing fits/);
});
