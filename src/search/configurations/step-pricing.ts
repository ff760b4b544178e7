/**
 * @file The cost model as the search over whole steps asks it: prices, bytes and bounds of configurations on one cluster.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { NONE } from '../../cost-model/step/data-price.js';
import { hostMemory, offloadsActivations } from '../../cost-model/step/offload.js';
import { stageMemory } from '../../cost-model/step/step-memory.js';
import { priceStep } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import type { BoundRequest } from './bound-request.js';
import { boundOfCuts } from './cut-bound.js';
import { isMixable, type StepPricing } from './cut-unevenly.js';
import { fewestRecomputed } from './fewest-recomputed.js';
import { meshOrders, type OrderPlaces } from './mesh-orders.js';
import { leastOf, PartsOfStep, quickestLevel } from './parts-of-step.js';
import { phasesOfStep } from './phases-of-step.js';
import { loosestOfAll } from './variant-bound.js';
import { wholeBound } from './whole-bound.js';

/** What is most often the least first. */
const ZERO_LEVELS = [1, 2, 0, 3] as const;
const RECOMPUTATIONS = ['none', 'selective', 'full'] as const;

/**
 * The cost model as the search asks it.
 * @param isMixed whether layers may keep their activations where others recompute
 */
export function pricingOf(
  cluster: Cluster,
  works: (tp: number, microBatch: number) => ModelWork,
  limitBytes: number | null = null,
  isMixed = true,
): StepPricing {
  const workOf = ({ degrees, microBatch }: StepConfiguration) => works(degrees.tp, microBatch);
  const phasesOf = phasesOfStep(workOf);
  const whole = wholeBound(cluster, workOf, phasesOf);
  const parts = new PartsOfStep(workOf, phasesOf);
  const orders = new Map<Degrees, readonly OrderPlaces[]>();
  const requestOf = (configuration: StepConfiguration): BoundRequest => ({
    configuration,
    cluster,
    limitBytes,
    isMixed: isMixed && isMixable(configuration),
  });
  /** With activations on the host all layers recompute or none, and the more they recompute the less they move. */
  const moving = (request: BoundRequest, isFree: boolean, isFirst: boolean): number => {
    const { configuration } = request;
    const choices = isFree ? RECOMPUTATIONS : [configuration.recompute];
    const requests = choices.map((recompute) => ({ ...request, configuration: { ...configuration, recompute } }));
    // While nothing was found, seconds rule nothing out, and memory most.
    const fits = (own: BoundRequest) =>
      ZERO_LEVELS.some((zero) => parts.least(loosestOfAll(own, zero)) < Number.POSITIVE_INFINITY);
    if (isFirst && !requests.some(fits)) return Number.POSITIVE_INFINITY;
    return Math.min(...requests.map((own) => parts.leastPace(loosestOfAll(own, quickestLevel(configuration)))));
  };
  const roughly = (configuration: StepConfiguration, enough = Number.POSITIVE_INFINITY): number => {
    const request = requestOf(configuration);
    const pace = parts.pace(configuration, request);
    return pace > enough ? pace : Math.max(parts.bound(configuration, request), pace);
  };
  return {
    seconds: (configuration) => {
      const work = workOf(configuration);
      const prices = (own: Cluster) => parts.prices(configuration, own);
      return priceStep(work, configuration, cluster, STEP_CONSTANTS, prices).stepSeconds;
    },
    closer: (configuration, enough, freely) => {
      const own = requestOf(configuration);
      const request = freely ? { ...own, limitBytes: null } : own;
      if (offloadsActivations(configuration)) return moving(request, isMixed, enough === Number.MAX_VALUE);
      let least = Number.POSITIVE_INFINITY;
      for (const zero of ZERO_LEVELS) {
        for (const one of waysToRecompute(request)) least = Math.min(least, parts.least(loosestOfAll(one, zero)));
        if (least <= enough) break;
      }
      return least;
    },
    roughly,
    variantAtLeast: (configuration) => {
      const least = parts.leastOfVariant(requestOf(configuration));
      // What stages of several kinds share out has weights, with which a lighter configuration's bound may be the closer one.
      return cluster.kinds ? Math.max(least, roughly(configuration)) : least;
    },
    cutsAtLeast: (configuration, below) =>
      boundOfCuts(workOf(configuration), requestOf(configuration), (own) => parts.prices(configuration, own), below),
    bytes: (configuration) => {
      const stages = stageMemory(workOf(configuration), configuration, parts.bytes(configuration));
      const fullest = stages.reduce((most, stage) => (stage.total > most.total ? stage : most));
      const host = hostMemory(stages, configuration, cluster);
      return { stage: fullest.stage, bytes: fullest.total, ...(host ? { host } : {}) };
    },
    fitted: (configuration, limitBytes) =>
      fewestRecomputed(workOf(configuration), configuration, limitBytes, parts.bytes(configuration)),
    atLeast: (_, configuration) => whole.atLeast(configuration),
    placings: {
      orders: (degrees) => {
        const found = orders.get(degrees) ?? meshOrders(degrees, cluster).filter(({ order }) => order !== AXIS_ORDER);
        orders.set(degrees, found);
        return found;
      },
      anywhere: (configuration) => {
        const { offload: _, ...here } = configuration;
        const own = loosestOfAll({ ...requestOf(here), limitBytes: null }, quickestLevel(here));
        const still = parts.onStages(own.configuration, cluster).map((prices) => ({
          ...prices,
          send: { ...prices.send, seconds: 0, blocks: false },
          data: () => NONE,
          optimizerSeconds: () => 0,
        }));
        return leastOf(still, own);
      },
      gainsWhole: whole.gainsWhole,
      offloads: cluster.device.host ? ['optimizer', 'activations', 'all'] : [],
    },
  };
}

/** Which of its work a layer does again, where that is not decided: attention alone too, where it is not one kernel. */
function waysToRecompute(request: BoundRequest): readonly BoundRequest[] {
  const { configuration, isMixed } = request;
  return isMixed && configuration.attention === 'parts'
    ? [request, { ...request, configuration: { ...configuration, recompute: 'selective' } }]
    : [request];
}
