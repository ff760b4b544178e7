/**
 * @file Layouts, strategies and pieces of a plan at the sizes of a rehearsal. Axes are those of the reduced mesh; the sizes of
 * pieces follow from sizes that are known to correspond (1024 features become 32, 3 stay 3).
 */

import type { FactorRule } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { ruleOf } from '../../ir/ops/index.js';
import { type Extent, type Layout, normalise, type Piece, paddedSize } from '../../sharding-propagation/layout.js';
import { axesSize } from '../../sharding-propagation/mesh.js';
import { pendingPartial, REPLICATED, type Strategy } from '../../sharding-propagation/strategy.js';
import type { PlanOperator } from '../../strategy/plan.js';
import type { Counterparts } from './counterparts.js';
import type { ReducedMesh } from './reduced-mesh.js';

/** The error for something that has no form at reduced sizes; its message is the end of a sentence. */
export class NoReducedForm extends Error {}

/** Which sizes of the rehearsal's model correspond to those of the plan's. */
export interface SizePairs {
  /** Corresponding sizes, by size of the plan's model; each set contains that size too. */
  readonly of: ReadonlyMap<number, ReadonlySet<number>>;
  /** Corresponding sizes, by the sizes of consecutive dimensions of a tensor: batch and sequence, heads and head size. */
  readonly inARow: ReadonlyMap<string, readonly (readonly number[])[]>;
}

/** The sizes of dimensions and factors that correspond in the two graphs. */
export function sizePairs(big: Graph, small: Graph, { nodeOf, tensorOf }: Counterparts): SizePairs {
  const pairs = new Map<number, Set<number>>();
  const rows = new Map<string, Map<string, readonly number[]>>();
  const add = (from: number, to: number) => pairs.set(from, (pairs.get(from) ?? new Set([from])).add(to));
  const addRow = (from: readonly number[], to: readonly number[]) => {
    const known = rows.get(from.join()) ?? new Map<string, readonly number[]>();
    rows.set(from.join(), known.set(to.join(), to));
  };
  for (const [own, other] of tensorOf) {
    const [from, to] = [big.tensors.get(other)?.shape, small.tensors.get(own)?.shape];
    if (!from || from.length !== to?.length) continue;
    for (const [axis, size] of from.entries()) {
      add(size, to[axis] ?? size);
      for (let end = axis + 2; end <= from.length; end++) addRow(from.slice(axis, end), to.slice(axis, end));
    }
  }
  const nodes = new Map(big.nodes.map((node) => [node.name, node]));
  for (const node of small.nodes) {
    const other = nodes.get(nodeOf.get(node.name) ?? '');
    if (!other) continue;
    const [from, to] = [factorsOf(big, other), factorsOf(small, node)];
    for (const [name, size] of from) add(size, to.get(name) ?? size);
  }
  return { of: pairs, inARow: new Map([...rows].map(([sizes, found]) => [sizes, [...found.values()]])) };
}

/** Sizes of an operator's factors, by name. */
function factorsOf(graph: Graph, node: Node): ReadonlyMap<string, number> {
  return new Map([...ruleOf(operatorOf(graph, node)).factors.values()].map(({ name, size }) => [name, size]));
}

/** An operator's entry at the sizes of its counterpart. @throws Unmapped */
export function mappedEntry(
  entry: PlanOperator,
  rule: FactorRule,
  { axes, mesh }: ReducedMesh,
  pairs: SizePairs,
): PlanOperator {
  const { partial, reduction, pieces, ...rest } = entry;
  const strategy = Object.fromEntries(
    Object.entries(entry.strategy).flatMap(([factor, names]) => {
      const own = axes(names);
      return own.length > 0 ? [[factor, own] as const] : [];
    }),
  );
  const shards = (factor: string) => axesSize(mesh, strategy[factor] ?? []);
  const mapped = Object.entries(pieces ?? {}).map(([factor, sizes]) => {
    const cuts = sizes.map((_, index) => shards(`${factor}.${index}`));
    return [factor, solved(sizes, cuts, rule.factors.get(factor)?.size ?? 1, pairs)] as const;
  });
  const partialOperands = partial ? { ...partial, axes: axes(partial.axes) } : undefined;
  const made = {
    ...rest,
    strategy,
    ...(mapped.length > 0 ? { pieces: Object.fromEntries(mapped) } : {}),
    ...(partialOperands && partialOperands.axes.length > 0 ? { partial: partialOperands } : {}),
  };
  // Nothing is reduced if all axes of the reduction are lost.
  const isPending = reduction && pendingPartial(rule, { ...REPLICATED, axes: strategy, ...pieced(made) }).length > 0;
  return { ...made, ...(isPending ? { reduction } : {}) };
}

function pieced({ pieces }: Pick<PlanOperator, 'pieces'>): Pick<Strategy, 'pieces'> {
  return pieces ? { pieces } : {};
}

/** A layout of a tensor of `before` as one of a tensor of `after`. @throws Unmapped */
export function mappedLayout(
  { dims, partial, extents }: Layout,
  after: readonly number[],
  reduced: ReducedMesh,
  pairs: SizePairs,
): Layout {
  const { axes, mesh } = reduced;
  if (dims.length !== after.length)
    throw new NoReducedForm(`a tensor has ${after.length} dimensions, not ${dims.length}`);
  const made = dims.map((pieces, dimension) => {
    const names = pieces.map((piece) => axes(piece.axes));
    const cuts = names.map((own) => axesSize(mesh, own));
    const parts = extents?.[dimension];
    // The pieces of a padded dimension have the padded size; its extents have the size without padding (`valid`).
    const sizes =
      parts && parts.length === pieces.length ? parts.map(({ valid }) => valid) : pieces.map(({ size }) => size);
    const valid = solved(sizes, cuts, after[dimension] ?? 1, pairs, parts !== null && parts !== undefined);
    return names.map((own, index): Piece & Extent => {
      const real = valid[index] ?? 1;
      const before = own.length === 0 && parts?.length === pieces.length ? parts[index] : undefined;
      const cut = before ? cutElsewhere(before, real, reduced) : cuts[index];
      return { axes: own, valid: real, size: paddedSize(real, cut ?? 1) };
    });
  });
  const kept = partial.flatMap(({ axis, reduction }) => axes([axis]).map((own) => ({ axis: own, reduction })));
  const once = [...new Map(kept.map((entry) => [entry.axis, entry])).values()];
  const isPadded = made.some((pieces) => pieces.some(({ size, valid }) => size !== valid));
  return normalise(
    made.map((pieces) => pieces.map(({ size, axes: own }) => ({ size, axes: own }))),
    once,
    mesh,
    isPadded ? made.map((pieces) => pieces.map(({ size, valid }) => ({ size, valid }))) : undefined,
  );
}

/** Shards of another layout that an unsharded extent is padded for, in the rehearsal; `real`: its elements there. */
function cutElsewhere({ size, valid }: Extent, real: number, { from, mesh, axes }: ReducedMesh): number {
  if (size === valid) return 1;
  const cuts = from.axes
    .filter((axis) => axis.size > 1 && paddedSize(valid, axis.size) === size)
    .map(({ subAxes }) => axesSize(mesh, axes(subAxes.map(({ name }) => name))));
  return cuts.find((cut) => real % cut !== 0) ?? 1;
}

/**
 * Sizes that correspond to `sizes`, multiply to `total` and are multiples of `cuts` (unless they are padded). If consecutive
 * dimensions of a tensor have these sizes, those of its counterpart are taken, since one size may have several meanings.
 * @throws Unmapped
 */
function solved(
  sizes: readonly number[],
  cuts: readonly number[],
  total: number,
  pairs: SizePairs,
  mayBePadded = sizes.length === 1,
): readonly number[] {
  if (sizes.length === 1) return [total];
  const isCut = (size: number, index: number) => {
    const cut = cuts[index] ?? 1;
    return size % cut === 0 || (mayBePadded && size >= cut);
  };
  const row = (pairs.inARow.get(sizes.join()) ?? []).find(
    (own) => own.reduce((product, size) => product * size, 1) === total && own.every(isCut),
  );
  const found = row ?? search(0, total);
  if (found) return found;
  throw new NoReducedForm(`pieces ${sizes.join(' | ')} have no counterparts that multiply to ${total}`);

  function search(index: number, rest: number): readonly number[] | null {
    const isFit = (size: number) => rest % size === 0 && isCut(size, index);
    if (index === sizes.length - 1) return isFit(rest) ? [rest] : null;
    const own = sizes[index] ?? 1;
    for (const size of [...(pairs.of.get(own) ?? [own])].reverse()) {
      const others = isFit(size) ? search(index + 1, rest / size) : null;
      if (others) return [size, ...others];
    }
    return null;
  }
}
