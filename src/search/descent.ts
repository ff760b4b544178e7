/**
 * @file Improvement of an assignment by changing one variable at a time, until none can be improved. Used where
 * elimination had to approximate.
 */
import type { CostFactor, CostProblem } from './cost-problem.js';
import { costOf } from './cost-problem.js';

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
      // What nothing changed around is as good as it was.
      if (!isWaiting[variable]) continue;
      isWaiting[variable] = false;
      const factors = factorsOf[variable] as CostFactor[];
      const before = states[variable] as number;
      costs.fill(0, 0, size);
      for (const factor of factors) addCosts(costs, size, factor, variable, states);
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

/** Adds to the costs of a variable's states what they cost in a factor beside the others' states. */
function addCosts(
  costs: Float64Array,
  count: number,
  { variables, table: { sizes, values } }: CostFactor,
  variable: number,
  states: readonly number[],
): void {
  let [start, stride] = [0, 0];
  for (let position = 0; position < variables.length; position++) {
    const size = sizes[position] as number;
    const isOwn = variables[position] === variable;
    start = start * size + (isOwn ? 0 : (states[variables[position] as number] as number));
    stride = isOwn ? 1 : stride * size;
  }
  for (let state = 0, at = start; state < count; state++, at += stride)
    costs[state] = (costs[state] as number) + (values[at] as number);
}
