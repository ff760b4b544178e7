/**
 * @file From a node of a graph to what the registry's functions look at: an operator with the types around it.
 */
import type { FactorRule } from './factor-rule.js';
import type { Graph, Node } from './graph.js';
import type { OperatorView } from './operator.js';
import { entryOf, unknownEntry } from './ops/index.js';

/** The operator with the types of its operands and results. Results whose type is not known yet are null. */
export function viewOf(graph: Pick<Graph, 'tensors'>, node: Node): OperatorView {
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
  return (entryOf(view.op, view.domain) ?? unknownEntry(view.op, view.domain)).rule(view);
}
