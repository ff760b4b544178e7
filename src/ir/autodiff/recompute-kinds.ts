/**
 * @file Kinds of recompute as sets of forward operators.
 *
 *     full        all of a layer: only its inputs are stored
 *     selective   the inner part of attention, from queries, keys and values to its output (Korthikanti et al. 2022)
 *     operators   all but fused attention, recurrences and every second matmul or convolution (torch's selective checkpointing)
 *     stage       all of a stage, or of a chunk of one: only its inputs are stored (GPipe, Huang et al. 2019)
 */
import type { Graph, Node } from '../graph.js';
import { makersOf, readersOf } from '../makers-and-readers.js';
import { operatorFamily, operatorRole } from '../ops/index.js';
import type { RecomputeKind } from './recompute-names.js';

/** The repeated layers of a graph, all classes in the order of the model. */
export function repeatedLayers({ nodes }: Graph): readonly string[] {
  return [...new Set(nodes.flatMap(({ phase, layer }) => (phase === 'forward' && layer !== null ? [layer] : [])))];
}

/**
 * Names of the forward operators that a kind recomputes in these layers (null: operators in no layer). Operators without a result
 * that a gradient reads are named, but not run again (`withClones`).
 * @param layers null for the whole model
 */
export function operatorsOfKind(
  graph: Graph,
  kind: RecomputeKind,
  layers: ReadonlySet<string | null> | null,
): ReadonlySet<string> {
  if (kind === 'none') return new Set();
  const own = graph.nodes.filter(({ phase, layer }) => phase === 'forward' && (layers?.has(layer) ?? true));
  if (kind === 'full' || kind === 'stage') return namesOf(own);
  const inner = innerAttention(graph, own);
  if (kind === 'selective') return namesOf([...own.filter(isAttention), ...inner]);
  const matmuls = new Map<string | null, number>();
  return namesOf(
    own.filter((node) => {
      const family = operatorFamily(node);
      if (inner.has(node)) return true;
      if (family === 'attention' || family === 'recurrent') return false;
      if (!isMatmul(node)) return true;
      const count = (matmuls.get(node.layer) ?? 0) + 1;
      matmuls.set(node.layer, count);
      return count % 2 === 0;
    }),
  );
}

function namesOf(nodes: Iterable<Node>): ReadonlySet<string> {
  return new Set([...nodes].map(({ name }) => name));
}

function isAttention(node: Node): boolean {
  return operatorFamily(node) === 'attention';
}

function isMatmul(node: Node): boolean {
  const family = operatorFamily(node);
  return family === 'contraction' || family === 'convolution';
}

/**
 * Operators of unfused attention: each Softmax between two matmuls of activations, these matmuls, and the operators between
 * them.
 */
function innerAttention(graph: Graph, nodes: readonly Node[]): ReadonlySet<Node> {
  const makers = makersOf(nodes);
  const readers = readersOf(nodes);
  const ofActivations = (node: Node) => isMatmul(node) && !node.inputs.some((name) => name && graph.weights.has(name));
  /** Operators from a Softmax to the matmuls of activations on one side of it, these included; empty if none. */
  const reach = (from: Node, next: (node: Node) => readonly Node[]): readonly Node[] => {
    const found = new Set<Node>();
    const waiting = [...next(from)];
    for (let node = waiting.pop(); node; node = waiting.pop()) {
      if (found.has(node) || (isMatmul(node) && !ofActivations(node))) continue;
      found.add(node);
      if (!isMatmul(node)) waiting.push(...next(node));
    }
    return [...found].some(isMatmul) ? [...found] : [];
  };
  const before = (node: Node) => node.inputs.flatMap((name) => makers.get(name) ?? []);
  const after = (node: Node) => node.outputs.flatMap((name) => readers.get(name) ?? []);
  return new Set(
    nodes.flatMap((node) => {
      if (operatorRole(node) !== 'softmax') return [];
      const [scores, values] = [reach(node, before), reach(node, after)];
      return scores?.length && values?.length ? [...scores, node, ...values] : [];
    }),
  );
}
