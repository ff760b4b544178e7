/**
 * @file How a graph's operators lie over ranks, at another number of samples: what was searched once holds wherever nothing that
 * grows with the samples is cut.
 */
import { type Graph, typeOf } from '../../ir/graph.js';
import { operatorEntry } from '../../ir/ops/index.js';
import { viewOf } from '../../ir/view.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import { piecesProblem } from '../../sharding-propagation/refine.js';

/**
 * The same strategies and layouts for the same operators of other sizes.
 * @param graph the model that the assignment is of, at another number of samples
 * @returns null where a dimension is cut that has another size here, or a factor is seen as pieces that do not make it up
 */
export function atOtherSamples(assignment: Assignment, graph: Graph): Assignment | null {
  for (const node of graph.nodes) {
    const strategy = assignment.strategies.get(node.group);
    if (!strategy?.pieces) continue;
    const rule = operatorEntry(node).rule(viewOf(graph, node));
    if (piecesProblem(rule, strategy.pieces) !== null) return null;
  }
  const inputs = new Map<string, Layout>();
  for (const [name, layout] of assignment.inputs) {
    const sized = withSizes(layout, typeOf(graph, name).shape);
    if (!sized) return null;
    inputs.set(name, sized);
  }
  const views: Assignment['views'][number][] = [];
  for (const view of assignment.views) {
    const layout = withSizes(view.layout, typeOf(graph, view.tensor).shape);
    if (!layout) return null;
    views.push({ ...view, layout });
  }
  return { ...assignment, inputs, views };
}

/** A layout whose whole dimensions have these sizes; null where one that is cut has another. */
function withSizes(layout: Layout, shape: readonly number[]): Layout | null {
  const dims = layout.dims.map((pieces, dimension) => {
    const size = shape[dimension] ?? 1;
    const isSame = pieces.reduce((product, piece) => product * piece.size, 1) === size;
    const [only] = pieces;
    if (isSame || layout.extents?.[dimension]) return pieces;
    return only && pieces.length === 1 && only.axes.length === 0 ? [{ ...only, size }] : null;
  });
  const sized = dims.flatMap((pieces) => (pieces ? [pieces] : []));
  return sized.length === dims.length ? { ...layout, dims: sized } : null;
}
