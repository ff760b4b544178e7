/**
 * @file Which sub-meshes can follow one another: positions in the order of devices, and the moves from each. A stage on n
 * devices moves n on. Within a group of alike devices only counts matter: sub-meshes of powers of two and of whole nodes
 * whose sizes add up can always be placed (Zheng et al. 2022, appendix A).
 */
import type { StageProblem } from './problem.js';

export interface Move {
  readonly subMesh: number;
  readonly to: number;
}

export interface CutSpace {
  /** Moves from each position; the pipeline begins at 0. */
  readonly moves: readonly (readonly Move[])[];
  /** Whether the last stage may end at a position. */
  readonly mayEnd: readonly boolean[];
  /** Whether every pipeline that ends at a position is of devices counted by it: position = devices used. */
  readonly counted: boolean;
  readonly idleDevices: boolean;
  /** Stages that are pinned. */
  readonly stages: number | undefined;
  /** No cut has more stages than these; any number if left out. */
  readonly mostStages?: number;
  /** Where a stage that begins at a layer must end, where ends are pinned. */
  readonly endOf: readonly (number | undefined)[] | undefined;
}

/** Positions are devices used; stages lie within groups. */
export function deviceSpace(problem: StageProblem): CutSpace {
  const { groups, subMeshes, idleDevices = false, pins = {} } = problem;
  const starts = [0];
  for (const { devices } of groups) starts.push((starts.at(-1) as number) + devices);
  const all = starts.at(-1) as number;
  const from = (position: number): readonly Move[] =>
    subMeshes.flatMap(({ group, devices }, subMesh) => {
      const start = starts[group] as number;
      const at = Math.max(position, start);
      if (at !== position && !idleDevices) return [];
      return at + devices <= start + (groups[group]?.devices ?? 0) ? [{ subMesh, to: at + devices }] : [];
    });
  return {
    moves: Array.from({ length: all + 1 }, (_, position) => from(position)),
    mayEnd: Array.from({ length: all + 1 }, (_, position) => idleDevices || position === all),
    counted: true,
    idleDevices,
    ...pinned(problem, pins.stages ?? pins.ends?.length),
  };
}

/** Positions are stages; the sub-mesh of each is given. */
export function sequenceSpace(problem: StageProblem, subMeshes: readonly number[]): CutSpace {
  return {
    moves: [...subMeshes.map((subMesh, stage) => [{ subMesh, to: stage + 1 }]), []],
    mayEnd: [...subMeshes.map(() => false), true],
    counted: false,
    idleDevices: false,
    ...pinned(problem, subMeshes.length),
  };
}

function pinned({ layers, pins = {} }: StageProblem, stages: number | undefined): Pick<CutSpace, 'stages' | 'endOf'> {
  const { ends } = pins;
  if (!ends) return { stages, endOf: undefined };
  const endOf = layers.map((_, layer) => {
    const before = [0, ...ends].indexOf(layer);
    return before < 0 ? undefined : ends[before];
  });
  return { stages, endOf };
}
