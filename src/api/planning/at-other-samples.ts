/**
 * @file The sharding of a graph's operators at another number of samples: the result of one search stays valid wherever no
 * dimension that grows with the samples is sharded.
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { ruleOf } from '../../ir/ops/index.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import { pieceName } from '../../sharding-propagation/refine.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';

/**
 * The same strategies and layouts for the same operators of other sizes.
 * @param before the graph that the assignment is for
 * @param after the same model at another number of samples
 * @returns null where a sharded factor or dimension has another size there, or a tensor with a layout is missing there or is
 *   read by other operators
 */
export function atOtherSamples(assignment: Assignment, before: Graph, after: Graph): Assignment | null {
  const others = new Map(before.nodes.map((node) => [node.name, node]));
  const strategies = new Map(assignment.strategies);
  for (const node of after.nodes) {
    const strategy = assignment.strategies.get(node.group);
    const other = others.get(node.name);
    if (!strategy) continue;
    const same = other
      ? withFactors(strategy, ruleOf(operatorOf(before, other)), ruleOf(operatorOf(after, node)))
      : null;
    if (!same) return null;
    strategies.set(node.group, same);
  }
  const inputs = new Map<string, Layout>();
  for (const [name, layout] of assignment.inputs) {
    const sized = after.tensors.has(name) && withSizes(layout, typeOf(after, name).shape);
    if (!sized) return null;
    inputs.set(name, sized);
  }
  const sharedReshards: Assignment['sharedReshards'][number][] = [];
  const nodes = new Map(after.nodes.map((node) => [node.name, node]));
  for (const reshard of assignment.sharedReshards) {
    // A view that one sample does not need is left out there, and its name can be that of a view of another tensor.
    const isRead = reshard.readers.every(
      ({ kind, name, operand }) => kind === 'output' || nodes.get(name)?.inputs[operand] === reshard.tensor,
    );
    if (!isRead) return null;
    const layout = after.tensors.has(reshard.tensor) && withSizes(reshard.layout, typeOf(after, reshard.tensor).shape);
    if (!layout) return null;
    sharedReshards.push({ ...reshard, layout });
  }
  return { ...assignment, strategies, inputs, sharedReshards };
}

/** A strategy by the names of an operator's factors at other sizes; null where a sharded factor has no counterpart. */
function withFactors(strategy: Strategy, before: FactorRule, after: FactorRule): Strategy | null {
  const { axes, pieces = {}, pending } = strategy;
  const cut = new Set([...Object.keys(axes), ...(pending.kind === 'scatter' ? [pending.factor] : [])]);
  const names = new Map<string, string>();
  const own: Record<string, readonly number[]> = {};
  for (const { name, size } of before.factors.values()) {
    const sizes = pieces[name] ?? [size];
    const parts = pieces[name] ? sizes.map((_, index) => pieceName(name, index)) : [name];
    if (!parts.some((part) => cut.has(part))) continue;
    // A factor of one sample is left out, and the others get other names.
    const other = before.text === after.text ? name : counterpart(name, before, after);
    const resized =
      other &&
      withProduct(
        sizes,
        parts.map((part) => cut.has(part)),
        after.factors.get(other)?.size ?? 0,
      );
    if (!resized) return null;
    const whole = resized.length === 1;
    if (!whole) own[other] = resized;
    const left = parts.slice(parts.length - resized.length);
    for (const [index, part] of left.entries()) names.set(part, whole ? other : pieceName(other, index));
  }
  const renamed = (name: string) => names.get(name) ?? name;
  const { pieces: _, ...rest } = strategy;
  return {
    ...rest,
    axes: Object.fromEntries(Object.entries(axes).map(([name, on]) => [renamed(name), on])),
    ...(Object.keys(own).length > 0 ? { pieces: own } : {}),
    ...(pending.kind === 'scatter' ? { pending: { ...pending, factor: renamed(pending.factor) } } : {}),
  };
}

/**
 * Sizes, major to minor, that multiply to `size`. Samples are the major part of a dimension that grows with them, so the first
 * size changes, and is dropped where it becomes 1. Null where it is sharded, or the others do not divide `size`.
 */
function withProduct(sizes: readonly number[], isCut: readonly boolean[], size: number): readonly number[] | null {
  const product = (some: readonly number[]) => some.reduce((all, one) => all * one, 1);
  if (product(sizes) === size) return sizes;
  const [, ...others] = sizes;
  const first = size / product(others);
  if (isCut[0] || !Number.isInteger(first)) return null;
  return first === 1 && others.length > 0 ? others : [first, ...others];
}

/** The only factor of that size which occurs wherever the other rule has `name`; null where there is none, or several. */
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

/** A layout for dimensions of these sizes; null where a dimension that grows with the samples is sharded or padded. */
function withSizes(layout: Layout, shape: readonly number[]): Layout | null {
  const dims = layout.dims.map((pieces, dimension) => {
    const size = shape[dimension] ?? 1;
    const padded = layout.extents?.[dimension];
    const valid = padded?.reduce((product, part) => product * part.valid, 1);
    if (padded) return valid === size ? pieces : null;
    const isCut = pieces.map(({ axes }) => axes.length > 0);
    const sizes = withProduct(
      pieces.map((piece) => piece.size),
      isCut,
      size,
    );
    if (!sizes) return null;
    return pieces.slice(pieces.length - sizes.length).map((piece, index) => ({ ...piece, size: sizes[index] ?? 1 }));
  });
  const sized = dims.flatMap((pieces) => (pieces ? [pieces] : []));
  return sized.length === dims.length ? { ...layout, dims: sized } : null;
}
