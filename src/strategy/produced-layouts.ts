/**
 * @file In which layout each tensor is produced: what follows from strategies alone.
 */
import type { Graph, TensorType } from '../ir/graph.js';
import type { OperatorView } from '../ir/operator.js';
import { operatorEntry } from '../ir/ops/index.js';
import { viewOf } from '../ir/view.js';
import type { Assignment } from '../partition/assignment.js';
import type { LoweredOperator } from '../partition/lower-operator.js';
import { type Layout, mergedLayout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { owedLayouts, REPLICATED, type Strategy } from '../sharding-propagation/strategy.js';

/** Layouts of inputs as fed and of results as their operators leave them, in merged form. */
export function producedLayouts(
  graph: Graph,
  { mesh, strategies, inputs, lowered }: Pick<Assignment, 'mesh' | 'strategies' | 'inputs' | 'lowered'>,
): ReadonlyMap<string, Layout> {
  const produced = new Map<string, Layout>(inputs);
  // Of operators that share what they are lowered to, and of equal ones under one strategy, once: a model has hundreds of each.
  const known = new Map<Strategy | LoweredOperator, Map<string, readonly (Layout | null)[]>>();
  for (const node of graph.nodes) {
    const strategy = strategies.get(node.group) ?? REPLICATED;
    const shared = lowered?.get(node.name);
    const alike = known.get(shared ?? strategy) ?? new Map<string, readonly (Layout | null)[]>();
    known.set(shared ?? strategy, alike);
    const key = shared ? '' : plainKey(viewOf(graph, node));
    const layouts = (key === null ? undefined : alike.get(key)) ?? layoutsOf(viewOf(graph, node), strategy, mesh);
    if (key !== null) alike.set(key, layouts);
    node.outputs.forEach((output, index) => {
      const layout = layouts[index];
      if (output !== null && layout) produced.set(output, layout);
    });
  }
  return produced;
}

function layoutsOf(view: OperatorView, strategy: Strategy, mesh: Mesh): readonly (Layout | null)[] {
  const entry = operatorEntry(view);
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
