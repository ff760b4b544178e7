/**
 * @file Operators that could run long before anything needs their results: recomputed operators, gathers of stored
 * activations, casts and gathers of weights. Each runs as late as possible: once the operand arrives that its first reader
 * waits for anyway. So their results are alive in one layer at a time, not in all of them.
 *
 * An operator is deferred if both hold:
 *
 *     it has slack          a chain of operators through it is shorter than one that joins it
 *     deferring is free     its operands are alive until then anyway: weights, state, and for backward stored activations;
 *                           or they are made by deferred operators; or, in the forward, they take less memory than its
 *                           results, as those of DequantizeLinear do, which ONNX Runtime fuses with a reader in the same
 *                           segment; the nodes that one operator was lowered to stay together then
 *
 * A ring hop slices a stationary operand (streamed.ts) when the hop's chunk has arrived: other hops read the operand as well.
 * Chunks that travel round the ring are sent together, or a rank would hold one more of those that were sent first.
 *
 * Gradients of weights have slack too, but their operands would be held for them; so they are not deferred.
 */
import { byteLength } from '../ir/dtype.js';
import { elementCount, passOf } from '../ir/graph.js';
import { type CommunicationNode, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/**
 * By deferred node of a graph in topological order: the tensors that it waits for beside its operands. No cycle arises.
 * @param whole the graph that the nodes are a list of, where they are not all of it
 */
export function deferrals(graph: ShardedGraph, whole = graph): ReadonlyMap<ShardedNode, readonly string[]> {
  const { nodes } = graph;
  const makers = new Map<string, number>();
  for (const [index, node] of nodes.entries()) for (const name of resultsOf(node)) makers.set(name, index);
  const reads = nodes.map(readsOf);
  const operands = reads.map((names) => names.flatMap((name) => makers.get(name) ?? []));
  const hasSlack = slackOf(operands);
  const isHeld = livesUntil(whole);
  const streamed = streamedOrigins(graph);
  const sent = new Set(nodes.flatMap((node) => (isPermute(node) ? [node.input] : [])));
  const isTaken = (node: ShardedNode) =>
    node.kind === 'compute' &&
    node.lowering === 'slice' &&
    streamed.has(node.origin) &&
    !node.outputs.some((name) => name !== null && sent.has(name));
  const deferred: boolean[] = [];
  for (const [index, node] of nodes.entries())
    deferred.push(
      hasSlack[index] === true &&
        (isTaken(node) ||
          reads[index]?.every((name) => deferred[makers.get(name) ?? -1] === true || isHeld(name, node)) === true ||
          (grows(graph, node) && operands[index]?.every((maker) => nodes[maker]?.origin !== node.origin) === true)),
    );
  // The first node that is not deferred and needs a node's result, by way of deferred ones or at once.
  const firstReader = nodes.map(() => nodes.length);
  for (let index = nodes.length - 1; index >= 0; index--) {
    const needed = deferred[index] ? (firstReader[index] ?? index) : index;
    for (const maker of operands[index] ?? []) firstReader[maker] = Math.min(firstReader[maker] ?? needed, needed);
  }
  const runs = runsOf(nodes, deferred);
  const gathered = new Set(weightGathers(graph));
  for (const [index, node] of [...nodes.entries()].reverse())
    if (gathered.has(node)) for (const maker of operands[index] ?? []) gathered.add(nodes[maker] as ShardedNode);
  const result = new Map<ShardedNode, readonly string[]>();
  for (const [index, node] of nodes.entries()) {
    const reader = deferred[index] ? nodes[firstReader[index] ?? nodes.length] : undefined;
    if (!reader) continue;
    // A node of another place would split the segment of its reader, as a gather of a stored weight does: it runs before the
    // reader's whole layer.
    const before = samePlace(node, reader) && !gathered.has(node) ? reader : nodes[runs[firstReader[index] ?? 0] ?? 0];
    const awaited = before ? readsOf(before).filter((name) => deferred[makers.get(name) ?? -1] === false) : [];
    if (awaited.length > 0) result.set(node, awaited);
  }
  return result;
}

/** Origins whose chunks travel round a ring of ranks, one hop at a time. */
function streamedOrigins({ nodes }: ShardedGraph): ReadonlySet<string> {
  return new Set(nodes.flatMap((node) => (isPermute(node) ? [node.origin] : [])));
}

function isPermute(node: ShardedNode): node is CommunicationNode {
  return node.kind === 'communicate' && node.collective.kind === 'permute';
}

/** Per node: the first of those in a row that are of one place, deferred ones aside. */
function runsOf(nodes: readonly ShardedNode[], deferred: readonly boolean[]): readonly number[] {
  let first = 0;
  return nodes.map((node, index) => {
    if (!deferred[index] && !samePlace(node, nodes[first] as ShardedNode)) first = index;
    return first;
  });
}

/** Whether a forward operator makes more bytes than it reads. */
function grows({ tensors }: ShardedGraph, node: ShardedNode): boolean {
  if (node.kind !== 'compute' || node.phase !== 'forward') return false;
  const bytes = (names: readonly string[]) =>
    names.reduce((sum, name) => {
      const tensor = tensors.get(name);
      return sum + (tensor ? byteLength(tensor.dtype, elementCount(tensor.localShape)) : 0);
    }, 0);
  return bytes(readsOf(node)) < bytes(resultsOf(node));
}

/** Whether a node's first reader waits longer for something else; chains are as long as they have nodes. */
function slackOf(operands: readonly (readonly number[])[]): readonly boolean[] {
  const depth: number[] = [];
  for (const makers of operands) depth.push(makers.reduce((most, maker) => Math.max(most, (depth[maker] ?? 0) + 1), 0));
  const latest = [...depth].fill(Number.POSITIVE_INFINITY);
  for (let index = operands.length - 1; index >= 0; index--) {
    const own = latest[index] === Number.POSITIVE_INFINITY ? (depth[index] ?? 0) : (latest[index] ?? 0);
    latest[index] = own;
    for (const maker of operands[index] ?? []) latest[maker] = Math.min(latest[maker] ?? own, own - 1);
  }
  return latest.map((level, index) => level > (depth[index] ?? 0));
}

/**
 * Collectives on stored weights, or on tensors computed from them alone: gathers of sharded weights. Those of a layer run
 * together, before the layer.
 */
export function weightGathers(graph: ShardedGraph): ReadonlySet<ShardedNode> {
  return new Set([...ofWeightsAlone(graph)].filter(({ kind }) => kind === 'communicate'));
}

/** Nodes that compute with, gather or copy only stored weights, or results of such nodes. */
export function ofWeightsAlone(graph: ShardedGraph): ReadonlySet<ShardedNode> {
  const known = new Set(residentTensors(graph));
  const found = new Set<ShardedNode>();
  for (const node of graph.nodes) {
    if (!readsOf(node).every((name) => known.has(name))) continue;
    for (const name of resultsOf(node)) known.add(name);
    found.add(node);
  }
  return found;
}

/** Whether two nodes would be in one segment, were nothing between them. */
export function samePlace(a: ShardedNode, b: ShardedNode): boolean {
  return a.layer === b.layer && passOf(a.phase) === passOf(b.phase);
}

/** Resident tensors: they exist whatever runs. */
function residentTensors(graph: ShardedGraph): ReadonlySet<string> {
  return new Set([
    ...graph.weights.map(({ tensor }) => tensor),
    ...graph.constants.keys(),
    ...graph.coordinates.map(({ name }) => name),
    ...graph.state.map(({ to }) => to),
  ]);
}

/** Whether a value is alive until a node runs, however late: weights and state, and after the forward stored activations. */
function livesUntil(graph: ShardedGraph): (name: string, reader: ShardedNode) => boolean {
  const resident = residentTensors(graph);
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  // Tensors that another stage sends for the forward are stored as the forward's own results are.
  const received = new Set(graph.pipeline?.receives.map(({ tensor }) => tensor));
  const stored = new Set([
    ...graph.inputs.map(({ tensor }) => tensor),
    ...forward.flatMap(resultsOf),
    ...forward.flatMap((node) => readsOf(node).filter((name) => received.has(name))),
  ]);
  return (name, reader) => resident.has(name) || (reader.phase !== 'forward' && stored.has(name));
}
