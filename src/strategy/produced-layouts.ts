/**
 * @file In which layout each tensor is produced: what follows from strategies alone.
 */
import type { Graph, TensorType } from '../ir/graph.js';
import type { OperatorView } from '../ir/operator.js';
import { entryOf, unknownEntry } from '../ir/ops/index.js';
import { viewOf } from '../ir/view.js';
import type { Assignment } from '../partition/assignment.js';
import { type Layout, mergedLayout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { owedLayouts, REPLICATED, type Strategy } from '../sharding-propagation/strategy.js';

/** Layouts of inputs as fed and of results as their operators leave them, in merged form. */
export function producedLayouts(
  graph: Graph,
  { mesh, strategies, inputs }: Pick<Assignment, 'mesh' | 'strategies' | 'inputs'>,
): ReadonlyMap<string, Layout> {
  const produced = new Map<string, Layout>(inputs);
  // Of equal operators under one strategy once: an optimizer has hundreds of each.
  const known = new Map<Strategy, Map<string, readonly (Layout | null)[]>>();
  for (const node of graph.nodes) {
    const view = viewOf(graph, node);
    const strategy = strategies.get(node.group) ?? REPLICATED;
    const alike = known.get(strategy) ?? new Map<string, readonly (Layout | null)[]>();
    known.set(strategy, alike);
    const key = plainKey(view);
    const layouts = (key === null ? undefined : alike.get(key)) ?? layoutsOf(view, strategy, mesh);
    if (key !== null) alike.set(key, layouts);
    node.outputs.forEach((output, index) => {
      const layout = layouts[index];
      if (output !== null && layout) produced.set(output, layout);
    });
  }
  return produced;
}

function layoutsOf(view: OperatorView, strategy: Strategy, mesh: Mesh): readonly (Layout | null)[] {
  const entry = entryOf(view.op, view.domain) ?? unknownEntry(view.op, view.domain);
  const layouts = owedLayouts(entry.rule(view), strategy, entry.linear(view), mesh);
  return layouts.map((layout) => layout && mergedLayout(layout, mesh));
}

/** What an operator's rule follows from; null for one with attributes or a body, of which there are fewer than keys are worth. */
function plainKey({ op, domain, inputs, outputs, attributes, body }: OperatorView): string | null {
  if (body) return null;
  for (const _ in attributes) return null;
  const text = (type: TensorType | null) => (type === null ? '_' : `${type.dtype} ${type.shape.join()}`);
  return `${domain} ${op} ${inputs.map(text).join(';')} ${outputs.map(text).join(';')}`;
}
