/**
 * @file The few best configurations by their event simulation: the closed forms leave out how stages of unequal length wait for
 * each other.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { STEP_CONSTANTS } from '../cost-model/step/constants.js';
import { priceStepExactly } from '../cost-model/step/step-price.js';
import type { ModelWork } from '../cost-model/step/work.js';
import type { Found } from '../search/configurations/best-configurations.js';
import { EVEN_ENOUGH } from '../search/configurations/cut-unevenly.js';
import type { Priced } from '../search/configurations/priced.js';

/** Where configurations are simulated: the cluster, and the work of the model's parts. */
export interface SimulatedOn {
  readonly cluster: Cluster;
  readonly works: (tp: number, microBatch: number) => ModelWork;
}

/**
 * The few best in the order of their steps as every action of the schedule is simulated. Closed forms are bounds from below, so
 * that what is above the best simulated step stays behind it. Of the same combinations of degrees other cuts and chunks are
 * simulated too, as far as they may be faster: the best closed form is that of stages which may wait for each other most.
 */
export function simulatedFirst(found: Found, on: SimulatedOn): Found {
  const few = found.best.slice(0, MOST_SIMULATED);
  const [usual] = few;
  if (!usual) return found;
  let first = usual;
  let least = Number.POSITIVE_INFINITY;
  let left = MOST_ACTIONS_OF_ALL;
  const simulated = new Map<Priced, number>();
  const look = (contenders: readonly Priced[], share: number) => {
    for (const priced of contenders) {
      if (priced.seconds >= least * share || left < 0) return;
      left -= actionsOf(priced);
      const seconds = simulatedSeconds(priced, on);
      simulated.set(priced, seconds);
      if (seconds < least * share) [first, least] = [priced, seconds];
    }
  };
  look(few, 1);
  look(othersOf(few, found), EVEN_ENOUGH);
  if (first === usual) return found;
  // What the closed form calls faster says why it was not taken.
  const told = (priced: Priced): Priced => {
    const seconds = simulated.get(priced);
    return priced.seconds < first.seconds && seconds !== undefined ? { ...priced, simulatedSeconds: seconds } : priced;
  };
  return ledBy(first, {
    ...found,
    best: found.best.map(told),
    verdicts: found.verdicts.map((verdict) =>
      verdict.kind === 'priced' ? { ...verdict, best: told(verdict.best) } : verdict,
    ),
  });
}

/** What was found, with another configuration than the fastest in the first place and in that of its degrees. */
export function ledBy(first: Priced, found: Found): Found {
  const { degrees } = first.configuration;
  return {
    ...found,
    best: [first, ...found.best.filter(({ configuration }) => configuration.degrees !== degrees)],
    verdicts: [
      { kind: 'priced', degrees, best: first },
      ...found.verdicts.filter((verdict) => verdict.degrees !== degrees),
    ],
  };
}

/** What else of the same combinations fits, least first. */
function othersOf(few: readonly Priced[], { fitting }: Found): readonly Priced[] {
  const degrees = new Set(few.map(({ configuration }) => configuration.degrees));
  return fitting
    .filter((priced) => degrees.has(priced.configuration.degrees) && !few.includes(priced))
    .sort((a, b) => a.seconds - b.seconds);
}

/** Seconds of a step, every action of its schedule simulated where it has few enough; else by its closed form. */
export function simulatedSeconds(priced: Priced, { cluster, works }: SimulatedOn): number {
  const { configuration, seconds } = priced;
  const { degrees, microBatch } = configuration;
  if (degrees.pp === 1 || actionsOf(priced) > MOST_ACTIONS) return seconds;
  return priceStepExactly(works(degrees.tp, microBatch), configuration, cluster, STEP_CONSTANTS).stepSeconds;
}

/** Actions of the schedule: each micro-batch forward and backward through each chunk. */
function actionsOf({ configuration: { degrees, virtualStages, globalBatch, microBatch } }: Priced): number {
  return (2 * degrees.pp * virtualStages * globalBatch) / (microBatch * degrees.dp);
}

/**
 * Of the best combinations, how many are simulated; and the actions of a schedule up to which one is: a tenth of a second; of
 * all.
 */
const MOST_SIMULATED = 3;
const MOST_ACTIONS = 3e5;
const MOST_ACTIONS_OF_ALL = 6e5;
