/**
 * @file Operators of a step that depend on parameters alone, run for all micro-batches at once: above all the casts of mixed
 * precision. They run before the first micro-batch, and their results stay to the last. Parameters that nothing else reads are
 * then optimizer state (main weights, as Megatron and DeepSpeed call them), and ranks that shard it gather the results.
 */
import { byteLength } from '../dtype.js';
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { entryOf } from '../ops/index.js';
import { withOperands } from '../with-operands.js';

/**
 * The graph with such operators in the phase `begin`, before all others. Those whose results take no less memory than their
 * operands stay in every micro-batch: a transposed weight is not worth memory of its own.
 */
export function onceAStep(graph: Graph): Graph {
  if (!graph.microBatches) return graph;
  const updated = new Set(graph.nodes.flatMap(({ phase, outputs }) => (phase === 'update' ? outputs : [])));
  const ofParameters = new Set<string | null>(
    graph.state.flatMap(({ input, output }) => (updated.has(output) ? [input] : [])),
  );
  const bytes = (names: readonly (string | null)[]) =>
    names.reduce((sum, name) => {
      if (name === null) return sum;
      const { dtype, shape } = typeOf(graph, name);
      return sum + byteLength(dtype, elementCount(shape));
    }, 0);
  const once = new Set<Node>();
  for (const node of graph.nodes) {
    const reads = node.inputs.filter((name) => name !== null);
    const isOnce =
      node.phase === 'forward' &&
      entryOf(node.op, node.domain)?.training?.kind !== 'dropout' &&
      reads.some((name) => ofParameters.has(name)) &&
      reads.every((name) => ofParameters.has(name) || graph.weights.has(name)) &&
      bytes(node.outputs) < bytes(reads);
    if (!isOnce) continue;
    once.add(node);
    for (const name of node.outputs) ofParameters.add(name);
  }
  if (once.size === 0) return graph;
  const { nodes, tensors } = withoutClonesOf(graph, once);
  return {
    ...graph,
    tensors,
    nodes: [
      ...nodes.flatMap((node) => (once.has(node) ? [{ ...node, phase: 'begin' as const }] : [])),
      ...nodes.filter((node) => !once.has(node)),
    ],
  };
}

/** Removes the recompute clones of operators that run once: their results stay. */
function withoutClonesOf(graph: Graph, once: ReadonlySet<Node>): Pick<Graph, 'nodes' | 'tensors'> {
  const originals = new Map([...once].map((node) => [node.name, node]));
  const kept = new Map<string | null, string | null>();
  const clones = new Set<Node>();
  for (const node of graph.nodes) {
    const original = node.phase === 'recompute' ? originals.get(node.forward ?? '') : undefined;
    if (!original) continue;
    clones.add(node);
    for (const [index, name] of node.outputs.entries())
      if (name !== null) kept.set(name, original.outputs[index] ?? null);
  }
  if (clones.size === 0) return graph;
  const nodes = graph.nodes.flatMap((node) => {
    if (clones.has(node)) return [];
    const reads = node.inputs.map((name) => kept.get(name) ?? name);
    return [node.inputs.some((name) => kept.has(name)) ? withOperands(node, reads) : node];
  });
  return { nodes, tensors: new Map([...graph.tensors].filter(([name]) => !kept.has(name))) };
}
