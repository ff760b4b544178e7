/**
 * @file The order of one phase: sharded nodes → segments, starts and waits.
 *
 * A segment takes operators of one layer and pass (forward, backward, update) as long as any is ready; those that run as late as
 * possible (defer.ts) are ready once the other operands of their first reader exist. Then every collective whose operand
 * exists is started; other layers' ready operators run while it is under way; only when nothing else can run, or collectives of
 * a third layer are to start, does the phase wait for the collective that was started first: so reductions of gradients and
 * gathers of weights hold operands and buffers of two layers at most. All ranks derive the same order, so no two ranks can wait
 * for each other's different collectives.
 */
import { appendTo } from '../ir/group-by.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { samePlace, weightGathers } from './defer.js';
import type { OrderedInstruction, OrderedList } from './ordered-list.js';
import { Prefetch, servedLayer } from './prefetch.js';
import type { ProgramPhase, TransferInstruction } from './program-phases.js';
import { ReadyNodes } from './ready-nodes.js';
import {
  type CommunicationNode,
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
} from './sharded-graph.js';

/** A collective that was started. */
export interface UnderWay {
  readonly node: CommunicationNode;
  readonly id: number;
}

/** The collectives of a list that start in one list and are waited for in another. */
export interface Across {
  /** Nodes of other lists that start in this one, where it runs for the last time. */
  readonly ahead: ReadonlySet<CommunicationNode>;
  /** Nodes of this list that others started. */
  readonly begun: readonly UnderWay[];
  /** The number of the next collective. */
  readonly next: number;
}

/**
 * Orders the nodes of a list of a graph without copies between memories (place-moves.ts). Results of the other lists exist before
 * it begins. Transfers keep their order, on all stages the order in which the whole graph computes the sent tensors: executed one
 * at a time in that order they wait for nothing that comes later. A send is issued as soon as it is first in that order; a stage
 * receives when nothing else can run.
 */
export function orderPhase(
  whole: ShardedGraph,
  list: ProgramPhase,
  deferred: OrderedList['deferred'],
  across: Across,
): readonly OrderedInstruction[] {
  return new PhaseOrder(whole, list, deferred, across).order();
}

class PhaseOrder {
  private readonly graph: ShardedGraph;
  /** Tensors that exist. */
  private readonly given: Set<string>;
  /** By tensor that does not exist yet: the nodes that wait for it; and by node how many it waits for. */
  private readonly waiting = new Map<string, number[]>();
  private readonly missing: number[];
  private readonly early: Prefetch;
  private readonly ready: ReadyNodes;
  private readonly gathers: ReadonlySet<ShardedNode>;
  /** Transfers that are to come. */
  private readonly coming: TransferInstruction[];
  /**
   * Collectives under way: those that the list itself continues with are waited for first, then early gathers; results of
   * buckets, except weights, are needed last.
   */
  private readonly underWay: UnderWay[] = [];
  private readonly gathered: UnderWay[] = [];
  private readonly inBuckets: UnderWay[];
  private readonly instructions: OrderedInstruction[] = [];
  private placed = 0;
  private next: number;

  constructor(
    whole: ShardedGraph,
    list: ProgramPhase,
    deferred: OrderedList['deferred'],
    private readonly across: Across,
  ) {
    const started = new Set<ShardedNode>(across.begun.map(({ node }) => node));
    const isOwn = (node: ShardedNode) => this.isAhead(node) || (list.includes(node) && !started.has(node));
    const graph: ShardedGraph = { ...whole, nodes: whole.nodes.filter(isOwn) };
    this.graph = graph;
    this.given = givenTo(list, whole);
    this.coming = [...list.transfers];
    this.inBuckets = [...across.begun];
    this.next = across.next;
    this.gathers = weightGathers(graph);
    this.early = new Prefetch(list.transfers.length === 0 ? graph.nodes : [], deferred, whole);
    this.ready = new ReadyNodes(graph, this.early);
    this.missing = graph.nodes.map((node, index) => {
      const reads = new Set([...readsOf(node), ...(this.early.has(node) ? [] : (deferred.get(node) ?? []))]);
      const absent = [...reads].filter((name) => !this.given.has(name));
      for (const name of absent) appendTo(this.waiting, name, index);
      return absent.length;
    });
  }

  /** Places all nodes. */
  order(): readonly OrderedInstruction[] {
    for (const [index, count] of this.missing.entries()) if (count === 0) this.offer(index);
    let goesOn = true;
    while (goesOn) {
      this.send();
      this.startCollectives();
      goesOn = this.beginGroups(false) || this.compute() || this.wait() || this.beginGroups(true) || this.finish();
    }
    if (this.placed !== this.graph.nodes.length + this.across.begun.length)
      throw new Error('the sharded graph has a cycle');
    return this.instructions;
  }

  private isAhead(node: ShardedNode): boolean {
    return node.kind === 'communicate' && this.across.ahead.has(node);
  }

  /** A node whose operands all exist. */
  private offer(index: number): void {
    if (!this.early.keeps(this.graph.nodes[index] as ShardedNode, index)) this.ready.add(index);
  }

  /** A tensor exists from now on. */
  private publish(name: string): void {
    this.given.add(name);
    for (const index of this.waiting.get(name) ?? []) {
      const left = (this.missing[index] ?? 0) - 1;
      this.missing[index] = left;
      if (left === 0) this.offer(index);
    }
  }

  /** Issues the sends that are first among transfers and whose tensors exist. */
  private send(): void {
    const { coming, instructions, given } = this;
    for (let first = coming[0]; first?.kind === 'send' && given.has(first.transfer.tensor); first = coming[0]) {
      instructions.push(first);
      coming.shift();
    }
  }

  /** Starts all collectives that may, once those of two layers at most are under way. */
  private startCollectives(): void {
    const { ready, early, underWay } = this;
    for (let node = ready.takeCommunication(); node; node = ready.takeCommunication()) {
      const isAhead = this.isAhead(node);
      const isBucketed = isAhead || node.bucket !== undefined;
      while (!isBucketed && new Set([...underWay, { node }].map((one) => servedLayer(one.node))).size > PLACES)
        this.waitForFirst();
      const id = this.next++;
      const bucket = node.bucket === undefined ? {} : { bucket: node.bucket.id };
      this.instructions.push({ kind: 'start', node, id, ...bucket, ...(isAhead ? { last: true } : {}) });
      if (isAhead) this.placed++;
      else (early.has(node) ? this.gathered : isBucketed ? this.inBuckets : underWay).push({ node, id });
      early.ran(node);
    }
  }

  /** Begins groups of gathers that may begin, or that are forced to; whether there is one. */
  private beginGroups(isForced: boolean): boolean {
    const indices = this.early.begin(isForced);
    for (const index of indices) this.ready.add(index);
    return indices.length > 0;
  }

  /** Runs the next segment, or the accumulators that may run; whether there is one. */
  private compute(): boolean {
    const { ready, early } = this;
    const nodes: ComputeNode[] = [];
    for (let node = ready.takeCompute(nodes[0]); node; node = ready.takeCompute(nodes[0])) {
      nodes.push(node);
      early.ran(node);
      for (const output of resultsOf(node)) this.publish(output);
    }
    const [first] = nodes;
    if (!first) return false;
    if (isAccumulator(first)) this.instructions.push(...nodes.map((node) => ({ kind: 'accumulate', node }) as const));
    else this.instructions.push({ kind: 'segment', nodes });
    this.placed += nodes.length;
    return true;
  }

  /** Waits for a collective that the list continues with; whether one is under way. */
  private wait(): boolean {
    return this.waitForFirst() || this.waitForGroup();
  }

  private waitForFirst(): boolean {
    const first = this.underWay.shift();
    if (!first) return false;
    this.waitFor(first);
    const after = this.underWay[0]?.node;
    // A layer's weights come together, so that its operators run in one segment.
    const { gathers } = this;
    const isGathered = after && gathers.has(first.node) && gathers.has(after) && samePlace(first.node, after);
    // So do the tensors of a chunk in a ring: their readers run in one segment, and the next send of the ring waits for it.
    if (isGathered || (after && areOneChunk(first.node, after))) this.waitForFirst();
    return true;
  }

  private waitForGroup(): boolean {
    const first = this.gathered.shift();
    if (!first) return false;
    this.waitFor(first);
    const after = this.gathered[0]?.node;
    if (after && this.early.joins(first.node, after)) this.waitForGroup();
    return true;
  }

  /** Where nothing else can run: waits for the first bucket, else receives the next tensor; whether there is one. */
  private finish(): boolean {
    const late = this.inBuckets.shift();
    if (late) {
      this.waitFor(late);
      return true;
    }
    const received = this.coming.shift();
    if (!received) return false;
    if (received.kind === 'send') throw new Error(`${received.transfer.name} is sent before it is computed`);
    this.instructions.push(received);
    this.publish(received.transfer.tensor);
    return true;
  }

  private waitFor(begun: UnderWay): void {
    this.instructions.push({ kind: 'wait', ...begun });
    this.placed++;
    this.publish(begun.node.output);
  }
}

/** Tensors that exist before a list begins: initial ones, results of the other lists, and what these receive. */
function givenTo(list: ProgramPhase, whole: ShardedGraph): Set<string> {
  const receives = new Set(list.transfers.flatMap(({ kind, transfer }) => (kind === 'recv' ? [transfer.tensor] : [])));
  const given = new Set(initialTensors(whole));
  for (const node of whole.nodes) if (!list.includes(node)) for (const name of resultsOf(node)) given.add(name);
  for (const { tensor } of whole.pipeline?.receives ?? []) if (!receives.has(tensor)) given.add(tensor);
  return given;
}

/** Whether two tensors are sent to the next rank by one operator. */
function areOneChunk(first: CommunicationNode, after: CommunicationNode): boolean {
  return first.collective.kind === 'permute' && after.collective.kind === 'permute' && first.origin === after.origin;
}

/** Layers whose collectives are under way at a time: each holds its operand and a buffer until it is waited for. */
const PLACES = 2;

/** Names of the tensors that exist before the phase begins. */
export function initialTensors(graph: ShardedGraph): ReadonlySet<string> {
  return new Set([
    ...graph.inputs.map((input) => input.tensor),
    ...graph.weights.map((weight) => weight.tensor),
    ...graph.coordinates.map((coordinate) => coordinate.name),
    ...graph.constants.keys(),
  ]);
}
