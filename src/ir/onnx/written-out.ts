/**
 * @file A graph without the operators that no runtime has: each is replaced by its expansion, over whole shapes.
 */
import type { Graph, Node, TensorType, Weight } from '../graph.js';
import { entryOf, operatorEntry } from '../ops/index.js';
import { unusedName } from '../unused-name.js';
import { viewOf } from '../view.js';

/** The same graph where it has none. */
export function writtenOut(graph: Graph): Graph {
  const isWritten = ({ op, domain }: Node) => entryOf(op, domain)?.isWritten === true;
  if (!graph.nodes.some(isWritten)) return graph;
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const nodes = graph.nodes.flatMap((node) => (isWritten(node) ? expanded(graph, node, tensors, weights) : [node]));
  return { ...graph, nodes, tensors, weights };
}

/** The operators of one; what is new enters `tensors` and `weights`. */
function expanded(
  graph: Graph,
  node: Node,
  tensors: Map<string, TensorType>,
  weights: Map<string, Weight>,
): readonly Node[] {
  const expansion = entryOf(node.op, node.domain)?.expansion?.(viewOf(graph, node));
  if (!expansion) throw new Error(`${node.op} is written out and has no expansion`);
  const names = new Map<string, string>();
  node.inputs.forEach((name, index) => {
    if (name !== null) names.set(`in${index}`, name);
  });
  node.outputs.forEach((name, index) => {
    if (name !== null) names.set(`out${index}`, name);
  });
  const own = (name: string, type: TensorType) => {
    const known = names.get(name) ?? unusedName(tensors, `${node.name}/${name}`);
    names.set(name, known);
    tensors.set(known, { dtype: type.dtype, shape: type.shape });
    return known;
  };
  for (const [name, { dtype, shape, data }] of Object.entries(expansion.constants)) {
    const source = { kind: 'inline', data } as const;
    const held = own(name, { dtype, shape });
    weights.set(held, { dtype, shape, role: 'constant', source });
  }
  return expansion.nodes.map(({ op, domain = '', attributes = {}, inputs, outputs }, index): Node => {
    const read = inputs.map((name) => (name === null ? null : (names.get(name) as string)));
    const name = `${node.name}/${index}`;
    const types = operatorEntry({ op, domain }).infer({
      ...{ name, op, domain, attributes, outputs: [], outputCount: outputs.length },
      inputs: read.map((operand) => (operand === null ? null : (tensors.get(operand) ?? null))),
    });
    const made = outputs.map((output, at) => own(output, types[at] as TensorType));
    return { ...node, name, op, domain, attributes, inputs: read, outputs: made, group: name };
  });
}
