/**
 * @file The cheapest assignment of a mesh that fits a memory limit.
 *
 * The uses of memory-uses.ts are a relaxation: no assignment needs less. So
 *
 *     a bound that the solver proves for the relaxed problem holds for every assignment that fits
 *     where it has no solution, none fits
 *     where its solution, lowered, fits, that is the optimum (within the solver's gap)
 *
 * Where the lowered solution needs more (a resharding holds both ends), the excess over its uses is learnt as a use of the few
 * variables that it depends on (mesh-need.ts), and the problem is solved again: the bound stays valid, and rises.
 * Where nothing can be learnt, the excess is set aside at the operators concerned. Such plans are valid, but bytes set aside
 * prove no bound: the gap to the earlier bound is printed. The same holds for memory of sessions and buffers on ranks of this
 * machine beside live tensors: it depends on the whole plan, and as much is left free as plans show.
 */
import type { Cluster } from '../cost-model/cluster.js';
import type { Graph } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { OutOfTime } from '../solver/deadline.js';
import { type Answer, type CostSolution, costOf, NoAssignment } from '../solver/problem.js';
import { LARGE, solve } from '../solver/solve.js';
import type { CompletedPlan, Fitting } from './completion.js';
import { leastPeak } from './live-peaks.js';
import { MeshNeed } from './mesh-need.js';
import type { MeshProblem } from './mesh-problem.js';
import { type MeshSearchOptions, meshProblemInTurns } from './search-mesh.js';
import { meshSolution } from './solve-mesh.js';

/** How much the solver may do: table entries that it looks at, and whether an integer program may take its time. */
interface SolverEffort {
  readonly work: number;
  readonly isProof: boolean;
  /** Whether any plan is sufficient. */
  readonly any?: boolean;
}

const QUICK: SolverEffort = { work: 2e7, isProof: false };
const PROOF: SolverEffort = { work: 2e8, isProof: true };
/** For any plan that fits, not the fastest. */
const ANY: SolverEffort = { ...QUICK, any: true };
/** Limits that are tried to find how much the smallest plan needs. */
const STEPS = 5;
/** Rounds of learning the excess of solutions over their uses; then, where none fits yet, of setting it aside. */
const LEARNING = 12;
const GUESSING = 12;
/** Rounds in which another part of the limit is left free, and the share of the limit to which that part is found. */
const FREEING = 10;
const CLOSE = 0.005;
/** The most plans that are ruled out one by one, and the most variables of graphs where that is done. */
const ONE_BY_ONE = 12;
const FEW_VARIABLES = 32;

/** @param limit bytes per device */
export async function fitMemory(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshSearchOptions,
  limit: number,
): Promise<Fitting> {
  const problem = await meshProblemInTurns(graph, mesh, cluster, options);
  return fitProblem(problem, options, limit);
}

/** The same for a problem that is already built, in which more states may be forbidden. */
export function fitProblem(
  problem: MeshProblem,
  options: Pick<MeshSearchOptions, 'deadline' | 'mode' | 'solver'>,
  limit: number,
): Promise<Fitting> {
  return new FittingMesh(problem, options, limit).run();
}

class FittingMesh {
  private readonly need: MeshNeed;
  /** By operator: the bytes by which lowered solutions exceeded their uses. */
  private readonly setAside = new Map<string, number>();
  private best: CostSolution | undefined;
  private least = Infinity;
  /** Bytes of `least` that are not live tensors. */
  private besides = 0;
  /**
   * Bytes of the limit left free for memory beside live tensors; and, for the last plan in the rest, its live and lacking bytes.
   */
  private free = 0;
  private lacking: { readonly alive: number; readonly bytes: number } | null = null;
  /** Lower bound on the cost of assignments that keep the limit; infinite where the uses of none do. */
  private bound = 0;

  constructor(
    private readonly problem: MeshProblem,
    private readonly options: Pick<MeshSearchOptions, 'deadline' | 'mode' | 'solver'>,
    private readonly limit: number,
  ) {
    this.need = new MeshNeed(problem);
  }

  async run(): Promise<Fitting> {
    const { deadline, mode } = this.options;
    let atLeast = leastPeak(this.need.problem().uses);
    if (atLeast <= this.limit) await this.inTime(() => this.searchFreeing());
    if (this.bound === Infinity) atLeast = Math.max(atLeast, this.limit + 1);
    if (!this.best) {
      // A fallback where nothing else was found: it may even fit.
      this.look(await this.economical());
      await this.inTime(async () => {
        if (this.bound < Infinity) await this.lowerLimits(atLeast);
        if (!this.best) atLeast = Math.max(atLeast, await this.closeIn(Math.max(atLeast, this.limit)));
      });
    }
    const { best, least } = this;
    if (!best) return { completed: null, least, atLeast };
    const solution = { ...best, bound: Math.min(best.cost, this.bound) };
    const completed: CompletedPlan = {
      ...meshSolution(this.problem, solution),
      mode: mode === 'dynamic_programming' ? mode : 'ilp',
      isCut: deadline.isOver(),
    };
    return { completed, least, atLeast };
  }

  /** Runs `work` until the time is over; everything found until then remains. */
  private async inTime(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof OutOfTime)) throw error;
    }
  }

  /**
   * Searches, again with more of the limit left free while plans lack memory beside live tensors, then with just what they need.
   */
  private async searchFreeing(): Promise<void> {
    await this.search();
    const { limit } = this;
    let [low, high] = [0, limit];
    let lacking = this.lacking;
    for (let round = 0; round < FREEING && lacking; round++) {
      // With less left free, that plan is still the answer.
      low = Math.max(low, limit - lacking.alive);
      if (high - low <= limit * CLOSE) break;
      const isBetween = this.best !== undefined || high < limit;
      this.free = isBetween ? Math.floor((low + high) / 2) : Math.min(limit, low + lacking.bytes);
      this.setAside.clear();
      this.lacking = null;
      await this.search();
      // `free` is too much where there is no plan, and enough where one fits.
      if (this.lacking) lacking = this.lacking;
      else high = this.free;
    }
    this.free = 0;
    if (lacking) await this.searchOneByOne();
  }

  /** Rules out plans, one by one, that are cheaper than the best and do not fit: near the least need, few plans fit. */
  private async searchOneByOne(): Promise<void> {
    if (this.problem.groups.problem().sizes.length > FEW_VARIABLES) return;
    for (let plan = 0; plan < ONE_BY_ONE; plan++) {
      this.setAside.clear();
      const { found, bound } = await this.relaxed(this.limit, [QUICK]);
      this.bound = Math.max(this.bound, bound);
      if (!found || (this.best && this.bound >= this.best.cost)) return;
      if (found.cost < (this.best?.cost ?? Infinity)) this.look(found);
      if (this.best?.cost === found.cost) return;
      this.need.learnTotal(found.states, this.need.lowered(found.states));
      this.options.deadline.check();
    }
  }

  private async search(): Promise<void> {
    for (let round = 0; round < LEARNING + GUESSING; round++) {
      const isGuess = this.setAside.size > 0 || this.free > 0;
      const { found, bound } = await this.relaxed(
        this.limit - this.free,
        round + this.free === 0 ? [QUICK, PROOF] : [QUICK],
      );
      // With bytes set aside the bound is a guess; with learnt uses only it is valid.
      if (!isGuess) this.bound = Math.max(this.bound, bound);
      if (!found || this.look(found, round < LEARNING) || this.best?.cost === this.bound) return;
      this.options.deadline.check();
    }
  }

  /** Plans fit by their uses, but not when lowered: searches under lower limits, with nothing set aside. */
  private async lowerLimits(atLeast: number): Promise<void> {
    for (let [low, high, step] = [atLeast, this.limit, 0]; step < STEPS && !this.best && high > low * 1.01; step++) {
      const middle = Math.floor((low + high) / 2);
      this.setAside.clear();
      const answer = await this.solved(middle, ANY);
      if (answer?.states) this.look(this.exactly(answer.states));
      if (answer) high = middle;
      else low = middle;
    }
  }

  /** Nothing fits: narrows down the least need. Searches for plans between a limit that fails and the least need so far. */
  private async closeIn(failing: number): Promise<number> {
    this.setAside.clear();
    let proven = 0;
    for (let [low, step] = [failing, 0]; step < STEPS && this.least > low * 1.01; step++) {
      const middle = Math.floor((low + this.least) / 2);
      let answer = await this.solved(middle, ANY);
      if (!answer && this.setAside.size > 0) {
        // Bytes set aside are a guess: limits that leave no plan with them may have plans.
        this.setAside.clear();
        answer = await this.solved(middle, ANY);
      }
      if (!answer && !this.options.deadline.isOver()) proven = Math.max(proven, middle + 1);
      const { least, besides } = this;
      if (answer?.states) this.look(this.exactly(answer.states));
      const freer = besides > 0 && this.least === least ? await this.solved(middle - besides, ANY) : null;
      if (freer?.states) this.look(this.exactly(freer.states));
      if (this.least === least) low = middle;
    }
    return proven;
  }

  /**
   * The best solution under a limit and the bytes set aside, at exact prices: null where none was found; the bound is infinite
   * where there is none. Prices that solutions use are found with little effort before the solver is given time for a proof.
   */
  private async relaxed(
    limit: number,
    efforts: readonly SolverEffort[],
  ): Promise<{ readonly found: CostSolution | null; readonly bound: number }> {
    const { groups } = this.problem;
    const { deadline } = this.options;
    let solution = null as CostSolution | null;
    let bound = 0;
    for (const effort of efforts) {
      for (;;) {
        const answer = await this.solved(limit, effort);
        if (!answer) return { found: solution, bound: solution || deadline.isOver() ? bound : Infinity };
        bound = Math.max(bound, answer.bound);
        // A solver that finds nothing with this effort does not prove that there is no solution.
        const isExact = answer.states === null || !groups.refine(answer.states);
        if (answer.states) {
          const found = this.exactly(answer.states);
          solution = { ...(solution && solution.cost <= found.cost ? solution : found), bound };
        }
        // A proven result needs no greater effort.
        if (deadline.isOver() || (isExact && solution && solution.cost <= bound)) return { found: solution, bound };
        if (isExact) break;
      }
    }
    return { found: solution, bound };
  }

  /** One answer of the solver; null where the limit cannot be kept, or the time is over. */
  private async solved(limit: number, { work, isProof, any = false }: SolverEffort): Promise<Answer | null> {
    const { deadline, mode, solver } = this.options;
    const decided = [...this.setAside].map(([operator, bytes]) => {
      const [start, end] = this.need.spanOf(operator);
      return { start, end, bytes };
    });
    const problem = { ...this.need.problem(), limit, decided };
    const programs = isProof && mode !== 'dynamic_programming' ? solver : 'none';
    const answer = await solve(problem, { work, any, programs, deadline }).catch(orNone);
    deadline.signal?.throwIfAborted();
    const own = this.problem.groups.problem().sizes.length;
    return answer?.states ? { ...answer, states: answer.states.slice(0, own) } : answer;
  }

  /**
   * Lowers a solution, and keeps it where it fits and is the best. Otherwise its excess over its uses is learnt, or set aside if
   * nothing can be learnt. Returns whether its live tensors fit.
   */
  private look(found: CostSolution, learns = true): boolean {
    const { need, limit } = this;
    const lowered = need.lowered(found.states);
    if (lowered.peak < this.least) [this.least, this.besides] = [lowered.peak, lowered.peak - lowered.alive];
    if (lowered.peak <= limit) {
      if (!this.best || found.cost < this.best.cost) this.best = found;
      return true;
    }
    const aim = limit - this.free;
    if (lowered.alive <= aim) {
      // The live tensors fit; the rest of the memory does not.
      this.lacking = { alive: lowered.alive, bytes: lowered.peak - limit };
      return true;
    }
    if (learns && need.learn(found.states, lowered, aim)) return false;
    const usedBetween = need.usedBytes(found.states);
    for (const [operator, needed] of lowered.byOperator) {
      if (needed <= aim) continue;
      const more = Math.max(1, needed - usedBetween(...need.spanOf(operator)));
      this.setAside.set(operator, Math.max(this.setAside.get(operator) ?? 0, more));
    }
    return false;
  }

  /** The assignment with the least sum of uses, each weighted by its lifetime. */
  private async economical(): Promise<CostSolution> {
    const { sizes, factors, uses } = this.need.problem();
    const costs = sizes.map((size) => new Float64Array(size));
    for (const { variable, start, end, bytes } of uses) {
      const own = costs[variable] as Float64Array;
      for (let state = 0; state < own.length; state++)
        own[state] = (own[state] as number) + Math.round(((bytes[state] as number) * (end - start)) / SCALE);
    }
    const bytes = costs.map((values, variable) => ({
      variables: [variable],
      table: { sizes: [values.length], values },
    }));
    const { states } = await solve({ sizes, factors: [...bytes, ...factors] }, { work: 0, tables: LARGE });
    return this.exactly(states.slice(0, this.problem.groups.problem().sizes.length));
  }

  /** States at exact prices. */
  private exactly(states: readonly number[]): CostSolution {
    const { groups } = this.problem;
    groups.refine(states);
    return { states, cost: costOf(groups.problem(), states), bound: 0 };
  }
}

/** Bytes over moments that weigh as much as a nanosecond where memory is all that matters: sums stay below 2^53. */
const SCALE = 1024;

/** Null where nothing keeps the limit, or the time is over. */
function orNone(error: unknown): null {
  if (error instanceof NoAssignment || error instanceof OutOfTime) return null;
  throw error;
}
