/**
 * @file The cost model for the search over training steps: prices, bytes and bounds of configurations on one cluster.
 */

import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { hostMemory, offloadsActivations } from '../../cost-model/step/offload.js';
import type { PartPhases, PartPrices } from '../../cost-model/step/part-price.js';
import { mayAccumulateApart } from '../../cost-model/step/phase-price.js';
import { elapsedSeconds } from '../../cost-model/step/phase-time.js';
import { stageClusters, stageOfLast } from '../../cost-model/step/stages.js';
import { stageMemory } from '../../cost-model/step/step-memory.js';
import { leastSimulated, priceStep, priceStepExactly, type StepPrice } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { madeOnce, remembered } from '../../ir/remembered.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import type { Schedule, ScheduleRequest } from '../../schedule/schedule.js';
import { leastSeconds, type SharedWork, sharesOf } from './at-least.js';
import { cutLayers } from './cut-layers.js';
import { fewestRecomputed } from './fewest-recomputed.js';
import { meshOrders } from './mesh-orders.js';
import { PartsOfStep } from './parts-of-step.js';
import { phasesOfStep } from './phases-of-step.js';
import type { Pricing } from './pricing.js';

/** A cost model that cuts layers into stages too. */
export interface StepPricing extends Pricing {
  /** The cuts that are worth pricing; their layers may store activations where the configuration recomputes. */
  readonly cuts: (configuration: StepConfiguration, limitBytes: number | null) => readonly StepConfiguration[];
}

/**
 * The cost model for the search.
 * @param isMixed whether layers may keep their activations where others recompute
 */
export function pricingOf(
  cluster: Cluster,
  works: (tp: number, microBatch: number) => ModelWork,
  isMixed = true,
): StepPricing {
  const workOf = ({ degrees, microBatch }: StepConfiguration) => works(degrees.tp, microBatch);
  const phasesOf = phasesOfStep(workOf);
  const parts = new PartsOfStep(workOf, phasesOf);
  const schedules = new Map<string, Schedule>();
  const scheduleOf = (request: ScheduleRequest): Schedule => {
    const key = JSON.stringify(request);
    return madeOnce(schedules, key, () => makeSchedule(request));
  };
  /** Keyed by the phases on the first stage: configurations whose stages are alike share one record. */
  const shared = new Map<PartPhases, Map<string, SharedWork>>();
  const phasesOn = (configuration: StepConfiguration): readonly PartPhases[] => {
    // ZeRO 3 leaves out what accumulates gradients.
    const zero = mayAccumulateApart(configuration) ? 3 : 0;
    const same = configuration.zero === zero ? configuration : { ...configuration, zero: zero as 0 | 3 };
    return cluster.kinds ? stageClusters(cluster, same).map((own) => phasesOf(same, own)) : [phasesOf(same, cluster)];
  };
  const shares = (configuration: StepConfiguration): SharedWork => {
    const { degrees, meshOrder } = configuration;
    const stages = phasesOn(configuration);
    const ofFirst = madeOnce(shared, stages[0] as PartPhases, () => new Map<string, SharedWork>());
    const key = cluster.kinds ? `${degrees.pp} ${degrees.dp} ${meshOrder}` : `${degrees.pp}`;
    return madeOnce(ofFirst, key, () => sharesOf(workOf(configuration), stages, degrees.pp));
  };
  // Configurations that are not near the best are priced for both figures: `seconds` and `least`.
  const estimated = remembered((configuration: StepConfiguration): Pick<StepPrice, 'stepSeconds' | 'parts'> => {
    const prices = (own: Cluster) => parts.prices(configuration, own);
    return priceStep(workOf(configuration), configuration, cluster, STEP_CONSTANTS, prices);
  });
  return {
    seconds: (configuration) => estimated(configuration).stepSeconds,
    least: (configuration) => leastSimulated(estimated(configuration), configuration.schedule ?? '1f1b'),
    exactly: (configuration) => {
      const prices = (own: Cluster) => parts.prices(configuration, own);
      const work = workOf(configuration);
      const { stepSeconds, priceLevel } = priceStepExactly(
        work,
        configuration,
        cluster,
        STEP_CONSTANTS,
        prices,
        scheduleOf,
      );
      return { seconds: stepSeconds, priceLevel };
    },
    atLeast: (configuration) => leastSeconds(shares(configuration), configuration, cluster),
    balanced: (configuration) =>
      cluster.kinds && configuration.degrees.pp > 1 && !configuration.stageLayers
        ? {
            ...configuration,
            stageLayers: balancedLayers(workOf(configuration), phasesOn(configuration), configuration),
          }
        : configuration,
    cuts: (configuration, limitBytes) => {
      const stages = stageClusters(cluster, configuration).map((own): PartPrices => parts.prices(configuration, own));
      const request = { limitBytes, isMixed: isMixed && isMixable(configuration) };
      return cutLayers(workOf(configuration), configuration, stages, request);
    },
    bytes: (configuration) => {
      const stages = stageMemory(workOf(configuration), configuration, parts.bytes(configuration));
      const fullest = stages.reduce((most, stage) => (stage.total > most.total ? stage : most));
      const host = hostMemory(stages, configuration, cluster);
      return { stage: fullest.stage, bytes: fullest.total, ...(host ? { host } : {}) };
    },
    fitted: (configuration, most) =>
      fewestRecomputed(workOf(configuration), configuration, most, parts.bytes(configuration)),
    mappings: {
      orders: remembered((degrees) => meshOrders(degrees, cluster)),
      offloads: cluster.device.host ? ['optimizer', 'activations', 'all'] : [],
    },
  };
}

/** Whether some layers may recompute while others store activations: with activations on the host, all layers do or none. */
export function isMixable(configuration: StepConfiguration): boolean {
  return !offloadsActivations(configuration);
}

/** Layers of each stage: each goes to the stage that then finishes first; at least one for each chunk. */
function balancedLayers(
  { layers }: ModelWork,
  stages: readonly PartPhases[],
  configuration: StepConfiguration,
): readonly number[] {
  const { virtualStages } = configuration;
  const stageWithHead = stageOfLast(configuration);
  const total = layers.reduce((sum, { count }) => sum + count, 0);
  const seconds = ({ forward, backward }: PartPhases['first']) => elapsedSeconds(forward) + elapsedSeconds(backward);
  const each = stages.map(
    ({ layers: own }) =>
      own.reduce((sum, phases, index) => sum + (layers[index]?.count ?? 0) * seconds(phases), 0) / total,
  );
  const counts = stages.map(() => virtualStages);
  const busy = stages.map(({ first, last }, stage) => {
    const ends = (stage === 0 ? seconds(first) : 0) + (stage === stageWithHead ? seconds(last) : 0);
    return ends + virtualStages * (each[stage] as number);
  });
  for (let left = total - virtualStages * stages.length; left > 0; left--) {
    let soonest = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let stage = 0; stage < stages.length; stage++) {
      const then = (busy[stage] as number) + (each[stage] as number);
      if (then < least) [soonest, least] = [stage, then];
    }
    busy[soonest] = least;
    counts[soonest] = (counts[soonest] as number) + 1;
  }
  return counts;
}
