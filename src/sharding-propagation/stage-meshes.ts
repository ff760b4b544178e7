/**
 * @file Different meshes of a pipeline's stages, as groupings of one list of sub-axes: rank r of a stage has the same index on
 * each sub-axis as rank r of every other stage, and each stage assigns the sub-axes to its dp and its tp.
 *
 *     sub-axes         rank.0  rank.1      a tensor sharded over rank.0 has the same shard on rank r of every stage: layouts
 *     stage 0, tp 4    tp      tp          mean the same on all stages, and equal ranks send each other equal shards
 *     stage 1, dp 2    dp      tp
 *     stage 2, dp 4    dp      dp
 *
 * Such a list exists where the places at which the stages' axes end divide each other: for dp 2 and dp 4 on four devices these
 * are 2 and 4; for dp 2 and dp 3 on six devices there is no such list.
 */
import { madeOnce } from '../ir/remembered.js';
import { shortNames } from './layout-text.js';
import { axesSize, type Mesh, type MeshAxis, makeMesh, type SubAxis, subAxes as subAxesIn } from './mesh.js';
import { EXPERTS, withExperts } from './roles.js';

/** Axes of a stage, outermost first; `ep` behind them is the number of ranks of its dp · sp that experts are sharded over. */
export type AxisSizes = readonly (readonly [axis: string, size: number])[];

export interface StageMeshes {
  /** All ranks of a stage as one axis: on it layouts of any stage are read and written. */
  readonly common: Mesh;
  /** Per stage the sub-axes of `common`, grouped to its axes. */
  readonly stages: readonly Mesh[];
}

/** The name of the one axis of the mesh that all stages share. */
const COMMON_AXIS = 'rank';

/** Why stages cannot have these meshes, in words; null where they can. */
export function stageMeshesProblem(stages: readonly AxisSizes[]): string | null {
  const devices = stages.map((axes) => rankAxes(axes).reduce((product, [, size]) => product * size, 1));
  const other = devices.findIndex((count) => count !== devices[0]);
  if (other > 0) return `stage 0 has ${devices[0]} devices, stage ${other} has ${devices[other]}`;
  const ends = stages.map(endsOf);
  for (const [second, own] of ends.entries())
    for (const [first, before] of ends.slice(0, second).entries())
      for (const a of before)
        for (const b of own)
          if (a % b !== 0 && b % a !== 0)
            return (
              `stage ${first} (${sizesText(stages[first])}) has ${a} groups of ranks where stage ${second} ` +
              `(${sizesText(stages[second])}) has ${b}, and neither divides the other`
            );
  return null;
}

/**
 * The meshes of stages. All have `common`'s sub-axes, in its order; equal ones are one object.
 * @throws Error (internal error) where `stageMeshesProblem` reports a problem; AutoparError `bad-devices` as makeMesh
 */
export function stageMeshes(stages: readonly AxisSizes[]): StageMeshes {
  const problem = stageMeshesProblem(stages);
  if (problem !== null) throw new Error(problem);
  const ends = [...new Set(stages.flatMap(endsOf))].sort((a, b) => a - b);
  // Primes of each part between two ends, largest first as in any axis.
  const sizes = ends.flatMap((end, index) =>
    (makeMesh([[COMMON_AXIS, end / (ends[index - 1] ?? 1)]]).axes[0] as MeshAxis).subAxes.map(({ size }) => size),
  );
  const subAxes = sizes.map((size, index) => ({
    name: sizes.length === 1 ? COMMON_AXIS : (`${COMMON_AXIS}.${index}` as SubAxis),
    size,
  }));
  const known = new Map<string, Mesh>();
  const meshes = stages.map((axes) => madeOnce(known, JSON.stringify(axes), () => grouped(axes, subAxes)));
  return { common: commonMesh(subAxes), stages: meshes };
}

/** The mesh whose axes all stages have: theirs where they are equal, else all of their sub-axes as one. */
export function sharedMesh(stages: readonly Mesh[]): Mesh {
  const [first = { axes: [] }] = stages;
  return stages.every((mesh) => axisSizes(mesh).join() === axisSizes(first).join())
    ? first
    : commonMesh(subAxesIn(first));
}

function commonMesh(subAxes: MeshAxis['subAxes']): Mesh {
  return { axes: [{ name: COMMON_AXIS, size: subAxes.reduce((product, { size }) => product * size, 1), subAxes }] };
}

/** The name of a sub-axis in a mesh of its own: of the axis to which this mesh groups it, `tp` or `tp.0`. */
export function nameOn({ axes }: Mesh, subAxis: SubAxis): string {
  for (const { name, subAxes } of axes) {
    const index = subAxes.findIndex((sub) => sub.name === subAxis);
    if (index >= 0) return subAxes.length === 1 ? name : `${name}.${index}`;
  }
  return subAxis;
}

/** The names of sub-axes in a mesh of its own; an axis with all of them in order is one name. */
export function namesOn(mesh: Mesh, axes: readonly SubAxis[]): readonly string[] {
  return shortNames(axes, mesh).map((name) => nameOn(mesh, name));
}

/** An axis as text: `dp 2 · tp 2`; axes of one rank are left out where there are others. */
export function sizesText(axes: AxisSizes = []): string {
  const used = axes.filter(([, size]) => size > 1);
  return (used.length > 0 ? used : axes.slice(0, 1)).map(([axis, size]) => `${axis} ${size}`).join(' · ');
}

/** Products of the outermost axes: numbers of equal runs of ranks that the axes up to each one make. */
function endsOf(axes: AxisSizes): readonly number[] {
  let product = 1;
  return rankAxes(axes).map(([, size]) => {
    product *= size;
    return product;
  });
}

function grouped(axes: AxisSizes, subAxes: MeshAxis['subAxes']): Mesh {
  let next = 0;
  const mesh = {
    axes: rankAxes(axes).map(([name, size]) => {
      const from = next;
      for (let product = 1; product < size; next++) product *= subAxes[next]?.size ?? size;
      return { name, size, subAxes: subAxes.slice(from, next) };
    }),
  };
  return withExperts(mesh, axes.find(([axis]) => axis === EXPERTS)?.[1] ?? 1);
}

/** A mesh's axes as sizes, by which `stageMeshes` groups sub-axes. */
export function axisSizes(mesh: Mesh): AxisSizes {
  const experts = axesSize(mesh, mesh.experts ?? []);
  const ranks = mesh.axes.map(({ name, size }) => [name, size] as const);
  return experts > 1 ? [...ranks, [EXPERTS, experts]] : ranks;
}

/** The axes of ranks: without the experts, which are sharded over some of them. */
export function rankAxes(axes: AxisSizes): AxisSizes {
  return axes.filter(([axis]) => axis !== EXPERTS);
}
