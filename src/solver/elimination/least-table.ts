/**
 * @file The size of a table that elimination must make in any order: it shows beforehand that a problem is too dense for it.
 */
import type { CostProblem } from '../problem.js';

/** Logarithms are counted in this many parts of a doubling, rounded down. */
const PARTS = 8;

/**
 * Doublings that the largest table has at least, before states are dropped: some order has none smaller than 2^ this.
 *
 * In any order, one variable of a set goes first, and leaves a table over all its neighbours in the set. So the least that a
 * variable of the set has around it is a bound, and the best set is found by taking away, again and again, the variable
 * with least around it (degeneracy: Lick and White 1970; as a bound on tree-width: Koster, Bodlaender and van Hoesel 2001).
 */
export function leastTableDoublings({ sizes, factors }: CostProblem): number {
  const neighbours = sizes.map(() => new Set<number>());
  for (const { variables } of factors) {
    for (const one of variables) for (const other of variables) if (one !== other) neighbours[one]?.add(other);
  }
  const weights = sizes.map((size) => Math.floor(PARTS * Math.log2(size)));
  const around = neighbours.map((near) => [...near].reduce((sum, other) => sum + (weights[other] as number), 0));
  const waiting: number[][] = [];
  const wait = (variable: number) => {
    const at = around[variable] as number;
    waiting[at] ??= [];
    waiting[at].push(variable);
  };
  for (const variable of sizes.keys()) wait(variable);
  const isGone = sizes.map(() => false);
  let most = 0;
  for (let at = 0; at < waiting.length; ) {
    const variable = waiting[at]?.pop();
    if (variable === undefined) {
      at += 1;
      continue;
    }
    // An entry for a variable that has gone, or that has less around it by now, is out of date.
    if (isGone[variable] || around[variable] !== at) continue;
    isGone[variable] = true;
    most = Math.max(most, at);
    for (const other of neighbours[variable] as Set<number>) {
      if (isGone[other]) continue;
      around[other] = (around[other] as number) - (weights[variable] as number);
      wait(other);
      at = Math.min(at, around[other] as number);
    }
  }
  return most / PARTS;
}
