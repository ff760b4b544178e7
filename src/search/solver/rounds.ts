/**
 * @file Rounds of local search on a core: where each begins, how hot it is, how wide its moves are, how long it lasts.
 */
import type { Level } from './level.js';
import type { LocalSearch } from './local-search.js';

/** What a bound knows that helps a search: prices of rows, of the whole limit, and the state favoured for each variable. */
export interface Advice {
  readonly rows: readonly number[];
  readonly prices: readonly number[];
  readonly favoured: Int32Array;
}

/** Gain, as a share of the cost, that is told before a round ends. */
const STEP = 0.005;
/** Table entries that a round looks at, the first time: so many, and so many for each variable. */
const ROUND = 2e7;
const VISITS = 2e4;
/** Temperatures of rounds, as shares of the cost; and blocks' widths, wide enough for what reads one tensor everywhere. */
const ROUNDS = [
  { heat: 3e-4, width: 2000 },
  { heat: 1e-4, width: 500 },
  { heat: 1e-3, width: 200 },
  { heat: 3e-5, width: 2000 },
] as const;

export interface Round {
  readonly number: number;
  /** Share of the usual length, and the table entries that are looked at, at most. */
  readonly share: number;
  readonly most: number;
  /** A cost near those that are looked for: heat is a share of it. */
  readonly scale: number;
  /** The best cost of anything so far, told whenever it is asked. */
  known(): number;
  take(states: readonly number[], cost: number): void;
  stop(): boolean;
}

/** Searches for a round, and offers what is better than all that is known. */
export function searchRound(
  { core, constant, expand }: Level,
  search: LocalSearch,
  advice: Advice,
  round: Round,
): void {
  const { heat, width } = ROUNDS[round.number % ROUNDS.length] as (typeof ROUNDS)[number];
  search.price(advice.rows, advice.prices);
  if (round.number % 3 === 0 || !search.best) search.restart(advice.favoured);
  else search.restart(search.best.states);
  const length = Math.min((ROUND + VISITS * core.count) * (1 + round.number / 4) * round.share, round.most);
  const offer = (below: number) => {
    const found = search.best;
    if (found && found.cost + constant < round.known() * below) round.take(expand(found.states), found.cost + constant);
  };
  // A round may be long: what it finds is told on the way, the small steps at its end.
  search.anneal(length, [round.scale * heat, round.scale * heat * 0.01], width, () => {
    offer(1 - STEP);
    return round.stop();
  });
  offer(1);
}
