/**
 * @file Part of pass `normalise`: a MatMul between a flatten and the unflatten that undoes it works on the dimensions as
 * they are.
 *
 *     x [b, s, d] → Reshape [b·s, d] → MatMul w → Add bias → Reshape [b, s, e]
 *     x [b, s, d] →                    MatMul w → Add bias
 *
 * A flatten that also merges heads, [b, s, h, d] → [b·s, h·d], becomes the merge alone, [b, s, h·d]. So batch and
 * sequence stay dimensions of their own, which a strategy can shard separately.
 */
import { type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import { appendTo } from '../group-by.js';
import { makersOf, readersOf } from '../makers-and-readers.js';
import { needed } from '../needed.js';
import { operatorFamily } from '../ops/index.js';

/** The graph without flattening around MatMul. */
export function liftMatMul(graph: Graph): Graph {
  const makers = makersOf(graph.nodes);
  const readers = readersOf(graph.nodes);
  const tensors = new Map(graph.tensors);
  const changed = new Map<Node, Node>();
  const renamed = new Map<string, string>();
  const gone = new Set<Node>();
  const lifted = new Map<string, Node>();
  for (const matmul of graph.nodes) {
    const chain = liftable(graph, matmul, makers, readers);
    if (!chain) continue;
    const { flatten, nodes, unflatten } = chain;
    const leading = typeOf(graph, unflatten.outputs[0] ?? '').shape.slice(0, -1);
    for (const node of nodes) {
      const [output] = node.outputs;
      if (!output) continue;
      const { dtype, shape } = typeOf(graph, output);
      tensors.set(output, { dtype, shape: [...leading, shape.at(-1) ?? 1] });
    }
    const source = liftedOperand(graph, flatten, leading, lifted, tensors);
    changed.set(matmul, { ...matmul, inputs: [source, ...matmul.inputs.slice(1)] });
    const [last, result] = [nodes.at(-1)?.outputs[0], unflatten.outputs[0]];
    if (last && result) renamed.set(last, result);
    gone.add(unflatten);
  }
  if (changed.size === 0) return graph;
  const rename = (name: string | null): string | null => (name === null ? null : (renamed.get(name) ?? name));
  const added = new Map<string, Node[]>();
  for (const node of lifted.values()) appendTo(added, node.group, node);
  const nodes = graph.nodes
    .flatMap((node) => [node, ...(added.get(node.name) ?? []).map((item) => ({ ...item, group: item.name }))])
    .filter((node) => !gone.has(node))
    .map((node) => changed.get(node) ?? node)
    .map((node) => ({ ...node, inputs: node.inputs.map(rename), outputs: node.outputs.map(rename) }));
  return withoutDeadNodes({ ...graph, nodes, tensors });
}

interface FlattenChain {
  readonly flatten: Node;
  /** The MatMul and the elementwise operators after it. */
  readonly nodes: readonly Node[];
  readonly unflatten: Node;
}

function liftable(
  graph: Graph,
  matmul: Node,
  makers: ReadonlyMap<string | null, Node>,
  readers: ReadonlyMap<string, readonly Node[]>,
): FlattenChain | null {
  const [left, right] = matmul.inputs;
  if (operatorFamily(matmul) !== 'contraction' || matmul.op !== 'MatMul' || !left || !right) return null;
  const flatten = makers.get(left);
  if (!flatten || !isReshape(flatten) || typeOf(graph, right).shape.length !== 2) return null;
  if (typeOf(graph, left).shape.length !== 2) return null;
  const nodes = [matmul];
  for (;;) {
    const output = nodes.at(-1)?.outputs[0];
    const following = output ? readers.get(output) : undefined;
    const [next] = following ?? [];
    if (!output || !next || following?.length !== 1 || graph.outputs.includes(output)) return null;
    if (isReshape(next)) return unflattens(graph, next, output) ? { flatten, nodes, unflatten: next } : null;
    if (!worksByRow(graph, next, output)) return null;
    nodes.push(next);
  }
}

/** The flatten's operand in the unflattened form: itself, or reshaped where the flatten merges heads as well. */
function liftedOperand(
  graph: Graph,
  flatten: Node,
  leading: readonly number[],
  lifted: Map<string, Node>,
  tensors: Map<string, TensorType>,
): string {
  const [source = null] = flatten.inputs;
  const [flat = null] = flatten.outputs;
  if (source === null || flat === null) throw new Error(`${flatten.name} has no operand`);
  const { dtype, shape } = typeOf(graph, flat);
  const target = [...leading, shape.at(-1) ?? 1];
  // The source may itself be the result of a MatMul lifted before: its type is the new one.
  if ((tensors.get(source) ?? typeOf(graph, source)).shape.join() === target.join()) return source;
  const key = `${flatten.name}[${target.join()}]`;
  const known = lifted.get(key)?.outputs[0];
  if (known) return known;
  const name = `${flatten.name}/lifted${lifted.size}`;
  const output = `${flat}/lifted${lifted.size}`;
  lifted.set(key, { ...flatten, name, attributes: { ...flatten.attributes, shape: target }, outputs: [output] });
  tensors.set(output, { dtype, shape: target });
  return output;
}

/** Whether a reshape splits the rows of a matrix into dimensions and keeps its columns. */
function unflattens(graph: Graph, node: Node, flat: string): boolean {
  const { shape } = typeOf(graph, node.outputs[0] ?? '');
  return shape.length > 2 && shape.at(-1) === typeOf(graph, flat).shape[1];
}

/** Whether it is elementwise, and all other operands are vectors over the last dimension. */
function worksByRow(graph: Graph, node: Node, operand: string): boolean {
  if (operatorFamily(node) !== 'elementwise' || node.outputs.length !== 1) return false;
  return node.inputs.every((input) => input === null || input === operand || typeOf(graph, input).shape.length <= 1);
}

function isReshape(node: Node): boolean {
  return node.op === 'Reshape' && node.domain === '';
}

/** Drops nodes, and types of tensors, that no output depends on any more. */
function withoutDeadNodes(graph: Graph): Graph {
  const nodes = needed(graph.nodes, graph.outputs);
  const named = new Set([
    ...graph.inputs,
    ...graph.outputs,
    ...graph.weights.keys(),
    ...nodes.flatMap((node) => node.outputs),
  ]);
  return { ...graph, nodes, tensors: new Map([...graph.tensors].filter(([name]) => named.has(name))) };
}
