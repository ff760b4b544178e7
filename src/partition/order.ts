/**
 * @file The order of one phase: sharded nodes → segments, starts and waits.
 *
 * A segment takes operators of one layer and pass (forward, backward, update) as long as any is ready; those that run as late as
 * possible (defer.ts) are ready once what their first reader waits for is there. Then every collective whose operand
 * is there is started; other layers' ready operators run while it is under way; only when nothing else can run, or collectives of
 * a third layer are to start, does the phase wait for the collective that was started first: so reductions of gradients and gathers
 * of weights hold operands and buffers of two layers at most. All ranks derive the same order, so no two ranks can wait for
 * each other's different collectives.
 */
import { type Phase, passOf } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { deferrals, samePlace, weightGathers } from './defer.js';
import {
  type CommunicationNode,
  type ComputeNode,
  type MoveNode,
  type PipelineStage,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type StageTransfer,
} from './sharded-graph.js';

/** How often a list of instructions runs: once for each micro-batch, or once per step. */
export type Runs = 'micro' | 'step';

/** A list of instructions of a program. */
export interface PhaseList {
  /** Its name in program.json. */
  readonly phase: string;
  readonly runs: Runs;
  readonly includes: (node: ShardedNode) => boolean;
  /** What it sends and receives, in the order in which all stages do. */
  readonly transfers: readonly TransferStep[];
}

/** A list that computes for each micro-batch what a chunk of a pipeline's stage does in one phase. */
export interface ChunkList extends PhaseList {
  readonly chunk: number;
  /** The phase of the schedule's actions that run it. */
  readonly does: string;
}

/**
 * The lists of a step in order: one of everything; with micro-batches what runs for each of them, then what runs once; of a
 * pipeline's stage forward and backward of each chunk apart, since other micro-batches' run between them, and so what one list
 * makes for one other stage.
 */
export function phasesOf(graph: ShardedGraph): readonly PhaseList[] {
  const isUpdate = ({ phase }: ShardedNode) => phase === 'update';
  const { pipeline } = graph;
  if (pipeline) return listsOfStage(graph, pipeline);
  if (!graph.microBatches) return [{ phase: 'forward', runs: 'step', includes: () => true, transfers: [] }];
  return [
    { phase: 'micro', runs: 'micro', includes: (node) => !isUpdate(node), transfers: [] },
    { phase: 'step', runs: 'step', includes: isUpdate, transfers: [] },
  ];
}

/** The name of a stage's list: of an action of its schedule. */
export function listName(phase: string, chunk: number): string {
  return chunk === 0 ? phase : `${phase}.${chunk}`;
}

/** Names of the lists that run once a step. */
export const BEGIN = 'begin';
export const UPDATE = 'update';

/** A list that only sends what `list` makes to a stage, or receives it from there. */
export function transferList(kind: TransferStep['kind'], list: string, stage: number): string {
  return `${kind} ${list} ${kind === 'send' ? 'to' : 'from'} ${stage}`;
}

/** The lists of a stage that compute, in the order in which a micro-batch runs through them. */
export function computeLists({
  chunks,
  chunkOf,
  splitsBackward,
}: Pick<PipelineStage, 'chunks' | 'chunkOf' | 'splitsBackward'>): readonly ChunkList[] {
  const list = (does: string, chunk: number, phases: readonly Phase[]): ChunkList => ({
    phase: listName(does, chunk),
    does,
    chunk,
    runs: 'micro',
    includes: (node) =>
      node.kind === 'move'
        ? node.list === listName(does, chunk)
        : phases.includes(node.phase) && (chunkOf.get(node.origin) ?? 0) === chunk,
    transfers: [],
  });
  const inOrder = Array.from({ length: chunks }, (_, chunk) => chunk);
  const backward = splitsBackward
    ? ([
        ['input-gradient', ['recompute', 'backward-input']],
        ['weight-gradient', ['backward-weight']],
      ] as const)
    : ([['backward', ['recompute', 'backward-input', 'backward-weight']]] as const);
  return [
    ...inOrder.map((chunk) => list('forward', chunk, ['forward'])),
    ...inOrder.reverse().flatMap((chunk) => backward.map(([phase, phases]) => list(phase, chunk, phases))),
  ];
}

/** Each list that computes between what it is the first to read of other stages and what it makes for them. */
function listsOfStage(graph: ShardedGraph, pipeline: PipelineStage): readonly PhaseList[] {
  const transfers: readonly TransferStep[] = [
    ...pipeline.sends.map((transfer) => ({ kind: 'send', transfer }) as const),
    ...pipeline.receives.map((transfer) => ({ kind: 'recv', transfer }) as const),
  ].sort((a, b) => a.transfer.order - b.transfer.order);
  const once = (phase: string, when: StageTransfer['when'], includes: PhaseList['includes']): PhaseList => ({
    ...{ phase, runs: 'step', includes: (node) => (node.kind === 'move' ? node.list === phase : includes(node)) },
    transfers: transfers.filter(({ transfer }) => transfer.when === when),
  });
  const exchanges = new Map<string, TransferStep[]>();
  for (const step of transfers) {
    const { when, list, stage } = step.transfer;
    if (when !== 'micro') continue;
    const name = transferList(step.kind, list, stage);
    exchanges.set(name, [...(exchanges.get(name) ?? []), step]);
  }
  const taken = new Set<string>();
  const take = (isNow: (step: TransferStep) => boolean): readonly PhaseList[] =>
    [...exchanges].flatMap(([phase, steps]) => {
      if (taken.has(phase) || !steps.some(isNow)) return [];
      taken.add(phase);
      const includes = (node: ShardedNode) => node.kind === 'move' && node.list === phase;
      return [{ phase, runs: 'micro', includes, transfers: steps } as const];
    });
  const inTurn = computeLists(pipeline).flatMap((list) => {
    const reads = new Set(graph.nodes.filter(list.includes).flatMap(readsOf));
    const before = take(({ kind, transfer }) => kind === 'recv' && reads.has(transfer.tensor));
    return [...before, list, ...take(({ kind, transfer }) => kind === 'send' && transfer.list === list.phase)];
  });
  return [
    once(BEGIN, 'begin', () => false),
    ...inTurn,
    ...take(() => true),
    once(UPDATE, 'update', ({ phase }) => phase === 'update'),
  ];
}

/** What one stage sends, or receives. */
export type TransferStep =
  | { readonly kind: 'send'; readonly transfer: StageTransfer }
  | { readonly kind: 'recv'; readonly transfer: StageTransfer };

export type Step =
  | { readonly kind: 'segment'; readonly nodes: readonly ComputeNode[] }
  | { readonly kind: 'start'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'wait'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'accumulate'; readonly node: ComputeNode }
  | { readonly kind: 'move'; readonly node: MoveNode }
  | TransferStep;

/**
 * Orders the nodes of a list of a graph without copies between memories (place-moves.ts). What the others make is there before it
 * begins. Transfers keep their order, which is that in which the whole graph makes what is sent, on all stages: executed one at a
 * time in that order they wait for nothing that comes later. A send goes as soon as it is its turn; a stage receives when nothing
 * else can run.
 * Throws (a fault of ours) where they depend on each other in a circle.
 */
export function orderPhase(whole: ShardedGraph, list: PhaseList): readonly Step[] {
  const isMember = list.includes;
  const coming = [...list.transfers];
  const receives = new Set(coming.flatMap(({ kind, transfer }) => (kind === 'recv' ? [transfer.tensor] : [])));
  const graph: ShardedGraph = { ...whole, nodes: whole.nodes.filter(isMember) };
  const given = new Set(givenTensors(whole));
  for (const node of whole.nodes) if (!isMember(node)) for (const name of resultsOf(node)) given.add(name);
  for (const { tensor } of whole.pipeline?.receives ?? []) if (!receives.has(tensor)) given.add(tensor);
  // What waits for a later transfer would keep an earlier one waiting.
  const deferred: ReturnType<typeof deferrals> = coming.length > 0 ? new Map() : deferrals(graph, whole);
  const waiting = new Map<string, number[]>();
  const missing = graph.nodes.map((node, index) => {
    const reads = new Set([...readsOf(node), ...(deferred.get(node) ?? [])]);
    let count = 0;
    for (const name of reads) {
      if (given.has(name)) continue;
      count++;
      const readers = waiting.get(name);
      if (readers) readers.push(index);
      else waiting.set(name, [index]);
    }
    return count;
  });
  const ready = new ReadyNodes(graph);
  for (const [index, count] of missing.entries()) if (count === 0) ready.add(index);
  const publish = (name: string | null) => {
    if (name !== null) given.add(name);
    for (const index of name === null ? [] : (waiting.get(name) ?? [])) {
      const left = (missing[index] ?? 0) - 1;
      missing[index] = left;
      if (left === 0) ready.add(index);
    }
  };
  const steps: Step[] = [];
  const underWay: { node: CommunicationNode; id: number }[] = [];
  let placed = 0;
  let next = 0;
  const gathers = weightGathers(graph);
  const waitForFirst = () => {
    const first = underWay.shift();
    if (!first) return false;
    steps.push({ kind: 'wait', ...first });
    placed++;
    publish(first.node.output);
    const after = underWay[0]?.node;
    // A layer's weights come together, so that its operators run in one segment.
    if (after && gathers.has(first.node) && gathers.has(after) && samePlace(first.node, after)) waitForFirst();
    return true;
  };
  for (;;) {
    for (let first = coming[0]; first?.kind === 'send' && given.has(first.transfer.tensor); first = coming[0]) {
      steps.push(first);
      coming.shift();
    }
    for (let node = ready.takeCommunication(); node; node = ready.takeCommunication()) {
      while (new Set([...underWay.map((other) => placeOf(other.node)), placeOf(node)]).size > PLACES) waitForFirst();
      steps.push({ kind: 'start', node, id: next });
      underWay.push({ node, id: next++ });
    }
    const nodes: ComputeNode[] = [];
    for (let node = ready.takeCompute(nodes[0]); node; node = ready.takeCompute(nodes[0])) {
      nodes.push(node);
      for (const output of node.outputs) publish(output);
    }
    if (nodes.length > 0) {
      if (nodes[0] && isAccumulator(nodes[0]))
        steps.push(...nodes.map((node) => ({ kind: 'accumulate', node }) as const));
      else steps.push({ kind: 'segment', nodes });
      placed += nodes.length;
      continue;
    }
    if (waitForFirst()) continue;
    const received = coming.shift();
    if (!received) break;
    if (received.kind === 'send') throw new Error(`${received.transfer.name} is sent before it can be there`);
    steps.push(received);
    publish(received.transfer.tensor);
  }
  if (placed !== graph.nodes.length) throw new Error('the sharded graph has a circle');
  return steps;
}

/** Layers of which collectives are under way at a time: each holds its operand and a buffer until it is waited for. */
const PLACES = 2;

/** The layer that a collective serves; an operator outside of layers is one of its own. */
function placeOf({ layer, origin }: CommunicationNode): string {
  return layer ?? `\u0000${origin}`;
}

/** Names of the tensors that are there before the phase begins. */
export function givenTensors(graph: ShardedGraph): ReadonlySet<string> {
  return new Set([
    ...graph.inputs.map((input) => input.tensor),
    ...graph.weights.map((weight) => weight.tensor),
    ...graph.coordinates.map((coordinate) => coordinate.name),
    ...graph.constants.keys(),
  ]);
}

/** Nodes whose operands are all there, taken smallest index first; compute nodes are kept apart by segment key. */
class ReadyNodes {
  private readonly communication: number[] = [];
  private readonly compute = new Map<string, number[]>();

  constructor(private readonly graph: ShardedGraph) {}

  add(index: number): void {
    const node = this.graph.nodes[index];
    if (node?.kind === 'compute') {
      const key = segmentKey(node, this.graph);
      const list = this.compute.get(key) ?? [];
      insert(list, index);
      this.compute.set(key, list);
    } else insert(this.communication, index);
  }

  takeCommunication(): CommunicationNode | undefined {
    const index = this.communication.shift();
    return index === undefined ? undefined : (this.graph.nodes[index] as CommunicationNode);
  }

  /** The first ready operator that may join a segment begun with `first`; any, where it is undefined. */
  takeCompute(first: ComputeNode | undefined): ComputeNode | undefined {
    const key = first ? segmentKey(first, this.graph) : this.earliestKey();
    const list = key === undefined ? undefined : this.compute.get(key);
    const index = list?.shift();
    if (key !== undefined && list?.length === 0) this.compute.delete(key);
    return index === undefined ? undefined : (this.graph.nodes[index] as ComputeNode);
  }

  /** Sums first: they free what they are given. */
  private earliestKey(): string | undefined {
    if (this.compute.has(ACCUMULATE)) return ACCUMULATE;
    let best: { key: string; index: number } | undefined;
    for (const [key, list] of this.compute) {
      const index = list[0];
      if (index !== undefined && (!best || index < best.index)) best = { key, index };
    }
    return best?.key;
  }
}

const ACCUMULATE = 'accumulate';

/** Accumulators are no part of segments: they keep a sum from one micro-batch to the next. */
function segmentKey(node: ComputeNode, { tensors }: ShardedGraph): string {
  if (isAccumulator(node)) return ACCUMULATE;
  const [result] = resultsOf(node);
  return [node.layer ?? '', passOf(node.phase), tensors.get(result ?? '')?.place ?? ''].join('\u0000');
}

/** Keeps a list ascending; new entries are mostly larger than all others. */
function insert(list: number[], value: number): void {
  let position = list.length;
  while (position > 0 && (list[position - 1] as number) > value) position--;
  list.splice(position, 0, value);
}
