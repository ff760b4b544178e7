/**
 * @file The few best configurations by their event simulation: the closed forms leave out how stages of unequal length wait for
 * each other.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { STEP_CONSTANTS } from '../cost-model/step/constants.js';
import { priceStepExactly } from '../cost-model/step/step-price.js';
import type { ModelWork } from '../cost-model/step/work.js';
import type { Found, Verdict } from '../search/configurations/best-configurations.js';
import type { Priced } from '../search/configurations/priced.js';

/** Where configurations are simulated: the cluster, and the work of the model's parts. */
export interface SimulatedOn {
  readonly cluster: Cluster;
  readonly works: (tp: number, microBatch: number) => ModelWork;
}

/**
 * The few best in the order of their steps as every action of the schedule is simulated. Closed forms are bounds from below, so
 * that what is above the best simulated step stays behind it.
 */
export function simulatedFirst(found: Found, on: SimulatedOn): Found {
  const simulated = new Map<Priced, number>();
  for (const priced of found.best.slice(0, MOST_SIMULATED)) {
    if (priced.seconds >= Math.min(...simulated.values())) break;
    simulated.set(priced, simulatedSeconds(priced, on));
  }
  const seconds = (priced: Priced) => simulated.get(priced) ?? Number.POSITIVE_INFINITY;
  const [first] = [...simulated.keys()].sort((a, b) => seconds(a) - seconds(b));
  if (!first || first === found.best[0]) return found;
  const isFirst = (verdict: Verdict) => verdict.kind === 'priced' && verdict.best === first;
  return {
    ...found,
    best: [first, ...found.best.filter((priced) => priced !== first)],
    verdicts: [...found.verdicts.filter(isFirst), ...found.verdicts.filter((verdict) => !isFirst(verdict))],
  };
}

/** Seconds of a step, every action of its schedule simulated where it has few enough; else by its closed form. */
export function simulatedSeconds({ configuration, seconds }: Priced, { cluster, works }: SimulatedOn): number {
  const { degrees, virtualStages, globalBatch, microBatch } = configuration;
  const { pp, dp, tp } = degrees;
  const actions = (2 * pp * virtualStages * globalBatch) / (microBatch * dp);
  if (pp === 1 || actions > MOST_ACTIONS) return seconds;
  return priceStepExactly(works(tp, microBatch), configuration, cluster, STEP_CONSTANTS).stepSeconds;
}

/** Of the best, how many are simulated; and the actions of a schedule up to which one is: a tenth of a second. */
const MOST_SIMULATED = 3;
const MOST_ACTIONS = 3e5;
