/**
 * @file Exact decisions before any search: the problem that remains has the same optimum.
 *
 *     consistency   a state that is forbidden with all states of a neighbour is dropped
 *     limit         a state that passes the limit even where everything else takes least is dropped
 *     followers     where each state of i leaves one state of j, j becomes part of i, its memory included
 *     dominance     a state that another replaces at no more cost and no more memory is dropped
 *     elimination   a variable whose memory never matters is minimised out, while the tables left join at most two
 *     rows          times at which not even the largest states pass the limit, or that others imply, are dropped
 *
 * Each is repeated where a neighbour changed until nothing changes. A trail of the removals gives every removed variable
 * its state back.
 */

import { addCosts, type CostTable, cheapestState, type LimitedProblem, NoAssignment } from '../problem.js';
import { CoreGraph, type PairTable } from './core-graph.js';
import { limitStates, memoryRows } from './memory-rows.js';

/** How a removed variable finds its state, given those of variables removed later. States are the problem's own. */
type Removal =
  | { readonly kind: 'fixed'; readonly variable: number; readonly state: number }
  | { readonly kind: 'follower'; readonly variable: number; readonly of: number; readonly states: Int32Array }
  | {
      readonly kind: 'eliminated';
      readonly variable: number;
      readonly labels: Int32Array;
      readonly unary: Float64Array;
      /** Its costs with each neighbour: a table whose dimension `own` is the variable's. */
      readonly near: readonly {
        readonly variable: number;
        readonly labels: Int32Array;
        readonly table: CostTable;
        readonly own: 0 | 1;
      }[];
    };

export interface ReducedGraph {
  /** Variables that remain, their states, tables and memory. */
  readonly graph: CoreGraph;
  /** Costs of the decided states. */
  readonly constant: number;
  /** A state per variable of the problem, from a state per variable of the graph (indices into its labels). */
  expand(states: (variable: number) => number): number[];
  /** The row that has all the memory of a moment of the problem; a later one, or none, where that moment does not matter. */
  rowOf(moment: number): number;
  /** Table entries and bytes that were looked at. */
  readonly work: number;
}

/** Additions that comparing the states of one variable may take. */
const DOMINANCE_WORK = 20_000_000;
/** Entries of a table that following or elimination may leave. */
const TABLE_ENTRIES = 40_000;

/**
 * Reduces a problem.
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit; RangeError for tables of more
 * than two variables
 */
export function reduce(problem: LimitedProblem): ReducedGraph {
  return new CoreReduction(problem).run();
}

class CoreReduction {
  private readonly graph: CoreGraph;
  private readonly trail: Removal[] = [];
  private constant = 0;
  private readonly queue: number[] = [];
  private readonly waiting: Uint8Array;

  constructor(private readonly problem: LimitedProblem) {
    this.graph = new CoreGraph(problem);
    this.waiting = new Uint8Array(problem.sizes.length);
  }

  run(): ReducedGraph {
    const { graph } = this;
    const renamings: ((moment: number) => number)[] = [];
    for (const variable of graph.alive()) this.touch(variable);
    for (;;) {
      this.settle();
      graph.work += usesIn(graph);
      const { dropped } = limitStates(graph, this.problem.limit);
      for (const [variable, kept] of dropped) this.keep(variable, kept);
      const { freed, rowOf: renamed } = memoryRows(graph, this.problem.limit);
      renamings.push(renamed);
      for (const variable of freed) this.touch(variable);
      if (dropped.size === 0 && freed.length === 0) break;
    }
    const expand = expansion(graph, this.trail, this.problem.sizes.length);
    return { graph, constant: this.constant, expand, rowOf, work: graph.work };

    function rowOf(moment: number): number {
      return renamings.reduce((row, renamed) => renamed(row), moment);
    }
  }

  private touch(variable: number): void {
    if (this.waiting[variable] || !this.graph.has(variable)) return;
    this.waiting[variable] = 1;
    this.queue.push(variable);
  }

  private touchAround(variable: number): void {
    this.touch(variable);
    for (const other of this.graph.neighbours(variable)) this.touch(other);
  }

  private settle(): void {
    for (let head = 0; head < this.queue.length; head++) {
      const variable = this.queue[head] as number;
      this.waiting[variable] = 0;
      if (this.graph.has(variable)) this.look(variable);
    }
    this.queue.length = 0;
  }

  private look(variable: number): void {
    const { graph } = this;
    const possible = graph.consistentStates(variable);
    if (possible.length === 0) throw new NoAssignment('every assignment is forbidden');
    if (possible.length < graph.size(variable)) this.keep(variable, possible);
    else if (graph.size(variable) === 1) this.fix(variable);
    else {
      for (const other of graph.simplifyJoints(variable)) this.touch(other);
      if (graph.joints(variable).some((joint) => this.follow(joint))) return;
      const kept = graph.undominated(variable, DOMINANCE_WORK);
      if (kept.length < graph.size(variable)) this.keep(variable, kept);
      else this.eliminate(variable);
    }
  }

  private keep(variable: number, states: readonly number[]): void {
    this.graph.restrict(variable, states);
    this.touchAround(variable);
  }

  private fix(variable: number): void {
    const { graph } = this;
    this.trail.push({ kind: 'fixed', variable, state: graph.labels(variable)[0] as number });
    const around = [...graph.neighbours(variable)];
    this.constant += graph.fold(variable);
    for (const other of around) this.touch(other);
  }

  /** Makes one end of a joint part of the other, where the other's state leaves it one. */
  private follow(joint: PairTable): boolean {
    const { graph } = this;
    for (const [leader, follower] of [
      [joint.a, joint.b],
      [joint.b, joint.a],
    ] as const) {
      const states = graph.only(joint, leader);
      if (!states || graph.entriesAfterMerge(leader, follower) > TABLE_ENTRIES) continue;
      const [of, own] = [graph.labels(leader), graph.labels(follower)];
      const byLabel = new Int32Array(this.problem.sizes[leader] as number).fill(-1);
      states.forEach((state, index) => {
        byLabel[of[index] as number] = own[state] as number;
      });
      this.trail.push({ kind: 'follower', variable: follower, of: leader, states: byLabel });
      graph.merge(leader, follower, states);
      this.touchAround(leader);
      return true;
    }
    return false;
  }

  private eliminate(variable: number): void {
    const { graph } = this;
    const around = [...graph.neighbours(variable)];
    if (around.length > 2 || graph.usesMemory(variable)) return;
    const entries = around.reduce((product, other) => product * graph.size(other), 1);
    if (around.length === 2 && entries > TABLE_ENTRIES) return;
    this.trail.push({
      kind: 'eliminated',
      variable,
      labels: graph.labels(variable),
      unary: graph.unary(variable),
      near: graph.joints(variable).map(({ a, b, table }) => ({
        ...{ variable: a === variable ? b : a, labels: graph.labels(a === variable ? b : a) },
        ...{ table, own: a === variable ? 0 : 1 },
      })),
    });
    this.constant += graph.minimiseOut(variable);
    for (const other of around) this.touch(other);
  }
}

/** Bytes that rows and limits look at, by use and state. */
function usesIn(graph: CoreGraph): number {
  let entries = 0;
  for (const variable of graph.alive()) entries += graph.uses(variable).length * graph.size(variable);
  return entries;
}

/** Gives removed variables their states back. It holds on to the trail alone, not to the graph with its tables. */
function expansion(graph: CoreGraph, trail: readonly Removal[], count: number): ReducedGraph['expand'] {
  const labels = new Map([...graph.alive()].map((variable) => [variable, graph.labels(variable)]));
  return (stateOf) => {
    const states = new Array<number>(count).fill(-1);
    for (const [variable, own] of labels) states[variable] = own[stateOf(variable)] as number;
    for (let index = trail.length - 1; index >= 0; index--) {
      const removal = trail[index] as Removal;
      if (removal.kind === 'fixed') states[removal.variable] = removal.state;
      else if (removal.kind === 'follower')
        states[removal.variable] = removal.states[states[removal.of] as number] as number;
      else states[removal.variable] = cheapest(removal, states);
    }
    return states;
  };
}

function cheapest(
  { labels, unary, near }: Extract<Removal, { kind: 'eliminated' }>,
  states: readonly number[],
): number {
  const costs = Float64Array.from(unary);
  for (const { variable, labels: own, table, own: dimension } of near)
    addCosts(costs, table, dimension, () => own.indexOf(states[variable] as number));
  return labels[cheapestState(costs, costs.length)] as number;
}
