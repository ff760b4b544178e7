/**
 * @file The order of one phase: sharded nodes → segments, starts and waits.
 *
 * A segment takes operators of one layer, phase and scope as long as any is ready; those that run as late as possible (defer.ts)
 * are ready once what their first reader waits for is there. Then every collective whose operand
 * is there is started; other layers' ready operators run while it is under way; only when nothing else can run does the
 * phase wait for the collective that was started first. All ranks derive the same order, so no two ranks can wait for
 * each other's different collectives.
 */
import type { Scope } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { deferrals } from './defer.js';
import { type CommunicationNode, type ComputeNode, readsOf, resultsOf, type ShardedGraph } from './sharded-graph.js';

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
      placed += nodes.length;
      continue;
    }
    const first = underWay.shift();
    if (!first) break;
    steps.push({ kind: 'wait', ...first });
    placed++;
    publish(first.node.output);
  }
  if (placed !== graph.nodes.length) throw new Error('the sharded graph has a circle');
  return steps;
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
