/**
 * @file Mixtures whose chosen results are gathered and added up by their gates, as sums over all experts:
 *
 *     Σⱼ w[t, j] · y[t, e(t, j)]  →  Σₑ gate[t, e] · y[t, e]        gate[t, e] = Σ of the w[t, j] with e(t, j) = e
 *
 * It is the form that dispatch knows, and every rank adds up its own experts alone.
 */
import { elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { needed } from '../needed.js';
import { constant } from '../ops/constants.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { type Readers, readersOf } from './align-experts.js';
import { expertCounts } from './find-experts.js';

/** The graph with sums over experts in place of gathered results; itself where there are none. */
export function sumGathered(graph: Graph): Graph {
  if (!graph.nodes.some(({ op, domain }) => op === 'GatherElements' && domain === '')) return graph;
  const counts = expertCounts(graph);
  const readers = readersOf(graph);
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  const writer = new ForwardWriter(graph);
  const made = new Map<Node, readonly Node[]>();
  for (const node of graph.nodes) {
    const found = gatheredBy(graph, node, makers, readers);
    const [result] = node.outputs;
    if (!found || !result || !counts.has(found.experts)) continue;
    const { all, choice, weights, axis } = found;
    const add = (op: string, inputs: readonly string[], attributes = {}) =>
      writer.add(`${node.name}/${op}`, node, op, inputs, attributes);
    const { dtype, shape } = typeOf(graph, all);
    const gateShape = shape.with(-1, 1);
    const zeros = add('ConstantOfShape', [], { shape: gateShape, value: constant(dtype, [0], [1]) });
    const gate = add('ScatterElements', [zeros, choice, weights], { axis, reduction: 'add' });
    writer.into(result, node, 'ReduceSum', [add('Mul', [all, gate])], { axes: [axis], keepdims: 0 });
    made.set(node, writer.take());
  }
  if (made.size === 0) return graph;
  const nodes = graph.nodes.flatMap((node) => made.get(node) ?? [node]);
  const read = needed(
    nodes,
    graph.outputs,
    (node) => node.inputs,
    (node) => node.outputs,
  );
  const kept = new Set(read.flatMap(({ outputs }) => outputs));
  for (const output of graph.nodes.flatMap((node) => node.outputs))
    if (output !== null && !kept.has(output)) writer.tensors.delete(output);
  return writer.graph(read);
}

interface Gathered {
  /** [..., experts, ..., width], experts at `axis`. */
  readonly all: string;
  readonly experts: number;
  readonly axis: number;
  /** Which experts, and what each counts: as the results, but for one feature and the chosen ones alone. */
  readonly choice: string;
  readonly weights: string;
}

type Makers = ReadonlyMap<string | null, Node>;

/** What a sum over chosen results reads; null for any other operator. */
function gatheredBy(graph: Graph, end: Node, makers: Makers, readers: Readers): Gathered | null {
  const isPlain = (node: Node | undefined, op: string): node is Node =>
    node?.op === op && node.domain === '' && node.phase === 'forward';
  const only = (tensor: string | null | undefined) =>
    readers.get(tensor ?? '')?.length === 1 ? makers.get(tensor ?? '') : undefined;
  if (!isPlain(end, 'ReduceSum') || end.attributes['keepdims'] !== 0) return null;
  const product = only(end.inputs[0]);
  if (!isPlain(product, 'Mul')) return null;
  for (const [at, input] of product.inputs.entries()) {
    const gather = only(input);
    const weights = product.inputs[1 - at];
    const [all, index] = gather?.inputs ?? [];
    if (!isPlain(gather, 'GatherElements') || !all || !index || !weights) continue;
    const { shape } = typeOf(graph, all);
    const axis = Number(gather.attributes['axis']);
    const spread = makers.get(index);
    const [choice] = spread?.inputs ?? [];
    const chosen = typeOf(graph, index).shape;
    const wanted = chosen.with(-1, 1).join();
    const isEach = chosen.every((size, dimension) => dimension === axis || size === shape[dimension]);
    const isBeside =
      isPlain(spread, 'Expand') && choice !== undefined && choice !== null && isEach && axis < shape.length - 1;
    if (!isBeside || [choice, weights].some((name) => typeOf(graph, name).shape.join() !== wanted)) continue;
    if ([end.attributes['axes']].flat().join() !== `${axis}` || elementCount(shape) === 0) continue;
    return { all, experts: shape[axis] ?? 1, axis, choice, weights };
  }
  return null;
}
