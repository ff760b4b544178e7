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
import { passOf } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { deferrals, samePlace, weightGathers } from './defer.js';
import { Prefetch, servedLayer } from './prefetch.js';
import {
  nodesByList,
  type ProgramPhase,
  phaseOfNode,
  programPhases,
  type TransferInstruction,
} from './program-phases.js';
import {
  type CommunicationNode,
  type ComputeNode,
  type MoveNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
} from './sharded-graph.js';

/** Marks an instruction of the second half (interleave.ts): it works on the micro-batch behind that of its action. */
export type SecondHalf = 1;

export type OrderedInstruction = { readonly half?: SecondHalf } & (
  | { readonly kind: 'segment'; readonly nodes: readonly ComputeNode[] }
  | {
      readonly kind: 'start';
      readonly node: CommunicationNode;
      readonly id: number;
      /** The number of its bucket, where it has one. */
      readonly bucket?: number;
      /** Only where the list runs for the last time in a step; its wait stands in a list that runs once. */
      readonly last?: true;
    }
  | { readonly kind: 'wait'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'accumulate'; readonly node: ComputeNode }
  | { readonly kind: 'move'; readonly node: MoveNode }
  | TransferInstruction
);

/** A list with its instructions. */
export interface OrderedList {
  readonly list: ProgramPhase;
  readonly instructions: readonly OrderedInstruction[];
  /** By node that runs as late as possible: the tensors that it waits for beside its operands. */
  readonly deferred: ReturnType<typeof deferrals>;
}

/**
 * Orders every list of a step of a graph without copies between memories (place-moves.ts). A bucket's collectives start
 * together. Collectives on sums over micro-batches start in the list that accumulates the sum, where it runs for the last time,
 * and are waited for in the list of their own. Throws (internal error) where the dependencies of nodes form a cycle.
 * @param staying collectives that start in the list of their own, whichever list accumulates their operand
 */
export function orderLists(graph: ShardedGraph, staying: ReadonlySet<ShardedNode> = new Set()): readonly OrderedList[] {
  const startedIn = startsAhead(graph, staying);
  const begun: UnderWay[] = [];
  let next = 0;
  return programPhases(graph).map((list) => {
    const ahead = new Set([...startedIn].flatMap(([node, name]) => (name === list.phase ? [node] : [])));
    const here = begun.filter(({ node }) => list.includes(node));
    // A node that waits for a later transfer would delay an earlier one.
    const isDeferring = list.transfers.length === 0;
    const deferred: OrderedList['deferred'] = isDeferring
      ? deferrals({ ...graph, nodes: nodesByList(graph).get(list.phase) ?? [] }, graph)
      : new Map();
    const instructions = orderPhase(graph, list, deferred, { ahead, begun: here, next });
    for (const instruction of instructions) {
      if (instruction.kind !== 'start') continue;
      next = Math.max(next, instruction.id + 1);
      if (instruction.last) begun.push({ node: instruction.node, id: instruction.id });
    }
    return { list, instructions, deferred };
  });
}

/** By collective of a bucket whose operand another list accumulates: the name of that list, in which it starts. */
function startsAhead(graph: ShardedGraph, staying: ReadonlySet<ShardedNode>): ReadonlyMap<CommunicationNode, string> {
  const adds = addedIn(graph);
  return new Map(
    graph.nodes.flatMap((node) => {
      const mayStart = node.kind === 'communicate' && node.bucket && !staying.has(node);
      const list = mayStart ? adds.get(node.input) : undefined;
      return list === undefined ? [] : [[node as CommunicationNode, list] as const];
    }),
  );
}

/** By sum over micro-batches: the list that adds it up. */
export function addedIn(graph: ShardedGraph): ReadonlyMap<string, string> {
  if (!graph.microBatches) return new Map();
  const lists = programPhases(graph).filter(({ runs }) => runs === 'micro');
  return new Map(
    graph.nodes.flatMap((node) => {
      if (node.kind !== 'compute' || !isAccumulator(node)) return [];
      const name = phaseOfNode(node, graph);
      const list = lists.find(({ phase }) => phase === name);
      return list ? resultsOf(node).map((name) => [name, list.phase] as const) : [];
    }),
  );
}

interface UnderWay {
  readonly node: CommunicationNode;
  readonly id: number;
}

/** The collectives of a list that start in one list and are waited for in another. */
interface Across {
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
function orderPhase(
  whole: ShardedGraph,
  list: ProgramPhase,
  deferred: OrderedList['deferred'],
  { ahead, begun, next: first }: Across,
): readonly OrderedInstruction[] {
  const isMember = list.includes;
  const coming = [...list.transfers];
  const receives = new Set(coming.flatMap(({ kind, transfer }) => (kind === 'recv' ? [transfer.tensor] : [])));
  const isAhead = (node: ShardedNode) => node.kind === 'communicate' && ahead.has(node);
  const started = new Set<ShardedNode>(begun.map(({ node }) => node));
  const graph: ShardedGraph = {
    ...whole,
    nodes: whole.nodes.filter((node) => isAhead(node) || (isMember(node) && !started.has(node))),
  };
  const given = new Set(initialTensors(whole));
  for (const node of whole.nodes) if (!isMember(node)) for (const name of resultsOf(node)) given.add(name);
  for (const { tensor } of whole.pipeline?.receives ?? []) if (!receives.has(tensor)) given.add(tensor);
  const waiting = new Map<string, number[]>();
  const early = new Prefetch(list.transfers.length === 0 ? graph.nodes : [], deferred, whole);
  const missing = graph.nodes.map((node, index) => {
    const reads = new Set([...readsOf(node), ...(early.has(node) ? [] : (deferred.get(node) ?? []))]);
    let count = 0;
    for (const name of reads) {
      if (given.has(name)) continue;
      count++;
      appendTo(waiting, name, index);
    }
    return count;
  });
  const ready = new ReadyNodes(graph, early);
  const offer = (index: number) => {
    if (!early.keeps(graph.nodes[index] as ShardedNode, index)) ready.add(index);
  };
  for (const [index, count] of missing.entries()) if (count === 0) offer(index);
  const publish = (name: string | null) => {
    if (name !== null) given.add(name);
    for (const index of name === null ? [] : (waiting.get(name) ?? [])) {
      const left = (missing[index] ?? 0) - 1;
      missing[index] = left;
      if (left === 0) offer(index);
    }
  };
  const instructions: OrderedInstruction[] = [];
  // Results of buckets, except weights, are needed last: collectives that the list itself continues with are waited for first.
  const underWay: UnderWay[] = [];
  const gathered: UnderWay[] = [];
  const inBuckets: UnderWay[] = [...begun];
  let placed = 0;
  let next = first;
  const gathers = weightGathers(graph);
  const wait = (begun: UnderWay) => {
    instructions.push({ kind: 'wait', ...begun });
    placed++;
    publish(begun.node.output);
  };
  const waitForFirst = () => {
    const first = underWay.shift();
    if (!first) return false;
    wait(first);
    const after = underWay[0]?.node;
    // A layer's weights come together, so that its operators run in one segment.
    const isGathered = after && gathers.has(first.node) && gathers.has(after) && samePlace(first.node, after);
    // So do the tensors of a chunk in a ring: their readers run in one segment, and the next send of the ring waits for it.
    if (isGathered || (after && areOneChunk(first.node, after))) waitForFirst();
    return true;
  };
  const waitForGroup = () => {
    const first = gathered.shift();
    if (!first) return false;
    wait(first);
    const after = gathered[0]?.node;
    if (after && early.joins(first.node, after)) waitForGroup();
    return true;
  };
  const beginGroups = (isForced: boolean) => {
    const indices = early.begin(isForced);
    for (const index of indices) ready.add(index);
    return indices.length > 0;
  };
  for (;;) {
    for (let first = coming[0]; first?.kind === 'send' && given.has(first.transfer.tensor); first = coming[0]) {
      instructions.push(first);
      coming.shift();
    }
    for (let node = ready.takeCommunication(); node; node = ready.takeCommunication()) {
      const isBucketed = isAhead(node) || node.bucket !== undefined;
      while (!isBucketed && new Set([...underWay, { node }].map((one) => servedLayer(one.node))).size > PLACES)
        waitForFirst();
      const id = next++;
      const bucket = node.bucket === undefined ? {} : { bucket: node.bucket.id };
      if (isAhead(node)) {
        instructions.push({ kind: 'start', node, id, ...bucket, last: true });
        placed++;
      } else {
        instructions.push({ kind: 'start', node, id, ...bucket });
        (early.has(node) ? gathered : isBucketed ? inBuckets : underWay).push({ node, id });
      }
      early.ran(node);
    }
    if (beginGroups(false)) continue;
    const nodes: ComputeNode[] = [];
    for (let node = ready.takeCompute(nodes[0]); node; node = ready.takeCompute(nodes[0])) {
      nodes.push(node);
      early.ran(node);
      for (const output of node.outputs) publish(output);
    }
    if (nodes.length > 0) {
      if (nodes[0] && isAccumulator(nodes[0]))
        instructions.push(...nodes.map((node) => ({ kind: 'accumulate', node }) as const));
      else instructions.push({ kind: 'segment', nodes });
      placed += nodes.length;
      continue;
    }
    if (waitForFirst() || waitForGroup() || beginGroups(true)) continue;
    const late = inBuckets.shift();
    if (late) {
      wait(late);
      continue;
    }
    const received = coming.shift();
    if (!received) break;
    if (received.kind === 'send') throw new Error(`${received.transfer.name} is sent before it is computed`);
    instructions.push(received);
    publish(received.transfer.tensor);
  }
  if (placed !== graph.nodes.length + begun.length) throw new Error('the sharded graph has a cycle');
  return instructions;
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

/**
 * Nodes whose operands are all available, taken smallest index first; compute nodes are separated by segment key. A bucket's
 * collectives come one after the other, once all of them may.
 */
class ReadyNodes {
  /** Collectives that may start, those of a bucket as one. */
  private readonly communication: number[][] = [];
  /** The remaining collectives of a bucket that has begun to start. */
  private begun: number[] = [];
  private readonly compute = new Map<string, number[]>();
  private readonly buckets = new Map<number, { readonly size: number; readonly ready: number[] }>();

  constructor(
    private readonly graph: ShardedGraph,
    private readonly early: Prefetch,
  ) {
    for (const node of graph.nodes) {
      if (node.kind !== 'communicate' || !node.bucket) continue;
      const { id } = node.bucket;
      this.buckets.set(id, { size: (this.buckets.get(id)?.size ?? 0) + 1, ready: [] });
    }
  }

  add(index: number): void {
    const node = this.graph.nodes[index];
    if (node?.kind === 'compute') {
      const key = this.keyOf(node);
      const list = this.compute.get(key) ?? [];
      insert(list, index);
      this.compute.set(key, list);
      return;
    }
    const bucket = node?.kind === 'communicate' && node.bucket ? this.buckets.get(node.bucket.id) : undefined;
    if (!bucket) {
      insertGroup(this.communication, index);
      return;
    }
    bucket.ready.push(index);
    if (bucket.ready.length === bucket.size) this.communication.push(bucket.ready.sort(this.inBucket));
  }

  takeCommunication(): CommunicationNode | undefined {
    if (this.begun.length === 0) this.begun = this.communication.shift() ?? [];
    const index = this.begun.shift();
    return index === undefined ? undefined : (this.graph.nodes[index] as CommunicationNode);
  }

  /** The first ready operator that may join a segment begun with `first`; any, where it is undefined. */
  takeCompute(first: ComputeNode | undefined): ComputeNode | undefined {
    const key = first ? this.keyOf(first) : this.earliestKey();
    const list = key === undefined ? undefined : this.compute.get(key);
    const index = list?.shift();
    if (key !== undefined && list?.length === 0) this.compute.delete(key);
    return index === undefined ? undefined : (this.graph.nodes[index] as ComputeNode);
  }

  /** Accumulators first: they free their operands; then operators that early gathers wait for. */
  private earliestKey(): string | undefined {
    if (this.compute.has(ACCUMULATE)) return ACCUMULATE;
    let best: { key: string; index: number } | undefined;
    for (const [key, list] of this.compute) {
      const index = list[0];
      if (key.startsWith(EARLY)) return key;
      if (index !== undefined && (!best || index < best.index)) best = { key, index };
    }
    return best?.key;
  }

  private keyOf(node: ComputeNode): string {
    return `${this.early.has(node) ? EARLY : ''}${segmentKey(node, this.graph)}`;
  }

  /** The first member of a bucket is the one that carries its bytes. */
  private readonly inBucket = (a: number, b: number): number => {
    const bytes = (index: number) => (this.graph.nodes[index] as CommunicationNode).bucket?.bytes ?? 0;
    return bytes(b) - bytes(a) || a - b;
  };
}

const ACCUMULATE = 'accumulate';

/** Prefix of the key of operators that early gathers wait for. */
const EARLY = '\u0000';

/** Accumulators are not part of segments: they keep a sum from one micro-batch to the next. */
function segmentKey(node: ComputeNode, { tensors }: ShardedGraph): string {
  if (isAccumulator(node)) return ACCUMULATE;
  const [result] = resultsOf(node);
  const { place = '', first = [] } = tensors.get(result ?? '') ?? {};
  return [node.layer ?? '', passOf(node.phase), place, first.join()].join('\u0000');
}

/** Puts a collective of its own where it belongs by its index. */
function insertGroup(groups: number[][], value: number): void {
  let position = groups.length;
  while (position > 0 && (groups[position - 1]?.[0] as number) > value) position--;
  groups.splice(position, 0, [value]);
}

/** Keeps a list ascending; new entries are mostly larger than all others. */
function insert(list: number[], value: number): void {
  let position = list.length;
  while (position > 0 && (list[position - 1] as number) > value) position--;
  list.splice(position, 0, value);
}
