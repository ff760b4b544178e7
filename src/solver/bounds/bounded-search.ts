/**
 * @file The solver: reduction, a bound from prices and messages, annealed trees, exact fixing, integer program.
 *
 *     reduce ─► dual: bound, prices ─► local search: best ─► fix by the best known ─► integer program ─► proof
 *                     ▲                      │                        │ too large
 *                     └──────────────────────┴────────────────────────┘
 *
 * Effort is counted in table entries looked at, so equal problems have equal answers; seconds are a limit of the user's own.
 */

import { type Answer, type LimitedProblem, NoAssignment } from '../problem.js';
import { boundByProgram } from './bound-by-program.js';
import type { Companion } from './companion.js';
import { type Core, coreCost } from './core.js';
import { Dual } from './dual.js';
import { columnCount } from './integer-program.js';
import type { IntegerSolver } from './integer-solvers.js';
import { levelOf, type SolverLevel } from './level.js';
import { LocalSearch } from './local-search.js';
import { repaired } from './repair.js';
import { COLDEST, searchRound } from './rounds.js';
import { tightened } from './tighten.js';

export interface SearchEffort {
  /** Table entries to look at, reductions' and all. */
  readonly work: number;
  /** The user's own limit; results then depend on the machine. */
  readonly seconds?: number;
  /** Any assignment that keeps the limit will do: the first that is found is the answer. */
  readonly any?: boolean;
}

/** Columns up to which an integer program is tried. */
const MOST_COLUMNS = 60_000;
/** Seconds after which a better bound alone is reported. */
const NOTE_SECONDS = 0.5;
/** Share of a round of local search that a branch gets. */
const BRANCH_ROUND = 0.05;
/** Share of the remaining effort that an integer program gets: it reports nothing before its end. */
const PROGRAM_SHARE = 0.25;
/** The same in a branch, and in one before anything is found. */
const BRANCH_SHARE = 0.2;
const FIRST_SHARE = 0.01;
/** Branches are left alone for a while where, after this share of the effort, they would not close this share of the gap. */
const PATIENCE = 0.04;
const PROMISE = 0.3;
/** Columns of a program that is tried in every round. */
const FEW_COLUMNS = 5000;
/** The same where the clock alone ends the search, and as long as it pays. */
const SOME_COLUMNS = 40_000;
const PAYING_SHARE = 0.8;
/** Sweeps between two changes of prices. */
const SWEEPS = 3;
/** Prices start when messages have settled. */
const FIRST_SWEEPS = 24;
/** Share of the bound below which a stretch of sweeps counts as no gain. */
const GAIN = 2e-5;
const BRANCH_GAIN = 3e-3;
const STRETCH = 45;
/** The same where prices and messages come from the level above. */
const KNOWN = { firstSweeps: 3, stretch: 15 };
/** Share of a round of local search between two stretches of sweeps, while there is no solution yet. */
const FIRST_ROUND = 0.1;
/** The same between two integer programs of which the first has brought much. */
const BETWEEN_PROGRAMS = 0.1;
/** Variables of a core in which annealing is so slow that solutions are made from the favoured states of sweeps at first. */
const MANY_VARIABLES = 10_000;
/** Table entries of all open branches together: about half a gigabyte. */
const OPEN_ENTRIES = 3e7;
/** Looks at each table entry that fixing takes: its min-marginal, and the cost that messages have moved. */
const FIXING = 2;
/** Fixing is repeated where it left less than this share of the pairs. */
const SHRINKS = 0.95;
/**
 * Solves a problem as far as the effort goes.
 * @param solver for integer programs; null leaves them out
 * @param note called with each better answer, and with better bounds now and then
 * @param companion that searches on another thread; answers then depend on the clock
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function boundedSearch(
  problem: LimitedProblem,
  effort: SearchEffort,
  solver: IntegerSolver | null,
  note: (answer: Answer) => void = () => {},
  companion: Companion | null = null,
): Answer {
  return new Solving(problem, effort, solver, note, companion).run();
}

/** A core of assignments that may still be better, made by fixing in the core above it. */
interface Bounded extends SolverLevel {
  readonly dual: Dual;
  readonly search: LocalSearch;
  /** Cores above it. */
  readonly depth: number;
}

/** Prices of the moments of a problem, from the level above. */
type Prices = ReadonlyMap<number, number>;

/** A subset of the assignments, and a bound on it. */
interface OpenPart {
  readonly level: Omit<Bounded, 'search'>;
  readonly bound: number;
}

class Solving {
  private readonly started = performance.now();
  private readonly levels: Bounded[] = [];
  /** Variables of the first core. */
  private variables = 1;
  /** Levels made so far, those that were dropped included. */
  private depth = 0;
  private states: readonly number[] | null = null;
  private cost = Infinity;
  /** Costs are not negative. */
  private bound = 0;
  private work = 0;
  /** Seconds at which an answer was reported last. */
  private notedAt = -Infinity;
  /** Bounds whose ascent the clock has ended, which on a slow machine is early. */
  private readonly cutShort = new WeakSet<Dual>();
  /** Branches that are open; none before the first split. */
  private open: OpenPart[] = [];
  /** Whether branches raise the bound too slowly to end. */
  private isSlow = false;
  /** Whether the last integer program closed so much of the gap that the next gets most of the time. */
  private isProgramming = false;
  /** The best cost at the last fixing. */
  private fixedAt = Infinity;

  constructor(
    private readonly problem: LimitedProblem,
    private readonly effort: SearchEffort,
    private readonly solver: IntegerSolver | null,
    private readonly note: (answer: Answer) => void,
    private readonly companion: Companion | null,
  ) {}

  run(): Answer {
    this.descend(this.problem, 0, (states) => Array.from(states));
    for (let round = 0; !this.isDone(); round++) {
      this.heed();
      const deepest = this.levels[this.levels.length - 1];
      if (deepest && this.cutShort.delete(deepest.dual)) {
        this.ascend(deepest, GAIN, true);
        this.raise(deepest.dual.safeBound() + deepest.constant);
      }
      // The deepest core is the smallest; the widest has paths that fixing removed together with assignments that are not better.
      for (const level of new Set([this.levels[this.levels.length - 1], this.levels[0]])) {
        if (level && !this.isDone()) this.improve(level, this.kindOf(round), this.isProgramming ? BETWEEN_PROGRAMS : 1);
      }
      if (this.cost < this.fixedAt && !this.isDone()) this.fix();
      this.prove(round);
    }
    if (this.bound === Infinity) throw new NoAssignment('no assignment satisfies the limit and all constraints');
    return this.answer();
  }

  /** Only the companion runs long rounds while there is hope of a proof; after that this search runs them too, shifted by two. */
  private kindOf(round: number): number {
    return !this.companion ? round : this.isSlow ? round + 2 : round % 2;
  }

  /** The integer program of the deepest core where it is small, else branches; larger programs now and then. */
  private prove(round: number): void {
    const level = this.levels[this.levels.length - 1];
    if (!level || this.isDone()) return;
    const columns = columnCount(level.core);
    const isDue = round % 4 === 3;
    const isSome = columns <= SOME_COLUMNS && this.effort.work === Infinity;
    if (columns <= FEW_COLUMNS || (isSome && (round === 0 || this.isProgramming))) this.program(level);
    if (round % (this.isSlow ? 8 : 2) === 1 && !this.isDone()) this.branch(round);
    if (isDue && columns > FEW_COLUMNS && columns <= MOST_COLUMNS) this.program(level);
  }

  /** Passes a level to the integer solver, and notes whether more time for it would be well spent. */
  private program(level: Bounded): void {
    if (!this.solver || this.isDone()) return;
    const [from, open, spent] = [this.bound, this.cost - this.bound, this.spent()];
    this.raise(this.integerProgram(level, this.solver, this.isProgramming ? PAYING_SHARE : PROGRAM_SHARE));
    const [part, closed] = [this.spent() - spent, (this.bound - from) / open];
    this.isProgramming = this.effort.work === Infinity && part > 0.01 && closed * (1 - this.spent()) > PROMISE * part;
  }

  /** Adds the level of a problem, if anything of it is open. */
  private descend(
    problem: LimitedProblem,
    constant: number,
    expand: SolverLevel['expand'],
    prices?: Prices,
  ): Bounded | null {
    if (this.depth > 0) this.companion?.descend(problem, constant);
    this.depth += 1;
    const level = this.bounded(problem, constant, expand, GAIN, prices, true);
    if (!level) {
      this.raise(this.cost);
      return null;
    }
    this.raise(level.dual.safeBound() + level.constant);
    this.advise(level);
    this.levels.push(level);
    return level;
  }

  /** A problem reduced, with its bound; null where reducing it has solved it. */
  private bounded(
    problem: LimitedProblem,
    constant: number,
    expand: SolverLevel['expand'],
    gain: number,
    prices: Prices | undefined,
    isShared: boolean,
  ): Bounded | null {
    const level = levelOf(problem, constant, expand);
    const { core, limit } = level;
    this.work += level.work;
    if (core.count === 0) {
      this.take(level.expand([]), level.constant);
      return null;
    }
    if (this.depth === 1) this.variables = core.count;
    const dual = new Dual(core, limit, prices && priceByRow(prices, level));
    const search = new LocalSearch(core, limit, dual.favoured, 1 + this.levels.length);
    const made = { ...level, dual, search, depth: isShared ? this.depth - 1 : -1 };
    this.ascend(made, gain, prices !== undefined);
    return made;
  }

  /** Dual ascent until a stretch of sweeps brings nothing; while there is no solution, it searches for one on the way. */
  private ascend(level: Bounded, gain: number, isKnown: boolean): void {
    const { core, dual, constant } = level;
    const until = this.seconds() + 0.15 * this.left();
    const { firstSweeps, stretch } = isKnown ? KNOWN : { firstSweeps: FIRST_SWEEPS, stretch: STRETCH };
    const most = this.work + this.effort.work / 8;
    let [sweeps, last] = [0, -Infinity];
    while (!this.stopped() && this.seconds() < until && this.work < most) {
      this.work += sweepOnce(dual);
      this.heed();
      sweeps += 1;
      const scale = Math.abs(dual.best + constant);
      const target = this.cost < Infinity ? this.cost - constant : dual.best + scale * 0.05;
      if (sweeps === SWEEPS && this.cost === Infinity && core.count > MANY_VARIABLES) this.repair(level);
      if (sweeps >= firstSweeps && sweeps % SWEEPS === 0) dual.reprice(target);
      if (sweeps % stretch === 0) {
        if (dual.best - last <= (scale * gain * stretch) / STRETCH || dual.best + constant > this.cost) break;
        last = dual.best;
        this.advise(level);
        if (this.cost === Infinity || core.count > MANY_VARIABLES) this.repair(level);
        if (this.cost === Infinity) this.improve(level, 0, FIRST_ROUND);
      }
    }
    if (!this.stopped() && this.seconds() >= until) this.cutShort.add(dual);
  }

  /** Repairs the states that the bound favours until they fit: a solution where annealing would take long to find one. */
  private repair({ core, dual, search, constant, expand }: Bounded): void {
    if (core.rows === 0) return;
    const states = repaired(core, dual.favoured);
    this.work += core.entries;
    const cost = states ? coreCost(core, states) : Infinity;
    if (!states || cost + constant >= this.cost) return;
    search.restart(states);
    this.take(expand(states), cost + constant);
  }

  private improve(level: Bounded, number: number, share = 1): void {
    const { dual, search } = level;
    const from = search.work;
    searchRound(level, search, dual, {
      number,
      isLong: this.companion !== null,
      share,
      most: (this.effort.work - this.work) / 4,
      scale: Math.max(1, (this.cost < Infinity ? this.cost : Math.abs(dual.best)) / this.variables),
      known: () => this.cost,
      take: (states, cost) => this.take(states, cost),
      stop: () => {
        this.heed();
        return this.stopped();
      },
    });
    this.work += search.work - from;
  }

  /** Takes the companion's answers. */
  private heed(): void {
    for (const { states, cost } of this.companion?.found() ?? []) if (cost < this.cost) this.take(states, cost);
  }

  /** Sends the prices and favoured states of a level's bound to the companion. */
  private advise({ depth, dual }: Bounded): void {
    const { rows, prices, favoured } = dual;
    if (depth >= 0) this.companion?.advise(depth, { rows, prices, favoured });
  }

  /** Removes states and pairs that cannot be better, again and again while that makes the core smaller. */
  private fix(): void {
    this.fixedAt = this.cost;
    for (;;) {
      const level = this.levels[this.levels.length - 1] as Bounded;
      const { core, dual, limit, constant, expand } = level;
      try {
        const bound = dual.safeBound();
        this.work += FIXING * core.entries;
        const problem = tightened(core, dual, bound, this.cost - constant, limit);
        const below = this.descend(problem, constant, expand, pricesOf(dual));
        if (this.isDone() || !below) return;
        // One level above the deepest is enough to return to.
        if (this.levels.length > 2) this.levels.splice(1, this.levels.length - 2);
        if (openPairs(below.core) > SHRINKS * openPairs(core)) return;
      } catch (error) {
        // Nothing is left that could be better.
        if (!(error instanceof NoAssignment)) throw error;
        this.raise(this.cost);
        return;
      }
    }
  }

  /**
   * Passes a level to the integer solver for a share of the time that is left. Returns a bound on the level, −Infinity where
   * nothing is learnt.
   */
  private integerProgram(level: Bounded, solver: IntegerSolver, share: number): number {
    const until = this.seconds() + share * this.left();
    return boundByProgram(level, solver, {
      known: () => this.cost,
      secondsLeft: () => until - this.seconds(),
      workLeft: () => this.effort.work - this.work,
      spend: (work) => {
        this.work += work;
      },
      isDone: () => this.isDone(),
      take: (states, cost) => this.take(level.expand(states), cost),
    });
  }

  /** Splits the deepest core, best first, and continues where it stopped: the bound is the least of the open parts. */
  private branch(round: number): void {
    const until = this.seconds() + (round < 4 ? 0.5 : 0.8) * this.left();
    const most = this.work + (this.effort.work - this.work) / 4;
    if (this.open.length === 0) {
      this.open.push({ level: this.levels[this.levels.length - 1] as Bounded, bound: this.bound });
    }
    const [from, spent] = [this.bound, this.spent()];
    const entries = () => this.open.reduce((sum, { level }) => sum + level.core.entries, 0);
    while (!this.isDone() && this.seconds() < until && this.work < most && entries() < OPEN_ENTRIES) {
      this.heed();
      this.open = this.open.filter(({ bound }) => bound < this.cost);
      // As long as nothing is found, deepest first: it searches for a solution, or for the proof that there is none, and bounds
      // help with neither.
      if (this.cost < Infinity) this.open.sort((a, b) => b.bound - a.bound);
      const node = this.open.pop();
      const split = node?.level.dual.split();
      if (node && !split) {
        this.open.push(node);
        return;
      }
      if (node && split) {
        const { core, dual, constant, limit } = node.level;
        this.work += FIXING * core.entries;
        const problem = tightened(core, dual, dual.safeBound(), this.cost - constant, limit);
        for (const side of this.cost < Infinity ? [1, 0] : [0, 1]) {
          const child = this.child(problem, split, side, node.level);
          if (child && child.bound < this.cost) this.open.push({ ...child, bound: Math.max(child.bound, node.bound) });
        }
      }
      this.raise(this.open.reduce((least, { bound }) => Math.min(least, bound), this.cost));
      const [part, closed] = [this.spent() - spent, (this.bound - from) / (this.cost - from)];
      this.isSlow = this.cost < Infinity && part > PATIENCE && closed * (1 - this.spent()) < PROMISE * part;
      if (this.isSlow) return;
    }
  }

  /** One side of a split, as far as it is open. */
  private child(
    problem: LimitedProblem,
    { variable, first }: { readonly variable: number; readonly first: Uint8Array },
    side: number,
    { dual, constant, expand }: OpenPart['level'],
  ): OpenPart | null {
    const size = problem.sizes[variable] as number;
    const values = Float64Array.from({ length: size }, (_, s) => (first[s] === side ? 0 : Infinity));
    const factors = [...problem.factors, { variables: [variable], table: { sizes: [size], values } }];
    try {
      const level = this.bounded({ ...problem, factors }, constant, expand, BRANCH_GAIN, pricesOf(dual), false);
      if (!level) return null;
      let bound = Math.ceil(level.dual.safeBound() + level.constant - 1e-6);
      if (bound < this.cost) this.improve(level, COLDEST, BRANCH_ROUND);
      const share = this.cost < Infinity ? BRANCH_SHARE : FIRST_SHARE;
      if (bound < this.cost && this.solver && columnCount(level.core) <= FEW_COLUMNS) {
        bound = Math.max(bound, Math.ceil(this.integerProgram(level, this.solver, share) - 1e-6));
      }
      const { search: _, ...rest } = level;
      return { level: rest, bound };
    } catch (error) {
      if (error instanceof NoAssignment) return null;
      throw error;
    }
  }

  private take(states: readonly number[], cost: number): void {
    if (cost >= this.cost) return;
    this.states = states;
    this.cost = cost;
    this.companion?.best(cost);
    this.report();
  }

  /** A bound on assignments that may still be better holds for all where it is not above the best. */
  private raise(bound: number): void {
    if (Number.isNaN(bound)) return;
    // Costs are whole.
    const whole = Math.min(this.cost, Math.ceil(bound - 1e-6) + 0);
    if (whole <= this.bound) return;
    this.bound = whole;
    if (this.seconds() - this.notedAt < NOTE_SECONDS) return;
    this.report();
  }

  private report(): void {
    this.notedAt = this.seconds();
    this.note(this.answer());
  }

  private answer(): Answer {
    return { states: this.states, cost: this.cost, bound: Math.min(this.bound, this.cost) };
  }

  private isDone(): boolean {
    return this.stopped() || this.cost <= this.bound;
  }

  /** Share of the effort that is gone. */
  private spent(): number {
    return Math.max(this.work / this.effort.work, this.seconds() / (this.effort.seconds ?? Infinity));
  }

  private stopped(): boolean {
    const { work, any } = this.effort;
    return this.work >= work || this.left() <= 0 || (any === true && this.states !== null);
  }

  private seconds(): number {
    return (performance.now() - this.started) / 1000;
  }

  private left(): number {
    return (this.effort.seconds ?? Infinity) - this.seconds();
  }
}

/** The table entries that a sweep looks at. */
function sweepOnce(dual: Dual): number {
  const from = dual.work;
  dual.sweep();
  return dual.work - from;
}

/** Prices by row of a core, which the level below knows as moments. */
function pricesOf(dual: Dual): Prices {
  return new Map(dual.rows.map((row, index) => [row, dual.prices[index] as number]));
}

/** The prices of moments, at the rows of these moments. */
function priceByRow(prices: Prices, { core, rowOf }: SolverLevel): Prices {
  const byRow = new Map<number, number>();
  for (const [moment, price] of prices) {
    const row = rowOf(moment);
    if (row < core.rows && price > 0) byRow.set(row, (byRow.get(row) ?? 0) + price);
  }
  return byRow;
}

/** Pairs of states that may be taken, over all edges. */
function openPairs(core: Core): number {
  let open = 0;
  for (const table of core.tables) for (const cost of table) if (cost !== Infinity) open += 1;
  return open + core.unary.length;
}
