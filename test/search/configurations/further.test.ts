/**
 * @file Orders of the mesh's axes and the host's memory in the search: brute force over all of them, and that what is left out
 * cannot be better.
 */
import test from 'ava';
import fc from 'fast-check';
import {
  prepareStep,
  pricingOf,
  type StepSearchOptions,
  searchPrepared,
  searchStep,
} from '../../../src/api/search-step.js';
import { type Cluster, parseCluster } from '../../../src/cost-model/cluster.js';
import { type CollectiveKind, collectiveSeconds } from '../../../src/cost-model/collective-price.js';
import { neverSlower } from '../../../src/cost-model/place-dominance.js';
import type { MeshOrder, Offload, StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { fullestHost } from '../../../src/cost-model/step/offload.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import type { ModelWork } from '../../../src/cost-model/step/work.js';
import { bestConfigurations, type Pricing } from '../../../src/search/configurations/best-configurations.js';
import { fewestRecomputed } from '../../../src/search/configurations/fewest-recomputed.js';
import { combinations, type SpaceOptions, variants } from '../../../src/search/configurations/space.js';

const AXES = ['pp', 'dp', 'sp', 'tp'] as const;
const LOSS = { kind: 'cross_entropy' } as const;

function permutations(axes: MeshOrder): readonly MeshOrder[] {
  if (axes.length < 2) return [axes];
  return axes.flatMap((axis) =>
    permutations(axes.filter((other) => other !== axis)).map((rest): MeshOrder => [axis, ...rest]),
  );
}

const ORDERS = permutations(AXES);
const OFFLOADS: readonly Offload[] = ['none', 'optimizer', 'activations', 'all'];

/** The least seconds of all variants in all orders with all that may lie on the host, each priced on its own. */
function bruteForce(
  space: SpaceOptions,
  works: (tp: number, microBatch: number) => ModelWork,
  cluster: Cluster,
  limitBytes: number,
): { readonly seconds: number; readonly configuration: StepConfiguration | null; readonly tried: number } {
  let best: { seconds: number; configuration: StepConfiguration | null } = {
    seconds: Number.POSITIVE_INFINITY,
    configuration: null,
  };
  let tried = 0;
  for (const combination of combinations(space)) {
    for (const microBatch of combination.microBatches) {
      for (const variant of variants(combination, microBatch, space)) {
        const work = works(variant.degrees.tp, microBatch);
        for (const offload of OFFLOADS) {
          const own = offload === 'none' ? variant : { ...variant, offload };
          const fitted = space.decided.recompute ? own : fewestRecomputed(work, own, limitBytes);
          const stages = stageMemory(work, fitted);
          if (stages.some(({ total }) => total > limitBytes)) continue;
          for (const meshOrder of ORDERS) {
            const configuration = { ...fitted, meshOrder };
            tried++;
            const host = fullestHost(
              stages.map((stage) => stage.host),
              configuration,
              cluster,
            );
            if (host.bytes > host.memoryBytes) continue;
            const { stepSeconds } = priceStep(work, configuration, cluster, STEP_CONSTANTS);
            if (stepSeconds < best.seconds) best = { seconds: stepSeconds, configuration };
          }
        }
      }
    }
  }
  return { ...best, tried };
}

const SMALL: StepSearchOptions = {
  generate: 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024',
  globalBatch: 8,
  microBatch: 1,
  loss: LOSS,
};

const CASES: readonly (readonly [string, Partial<StepSearchOptions>, readonly number[]])[] = [
  ['2x2:a100-sxm-80', {}, [2.9e9, 3.1e9, 3.6e9, 8e10]],
  ['2x4:a100-pcie-80', { sp: 2, recompute: 'none' }, [2.6e9, 3e9]],
  ['4x2:h100-sxm-80', { recompute: 'full', zero: 1 }, [2.5e9, 8e10]],
  [
    '2x2:a100-sxm-80',
    { generate: 'moe:layers=4,hidden=512,heads=8,kv_heads=8,ffn=512,seq=256,vocab=1024,experts=4' },
    [3e9],
  ],
];

for (const [cluster, options, limits] of CASES) {
  test(`the search finds what brute force over all orders and offload finds: ${cluster} ${JSON.stringify(options)}`, async (t) => {
    const prepared = await prepareStep({ ...SMALL, ...options, cluster });
    const chosen = new Set<string>();
    for (const limitBytes of limits) {
      const { space, works } = prepared;
      const expected = bruteForce(space, works, prepared.cluster, limitBytes);
      const pricing: Pricing = pricingOf(prepared.cluster, works);
      const found = bestConfigurations(space, pricing, { objective: 'time', limitBytes, top: 1 });
      const seconds = found.best[0]?.seconds ?? Number.POSITIVE_INFINITY;
      t.true(
        seconds === expected.seconds || Math.abs(seconds / expected.seconds - 1) < 1e-9,
        `${limitBytes}: ${seconds} ${JSON.stringify(found.best[0]?.configuration)} for ${expected.seconds} ${JSON.stringify(expected.configuration)}`,
      );
      t.true(found.priced < expected.tried / 4 || expected.tried === 0);
      chosen.add(found.best[0]?.configuration.offload ?? 'none');
    }
    t.true(chosen.size > 0);
  });
}

test('a place that is never slower is not, for any kind and size', (t) => {
  const members = fc.constantFrom<number>(1, 2, 4, 8);
  const place = fc.tuple(members, members);
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
      (cluster, kind, one, other, sizes) => {
        if (!neverSlower(kind, one, other, cluster)) return;
        told++;
        for (const size of sizes) {
          const bytes = 10 ** size;
          const [a, b] = [one, other].map((own) => collectiveSeconds(kind, bytes, own, cluster));
          t.true((a ?? 0) <= (b ?? 0) * (1 + 1e-12), `${cluster.device.id} ${kind} ${one} ${other} ${bytes}`);
        }
      },
    ),
    { numRuns: 400 },
  );
  t.true(told > 100, `${told}`);
});

test('an order that is asked for is kept, and no other is slower than the one that is found', async (t) => {
  const options: StepSearchOptions = { ...SMALL, cluster: '2x4:a100-pcie-80', tp: 2, pp: 2, sp: 1 };
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

test('where nothing else fits the host is taken, and none of it where that is said', async (t) => {
  const options: StepSearchOptions = { ...SMALL, cluster: '1x1:a100-sxm-80' };
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
  t.true(tiny.simulation.pricedWithoutLowering.includes('offload'));
  const error = await t.throwsAsync(
    (async () => {
      const without = await prepareStep({ ...options, offload: 'none' });
      return searchPrepared({ ...without, limitBytes: (stages[0]?.total ?? 0) - 6e8 });
    })(),
  );
  t.regex(error?.message ?? '', /nothing fits/);
});
