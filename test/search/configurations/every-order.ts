/**
 * @file The search over orders of the mesh's axes, the host's memory and norms over tp compared with all of them, each priced on
 * its own.
 */
import type { ExecutionContext } from 'ava';
import { prepareStep, type StepSearchOptions } from '../../../src/api/planning/search-step.js';
import type { Cluster } from '../../../src/cost-model/cluster.js';
import type { MeshOrder, Offload, StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { fullestHost } from '../../../src/cost-model/step/offload.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStepExactly } from '../../../src/cost-model/step/step-price.js';
import type { ModelWork } from '../../../src/cost-model/step/work.js';
import { bestConfigurations } from '../../../src/search/configurations/best-configurations.js';
import { fewestRecomputed } from '../../../src/search/configurations/fewest-recomputed.js';
import { combinations, type SpaceOptions, variants } from '../../../src/search/configurations/space.js';
import { pricingOf } from '../../../src/search/configurations/step-pricing.js';

export const ORDERED_STEP: StepSearchOptions = {
  generate: 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024',
  globalBatch: 8,
  microBatch: 1,
  loss: { kind: 'cross_entropy' },
};

/** Searches under each limit, and compares. @returns what was taken */
export async function againstBruteForce(
  t: ExecutionContext,
  options: StepSearchOptions,
  limits: readonly number[],
): Promise<readonly (StepConfiguration | undefined)[]> {
  const { cluster, space, works } = await prepareStep(options);
  return limits.map((limitBytes) => {
    const expected = bruteForce(space, works, cluster, limitBytes);
    const found = bestConfigurations(space, pricingOf(cluster, works), { objective: 'time', limitBytes, top: 1 });
    const seconds = found.best[0]?.seconds ?? Number.POSITIVE_INFINITY;
    t.true(
      seconds === expected.seconds || Math.abs(seconds / expected.seconds - 1) < 1e-9,
      `${limitBytes}: ${seconds} ${JSON.stringify(found.best[0]?.configuration)} for ${expected.seconds} ` +
        `${JSON.stringify(expected.configuration)}`,
    );
    t.true(found.priced < expected.tried / 3 || expected.tried === 0, `${found.priced} of ${expected.tried}`);
    return found.best[0]?.configuration;
  });
}

const AXES = ['pp', 'dp', 'sp', 'tp'] as const;
function permutations(axes: MeshOrder): readonly MeshOrder[] {
  if (axes.length < 2) return [axes];
  return axes.flatMap((axis) =>
    permutations(axes.filter((other) => other !== axis)).map((rest): MeshOrder => [axis, ...rest]),
  );
}

const ORDERS = permutations(AXES);
const OFFLOADS: readonly Offload[] = ['none', 'optimizer', 'activations', 'all'];

/** The least seconds of all variants in all orders with all that may be on the host, each priced on its own. */
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
      const along = [...variants(combination, microBatch, space)];
      const isFree = combination.degrees.tp > 1 && space.decided.tpSequence === undefined;
      const whole = isFree ? along.map((variant) => ({ ...variant, tpSequence: false })) : [];
      for (const variant of [...along, ...whole]) {
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
            const { stepSeconds } = priceStepExactly(work, configuration, cluster, STEP_CONSTANTS);
            if (stepSeconds < best.seconds) best = { seconds: stepSeconds, configuration };
          }
        }
      }
    }
  }
  return { ...best, tried };
}
