/**
 * @file The mesh of a rehearsal: every axis of a stage's mesh has the least size that keeps sub-axes separate where the plan uses
 * them separately. Sub-axes that always occur together become one of size 2. If they shard an unreduced width into single
 * elements, they keep their sizes, as long as the ranks suffice. If the meshes of stages differ, each stage's axes count as lists
 * of sub-axes as well, so that no axis is reduced together with a part of another.
 */
import type { Assignment } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import { axesSize, type Mesh, type MeshAxis, makeMesh, type SubAxis } from '../../sharding-propagation/mesh.js';
import { EXPERTS } from '../../sharding-propagation/roles.js';
import { type AxisSizes, type StageMeshes, stageMeshes } from '../../sharding-propagation/stage-meshes.js';
import type { Strategy } from '../../sharding-propagation/strategy.js';

export interface ReducedMesh {
  /** The mesh of one stage. */
  readonly mesh: Mesh;
  /** The mesh of the plan. */
  readonly from: Mesh;
  /** The meshes of all stages, where they differ: sub-axes of `mesh`, grouped into the stage's axes. */
  readonly stages?: StageMeshes;
  /** Maps sub-axes of the plan to those of the rehearsal, each once; lost ones are dropped. */
  readonly axes: (names: readonly SubAxis[]) => readonly SubAxis[];
  /** Sub-axes of the plan that the ranks do not suffice for. */
  readonly lost: ReadonlySet<SubAxis>;
}

/** Size of a bundle of sub-axes. */
const SIZE = 2;

interface Bundle {
  /** Sub-axes that occur together everywhere, major to minor. */
  readonly names: readonly SubAxis[];
  readonly size: number;
}

interface AxisBundles {
  readonly axis: MeshAxis;
  readonly bundles: readonly Bundle[];
}

/**
 * The mesh at reduced sizes.
 * @param most ranks of a stage
 * @param wholes lists of sub-axes that shard an unreduced width into single elements, or with padding
 * @param stages meshes of the plan's stages where they differ; `mesh` is what they share
 */
export function reducedMesh(
  { mesh, strategies }: Pick<Assignment, 'mesh' | 'strategies'>,
  lowered: readonly LoweredStage[],
  most: number,
  wholes: readonly (readonly SubAxis[])[] = [],
  stages?: StageMeshes,
): ReducedMesh {
  const ofStages = (stages?.stages ?? []).flatMap(({ axes }) =>
    axes.map(({ subAxes }) => subAxes.map(({ name }) => name)),
  );
  const orders = [...ordersIn(lowered, [...strategies.values()]), ...ofStages];
  const bundled = mesh.axes.map((axis) => ({ axis, bundles: bundlesOf(axis, orders) }));
  const whole = new Set(wholes.flat());
  const grown = bundled.map(({ axis, bundles }) => ({
    axis,
    bundles: bundles.map((own) => grownBundle(axis, own, whole)),
  }));
  const isWhole = ranksOf(grown) <= most && grown.every(isOrdered);
  const kept = fitting(isWhole ? grown : bundled, most);
  const reduced = makeMesh(kept.map(({ axis, bundles }) => [axis.name, product(bundles)] as const));
  const names = new Map<SubAxis, readonly SubAxis[]>();
  for (const [index, { bundles }] of kept.entries()) {
    let next = 0;
    for (const bundle of bundles) {
      const own: SubAxis[] = [];
      for (let size = 1; size < bundle.size; next++) {
        const sub = reduced.axes[index]?.subAxes[next];
        if (!sub) throw new Error(`the reduced axis ${kept[index]?.axis.name} is too small`);
        own.push(sub.name);
        size *= sub.size;
      }
      for (const name of bundle.names) names.set(name, own);
    }
  }
  const all = mesh.axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
  const axes = (given: readonly SubAxis[]) => [...new Set(given.flatMap((name) => names.get(name) ?? []))];
  const sizeOf = (given: readonly SubAxis[]) => axesSize(reduced, axes(given));
  return {
    mesh: reduced,
    from: mesh,
    ...(stages ? { stages: stageMeshes(stages.stages.map((stage) => reducedSizes(stage, sizeOf))) } : {}),
    axes,
    lost: new Set(all.filter((name) => !names.has(name))),
  };
}

/** A stage's axes at reduced sizes. */
function reducedSizes({ axes, experts = [] }: Mesh, sizeOf: (axes: readonly SubAxis[]) => number): AxisSizes {
  const ranks = axes.map(({ name, subAxes }) => [name, sizeOf(subAxes.map((sub) => sub.name))] as const);
  return experts.length > 0 ? [...ranks, [EXPERTS, sizeOf(experts)]] : ranks;
}

function product(bundles: readonly Bundle[]): number {
  return bundles.reduce((ranks, { size }) => ranks * size, 1);
}

function ranksOf(axes: readonly AxisBundles[]): number {
  return axes.reduce((ranks, { bundles }) => ranks * product(bundles), 1);
}

/** A mesh has the larger of its sub-axes first. */
function isOrdered({ axis, bundles }: AxisBundles): boolean {
  const sizes = bundles.flatMap(({ names, size }) =>
    size === SIZE ? [SIZE] : axis.subAxes.flatMap((sub) => (names.includes(sub.name) ? [sub.size] : [])),
  );
  return sizes.every((size, index) => index === 0 || size <= (sizes[index - 1] ?? size));
}

function grownBundle({ subAxes }: MeshAxis, bundle: Bundle, whole: ReadonlySet<SubAxis>): Bundle {
  if (!bundle.names.some((name) => whole.has(name))) return bundle;
  const size = subAxes.reduce((all, sub) => (bundle.names.includes(sub.name) ? all * sub.size : all), 1);
  return { ...bundle, size };
}

/** The axes with the most bundles lose their minor ones until the ranks suffice. */
function fitting(axes: readonly AxisBundles[], most: number): readonly AxisBundles[] {
  if (ranksOf(axes) <= most) return axes;
  const longest = Math.max(...axes.map(({ bundles }) => bundles.length));
  const at = axes.findLastIndex(({ bundles }) => bundles.length === longest);
  const shorter = axes.map((own, index) => (index === at ? { ...own, bundles: own.bundles.slice(0, -1) } : own));
  return fitting(shorter, most);
}

function bundlesOf({ subAxes }: MeshAxis, orders: readonly (readonly SubAxis[])[]): readonly Bundle[] {
  const bundles: SubAxis[][] = [];
  for (const { name } of subAxes) {
    const last = bundles.at(-1);
    const before = last?.at(-1);
    if (last && before !== undefined && orders.every((order) => standTogether(order, before, name))) last.push(name);
    else bundles.push([name]);
  }
  return bundles.map((names) => ({ names, size: SIZE }));
}

function standTogether(order: readonly SubAxis[], first: SubAxis, second: SubAxis): boolean {
  const [one, other] = [order.indexOf(first), order.indexOf(second)];
  return one < 0 ? other < 0 : other === one + 1;
}

/** All lists of sub-axes in the lowered form, each once; those of partial values are grouped by reduction. */
function ordersIn(lowered: readonly LoweredStage[], strategies: readonly Strategy[]): Iterable<readonly SubAxis[]> {
  const found = new Map<string, readonly SubAxis[]>();
  const add = (order: readonly SubAxis[]) => {
    if (order.length > 0) found.set(order.join(), order);
  };
  const layouts = new Set<Layout>();
  for (const { axes, partialOperands } of strategies) {
    for (const order of Object.values(axes)) add(order);
    if (partialOperands) add([...partialOperands.axes].sort());
  }
  for (const { sharded } of lowered) {
    for (const { layout, varying } of sharded.tensors.values()) {
      layouts.add(layout);
      if (varying) add(varying);
    }
    for (const node of sharded.nodes) if (node.kind === 'communicate') add(node.axes);
    for (const { axes } of sharded.coordinates) add(axes);
  }
  for (const { dims, partial } of layouts) {
    for (const pieces of dims) for (const { axes } of pieces) add(axes);
    for (const kind of new Set(partial.map(({ reduction }) => reduction)))
      add(partial.flatMap(({ axis, reduction }) => (reduction === kind ? [axis] : [])));
  }
  return found.values();
}
