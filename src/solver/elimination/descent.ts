/**
 * @file Improvement of an assignment by changing one variable at a time, until none can be improved. Used where
 * elimination had to approximate.
 */
import { addCosts, type CostFactor, type CostProblem, costOf } from '../problem.js';

/** A rounds limit only guards against pathological inputs: every round lowers an integer cost. */
const ROUNDS = 1000;

/** The local optimum that single changes reach from `start`; variables in order, first best state. */
export function descend(problem: CostProblem, start: readonly number[]): { states: readonly number[]; cost: number } {
  const states = [...start];
  const factorsOf: CostFactor[][] = problem.sizes.map(() => []);
  for (const factor of problem.factors) for (const variable of factor.variables) factorsOf[variable]?.push(factor);
  const isWaiting = problem.sizes.map(() => true);
  const costs = new Float64Array(problem.sizes.reduce((most, size) => Math.max(most, size), 1));
  for (let round = 0; round < ROUNDS; round++) {
    let changed = false;
    for (const [variable, size] of problem.sizes.entries()) {
      // A variable without a changed neighbour is as good as it was.
      if (!isWaiting[variable]) continue;
      isWaiting[variable] = false;
      const factors = factorsOf[variable] as CostFactor[];
      const before = states[variable] as number;
      costs.fill(0, 0, size);
      for (const { variables, table } of factors)
        addCosts(costs, table, variables.indexOf(variable), (other) => states[variables[other] as number] as number);
      let best = before;
      for (let state = 0; state < size; state++) {
        if ((costs[state] as number) < (costs[best] as number)) best = state;
      }
      if (best === before) continue;
      states[variable] = best;
      changed = true;
      for (const { variables } of factors)
        for (const other of variables) if (other !== variable) isWaiting[other] = true;
    }
    if (!changed) break;
  }
  return { states, cost: costOf(problem, states) };
}
