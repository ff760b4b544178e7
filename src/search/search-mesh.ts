/**
 * @file One mesh, searched in the mode that is asked for: by exact elimination, an integer program, or recursive halving. Can be
 * interrupted, and ended by the user's time limit with the best so far and its gap.
 *
 *     auto                    elimination; the integer program where its tables would be too large
 *     dynamic_programming     elimination; where tables would be too large: bounds, branches and local search of the solver
 *     ilp                     reduction and integer program (solver/)
 *     recursive_programming   recursive-halving.ts, with the bound of elimination in small tables
 */

import type { Cluster } from '../cost-model/cluster.js';
import type { Graph } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import { best, effortFor, isClose, isLaborious, isWorthSolving, LARGE, ROUGH, SMALL } from './cheapest.js';
import { type CostProblem, type CostSolution, costOf } from './cost-problem.js';
import { type Deadline, OutOfTime } from './deadline.js';
import { type EliminationLimits, eliminate, eliminateInTurns } from './elimination.js';
import { candidateSets, type MeshOptions, type MeshProblem, meshProblem } from './mesh-problem.js';
import { type Halved, halve } from './recursive-halving.js';
import type { SolverName, UsedMode } from './search-mode.js';
import { type MeshSolution, meshSolution } from './solve-mesh.js';
import { solveApart } from './solver/solve-apart.js';
import { TableAlgebra } from './table-algebra.js';

export interface SearchOptions extends MeshOptions {
  readonly mode: Exclude<UsedMode, 'sharding_propagation'> | 'auto';
  readonly solver: SolverName;
  readonly deadline: Deadline;
}

export interface SearchedMesh extends MeshSolution {
  readonly mode: UsedMode;
  /** The time was over before the search was. */
  readonly isCut: boolean;
}

/** Table entries that an integer program's solver may look at, in a round: about a second. */
const EFFORT = { work: 1e8 };
/** Tables of the relaxation that bounds recursive halving: small, so that the work stays linear. */
const RELAXED: EliminationLimits = { tableEntries: 4096, tableWork: 131_072 };
/** Rounds of recursive halving: in each, redistributions that the one before used have their exact prices. */
const HALVING_ROUNDS = 4;

/** A solution, and how it was found. */
interface Found extends CostSolution {
  readonly mode: UsedMode;
  /** Prices that it uses were only bounds, and have been made exact since. */
  readonly isRefined?: boolean;
}

/**
 * The best assignment of a mesh that the mode finds.
 * @throws OutOfTime where the time is over before there is any; RangeError where every assignment is forbidden
 */
export async function searchMesh(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: SearchOptions,
): Promise<SearchedMesh> {
  const problem = await meshProblemInTurns(graph, mesh, cluster, options);
  const { mode, isCut, ...solution } = await searchProblem(problem, options);
  return { ...meshSolution(problem, solution), mode, isCut };
}

/** The problem of a mesh; an interruption is looked for between operators. */
export async function meshProblemInTurns(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: SearchOptions,
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

async function searchProblem(
  { groups, mesh }: MeshProblem,
  options: SearchOptions,
): Promise<Found & { readonly isCut: boolean }> {
  const { deadline } = options;
  const solve = solverOf(options, deadline, groups);
  let best: Found | undefined;
  let [bound, isCut] = [-Infinity, false];
  try {
    for (let round = 0; ; round++) {
      const problem = groups.problem();
      const halved = options.mode === 'recursive_programming' ? halvedOperators(groups.variables, mesh) : [];
      const found = await solve(problem, halved);
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
    bound = eliminate(groups.problem(), new TableAlgebra(), RELAXED).bound;
  }
  return { ...best, bound: Math.min(best.cost, Math.max(0, bound)), isCut: isCut || deadline.isOver() };
}

/** Solves a problem whose prices may be bounds. */
type Solve = (problem: CostProblem, operators: readonly Halved[]) => Promise<Found>;

function solverOf(options: SearchOptions, deadline: Deadline, groups: MeshProblem['groups']): Solve {
  const algebra = new TimedAlgebra(deadline);
  switch (options.mode) {
    case 'ilp':
      return (problem) => solvedApart(problem, EFFORT, options.solver, deadline);
    case 'recursive_programming':
      return async (problem, operators) => {
        const halved = halve(problem, operators);
        // Decisions that are never taken back may forbid each other.
        const isPossible = costOf(problem, halved) < Infinity;
        const states = isPossible ? halved : eliminate(problem, new TableAlgebra(), RELAXED).states;
        return { states, cost: costOf(problem, states), bound: 0, mode: 'recursive_programming' };
      };
    default: {
      let isRough = isLaborious(groups.problem());
      if (isRough) groups.foresee();
      return async (problem) => {
        if (isRough) {
          const found = await eliminateInTurns(problem, algebra, ROUGH, deadline);
          if (groups.refine(found.states)) return { ...found, mode: 'dynamic_programming', isRefined: true };
          isRough = false;
          algebra.again = undefined;
        }
        const eliminated = await eliminateInTurns(problem, algebra, SMALL, deadline);
        const small: Found = { ...eliminated, mode: 'dynamic_programming' };
        if (small.bound === small.cost) return small;
        // What elimination in small tables leaves open is only looked at when its own answer stands.
        if (groups.refine(small.states)) return { ...small, isRefined: true };
        if (!isWorthSolving(small, problem)) return small;
        const isAuto = options.mode === 'auto';
        const other = await solvedApart(problem, effortFor(small), isAuto ? options.solver : 'none', deadline).catch(
          orNone,
        );
        if (!other) return small;
        const mode = isAuto ? 'ilp' : 'dynamic_programming';
        const better = best(small, other);
        if (isClose(better)) return { ...better, mode };
        const large = await eliminateInTurns(problem, new TimedAlgebra(deadline), LARGE, deadline).catch(orNone);
        return { ...(large ? best(better, large) : better), mode };
      };
    }
  }
}

/** The time being over leaves what is known already. */
function orNone(error: unknown): null {
  if (error instanceof OutOfTime) return null;
  throw error;
}

async function solvedApart(
  problem: CostProblem,
  { work }: { readonly work: number },
  solver: SolverName,
  deadline: Deadline,
): Promise<Found> {
  const task = {
    problem: { ...problem, uses: [], limit: Infinity },
    effort: { work },
    solver,
    within: deadline.left(),
  };
  const { states, cost, bound } = await solveApart(task, deadline.signal ? { signal: deadline.signal } : {});
  deadline.signal?.throwIfAborted();
  if (!states) throw new OutOfTime('the time limit is over before any plan');
  return { states, cost, bound: Math.max(0, bound), mode: 'ilp' };
}

/** Looks at the clock before each table that it makes. */
class TimedAlgebra extends TableAlgebra {
  constructor(private readonly deadline: Deadline) {
    super();
  }

  override eliminate(...work: Parameters<TableAlgebra['eliminate']>): ReturnType<TableAlgebra['eliminate']> {
    this.deadline.check();
    return super.eliminate(...work);
  }
}

/** Operators as recursive halving looks at them. */
function halvedOperators({ operators }: MeshProblem['groups']['variables'], mesh: Mesh): readonly Halved[] {
  const axes = subAxes(mesh).map(({ name }) => name);
  const known = new Map<object, Halved['places']>();
  return [...operators.values()].map(({ variable, set }) => {
    const places = known.get(set) ?? set.strategies.map((strategy) => axes.map((axis) => placeOf(strategy, axis)));
    known.set(set, places);
    return { variable, places };
  });
}

/** Where a sub-axis lies: on a factor, on what is carried, or nowhere. */
function placeOf({ axes, carried }: Strategy, axis: string): string {
  if (carried?.axes.includes(axis)) return `+${carried.set}`;
  return Object.entries(axes).find(([, names]) => names.includes(axis))?.[0] ?? '';
}
