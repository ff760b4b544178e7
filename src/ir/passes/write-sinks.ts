/**
 * @file Pass `write-sinks`: an attention sink (Xiao et al. 2023; learned in GPT-OSS) is a score of each head besides those of
 * the keys that is dropped after the softmax. Exporters write it as one more column, which no other operand of the
 * attention has; here it is one more term of each row's sum, so that the attention is recognised as any other:
 *
 *     softmax([S, sink]) without its last column = E / (Σ E + exp(sink − m))      m = max(max S, sink)    E = exp(S − m)
 */
import { onnxOfDtype } from '../dtype.js';
import {
  type GraphIndex,
  indexGraph,
  isOp,
  makerOf,
  numbersAttribute,
  operandOf,
  resultOf,
  shapeOf,
  soleReader,
} from '../fused-regions/matching.js';
import type { Graph, Node, TensorType } from '../graph.js';
import { summationType } from '../ops/expansion.js';
import { ForwardWriter } from './forward-writer.js';

/** The graph with every sink as a term of its rows' sums. */
export function writeSinks(graph: Graph): Graph {
  const index = indexGraph(graph);
  const sunk = graph.nodes.flatMap((node) => (isOp(node, 'Softmax') ? (columnOf(index, node) ?? []) : []));
  if (sunk.length === 0) return graph;
  const writer = new ForwardWriter(graph);
  const written = new Map<Node, readonly Node[]>();
  for (const each of sunk) {
    for (const node of each.nodes) written.set(node, []);
    written.set(each.last, asTerm(writer, each));
  }
  for (const { nodes } of sunk) for (const { outputs } of nodes) writer.tensors.delete(outputs[0] ?? '');
  return writer.graph(graph.nodes.flatMap((node) => written.get(node) ?? [node]));
}

/** A softmax over scores and a column beside them. */
interface SinkColumn {
  readonly scores: string;
  /** Broadcasts to a number for each row of scores. */
  readonly sink: string;
  readonly axis: number;
  readonly softmax: Node;
  /** The operator that drops the column. */
  readonly last: Node;
  readonly nodes: readonly Node[];
}

function columnOf(index: GraphIndex, softmax: Node): SinkColumn | null {
  const axis = shapeOf(index, operandOf(softmax)).length - 1;
  const last = soleReader(index, resultOf(softmax));
  if (softmax.attributes['axis'] !== axis || !last || !isOp(last, 'Slice')) return null;
  const lowered = loweredByMax(index, softmax, axis);
  const concat = makerOf(index, lowered.scores, 'Concat');
  const [scores = '', column = '', ...others] = concat?.inputs ?? [];
  if (!concat || !scores || !column || others.length > 0 || concat.attributes['axis'] !== axis) return null;
  const isOnlyRead = (index.readers.get(lowered.scores) ?? []).every((reader) => lowered.nodes.includes(reader));
  const isKept = shapeOf(index, scores).join() === shapeOf(index, resultOf(last)).join();
  const startsFirst = ['starts', 'axes', 'steps'].map((name) => numbersAttribute(last, name).join()).join(' ');
  if (!isOnlyRead || index.outputs.has(lowered.scores) || !isKept || startsFirst !== `0 ${axis} 1`) return null;
  const expand = soleReader(index, column) ? makerOf(index, column, 'Expand') : null;
  const isSpread = expand !== null && shapeOf(index, operandOf(expand)).length === axis + 1;
  return {
    ...{ scores, axis, softmax, last, sink: isSpread ? operandOf(expand) : column },
    nodes: [...(isSpread ? [expand] : []), concat, ...lowered.nodes],
  };
}

/** The softmax, and the operators before it that subtract each row's maximum. */
function loweredByMax(
  index: GraphIndex,
  softmax: Node,
  axis: number,
): { readonly scores: string; readonly nodes: readonly Node[] } {
  const plain = { scores: operandOf(softmax), nodes: [softmax] };
  const difference = soleReader(index, plain.scores) ? makerOf(index, plain.scores, 'Sub') : null;
  const maximum = difference && makerOf(index, operandOf(difference, 1), 'ReduceMax');
  if (!difference || !maximum || operandOf(maximum) !== operandOf(difference)) return plain;
  const isOfRows = numbersAttribute(maximum, 'axes').join() === `${axis}` && soleReader(index, resultOf(maximum));
  return isOfRows ? { scores: operandOf(difference), nodes: [maximum, difference, softmax] } : plain;
}

/** Half precision is computed in float32, as a softmax of it is. */
function asTerm(writer: ForwardWriter, { scores, sink, axis, softmax, last }: SinkColumn): readonly Node[] {
  const add = (op: string, inputs: readonly string[], attributes = {}) =>
    writer.add(`${softmax.name}/${op}`, softmax, op, inputs, attributes);
  const { dtype } = writer.tensors.get(scores) as TensorType;
  const type = summationType(dtype);
  const fine = (name: string) => (type === dtype ? name : add('Cast', [name], { to: onnxOfDtype(type) }));
  const alongRow = { axes: [axis], keepdims: 1 };
  const [raised, beside] = [fine(scores), fine(sink)];
  const max = add('Max', [add('ReduceMax', [raised], alongRow), beside]);
  const powers = add('Exp', [add('Sub', [raised, max])]);
  const term = add('Exp', [add('Sub', [beside, max])]);
  const sum = add('Add', [add('ReduceSum', [powers], alongRow), term]);
  const result = resultOf(last);
  if (type === dtype) writer.into(result, softmax, 'Div', [powers, sum], {});
  else writer.into(result, softmax, 'Cast', [add('Div', [powers, sum])], { to: onnxOfDtype(dtype) });
  return writer.take();
}
