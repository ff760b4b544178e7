/**
 * @file From a node of a graph to the operator that the registry's functions take, with the types around it.
 */
import type { Graph, Node } from './graph.js';
import type { Operator } from './operator.js';

/**
 * The operator with the types of its operands and results. Results whose type is not known yet are null. For a node of a graph
 * it is always the same object, by which the registry remembers the rule.
 */
export function operatorOf(graph: Pick<Graph, 'tensors'>, node: Node): Operator {
  const known = OPERATORS.get(node);
  if (known?.graph === graph) return known.operator;
  const operator = known && hasTypesOf(known.operator, graph, node) ? known.operator : madeOperator(graph, node);
  OPERATORS.set(node, { graph, operator });
  return operator;
}

/** Whether a node has the same types in another graph: in that of its pipeline's stage it does. */
function hasTypesOf({ inputs, outputs }: Operator, { tensors }: Pick<Graph, 'tensors'>, node: Node): boolean {
  const isSame = (types: Operator['inputs'], names: Node['inputs']) =>
    names.every((name, index) => types[index] === (name === null ? null : (tensors.get(name) ?? null)));
  return isSame(inputs, node.inputs) && isSame(outputs, node.outputs);
}

/** By node the operator in the graph of the latest call: neither graphs nor nodes change. */
const OPERATORS = new WeakMap<Node, { readonly graph: Pick<Graph, 'tensors'>; readonly operator: Operator }>();

function madeOperator(graph: Pick<Graph, 'tensors'>, node: Node): Operator {
  const typesOf = (names: readonly (string | null)[]) =>
    names.map((name) => (name === null ? null : (graph.tensors.get(name) ?? null)));
  return {
    name: node.name,
    op: node.op,
    domain: node.domain,
    attributes: node.attributes,
    inputs: typesOf(node.inputs),
    outputs: typesOf(node.outputs),
    outputCount: node.outputs.length,
    ...(node.body ? { body: node.body } : {}),
  };
}
