/**
 * @file The search of a second thread, beside `solve`: it looks for better assignments all the time, while the first works on
 * bounds and proofs as well.
 *
 *     solve      ── prices, favoured states, smaller cores ──►  companion
 *                ◄── better assignments ──
 *
 * Both reduce the problem to the same core, so that rows and states mean the same to both.
 */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { type LimitedProblem, NoAssignment } from '../problem.js';
import { type Core, coreCost } from './core.js';
import { levelOf, type SolverLevel } from './level.js';
import { LocalSearch } from './local-search.js';
import { type Advice, searchRound } from './rounds.js';

/** Input of the companion. */
type CompanionMessage =
  /** Prices and favoured states from the bound of a core: the first core, or the smallest. */
  | { readonly kind: 'advice'; readonly depth: number; readonly advice: Advice }
  /** A smaller core: the part of the core one level above, the deepest there is, that may be better. */
  | { readonly kind: 'level'; readonly problem: LimitedProblem; readonly constant: number }
  | { readonly kind: 'best'; readonly cost: number };

/** An answer of the companion: a state per variable of the problem. */
export interface CompanionAnswer {
  readonly states: number[];
  readonly cost: number;
}

/** The companion, as `solve` sees it. */
export interface Companion {
  /** Answers found since the last call. */
  found(): Iterable<CompanionAnswer>;
  advise(depth: number, advice: Advice): void;
  /** The deepest core has a smaller one below it. */
  descend(problem: LimitedProblem, constant: number): void;
  best(cost: number): void;
}

/** The companion at the other end of a port. */
export function companionAt(port: MessagePort): Companion {
  const send = (received: CompanionMessage) => port.postMessage(received);
  return {
    *found() {
      for (let received = receiveMessageOnPort(port); received; received = receiveMessageOnPort(port))
        yield received.message as CompanionAnswer;
    },
    advise: (depth, advice) => send({ kind: 'advice', depth, advice }),
    descend: (problem, constant) => send({ kind: 'level', problem, constant }),
    best: (cost) => send({ kind: 'best', cost }),
  };
}

/** Generators of the two searches begin from different numbers. */
const SEED = 7001;

interface AdvisedLevel {
  readonly level: SolverLevel;
  readonly search: LocalSearch;
  advice: Advice;
}

/** Searches until the clock or `port`'s other end stops it. */
export function accompany(
  problem: LimitedProblem,
  port: MessagePort,
  seconds: number,
  send: (found: CompanionAnswer) => void,
): void {
  new Accompanying(port, seconds, send).run(problem);
}

class Accompanying {
  private readonly started = performance.now();
  /** By depth: the first and the last are searched. */
  private readonly places: (AdvisedLevel | null)[] = [];
  private cost = Infinity;
  /** Variables of the first core. */
  private variables = 1;

  constructor(
    private readonly port: MessagePort,
    private readonly seconds: number,
    private readonly tell: (found: CompanionAnswer) => void,
  ) {}

  run(problem: LimitedProblem): void {
    this.add(problem, 0, (states) => Array.from(states));
    for (let round = 0; !this.isOver(); round++) {
      this.heed();
      const [first, last] = [this.places[0], this.places[this.places.length - 1]];
      if (!first) return;
      for (const place of new Set([last, first])) if (place && !this.isOver()) this.improve(place, round);
    }
  }

  private heed(): void {
    for (let received = receiveMessageOnPort(this.port); received; received = receiveMessageOnPort(this.port)) {
      const message = received.message as CompanionMessage;
      if (message.kind === 'best') this.cost = Math.min(this.cost, message.cost);
      else if (message.kind === 'advice') {
        const place = this.places[message.depth];
        if (place) place.advice = message.advice;
      } else {
        const above = this.places[this.places.length - 1];
        if (above) this.add(message.problem, message.constant, above.level.expand);
        // One core above the smallest is enough to return to: those in between keep only their place.
        if (this.places.length > 2) this.places.fill(null, 1, -1);
      }
    }
  }

  private add(problem: LimitedProblem, constant: number, expand: SolverLevel['expand']): void {
    const level = levelBelow(problem, constant, expand);
    if (!level) {
      this.places.push(null);
      return;
    }
    const { core } = level;
    if (this.places.length === 0) this.variables = core.count;
    const favoured = cheapest(core);
    const search = new LocalSearch(core, problem.limit, favoured, SEED + this.places.length);
    this.places.push({ level, search, advice: { rows: [], prices: [], favoured } });
  }

  private improve({ level, search, advice }: AdvisedLevel, number: number): void {
    searchRound(level, search, advice, {
      number,
      isLong: true,
      share: 1,
      most: Infinity,
      scale: Math.max(
        1,
        (this.cost < Infinity ? this.cost : coreCost(level.core, advice.favoured) + level.constant) / this.variables,
      ),
      known: () => this.cost,
      take: (states, cost) => {
        this.cost = cost;
        this.tell({ states: Array.from(states), cost });
      },
      stop: () => this.isOver(),
    });
  }

  private isOver(): boolean {
    return performance.now() - this.started > this.seconds * 1000;
  }
}

/** A level where anything is left to search. */
function levelBelow(problem: LimitedProblem, constant: number, expand: SolverLevel['expand']): SolverLevel | null {
  try {
    const level = levelOf(problem, constant, expand);
    return level.core.count > 0 ? level : null;
  } catch (error) {
    // The other thread finds it as well, and reports it.
    if (error instanceof NoAssignment) return null;
    throw error;
  }
}

/** The cheapest state of each variable by itself. */
function cheapest({ count, offsets, unary }: Core): Int32Array {
  return Int32Array.from({ length: count }, (_, v) => {
    let best = offsets[v] as number;
    for (let s = best; s < (offsets[v + 1] as number); s++)
      if ((unary[s] as number) < (unary[best] as number)) best = s;
    return best - (offsets[v] as number);
  });
}
