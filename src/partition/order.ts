/**
 * @file The order of one phase: sharded nodes → segments, starts and waits.
 *
 * A segment takes operators of one layer and pass (forward, backward, update) as long as any is ready; those that run as late as
 * possible (defer.ts) are ready once what their first reader waits for is there. Then every collective whose operand
 * is there is started; other layers' ready operators run while it is under way; only when nothing else can run does the
 * phase wait for the collective that was started first. All ranks derive the same order, so no two ranks can wait for
 * each other's different collectives.
 */
import { type Phase, passOf } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { deferrals } from './defer.js';
import {
  type CommunicationNode,
  type ComputeNode,
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
  /** When what it sends and receives is exchanged; null where it is no list of a pipeline's stage. */
  readonly transfers: StageTransfer['when'] | null;
}

/**
 * The lists of a step in order: one of everything; with micro-batches what runs for each of them, then what runs once; of a
 * pipeline's stage forward and backward of each chunk apart, since other micro-batches' run between them.
 */
export function phasesOf({ microBatches, pipeline }: ShardedGraph): readonly PhaseList[] {
  const isUpdate = ({ phase }: ShardedNode) => phase === 'update';
  if (pipeline) return listsOfStage(pipeline);
  if (!microBatches) return [{ phase: 'forward', runs: 'step', includes: () => true, transfers: null }];
  return [
    { phase: 'micro', runs: 'micro', includes: (node) => !isUpdate(node), transfers: null },
    { phase: 'step', runs: 'step', includes: isUpdate, transfers: null },
  ];
}

/** The name of a stage's list: of an action of its schedule. */
export function listName(phase: string, chunk: number): string {
  return chunk === 0 ? phase : `${phase}.${chunk}`;
}

/** Names of the lists that run once a step. */
export const BEGIN = 'begin';
export const UPDATE = 'update';

function listsOfStage({ chunks, chunkOf, splitsBackward }: PipelineStage): readonly PhaseList[] {
  const list = (phase: string, chunk: number, phases: readonly Phase[]): PhaseList => ({
    phase: listName(phase, chunk),
    runs: 'micro',
    includes: (node) => phases.includes(node.phase) && (chunkOf.get(node.origin) ?? 0) === chunk,
    transfers: 'micro',
  });
  const once = (phase: string, transfers: StageTransfer['when'], isIn: boolean): PhaseList => ({
    phase,
    runs: 'step',
    includes: (node) => isIn && node.phase === 'update',
    transfers,
  });
  const inOrder = Array.from({ length: chunks }, (_, chunk) => chunk);
  const backward = splitsBackward
    ? ([
        ['input-gradient', ['recompute', 'backward-input']],
        ['weight-gradient', ['backward-weight']],
      ] as const)
    : ([['backward', ['recompute', 'backward-input', 'backward-weight']]] as const);
  return [
    once(BEGIN, 'begin', false),
    ...inOrder.map((chunk) => list('forward', chunk, ['forward'])),
    ...inOrder.reverse().flatMap((chunk) => backward.map(([phase, phases]) => list(phase, chunk, phases))),
    once(UPDATE, 'update', true),
  ];
}

export type Step =
  | { readonly kind: 'segment'; readonly nodes: readonly ComputeNode[] }
  | { readonly kind: 'start'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'wait'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'accumulate'; readonly node: ComputeNode }
  | { readonly kind: 'send'; readonly transfer: StageTransfer }
  | { readonly kind: 'recv'; readonly transfer: StageTransfer };

/**
 * Orders the nodes of a list. What the others make is there before it begins. What another stage sends is received when nothing
 * else can run, in the order in which the whole graph makes it, so that no stages wait for each other in a circle; what is sent
 * goes as soon as it is there.
 * Throws (a fault of ours) where they depend on each other in a circle.
 */
export function orderPhase(whole: ShardedGraph, list: PhaseList): readonly Step[] {
  const isMember = list.includes;
  const { sends, receives } = transfersOf(whole, list);
  const graph: ShardedGraph = { ...whole, nodes: whole.nodes.filter(isMember) };
  const given = new Set(givenTensors(whole));
  for (const node of whole.nodes) if (!isMember(node)) for (const name of resultsOf(node)) given.add(name);
  for (const { tensor } of whole.pipeline?.receives ?? [])
    if (!receives.some((transfer) => transfer.tensor === tensor)) given.add(tensor);
  const deferred = deferrals(graph);
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
    for (const index of name === null ? [] : (waiting.get(name) ?? [])) {
      const left = (missing[index] ?? 0) - 1;
      missing[index] = left;
      if (left === 0) ready.add(index);
    }
  };
  const steps: Step[] = [];
  const toSend = new Map<string, StageTransfer[]>();
  for (const transfer of sends) toSend.set(transfer.tensor, [...(toSend.get(transfer.tensor) ?? []), transfer]);
  const send = (name: string | null) => {
    for (const transfer of (name === null ? undefined : toSend.get(name)) ?? []) steps.push({ kind: 'send', transfer });
  };
  const coming = [...receives];
  for (const name of toSend.keys()) if (given.has(name)) send(name);
  const underWay: { node: CommunicationNode; id: number }[] = [];
  let placed = 0;
  let next = 0;
  for (;;) {
    for (let node = ready.takeCommunication(); node; node = ready.takeCommunication()) {
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
      for (const node of nodes) node.outputs.forEach(send);
      placed += nodes.length;
      continue;
    }
    const first = underWay.shift();
    if (first) {
      steps.push({ kind: 'wait', ...first });
      placed++;
      publish(first.node.output);
      send(first.node.output);
      continue;
    }
    const transfer = coming.shift();
    if (!transfer) break;
    steps.push({ kind: 'recv', transfer });
    publish(transfer.tensor);
  }
  if (placed !== graph.nodes.length) throw new Error('the sharded graph has a circle');
  return steps;
}

/** What a list sends: what it makes; and receives: what it is the first to read. */
function transfersOf(
  graph: ShardedGraph,
  list: PhaseList,
): { readonly sends: readonly StageTransfer[]; readonly receives: readonly StageTransfer[] } {
  const { pipeline } = graph;
  if (!pipeline || list.transfers === null) return { sends: [], receives: [] };
  const isNow = ({ when }: StageTransfer) => when === list.transfers;
  if (list.transfers !== 'micro')
    return { sends: pipeline.sends.filter(isNow), receives: pipeline.receives.filter(isNow) };
  const made = new Set(graph.nodes.filter(list.includes).flatMap(resultsOf));
  const before = new Set<string>();
  for (const earlier of phasesOf(graph)) {
    if (earlier.phase === list.phase) break;
    for (const name of graph.nodes.filter(earlier.includes).flatMap(readsOf)) before.add(name);
  }
  const own = new Set(graph.nodes.filter(list.includes).flatMap(readsOf));
  return {
    sends: pipeline.sends.filter((transfer) => isNow(transfer) && made.has(transfer.tensor)),
    receives: pipeline.receives.filter(
      ({ tensor, when }) => when === 'micro' && own.has(tensor) && !before.has(tensor),
    ),
  };
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
      const key = segmentKey(node);
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
    const key = first ? segmentKey(first) : this.earliestKey();
    const list = key === undefined ? undefined : this.compute.get(key);
    const index = list?.shift();
    if (key !== undefined && list?.length === 0) this.compute.delete(key);
    return index === undefined ? undefined : (this.graph.nodes[index] as ComputeNode);
  }

  private earliestKey(): string | undefined {
    let best: { key: string; index: number } | undefined;
    for (const [key, list] of this.compute) {
      const index = list[0];
      if (index !== undefined && (!best || index < best.index)) best = { key, index };
    }
    return best?.key;
  }
}

/** Accumulators are no part of segments: they keep a sum from one micro-batch to the next. */
function segmentKey(node: ComputeNode): string {
  if (isAccumulator(node)) return 'accumulate';
  return `${node.layer ?? ''}\u0000${passOf(node.phase)}`;
}

/** Keeps a list ascending; new entries are mostly larger than all others. */
function insert(list: number[], value: number): void {
  let position = list.length;
  while (position > 0 && (list[position - 1] as number) > value) position--;
  list.splice(position, 0, value);
}
