/**
 * @file How a graph's operators lie over ranks, at another number of samples: what was searched once holds wherever nothing that
 * grows with the samples is cut.
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import { type Graph, type Node, typeOf } from '../../ir/graph.js';
import { operatorEntry } from '../../ir/ops/index.js';
import { viewOf } from '../../ir/view.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import { refineRule } from '../../sharding-propagation/refine.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';

/**
 * The same strategies and layouts for the same operators of other sizes.
 * @param before the graph that the assignment is of
 * @param after the same model at another number of samples
 * @returns null where a factor or a dimension is cut that has another size there, or an operator has other factors, as a Reshape of
 * one sample does
 */
export function atOtherSamples(assignment: Assignment, before: Graph, after: Graph): Assignment | null {
  const others = new Map(before.nodes.map((node) => [node.name, node]));
  for (const node of after.nodes) {
    const strategy = assignment.strategies.get(node.group);
    const other = others.get(node.name);
    if (strategy && isSharded(strategy) && !(other && isAlike(strategy, ruleOf(before, other), ruleOf(after, node))))
      return null;
  }
  const inputs = new Map<string, Layout>();
  for (const [name, layout] of assignment.inputs) {
    const sized = withSizes(layout, typeOf(after, name).shape);
    if (!sized) return null;
    inputs.set(name, sized);
  }
  const views: Assignment['views'][number][] = [];
  for (const view of assignment.views) {
    const layout = withSizes(view.layout, typeOf(after, view.tensor).shape);
    if (!layout) return null;
    views.push({ ...view, layout });
  }
  return { ...assignment, inputs, views };
}

function isSharded({ axes, pieces, carried, owed }: Strategy): boolean {
  return Object.keys(axes).length > 0 || pieces !== undefined || carried !== null || owed.kind !== 'none';
}

function ruleOf(graph: Graph, node: Node): FactorRule {
  return operatorEntry(node).rule(viewOf(graph, node));
}

/** Whether the rules name their factors alike, and what the strategy cuts is as large in both. */
function isAlike({ axes, pieces }: Strategy, before: FactorRule, after: FactorRule): boolean {
  if (before.text !== after.text) return false;
  if (Object.keys(pieces ?? {}).some((name) => before.factors.get(name)?.size !== after.factors.get(name)?.size))
    return false;
  const [own, other] = [refineRule(before, pieces), refineRule(after, pieces)];
  return Object.keys(axes).every((name) => own.factors.get(name)?.size === other.factors.get(name)?.size);
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
