/**
 * @file The axes that an emitted program has: a mesh axis whose sub-axes always stand together is one, whatever its size.
 */
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import type { SubAxis } from '../../sharding-propagation/mesh.js';
import { sharedMesh } from '../../sharding-propagation/stage-meshes.js';

export interface ProgramAxes {
  /** Outermost first. */
  readonly axes: readonly { readonly name: string; readonly size: number }[];
  /** A list of sub-axes in names of `axes`. */
  readonly named: (names: readonly SubAxis[]) => readonly string[];
}

/** The axes inside the stages, which all have the same sub-axes; axes of size 1 have no sub-axes, and are left out. */
export function programAxes(stages: readonly ShardedGraph[]): ProgramAxes {
  const lists = stages.flatMap(axisLists);
  const own = sharedMesh(stages.map(({ mesh }) => mesh)).axes;
  const joined = own.filter(({ subAxes }) => {
    const names = subAxes.map(({ name }) => name);
    return names.length > 1 && lists.every((list) => isTogether(list, names));
  });
  const whole = new Map(
    joined.map(({ name, subAxes }) => [subAxes[0]?.name, { name, count: subAxes.length }] as const),
  );
  const axes = own.flatMap((axis) => (joined.includes(axis) ? [axis] : axis.subAxes));
  const named = (names: readonly SubAxis[]) => {
    const result: string[] = [];
    for (let at = 0; at < names.length; ) {
      const name = names[at] as SubAxis;
      const axis = whole.get(name);
      result.push(axis?.name ?? name);
      at += axis?.count ?? 1;
    }
    return result;
  };
  return { axes: axes.map(({ name, size }) => ({ name, size })), named };
}

/** Every list of sub-axes that the stage's tensors, groups and coordinates have, each once. */
function axisLists({ nodes, tensors, coordinates }: ShardedGraph): readonly (readonly SubAxis[])[] {
  const lists = new Map<string, readonly SubAxis[]>();
  const add = (names: readonly SubAxis[]) => lists.set(names.join(), names);
  for (const node of nodes) if (node.kind === 'communicate') add(node.axes);
  for (const { layout } of tensors.values()) {
    for (const { axes } of layout.dims.flat()) add(axes);
    if (layout.partial.length > 0) add(layout.partial.map(({ axis }) => axis));
  }
  for (const { axes } of coordinates) add(axes);
  return [...lists.values()];
}

/** Whether a list has none of the names, or all of them one after the other. */
function isTogether(list: readonly SubAxis[], names: readonly SubAxis[]): boolean {
  const first = list.indexOf(names[0] as SubAxis);
  if (first < 0) return !names.some((name) => list.includes(name));
  return names.every((name, index) => list[first + index] === name);
}
