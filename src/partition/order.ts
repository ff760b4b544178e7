/**
 * @file The order of one phase: sharded nodes → segments, starts and waits.
 *
 * A segment takes operators of one layer, phase and scope as long as any is ready. Then every collective whose operand
 * is there is started; other layers' ready operators run while it is under way; only when nothing else can run does the
 * phase wait for the collective that was started first. All ranks derive the same order, so no two ranks can wait for
 * each other's different collectives.
 *
 * Operators on weights alone could all run first, and their results would be held until they are read; so would what
 * DequantizeLinear makes, four times the bytes of its operand. They run directly before their first reader, in its segment, where
 * ONNX Runtime computes in the integers themselves.
 */
import type { Scope } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import type { CommunicationNode, ComputeNode, ShardedGraph } from './sharded-graph.js';

/** The phases of a step in order: one of everything, or with micro-batches one per scope. */
export function phasesOf({
  microBatches,
}: ShardedGraph): readonly { readonly phase: string; readonly scope?: Scope }[] {
  if (!microBatches) return [{ phase: 'forward' }];
  return [
    { phase: 'micro', scope: 'micro' },
    { phase: 'step', scope: 'step' },
  ];
}

export type Step =
  | { readonly kind: 'segment'; readonly nodes: readonly ComputeNode[] }
  | { readonly kind: 'start'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'wait'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'accumulate'; readonly node: ComputeNode };

/**
 * Orders the nodes of one scope; of any, where none is given. What other scopes make is there before it begins.
 * Throws (a fault of ours) where they depend on each other in a circle.
 */
export function orderPhase(whole: ShardedGraph, scope?: Scope): readonly Step[] {
  const isMember = (node: ShardedGraph['nodes'][number]) => scope === undefined || node.scope === scope;
  const graph: ShardedGraph = { ...whole, nodes: whole.nodes.filter(isMember) };
  const given = new Set(givenTensors(whole));
  for (const node of whole.nodes) if (!isMember(node)) for (const name of resultsOf(node)) given.add(name);
  const deferred = deferredNodes(graph);
  const waiting = new Map<string, number[]>();
  const later = new Set([...deferred.values()].map(({ node }) => node));
  const missing = graph.nodes.map((node, index) => {
    if (node.kind === 'compute' && later.has(node)) return Infinity;
    const reads = new Set(operandsOf(node).flatMap((name) => deferred.get(name)?.behind ?? [name]));
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
  const underWay: { node: CommunicationNode; id: number }[] = [];
  let placed = 0;
  let next = 0;
  for (;;) {
    for (let node = ready.takeCommunication(); node; node = ready.takeCommunication()) {
      steps.push({ kind: 'start', node, id: next });
      underWay.push({ node, id: next++ });
    }
    const nodes: ComputeNode[] = [];
    const first = ready.takeCompute(undefined);
    for (let node = first; node; node = ready.takeCompute(first)) {
      nodes.push(...withDeferred(node, deferred, later));
      for (const output of node.outputs) publish(output);
    }
    if (nodes.length > 0) {
      if (first && isAccumulator(first)) steps.push(...nodes.map((node) => ({ kind: 'accumulate', node }) as const));
      else steps.push({ kind: 'segment', nodes });
      placed += nodes.length;
      continue;
    }
    const oldest = underWay.shift();
    if (!oldest) break;
    steps.push({ kind: 'wait', ...oldest });
    placed++;
    publish(oldest.node.output);
  }
  if (placed !== graph.nodes.length) throw new Error('the sharded graph has a circle');
  return steps;
}

/** An operator that waits for its first reader, and the tensors that the reader waits for in place of its result. */
interface Deferred {
  readonly node: ComputeNode;
  readonly behind: readonly string[];
}

/** By result: DequantizeLinear and the operators on weights alone, where only operators of segments read what they make. */
function deferredNodes(graph: ShardedGraph): ReadonlyMap<string, Deferred> {
  const inputs = new Set(graph.inputs.map((input) => input.tensor));
  const fixed = new Set([...givenTensors(graph)].filter((name) => !inputs.has(name)));
  const inSegments = new Set<string>();
  const elsewhere = new Set<string>();
  for (const node of graph.nodes) {
    const readers = node.kind === 'compute' && !isAccumulator(node) ? inSegments : elsewhere;
    for (const name of operandsOf(node)) readers.add(name);
  }
  const deferred = new Map<string, Deferred>();
  for (const node of graph.nodes) {
    if (node.kind !== 'compute' || isAccumulator(node)) continue;
    const [operands, results] = [operandsOf(node), resultsOf(node)];
    const onWeights = operands.every((name) => fixed.has(name));
    if (onWeights) for (const name of results) fixed.add(name);
    const first = results.some((name) => elsewhere.has(name)) || !results.some((name) => inSegments.has(name));
    if (first || !(onWeights || node.op === 'DequantizeLinear')) continue;
    const behind = operands.flatMap((name) => deferred.get(name)?.behind ?? [name]);
    for (const name of results) deferred.set(name, { node, behind: onWeights ? [] : behind });
  }
  return deferred;
}

/** An operator behind the deferred ones that it is the first to need; takes these out of `later`. */
function withDeferred(
  node: ComputeNode,
  deferred: ReadonlyMap<string, Deferred>,
  later: Set<ComputeNode>,
): readonly ComputeNode[] {
  const placed: ComputeNode[] = [];
  const stack: { node: ComputeNode; ready: boolean }[] = [{ node, ready: false }];
  later.add(node);
  for (let top = stack.pop(); top; top = stack.pop()) {
    if (top.ready) placed.push(top.node);
    if (top.ready || !later.delete(top.node)) continue;
    stack.push({ node: top.node, ready: true });
    for (const name of operandsOf(top.node)) {
      const maker = deferred.get(name)?.node;
      if (maker) stack.push({ node: maker, ready: false });
    }
  }
  return placed;
}

function operandsOf(node: ShardedGraph['nodes'][number]): readonly string[] {
  return node.kind === 'compute' ? node.inputs.filter((name) => name !== null) : [node.input];
}

function resultsOf(node: ShardedGraph['nodes'][number]): readonly string[] {
  return node.kind === 'compute' ? node.outputs.filter((name) => name !== null) : [node.output];
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
  return `${node.layer ?? ''}\u0000${node.phase}\u0000${node.scope}`;
}

/** Keeps a list ascending; new entries are mostly larger than all others. */
function insert(list: number[], value: number): void {
  let position = list.length;
  while (position > 0 && (list[position - 1] as number) > value) position--;
  list.splice(position, 0, value);
}
