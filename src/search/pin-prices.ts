/**
 * @file Prices of pins: for operators of a mesh's problem, the cheapest assignment with another placement than the plan's.
 *
 *     alone      the first of the operators that are alike has another placement, whichever costs least: its min-marginal
 *     together   all of them have that placement
 *
 * A placement is the part of a strategy that a pin can fix (`factors`): axes on factors and on their pieces, not the handling of
 * partial sums. Each such operator has a table of zeros; an answer solves the problem with another table in its place, so
 * elimination repeats only the steps that depend on that table. Prices that answers use are made exact, as in the search. Where
 * elimination exceeds its limits, the cost is that of an assignment that was found, and the bound is the least that it may be.
 */
import type { Node } from '../ir/graph.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import type { Deadline } from '../solver/deadline.js';
import { type CostFactor, type CostProblem, type CostSolution, type CostTable, costOf } from '../solver/problem.js';
import { solve, TableAlgebra } from '../solver/solve.js';
import type { MeshProblem } from './mesh-problem.js';
import { isForbidden } from './pin-conflict.js';

/** Operators of equal structure that the plan places alike. */
export interface AlikeOperators {
  /** `alone` moves only the first. */
  readonly nodes: readonly Node[];
  readonly strategy: Strategy;
}

/** An assignment in which operators have another placement; integer nanoseconds of a step. */
export interface PinnedAssignment {
  readonly states: readonly number[];
  readonly cost: number;
  /** Lower bound on the cost; equal to it where that is proven. */
  readonly bound: number;
  /** The problem that it solves: the mesh's, with the forbidden states. */
  readonly problem: MeshProblem;
}

/** Equal for strategies that the same pin asks for. */
export function placementKey({ axes, pieces = {} }: Strategy): string {
  const placed = Object.entries(axes).filter(([, names]) => names.length > 0);
  const sorted = (entries: readonly (readonly [string, readonly unknown[]])[]) =>
    [...entries].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, list]) => `${name}:${list.join()}`);
  return [...sorted(placed), '|', ...sorted(Object.entries(pieces))].join(' ');
}

/** Prices of pins on a mesh, one set of like operators at a time. */
export class PinPricing {
  private readonly algebra = new TableAlgebra();
  /** One for the first operator of each such set, then one for each of its operators. */
  private readonly zeros: readonly CostFactor[];
  private readonly factorsOf: ReadonlyMap<AlikeOperators, readonly CostFactor[]>;

  constructor(
    private readonly mesh: MeshProblem,
    alikes: readonly AlikeOperators[],
    private readonly deadline: Deadline,
  ) {
    const { operators } = mesh.groups.variables;
    this.factorsOf = new Map(
      alikes.map((alikeOperators) => {
        const [first, ...others] = alikeOperators.nodes.map((node) => operators.get(node));
        if (!first) throw new Error(`${alikeOperators.nodes[0]?.name} is not an operator of the mesh`);
        const size = first.set.strategies.length;
        // Operators with other candidates have the same placement in the plan, but not the same choices.
        const alike = others.flatMap((other) => (other?.set === first.set ? [other.variable] : []));
        const table = zeros(size);
        const all = alike.length === others.length && alike.length > 0 ? [first.variable, ...alike] : [];
        return [
          alikeOperators,
          [
            { variables: [first.variable], table: zeros(size) },
            ...all.map((variable) => ({ variables: [variable], table })),
          ],
        ];
      }),
    );
    this.zeros = [...this.factorsOf.values()].flat();
  }

  /** Solves the problem with nothing forbidden, on which answers build. @throws NoAssignment if all assignments are forbidden */
  async begin(): Promise<void> {
    await this.solve(new Map());
  }

  /** The cheapest assignment in which the first operator has another placement; null if none. */
  async alone(alikeOperators: AlikeOperators): Promise<PinnedAssignment | null> {
    const [first] = this.factorsOf.get(alikeOperators) ?? [];
    const own = placementKey(alikeOperators.strategy);
    const keys = this.keysOf(alikeOperators);
    if (!first || keys.every((key) => key === own)) return null;
    return this.solveWhere(first.table, (state) => keys[state] !== own);
  }

  /** The cheapest in which all that are alike have a placement; null where there is but one, or no such assignment. */
  async together(alikeOperators: AlikeOperators, strategy: Strategy): Promise<PinnedAssignment | null> {
    const [, shared] = this.factorsOf.get(alikeOperators) ?? [];
    const keys = this.keysOf(alikeOperators);
    const wanted = placementKey(strategy);
    return shared ? this.solveWhere(shared.table, (state) => keys[state] === wanted) : null;
  }

  private keysOf({ nodes: [first] }: AlikeOperators): readonly string[] {
    const operator = first && this.mesh.groups.variables.operators.get(first);
    return operator?.set.strategies.map(placementKey) ?? [];
  }

  private async solveWhere(zero: CostTable, isAllowed: (state: number) => boolean): Promise<PinnedAssignment | null> {
    const table = tableOf(zero.values.length, (state) => (isAllowed(state) ? 0 : Infinity));
    try {
      return await this.solve(new Map([[zero, table]]));
    } catch (error) {
      if (isForbidden(error)) return null;
      throw error;
    }
  }

  private async solve(tables: ReadonlyMap<CostTable, CostTable>): Promise<PinnedAssignment> {
    const { groups } = this.mesh;
    const added = this.zeros.map((zero) => ({ ...zero, table: tables.get(zero.table) ?? zero.table }));
    const forbidding = added.filter(({ table }) => table.values.includes(Infinity));
    const problem: MeshProblem = {
      ...this.mesh,
      groups: { ...groups, problem: () => joined(groups.problem(), forbidding) },
    };
    let best: CostSolution | undefined;
    for (;;) {
      const { algebra, deadline } = this;
      const found = await solve(joined(groups.problem(), added), { work: 0, algebra, deadline });
      const isExact = !groups.refine(found.states);
      const cost = costOf(problem.groups.problem(), found.states);
      const bound = Math.max(best?.bound ?? 0, found.bound);
      best = best && best.cost <= cost ? { ...best, bound } : { states: found.states, cost, bound };
      if (isExact) return { ...best, bound: Math.min(best.bound, best.cost), problem };
    }
  }
}

function joined({ sizes, factors }: CostProblem, added: readonly CostFactor[]): CostProblem {
  return { sizes, factors: [...added, ...factors] };
}

function zeros(size: number): CostTable {
  return tableOf(size, () => 0);
}

function tableOf(size: number, value: (state: number) => number): CostTable {
  return { sizes: [size], values: Float64Array.from({ length: size }, (_, state) => value(state)) };
}
