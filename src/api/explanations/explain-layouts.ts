/**
 * @file The layouts of the operands and results of a plan's operators.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { operatorEntry } from '../../ir/ops/index.js';
import type { Assignment } from '../../partition/assignment.js';
import { type Layout, mergedLayout } from '../../sharding-propagation/layout.js';
import { operandLayouts, REPLICATED, reducedLayouts, type Strategy } from '../../sharding-propagation/strategy.js';

type LoweredLayouts = { readonly graph: Graph; readonly assignment: Assignment };

/** The layout of each operand, in merged form, by the operator's name. */
export function operandsOf({ graph, assignment }: LoweredLayouts): (node: string) => readonly (Layout | null)[] {
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  return (name) => {
    const node = nodes.get(name);
    if (!node) return [];
    return sidesUnder(graph, node, assignment.strategies.get(node.group) ?? REPLICATED, assignment.mesh).operands;
  };
}

/** Layouts of an operator's operands and results under a strategy, in merged form. */
export function sidesUnder(graph: Graph, node: Node, strategy: Strategy, mesh: Assignment['mesh']) {
  const operator = operatorOf(graph, node);
  const entry = operatorEntry(node);
  const [rule, linear] = [entry.rule(operator), entry.linear(operator)];
  const merged = (layout: Layout | null) => (layout ? mergedLayout(layout, mesh) : null);
  return {
    rule,
    operands: operandLayouts(rule, strategy, linear, mesh).map(merged),
    results: reducedLayouts(rule, strategy, linear, mesh).map(merged),
  };
}
