/**
 * @file One mesh, searched in the requested mode: by exact elimination, an integer program, or recursive halving. Can be
 * interrupted, and ended by the user's time limit with the best so far and its gap.
 *
 *     auto                    elimination; the integer program where its tables would be too large
 *     dynamic_programming     elimination; where tables would be too large: bounds, branches and local search of the solver
 *     ilp                     reduction and integer program (solver/)
 *     recursive_programming   recursive-halving.ts, with the bound of elimination in small tables
 */

import type { Cluster } from '../cost-model/cluster.js';
import type { Graph } from '../ir/graph.js';
import { madeOnce } from '../ir/remembered.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import { type Deadline, OutOfTime } from '../solver/deadline.js';
import { type CostProblem, type CostSolution, costOf } from '../solver/problem.js';
import { type Effort, type EliminationLimits, isLaborious, solve, TableAlgebra } from '../solver/solve.js';
import { candidateSets, type MeshOptions, type MeshProblem, meshProblem } from './mesh-problem.js';
import { type HalvedVariable, halve } from './recursive-halving.js';
import type { SolverName, UsedMode } from './search-mode.js';
import { type MeshSolution, meshSolution } from './solve-mesh.js';

export interface MeshSearchOptions extends MeshOptions {
  readonly mode: Exclude<UsedMode, 'sharding_propagation'> | 'auto';
  readonly solver: SolverName;
  readonly deadline: Deadline;
}

export interface SearchedMesh extends MeshSolution {
  readonly mode: UsedMode;
  /** Whether the time was over before the search ended. */
  readonly isCut: boolean;
}

/** Table entries that the solver may look at, in a round: about a second. */
const EFFORT = { work: 1e8 };
/** The relaxation that bounds recursive halving: in small tables, so that the work stays linear. */
const RELAXED = { work: 0, tables: { tableEntries: 4096, tableWork: 131_072 } };
/**
 * Limits of elimination while prices are still bounds, where a problem is too dense for it: its result only shows which prices
 * to make exact, and small tables give that in a tenth of the time.
 */
const ROUGH: EliminationLimits = { tableEntries: 512, tableWork: 16_384, growth: 400 };
/** Rounds of recursive halving: in each, reshardings that the one before used have their exact prices. */
const HALVING_ROUNDS = 4;

/** A solution, and how it was found. */
interface FoundSolution extends CostSolution {
  readonly mode: UsedMode;
  /** Whether prices that it uses were only bounds, and have been made exact since. */
  readonly isRefined?: boolean;
}

/**
 * The best assignment of a mesh that the mode finds.
 * @throws OutOfTime where the time is over before there is any; NoAssignment where every assignment is forbidden
 */
export async function searchMesh(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshSearchOptions,
): Promise<SearchedMesh> {
  const problem = await meshProblemInTurns(graph, mesh, cluster, options);
  const { mode, isCut, ...solution } = await searchProblem(problem, options);
  return { ...meshSolution(problem, solution), mode, isCut };
}

/** The problem of a mesh; interruptions are handled between operators. */
export async function meshProblemInTurns(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshSearchOptions,
): Promise<MeshProblem> {
  const { deadline } = options;
  const check = () => deadline.check();
  const candidates = candidateSets(graph, mesh, cluster, options, check);
  for (const node of graph.nodes) {
    candidates(node);
    await deadline.pause();
  }
  return meshProblem(graph, mesh, cluster, options, candidates, check);
}

/** The same for a problem that is already built. */
export async function searchProblem(
  { groups, mesh }: Pick<MeshProblem, 'groups' | 'mesh'>,
  options: Pick<MeshSearchOptions, 'mode' | 'solver' | 'deadline'>,
): Promise<FoundSolution & { readonly isCut: boolean }> {
  const { deadline } = options;
  const solveRound = solverOf(options, deadline, groups);
  let best: FoundSolution | undefined;
  let [bound, isCut] = [-Infinity, false];
  try {
    for (let round = 0; ; round++) {
      const problem = groups.problem();
      const halved = options.mode === 'recursive_programming' ? halvedOperators(groups.variables, mesh) : [];
      const found = await solveRound(problem, halved);
      bound = Math.max(bound, found.bound);
      const isExact = !found.isRefined && !groups.refine(found.states);
      const cost = costOf(groups.problem(), found.states);
      if (!best || cost < best.cost) best = { ...found, cost };
      if (isExact || (options.mode === 'recursive_programming' && round + 1 >= HALVING_ROUNDS)) break;
      await deadline.pause();
    }
  } catch (error) {
    if (!(error instanceof OutOfTime) || !best) throw error;
    isCut = true;
  }
  if (options.mode === 'recursive_programming' && !isCut) {
    ({ bound } = await solve(groups.problem(), RELAXED));
  }
  return { ...best, bound: Math.min(best.cost, Math.max(0, bound)), isCut: isCut || deadline.isOver() };
}

/** Solves a problem whose prices may be bounds. */
type Solve = (problem: CostProblem, operators: readonly HalvedVariable[]) => Promise<FoundSolution>;

function solverOf(
  options: Pick<MeshSearchOptions, 'mode' | 'solver'>,
  deadline: Deadline,
  groups: MeshProblem['groups'],
): Solve {
  const { mode, solver } = options;
  const programs = mode === 'dynamic_programming' ? 'none' : solver;
  const algebra = new TableAlgebra();
  const bounded = async (problem: CostProblem, effort: Pick<Effort, 'tables' | 'known'>) => {
    const found = await solve(problem, { ...EFFORT, ...effort, programs, deadline });
    deadline.signal?.throwIfAborted();
    return found;
  };
  switch (mode) {
    case 'ilp':
      return async (problem) => {
        const { states, ...found } = await bounded(problem, { tables: null });
        if (!states) throw new OutOfTime('the time limit ended before any plan');
        return { ...found, states, mode };
      };
    case 'recursive_programming':
      return async (problem, operators) => {
        const halved = halve(problem, operators);
        // Decisions are final, so they may forbid each other.
        const isPossible = costOf(problem, halved) < Infinity;
        const states = isPossible ? halved : (await solve(problem, RELAXED)).states;
        return { states, cost: costOf(problem, states), bound: 0, mode };
      };
    default: {
      const found = (answer: CostSolution): FoundSolution => ({ ...answer, mode: 'dynamic_programming' });
      let isRough = isLaborious(groups.problem());
      if (isRough) groups.foresee();
      return async (problem) => {
        if (isRough) {
          const rough = await solve(problem, { work: 0, tables: ROUGH, algebra, deadline });
          if (groups.refine(rough.states)) return { ...found(rough), isRefined: true };
          isRough = false;
          algebra.again = undefined;
        }
        const known = await solve(problem, { work: 0, algebra, deadline });
        if (known.bound === known.cost) return found(known);
        // The gap that elimination in small tables leaves is only worked on once the prices of its own answer are exact.
        if (groups.refine(known.states)) return { ...found(known), isRefined: true };
        const { by, states, ...more } = await bounded(problem, { known });
        const isOther = mode === 'auto' && by === 'bounds';
        return { ...found({ ...more, states: states ?? known.states }), ...(isOther ? { mode: 'ilp' } : {}) };
      };
    }
  }
}

/** The operators for recursive halving. */
function halvedOperators({ operators }: MeshProblem['groups']['variables'], mesh: Mesh): readonly HalvedVariable[] {
  const axes = subAxes(mesh).map(({ name }) => name);
  const known = new Map<object, HalvedVariable['places']>();
  return [...operators.values()].map(({ variable, set }) => {
    const places = madeOnce(known, set, () =>
      set.strategies.map((strategy) => axes.map((axis) => placeOf(strategy, axis))),
    );
    return { variable, places };
  });
}

/** The place of a sub-axis: a factor, the partial sums of its operands, or none. */
function placeOf({ axes, partialOperands }: Strategy, axis: string): string {
  if (partialOperands?.axes.includes(axis)) return `+${partialOperands.set}`;
  return Object.entries(axes).find(([, names]) => names.includes(axis))?.[0] ?? '';
}
