/**
 * @file In which layout each tensor is produced: what follows from strategies alone.
 */
import type { Graph } from '../ir/graph.js';
import { entryOf, unknownEntry } from '../ir/ops/index.js';
import { viewOf } from '../ir/view.js';
import type { Assignment } from '../partition/assignment.js';
import { type Layout, mergedLayout } from '../sharding-propagation/layout.js';
import { owedLayouts, REPLICATED } from '../sharding-propagation/strategy.js';

/** Layouts of inputs as fed and of results as their operators leave them, in merged form. */
export function producedLayouts(
  graph: Graph,
  { mesh, strategies, inputs }: Pick<Assignment, 'mesh' | 'strategies' | 'inputs'>,
): ReadonlyMap<string, Layout> {
  const produced = new Map<string, Layout>(inputs);
  for (const node of graph.nodes) {
    const view = viewOf(graph, node);
    const entry = entryOf(node.op, node.domain) ?? unknownEntry(node.op, node.domain);
    const strategy = strategies.get(node.group) ?? REPLICATED;
    const layouts = owedLayouts(entry.rule(view), strategy, entry.linear(view), mesh);
    node.outputs.forEach((output, index) => {
      const layout = layouts[index];
      if (output !== null && layout) produced.set(output, mergedLayout(layout, mesh));
    });
  }
  return produced;
}
