/**
 * @file The group graph: a graph, a mesh and prices as a problem of variables and tables.
 *
 *     operator     states: its candidates; its own cost; an operator and its recomputation (one group) share one variable
 *     input        states: layouts that it may be fed in, at no cost
 *     reshard      of a tensor with several readers; states: layouts. producer → reshard is paid once, reshard → reader by
 *                  each reader, nothing where the layouts are equal
 *
 *     norm ──► reshard ──► q       Priced per reader, an all-gather before q, k and v would count three times.
 *                 ├──────► k
 *                 └──────► v
 *
 * A tensor with one reader needs no shared reshard; an input is its own. Weights are not variables: each reader's shard is cut
 * from the file. A graph output may be left sharded but not partial.
 */

import { dtypeBits } from '../ir/dtype.js';
import type { Graph, Node } from '../ir/graph.js';
import { runsPerStep, typeOf } from '../ir/graph.js';
import { makersOf } from '../ir/makers-and-readers.js';
import { isStateWeight } from '../ir/passes/state-weights.js';
import { madeOnce } from '../ir/remembered.js';
import { typeKey } from '../ir/structure-key.js';
import type { Assignment, SharedReshard, TensorReader } from '../partition/assignment.js';
import { isReplicated, type Layout, layoutKey, mergedLayout, replicated } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import type { CostFactor, CostProblem, CostTable } from '../solver/problem.js';
import { readersByTensor } from '../strategy/readers.js';
import type { CandidateSet } from './candidates.js';
import type { EdgeCosts, EdgeTable, LayoutPair, LayoutStates } from './edge-costs.js';
import { LocalMoves, type PricedEdge } from './local-moves.js';
import { pinnedInputLayouts, type SearchPins } from './pinned.js';
import type { LayoutRule } from './zero.js';

export interface GroupGraph {
  /** The problem under the resharding prices that are known: bounds, or exact. */
  problem(): CostProblem;
  /** Makes the prices that an assignment uses exact; false where none of them changed. */
  refine(states: readonly number[]): boolean;
  /** Makes prices exact around a first guess, found without solving the problem: fewer prove too low once it is solved. */
  foresee(): void;
  /** The assignment for a state per variable. */
  assignmentOf(states: readonly number[]): Assignment;
  readonly variables: GroupVariables;
}

/** The variables of the problem. */
export interface GroupVariables {
  readonly operators: ReadonlyMap<Node, { readonly variable: number; readonly set: CandidateSet }>;
  /** By tensor that is read or made: the end with the layout in which readers share it. */
  readonly viewEnds: ReadonlyMap<string, EdgeEnd>;
  readonly inputEnds: ReadonlyMap<string, EdgeEnd>;
}

/** Layouts by state at one end of an edge. */
export interface EdgeEnd extends LayoutStates {
  readonly variable: number;
  /** Ends of equal operators have equal keys, so that their tables are shared. */
  readonly key: string;
}

/**
 * Builds the problem of a graph whose operators have the candidates given. Equal tables are one object.
 * @param zero the rule of a ZeRO level, which restricts layouts
 */
export function buildGroupGraph(
  graph: Graph,
  mesh: Mesh,
  candidates: (node: Node) => CandidateSet,
  costs: EdgeCosts,
  pinnedInputs: SearchPins['inputs'] = new Map(),
  zero: LayoutRule | null = null,
): GroupGraph {
  return new Building(graph, mesh, candidates, costs, pinnedInputs, zero).build();
}

/**
 * The round from which rivals of a dearer pair are priced with it. The first rounds find many pairs dearer, and would price far
 * more than is ever used; the later ones few, and each costs an elimination.
 */
const RIVALS_FROM = 3;

class Building {
  private rounds = 0;
  private readonly sizes: number[] = [];
  private readonly factors: CostFactor[] = [];
  private readonly edges: PricedEdge[] = [];
  private moves: LocalMoves | undefined;
  private readonly edgeTables = new Map<string, EdgeTable>();
  private readonly ends = new Map<string, LayoutStates>();
  private readonly tables = new Map<string, CostTable>();
  private readonly setIds = new Map<CandidateSet, number>();
  /** Variables by group. */
  private readonly groups = new Map<string, number>();
  private readonly operators = new Map<Node, { readonly variable: number; readonly set: CandidateSet }>();
  private readonly readersOf: ReadonlyMap<string, readonly TensorReader[]>;
  private readonly nodeOf: ReadonlyMap<string, Node>;
  private readonly makerOf: ReadonlyMap<string, Node>;
  /** Where the layout of each read tensor's reshard is found: a variable's end, or its only reader's demand. */
  private readonly viewEnds = new Map<string, EdgeEnd>();
  private readonly inputEnds = new Map<string, EdgeEnd>();

  constructor(
    private readonly graph: Graph,
    private readonly mesh: Mesh,
    private readonly candidates: (node: Node) => CandidateSet,
    private readonly costs: EdgeCosts,
    private readonly pinnedInputs: SearchPins['inputs'],
    private readonly zero: LayoutRule | null,
  ) {
    this.readersOf = readersByTensor(graph);
    this.nodeOf = new Map(graph.nodes.map((node) => [node.name, node]));
    this.makerOf = makersOf(graph.nodes);
  }

  build(): GroupGraph {
    const { graph } = this;
    const sets = new Map(graph.nodes.map((node) => [node, this.candidates(node)]));
    for (const input of graph.inputs) this.reserveInput(input, sets);
    for (const node of graph.nodes) {
      const set = sets.get(node) as CandidateSet;
      const variable = madeOnce(this.groups, node.group, () => this.variable(set.strategies.length));
      this.operators.set(node, { variable, set });
      this.factors.push({ variables: [variable], table: this.costTable(set, runsPerStep(node.phase, graph)) });
      node.outputs.forEach((tensor, index) => {
        if (tensor !== null) this.reserveReshard(tensor, this.end(node, 'out', index, set), sets);
      });
    }
    for (const [tensor, readers] of this.readersOf) this.connect(tensor, readers);
    for (const pair of graph.state) if (!isStateWeight(pair)) this.carry(pair.output, pair.input);
    return {
      problem: () => ({ sizes: this.sizes, factors: [...this.factors, ...this.edgeFactors()] }),
      refine: (states) => this.refine(states),
      foresee: () => this.foresee(),
      assignmentOf: (states) => this.assignment(states),
      variables: { operators: this.operators, viewEnds: this.viewEnds, inputEnds: this.inputEnds },
    };
  }

  /** States of an input: the layouts that its readers ask for, then replicated. Feeding it so costs nothing. */
  private reserveInput(input: string, sets: ReadonlyMap<Node, CandidateSet>): void {
    const readers = this.readersOf.get(input) ?? [];
    const asked = this.demanded(readers, sets).filter((layout) => layout.partial.length === 0);
    if (!asked.some(isReplicated)) asked.push(this.replicatedLayout(input));
    const layouts = distinct(this.zero?.resting(input, asked) ?? asked).layouts;
    const pins = this.pinnedInputs.get(input) ?? [];
    const { shape } = typeOf(this.graph, input);
    const pinned = pins.length > 0 ? pinnedInputLayouts(input, shape, layouts, pins, this.mesh) : layouts;
    const at = { what: `input ${input}`, pins: pins.map(({ source }) => source) };
    const end = this.layoutsEnd(input, this.zero?.layouts(input, layouts, pinned, at) ?? pinned);
    this.inputEnds.set(input, end);
    this.viewEnds.set(input, end);
  }

  /** A reshard for a computed tensor with several readers. Its states: the producer's layouts, then those of its readers. */
  private reserveReshard(tensor: string, producer: EdgeEnd, sets: ReadonlyMap<Node, CandidateSet>): void {
    const readers = this.readersOf.get(tensor) ?? [];
    if (readers.length < 2) {
      this.viewEnds.set(tensor, producer);
      return;
    }
    const own = new Set(producer.layouts.map(layoutKey));
    const asked = this.demanded(readers, sets).filter(
      (layout) => layout.partial.length === 0 && !own.has(layoutKey(layout)),
    );
    const all = [...producer.layouts, ...asked];
    const end = this.layoutsEnd(
      tensor,
      this.zero?.layouts(tensor, all, all, { what: `tensor ${tensor}`, pins: [] }) ?? all,
    );
    this.viewEnds.set(tensor, end);
    this.edge(tensor, producer, end, this.runsOf(tensor, readers[0] as TensorReader));
  }

  /** How often a step reshards for a reader: partition puts the reshard into the reader's phase. */
  private runsOf(tensor: string, reader: TensorReader): number {
    if (this.makerOf.get(tensor)?.phase === 'begin') return 1;
    const node = reader.kind === 'operator' ? this.nodeOf.get(reader.name) : this.makerOf.get(reader.name);
    return node ? runsPerStep(node.phase, this.graph) : 1;
  }

  /** The edges from a tensor to its readers. */
  private connect(tensor: string, readers: readonly TensorReader[]): void {
    const from = this.viewEnds.get(tensor);
    if (!from) return;
    for (const reader of readers) {
      if (reader.kind === 'output') this.forbidPartial(from);
      else this.edge(tensor, from, this.readerEnd(reader), this.runsOf(tensor, reader));
    }
  }

  /** Reshards a state output into the layout in which the next step is fed. */
  private carry(output: string, input: string): void {
    const [from, to] = [this.viewEnds.get(output), this.inputEnds.get(input)];
    if (!from || !to) throw new Error(`state ${input} is not an input, or ${output} is not computed`);
    this.edge(output, from, to, this.runsOf(output, { kind: 'output', name: output, operand: 0 }));
  }

  private readerEnd(reader: TensorReader): EdgeEnd {
    const node = this.nodeOf.get(reader.name) as Node;
    const operator = this.operators.get(node);
    if (!operator) throw new Error(`operator ${reader.name} has no variable`);
    return this.end(node, 'in', reader.operand, operator.set);
  }

  /** The layouts of an operator's operand or result by candidate. */
  private end(node: Node, side: 'in' | 'out', index: number, set: CandidateSet): EdgeEnd {
    const key = `${this.setId(set)}.${side}${index}`;
    const variable = this.operators.get(node)?.variable ?? this.sizes.length;
    const layoutOf = (byIndex: readonly (Layout | null)[]) => {
      const layout = byIndex[index];
      if (!layout) throw new Error(`${node.op} ${node.name} has no layout for ${side}${index}`);
      return layout;
    };
    const all = side === 'in' ? set.operands : set.results;
    return { variable, key, ...madeOnce(this.ends, key, () => distinct(all.map(layoutOf))) };
  }

  private layoutsEnd(tensor: string, layouts: readonly Layout[]): EdgeEnd {
    const variable = this.variable(layouts.length);
    const key = `${typeKey(typeOf(this.graph, tensor))}:${layouts.map(layoutKey).join(' ')}`;
    return { variable, key, layouts, numbers: layouts.map((_, index) => index) };
  }

  private demanded(readers: readonly TensorReader[], sets: ReadonlyMap<Node, CandidateSet>): Layout[] {
    // Readers of one structure ask for the same: a mask may have one in every layer.
    const asking = new Set<string>();
    const all = readers.flatMap((reader) => {
      const node = reader.kind === 'operator' ? this.nodeOf.get(reader.name) : undefined;
      const set = node && sets.get(node);
      const key = set && `${this.setId(set)}.${reader.operand}`;
      if (key === undefined || asking.has(key)) return [];
      asking.add(key);
      return set?.operands.flatMap((operands) => operands[reader.operand] ?? []) ?? [];
    });
    return [...distinct(all).layouts];
  }

  /** An edge that is resharded `runs` times a step. */
  private edge(tensor: string, from: EdgeEnd, to: EdgeEnd, runs: number): void {
    const type = typeOf(this.graph, tensor);
    const key = `${typeKey(type)}|${from.key}|${to.key}|${runs}`;
    const table = madeOnce(this.edgeTables, key, () =>
      this.costs.edgeTable(from, to, type.shape, dtypeBits(type.dtype), runs),
    );
    this.edges.push({ variables: [from.variable, to.variable], table });
  }

  private edgeFactors(): readonly CostFactor[] {
    return this.edges.flatMap(({ variables, table }) => (table.isFree() ? [] : [{ variables, table: table.table() }]));
  }

  private refine(states: readonly number[]): boolean {
    const used = this.usedBy(states);
    const dearer = this.costs.price(used);
    if (dearer.size === 0) return false;
    this.rounds += 1;
    const rivals = this.rounds < RIVALS_FROM ? [] : this.rivals(used, dearer);
    this.settle(states, dearer, rivals);
    return true;
  }

  private foresee(): void {
    this.moves ??= new LocalMoves(this.sizes, this.factors, this.edges);
    const states = this.moves.guess();
    this.settle(states, this.costs.price(this.usedBy(states)), []);
  }

  private usedBy(states: readonly number[]): readonly LayoutPair[] {
    return this.edges.map(({ variables: [from, to], table }) =>
      table.pairAt(states[from] as number, states[to] as number),
    );
  }

  /** Prices the pairs that local moves reach from an assignment some of whose pairs turned out dearer, and some others. */
  private settle(states: readonly number[], dearer: ReadonlySet<LayoutPair>, others: readonly LayoutPair[]): void {
    this.moves ??= new LocalMoves(this.sizes, this.factors, this.edges);
    const moved = this.moves.settle(states, dearer, (pairs) => this.costs.price(pairs));
    const changed = new Set([...moved, ...this.costs.price(others)]);
    for (const table of this.edgeTables.values()) table.refresh(changed);
  }

  /** Pairs that may take the place of those that turned out dearer. */
  private rivals(used: readonly LayoutPair[], dearer: ReadonlySet<LayoutPair>): readonly LayoutPair[] {
    const asked = new Map<EdgeTable, Set<LayoutPair>>();
    return this.edges.flatMap(({ table }, index) => {
      const pair = used[index] as LayoutPair;
      const known = asked.get(table) ?? new Set();
      if (!dearer.has(pair) || known.has(pair)) return [];
      asked.set(table, known.add(pair));
      return table.rivals(pair);
    });
  }

  private forbidPartial(end: EdgeEnd): void {
    const table = madeOnce(this.tables, `output|${end.key}`, () => ({
      sizes: [end.numbers.length],
      values: Float64Array.from(end.numbers, (number) =>
        (end.layouts[number] as Layout).partial.length > 0 ? Infinity : 0,
      ),
    }));
    this.factors.push({ variables: [end.variable], table });
  }

  private costTable(set: CandidateSet, runs: number): CostTable {
    return madeOnce(this.tables, `cost|${this.setId(set)}|${runs}`, () => ({
      sizes: [set.costs.length],
      values: runs === 1 ? set.costs : set.costs.map((cost) => runs * cost),
    }));
  }

  private assignment(states: readonly number[]): Assignment {
    const layoutOf = (end: EdgeEnd) => end.layouts[end.numbers[states[end.variable] as number] as number] as Layout;
    const strategies = new Map<string, Strategy>();
    for (const [{ group }, { variable, set }] of this.operators)
      strategies.set(group, set.strategies[states[variable] as number] as Strategy);
    const sharedReshards: SharedReshard[] = [];
    for (const [tensor, readers] of this.readersOf) {
      const end = this.viewEnds.get(tensor);
      if (!end) continue;
      const only = readers.length === 1 ? readers[0] : undefined;
      const single = only?.kind === 'operator' && !this.inputEnds.has(tensor) ? this.readerEnd(only) : end;
      sharedReshards.push({ tensor, readers, layout: layoutOf(single) });
    }
    const inputs = new Map([...this.inputEnds].map(([input, end]) => [input, layoutOf(end)]));
    return { mesh: this.mesh, strategies, inputs, sharedReshards };
  }

  private replicatedLayout(tensor: string): Layout {
    const layout = replicated(typeOf(this.graph, tensor).shape);
    return mergedLayout(layout, this.mesh);
  }

  private variable(size: number): number {
    this.sizes.push(size);
    return this.sizes.length - 1;
  }

  private setId(set: CandidateSet): number {
    return madeOnce(this.setIds, set, () => this.setIds.size);
  }
}

/** Distinct layouts in order of appearance, and the number of each given one. */
function distinct(layouts: readonly Layout[]): LayoutStates {
  const found = new Map<string, number>();
  const kept: Layout[] = [];
  const numbers = layouts.map((layout) => {
    return madeOnce(found, layoutKey(layout), () => kept.push(layout) - 1);
  });
  return { layouts: kept, numbers };
}
