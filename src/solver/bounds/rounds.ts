/**
 * @file Rounds of local search on a core: where each begins, how hot it is, how wide its moves are, how long it lasts.
 */
import type { SolverLevel } from './level.js';
import type { LocalSearch } from './local-search.js';

/** Results of a bound that help a search: prices of rows, of the whole limit, and the favoured state of each variable. */
export interface Advice {
  readonly rows: readonly number[];
  readonly prices: readonly number[];
  readonly favoured: Int32Array;
}

/** Gain, as a share of the cost, that is reported before a round ends. */
const STEP = 0.005;
/** Table entries that a round looks at, the first time: so many, and so many for each variable. */
const ROUND = 2e7;
const VISITS = 2e4;
/**
 * Temperatures of rounds, at their start and their end, in mean costs of a variable; widths of trees, wide enough for all
 * readers of one tensor; and lengths, in ROUND. Where memory is tight or states are many, only heat leads from one way of
 * sharding a whole graph to another; where there are thousands of variables, most of the gain is in the cold.
 */
const ROUNDS = [
  { hot: 1.5, cold: 0.015, width: 2000, length: 1 },
  { hot: 0.06, cold: 0.0006, width: 500, length: 1 },
  { hot: 5, cold: 0.02, width: 2000, length: 10 },
  { hot: 20, cold: 0.02, width: 2000, length: 25 },
] as const;
/** The coldest round, for searches with little time. */
export const COLDEST = 1;

export interface SearchRound {
  readonly number: number;
  /** Whether hot rounds have all the time that they need. */
  readonly isLong: boolean;
  /** Share of the usual length, and the table entries that are looked at, at most. */
  readonly share: number;
  readonly most: number;
  /** Mean cost of a variable. */
  readonly scale: number;
  /** The best cost of anything so far, at any moment. */
  known(): number;
  take(states: readonly number[], cost: number): void;
  stop(): boolean;
}

/** Searches for a round, and offers assignments that are better than the best known. */
export function searchRound(
  { core, constant, expand }: SolverLevel,
  search: LocalSearch,
  advice: Advice,
  round: SearchRound,
): void {
  const { hot, cold, width, length: relative } = ROUNDS[round.number % ROUNDS.length] as (typeof ROUNDS)[number];
  search.price(advice.rows, advice.prices);
  if (round.number % 3 === 0 || !search.best) search.restart(advice.favoured);
  else search.restart(search.best.states);
  const usual = (ROUND * (round.isLong ? relative : 1) + VISITS * core.count) * (1 + round.number / 4);
  const length = Math.min(usual * round.share, round.most);
  const offer = (below: number) => {
    const found = search.best;
    if (found && found.cost + constant < round.known() * below) round.take(expand(found.states), found.cost + constant);
  };
  // A round may be long: it reports large gains on the way, and small ones at its end.
  search.anneal(length, [round.scale * hot, round.scale * cold], width, () => {
    offer(1 - STEP);
    return round.stop();
  });
  offer(1);
}
