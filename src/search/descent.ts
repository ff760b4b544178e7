/**
 * @file Improvement of an assignment by changing one variable at a time, until none can be improved. Used where
 * elimination had to approximate.
 */
import type { CostFactor, CostProblem } from './cost-problem.js';
import { costOf, entryAt } from './cost-problem.js';

/** A rounds limit only guards against pathological inputs: every round lowers an integer cost. */
const ROUNDS = 1000;

/** The local optimum that single changes reach from `start`; variables in order, first best state. */
export function descend(problem: CostProblem, start: readonly number[]): { states: readonly number[]; cost: number } {
  const states = [...start];
  const factorsOf: CostFactor[][] = problem.sizes.map(() => []);
  for (const factor of problem.factors) for (const variable of factor.variables) factorsOf[variable]?.push(factor);
  for (let round = 0; round < ROUNDS; round++) {
    let changed = false;
    problem.sizes.forEach((size, variable) => {
      const before = states[variable] as number;
      const costAt = (state: number) => {
        states[variable] = state;
        return (factorsOf[variable] ?? []).reduce((sum, factor) => sum + entryAt(factor, states), 0);
      };
      let best = before;
      let least = costAt(before);
      for (let state = 0; state < size; state++) {
        const cost = costAt(state);
        if (cost < least) [best, least] = [state, cost];
      }
      states[variable] = best;
      if (best !== before) changed = true;
    });
    if (!changed) break;
  }
  return { states, cost: costOf(problem, states) };
}
