/**
 * @file Smaller sizes that can replace a size of the plan's model: axes of the rehearsal divide the smaller size where axes of
 * the plan divide the original, and do not divide it where the original is padded.
 */
import type { NarrowSizes } from '../../../models/narrower.js';
import type { Graph } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { ruleOf } from '../../ir/ops/index.js';
import type { Assignment } from '../../partition/assignment.js';
import { axesSize, type SubAxis } from '../../sharding-propagation/mesh.js';
import { refineRule } from '../../sharding-propagation/refine.js';
import { REPLICATED } from '../../sharding-propagation/strategy.js';
import type { BigPlan } from './big-plan.js';
import { NoReducedForm } from './mapped-layouts.js';
import type { ReducedMesh } from './reduced-mesh.js';

/** The number of shards of a size: in the plan, and in the rehearsal. */
interface ShardCounts {
  readonly before: number;
  readonly after: number;
}

/**
 * `least`: the least size from `base` on that is sharded as `size` is everywhere; `size` if no smaller one exists. `mayBe`:
 * whether a size is sharded as another one is somewhere; dimensions of one size may be sharded in several ways.
 */
export function narrowSizes(
  { graph, assignment: { mesh, strategies } }: Pick<BigPlan, 'graph' | 'assignment'>,
  reduced: ReducedMesh,
): NarrowSizes {
  const cuts = new Map<number, Map<string, ShardCounts>>();
  const add = (size: number, cut: ShardCounts) => {
    const known = cuts.get(size) ?? new Map<string, ShardCounts>();
    cuts.set(size, known.set(`${cut.before} ${cut.after}`, cut));
  };
  const inOrder = new Set(
    [...(graph.ordered?.values() ?? [])].flatMap((order) => order.flatMap((own) => own?.size ?? [])),
  );
  for (const { size, axes } of shardedFactors(graph, strategies)) {
    const cut = { before: axesSize(mesh, axes), after: axesSize(reduced.mesh, reduced.axes(axes)) };
    add(size, cut);
    // In zig-zag order every shard consists of two pieces.
    if (inOrder.has(size) && cut.after > 1) add(size, { before: 2 * cut.before, after: 2 * cut.after });
  }
  const cutsOf = (size: number) => [...(cuts.get(size)?.values() ?? [])];
  return {
    least: (size, base) => {
      const own = cutsOf(size);
      for (let least = Math.min(base, size); least < size; least++)
        if (own.every((cut) => isCut(size, least, cut))) return least;
      return size;
    },
    mayBe: (size, other) => {
      const own = cutsOf(size);
      return own.length === 0 || own.some((cut) => isCut(size, other, cut));
    },
  };
}

/** Lists of sub-axes that shard a factor into single elements, or with padding; not for factors of size `varied` (the batch). */
export function wholeCuts(
  graph: Graph,
  { mesh, strategies }: Pick<Assignment, 'mesh' | 'strategies'>,
  varied: number | undefined,
): readonly (readonly SubAxis[])[] {
  const found = new Map<string, readonly SubAxis[]>();
  for (const { size, axes } of shardedFactors(graph, strategies)) {
    const cut = axesSize(mesh, axes);
    if (size !== varied && (size === cut || size % cut !== 0)) found.set(axes.join(), axes);
  }
  return [...found.values()];
}

function* shardedFactors(
  graph: Graph,
  strategies: Assignment['strategies'],
): Generator<{ readonly size: number; readonly axes: readonly SubAxis[] }> {
  for (const node of graph.nodes) {
    const { axes, pieces } = strategies.get(node.group) ?? REPLICATED;
    const named = Object.entries(axes).filter(([, own]) => own.length > 0);
    if (named.length === 0) continue;
    const { factors } = refineRule(ruleOf(operatorOf(graph, node)), pieces);
    for (const [name, own] of named) {
      const size = factors.get(name)?.size;
      if (size !== undefined) yield { size, axes: own };
    }
  }
}

/**
 * @throws Unmapped where an operator of the smaller graph is sharded into single elements, or padded, and the plan's is not, or
 * the other way round
 */
export function checkCuts(
  big: Graph,
  small: Graph,
  { mesh, strategies }: Pick<Assignment, 'mesh' | 'strategies'>,
  reduced: ReducedMesh,
): void {
  const nodes = new Map(small.nodes.map((node) => [node.name, node]));
  for (const node of big.nodes) {
    const other = nodes.get(node.name);
    const { axes, pieces } = strategies.get(node.group) ?? REPLICATED;
    if (!other || pieces) continue;
    const [before, after] = [ruleOf(operatorOf(big, node)).factors, ruleOf(operatorOf(small, other)).factors];
    for (const [name, own] of Object.entries(axes)) {
      const [size, least] = [before.get(name)?.size, after.get(name)?.size];
      if (size === undefined || least === undefined) continue;
      const cut = { before: axesSize(mesh, own), after: axesSize(reduced.mesh, reduced.axes(own)) };
      if (cut.after > 1 && !isCut(size, least, cut))
        throw new NoReducedForm(
          `factor ${name} of ${node.name} is cut in another way at size ${least} than at ${size}`,
        );
    }
  }
}

function isCut(size: number, least: number, { before, after }: ShardCounts): boolean {
  if (least < after) return false;
  if (size % before !== 0) return least % after !== 0;
  // Both are sharded into single elements, or neither is.
  return least % after === 0 && (least === after) === (size === before);
}
