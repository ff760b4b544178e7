/**
 * @file Dropout in its training form: an operator that does nothing in the file becomes
 *
 *     y = where(bits ≥ ratio · 2^64, x / (1 − ratio), 0)
 *
 * with random bits (random-bits.ts) that every rank makes for its own shard. Every step draws new bits; the seed fixes them all.
 */
import type { Graph, Node, TensorType } from '../graph.js';
import { constant, numbersOf } from '../ops/constants.js';
import { entryOf } from '../ops/index.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { RandomBits, uint64 } from './random-bits.js';

/** The graph with every dropout whose ratio is known and above 0 drawing masks of its own; and how many there are. */
export function drawDropout(graph: Graph, seed: number): { readonly graph: Graph; readonly drawn: number } {
  const found = graph.nodes.filter((node) => ratioOf(graph, node) !== null);
  if (found.length === 0) return { graph, drawn: 0 };
  const write = new ForwardWriter(graph);
  const bits = new RandomBits(write, 'dropout', seed);
  for (const node of found) bits.prepare(dataOf(graph, node).type.shape);
  const { before, after } = bits.beforeAndAfter();
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    const ratio = ratioOf(graph, node);
    return ratio === null ? [node] : drawing(graph, node, ratio, write, bits);
  });
  return { graph: write.graph([...before, ...nodes, ...after]), drawn: found.length };
}

/** Dropout that stays an operator and may draw has its mask as a result: its gradient reads it. */
export function keepMasks(graph: Graph): Graph {
  const lacks = (node: Node) => {
    const form = formOf(node);
    return form !== null && Boolean(node.inputs[form.mode]) && !node.outputs[form.mask];
  };
  if (!graph.nodes.some(lacks)) return graph;
  const tensors = new Map(graph.tensors);
  const nodes = graph.nodes.map((node) => {
    if (!lacks(node)) return node;
    const mask = `${node.outputs[0]}/mask`;
    tensors.set(mask, { dtype: 'bool', shape: dataOf(graph, node).type.shape });
    return { ...node, outputs: [node.outputs[0] ?? null, mask] };
  });
  return { ...graph, nodes, tensors };
}

function drawing(graph: Graph, node: Node, ratio: number, write: ForwardWriter, bits: RandomBits): readonly Node[] {
  const { name, type } = dataOf(graph, node);
  const [result, mask] = [node.outputs[0] ?? node.name, node.outputs[formOf(node)?.mask ?? 1]];
  const drawn = bits.draw(node.name, node, type.shape);
  const bound = write.value(`${node.name}/bound`, uint64(BigInt(Math.round(ratio * 2 ** 53)) << 11n));
  const kept = write.add(`${node.name}/kept`, node, 'GreaterOrEqual', [drawn, bound]);
  const scalar = (value: number, wanted: string) =>
    write.value(`${node.name}/${wanted}`, constant(type.dtype, [value]));
  const scaled = write.add(`${node.name}/scaled`, node, 'Mul', [name, scalar(1 / (1 - ratio), 'scale')]);
  const nodes = [...write.take()];
  return [
    ...nodes,
    { ...node, op: 'Where', attributes: {}, inputs: [kept, scaled, scalar(0, 'zero')], outputs: [result] },
    ...(mask
      ? [{ ...node, name: `${node.name}/mask`, op: 'Identity', attributes: {}, inputs: [kept], outputs: [mask] }]
      : []),
  ];
}

/** The operand that elements are dropped from. */
function dataOf(graph: Graph, node: Node): { readonly name: string; readonly type: TensorType } {
  const name = node.inputs[0] ?? '';
  const type = graph.tensors.get(name);
  if (!type) throw new Error(`${node.name} reads ${name}, which nothing makes`);
  return { name, type };
}

/** The dropout ratio; null where the operator is not a Dropout, drops nothing, or has a ratio that depends on the data. */
function ratioOf(graph: Graph, node: Node): number | null {
  const form = formOf(node);
  if (!form) return null;
  const [ratio, mode] = [node.inputs[form.ratio], node.inputs[form.mode]];
  if (mode && numberOf(graph, mode) === null) return null;
  const value = ratio ? numberOf(graph, ratio) : form.defaultRatio;
  return value !== null && value > 0 && value < 1 ? value : null;
}

function formOf({ op, domain }: Node) {
  const form = entryOf(op, domain)?.training;
  return form?.kind === 'dropout' ? form : null;
}

/** The number that a constant of the graph holds. */
function numberOf(graph: Graph, name: string): number | null {
  const weight = graph.weights.get(name);
  if (weight?.source.kind !== 'inline') return null;
  return numbersOf({ ...weight, data: weight.source.data })[0] ?? null;
}
