/**
 * @file From a node of a graph to the view that the registry's functions take: an operator with the types around it.
 */
import type { FactorRule } from './factor-rule.js';
import type { Graph, Node } from './graph.js';
import type { OperatorView } from './operator.js';
import { operatorEntry } from './ops/index.js';

/**
 * The operator with the types of its operands and results. Results whose type is not known yet are null. For a node of a graph
 * it is always the same object, by which the registry remembers the rule.
 */
export function viewOf(graph: Pick<Graph, 'tensors'>, node: Node): OperatorView {
  const known = VIEWS.get(node);
  if (known?.graph === graph) return known.view;
  const view = known && hasTypesOf(known.view, graph, node) ? known.view : madeView(graph, node);
  VIEWS.set(node, { graph, view });
  return view;
}

/** Whether a node has the same types in another graph: in that of its pipeline's stage it does. */
function hasTypesOf({ inputs, outputs }: OperatorView, { tensors }: Pick<Graph, 'tensors'>, node: Node): boolean {
  const isSame = (types: OperatorView['inputs'], names: Node['inputs']) =>
    names.every((name, index) => types[index] === (name === null ? null : (tensors.get(name) ?? null)));
  return isSame(inputs, node.inputs) && isSame(outputs, node.outputs);
}

/** By node the view in the graph of the latest call: neither graphs nor nodes change. */
const VIEWS = new WeakMap<Node, { readonly graph: Pick<Graph, 'tensors'>; readonly view: OperatorView }>();

function madeView(graph: Pick<Graph, 'tensors'>, node: Node): OperatorView {
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

/** The operator's factor rule; everything whole for an operator that the registry lacks. */
export function ruleOf(view: OperatorView): FactorRule {
  return operatorEntry(view).rule(view);
}
