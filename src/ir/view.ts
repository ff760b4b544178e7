/**
 * @file From a node of a graph to what the registry's functions look at: an operator with the types around it.
 */
import type { FactorRule } from './factor-rule.js';
import type { Graph, Node } from './graph.js';
import type { OperatorView } from './operator.js';
import { operatorEntry } from './ops/index.js';

/**
 * The operator with the types of its operands and results. Results whose type is not known yet are null. Of a node of a graph it
 * is one object, by which the registry remembers the rule.
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

/** Neither graphs nor nodes change: of each node the view in the graph that asked last. */
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
