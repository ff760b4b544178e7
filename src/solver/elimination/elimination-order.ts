/**
 * @file The order of elimination: min-fill, kept up to date while variables leave.
 */
import type { CostProblem } from '../problem.js';

/**
 * Variables with more neighbours than this wait: joining so many is never the cheapest step while others remain. Their
 * priority is only worked out when they are next, else each neighbour that leaves would cost a look at all the others.
 */
const CROWDED = 24;

/** Why a variable should go early: few neighbours joined, then a small table, then a small number. */
type Priority = readonly [fill: number, logEntries: number, variable: number];

export class EliminationOrder {
  private readonly neighbours: Set<number>[];
  private readonly priorities: (Priority | null)[];
  /** Crowded variables whose priority is out of date. */
  private readonly crowded = new Set<number>();
  /** Binary heap of priorities; entries that are no longer current are skipped. */
  private readonly heap: Priority[] = [];

  constructor(
    problem: CostProblem,
    /** Number of states that a variable has left. */
    private readonly sizeOf: (variable: number) => number,
  ) {
    this.neighbours = problem.sizes.map(() => new Set());
    this.priorities = problem.sizes.map(() => null);
    for (const { variables } of problem.factors) this.join(variables);
    for (const variable of problem.sizes.keys()) this.rank(variable);
  }

  /** The next variable to eliminate, or undefined when all are gone. */
  next(): number | undefined {
    for (;;) {
      const top = this.pop();
      const current = top && this.priorities[top[2]] === top;
      if (this.crowded.size > 0 && (!top || (current && top[0] > CROWDED ** 2))) {
        if (current) this.push(top);
        for (const variable of this.crowded) this.prioritise(variable, (this.neighbours[variable]?.size ?? 0) ** 2);
        this.crowded.clear();
      } else if (!top) return undefined;
      else if (current) return top[2];
    }
  }

  /** A variable has been eliminated: its neighbours are now joined. */
  removed(variable: number): void {
    const around = [...(this.neighbours[variable] ?? [])];
    this.priorities[variable] = null;
    this.crowded.delete(variable);
    for (const other of around) this.neighbours[other]?.delete(variable);
    const changed = new Set([...around, ...this.join(around)]);
    for (const other of changed) this.rank(other);
  }

  /** A variable lost states: its own and its neighbours' tables shrink. */
  touched(variable: number): void {
    for (const other of [variable, ...(this.neighbours[variable] ?? [])]) {
      if (this.priorities[other] || this.crowded.has(other)) this.rank(other);
    }
  }

  /** Makes variables neighbours of each other; returns those that see a new edge between two of their neighbours. */
  private join(variables: readonly number[]): ReadonlySet<number> {
    const seeing = new Set<number>();
    variables.forEach((a, index) => {
      for (const b of variables.slice(index + 1)) {
        const [near, far] = [this.neighbours[a] as Set<number>, this.neighbours[b] as Set<number>];
        if (near.has(b)) continue;
        const [small, large] = near.size < far.size ? [near, far] : [far, near];
        for (const other of small) if (large.has(other)) seeing.add(other);
        near.add(b);
        far.add(a);
      }
    });
    return seeing;
  }

  private rank(variable: number): void {
    const near = this.neighbours[variable] as Set<number>;
    if (near.size > CROWDED) {
      this.priorities[variable] = null;
      this.crowded.add(variable);
      return;
    }
    this.crowded.delete(variable);
    const around = [...near];
    let fill = 0;
    for (let first = 0; first < around.length; first++) {
      const others = this.neighbours[around[first] as number];
      for (let second = first + 1; second < around.length; second++) {
        if (!others?.has(around[second] as number)) fill += 1;
      }
    }
    this.prioritise(variable, fill);
  }

  private prioritise(variable: number, fill: number): void {
    let entries = 0;
    for (const other of this.neighbours[variable] ?? []) entries += Math.log2(this.sizeOf(other));
    const priority: Priority = [fill, Math.round(entries * 1024), variable];
    this.priorities[variable] = priority;
    this.push(priority);
  }

  private push(priority: Priority): void {
    const { heap } = this;
    heap.push(priority);
    for (let at = heap.length - 1; at > 0; ) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Priority;
      if (!before(priority, above)) break;
      heap[at] = above;
      heap[parent] = priority;
      at = parent;
    }
  }

  private pop(): Priority | undefined {
    const { heap } = this;
    const top = heap[0];
    const last = heap.pop();
    if (!top || !last || heap.length === 0) return top;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      const right = child + 1;
      if (right < heap.length && before(heap[right] as Priority, heap[child] as Priority)) child = right;
      if (!before(heap[child] as Priority, last)) break;
      heap[at] = heap[child] as Priority;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}

function before(a: Priority, b: Priority): boolean {
  if (a[0] !== b[0]) return a[0] < b[0];
  if (a[1] !== b[1]) return a[1] < b[1];
  return a[2] < b[2];
}
