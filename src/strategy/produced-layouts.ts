/**
 * @file The layout in which each tensor is produced, from strategies alone.
 */
import type { Graph } from '../ir/graph.js';
import type { Operator } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import { structureKey } from '../ir/structure-key.js';
import type { Assignment } from '../partition/assignment.js';
import { type Layout, mergedLayout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { REPLICATED, reducedLayouts, type Strategy } from '../sharding-propagation/strategy.js';

/** Layouts of inputs as fed and of results as their operators leave them, in merged form. */
export function producedLayouts(
  graph: Graph,
  { mesh, strategies, inputs }: Pick<Assignment, 'mesh' | 'strategies' | 'inputs'>,
): ReadonlyMap<string, Layout> {
  const produced = new Map<string, Layout>(inputs);
  // Operators of one structure under one strategy are handled once: a model has hundreds of each.
  const known = new Map<Strategy, Map<string, readonly (Layout | null)[]>>();
  for (const node of graph.nodes) {
    const strategy = strategies.get(node.group) ?? REPLICATED;
    const alike = known.get(strategy) ?? new Map<string, readonly (Layout | null)[]>();
    known.set(strategy, alike);
    const operator = operatorOf(graph, node);
    const layouts = alike.get(structureKey(operator)) ?? layoutsOf(operator, strategy, mesh);
    alike.set(structureKey(operator), layouts);
    node.outputs.forEach((output, index) => {
      const layout = layouts[index];
      if (output !== null && layout) produced.set(output, layout);
    });
  }
  return produced;
}

function layoutsOf(operator: Operator, strategy: Strategy, mesh: Mesh): readonly (Layout | null)[] {
  const entry = operatorEntry(operator);
  const layouts = reducedLayouts(entry.rule(operator), strategy, entry.linear(operator), mesh);
  return layouts.map((layout) => layout && mergedLayout(layout, mesh));
}
