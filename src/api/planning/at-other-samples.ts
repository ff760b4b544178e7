/**
 * @file How a graph's operators lie over ranks, at another number of samples: what was searched once holds wherever nothing that
 * grows with the samples is cut.
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { ruleOf, viewOf } from '../../ir/view.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';

/**
 * The same strategies and layouts for the same operators of other sizes.
 * @param before the graph that the assignment is of
 * @param after the same model at another number of samples
 * @returns null where a factor or a dimension is cut that has another size there, or none
 */
export function atOtherSamples(assignment: Assignment, before: Graph, after: Graph): Assignment | null {
  const others = new Map(before.nodes.map((node) => [node.name, node]));
  const strategies = new Map(assignment.strategies);
  for (const node of after.nodes) {
    const strategy = assignment.strategies.get(node.group);
    const other = others.get(node.name);
    if (!strategy) continue;
    const same = other ? withFactors(strategy, ruleOf(viewOf(before, other)), ruleOf(viewOf(after, node))) : null;
    if (!same) return null;
    strategies.set(node.group, same);
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
  return { ...assignment, strategies, inputs, views };
}

/** A strategy by the names that an operator's factors have at other sizes; null where one that it cuts has no counterpart. */
function withFactors(strategy: Strategy, before: FactorRule, after: FactorRule): Strategy | null {
  const { axes, pieces = {}, pending } = strategy;
  if (before.text === after.text) return isAlike(strategy, before, after) ? strategy : null;
  // A factor of one sample is left out, and the others have other names: no piece is followed through that.
  const named = pending.kind === 'scatter' ? [...Object.keys(axes), pending.factor] : Object.keys(axes);
  if (named.length === 0 && Object.keys(pieces).length === 0) return strategy;
  if (Object.keys(pieces).length > 0) return null;
  const names = new Map<string, string>();
  for (const name of named) {
    const own = counterpart(name, before, after);
    if (own === null) return null;
    names.set(name, own);
  }
  const renamed = (name: string) => names.get(name) ?? name;
  return {
    ...strategy,
    axes: Object.fromEntries(Object.entries(axes).map(([name, own]) => [renamed(name), own])),
    ...(pending.kind === 'scatter' ? { pending: { ...pending, factor: renamed(pending.factor) } } : {}),
  };
}

/** Whether what the strategy cuts is as large under both rules, which name their factors alike. */
function isAlike({ axes, pieces }: Strategy, before: FactorRule, after: FactorRule): boolean {
  const isSame = (name: string) => before.factors.get(name)?.size === after.factors.get(name)?.size;
  return [...Object.keys(pieces ?? {}), ...Object.keys(axes).filter((name) => before.factors.has(name))].every(isSame);
}

/** The one factor of that size which stands wherever the other rule has `name`; null where there is none, or several. */
function counterpart(name: string, before: FactorRule, after: FactorRule): string | null {
  const size = before.factors.get(name)?.size;
  let found: readonly string[] = [...after.factors.values()].filter((own) => own.size === size).map((own) => own.name);
  for (const side of ['inputs', 'outputs'] as const) {
    for (const [operand, dims] of before[side].entries()) {
      for (const [dimension, names] of (dims ?? []).entries()) {
        const own = after[side][operand]?.[dimension] ?? [];
        if (names.includes(name)) found = found.filter((one) => own.includes(one));
      }
    }
  }
  return found.length === 1 ? (found[0] ?? null) : null;
}

/** A layout whose whole dimensions have these sizes; null where one that is cut has another. */
function withSizes(layout: Layout, shape: readonly number[]): Layout | null {
  const dims = layout.dims.map((pieces, dimension) => {
    const size = shape[dimension] ?? 1;
    const padded = layout.extents?.[dimension];
    const own = padded ? padded.map(({ valid }) => valid) : pieces.map((piece) => piece.size);
    if (own.reduce((product, part) => product * part, 1) === size) return pieces;
    if (padded) return null;
    const [only] = pieces;
    return only && pieces.length === 1 && only.axes.length === 0 ? [{ ...only, size }] : null;
  });
  const sized = dims.flatMap((pieces) => (pieces ? [pieces] : []));
  return sized.length === dims.length ? { ...layout, dims: sized } : null;
}
