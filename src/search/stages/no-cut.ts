/**
 * @file Why a problem has no cut at all, whatever the memory: in words, for whoever set the pins.
 */
import type { StageProblem } from './problem.js';

/** What stands against every cut; undefined where nothing is seen to. */
export function noCutReason(problem: StageProblem): string | undefined {
  return REASONS.map((reason) => reason(problem)).find((words) => words !== undefined);
}

const REASONS: readonly ((problem: StageProblem) => string | undefined)[] = [
  ({ layers }) => (layers.length === 0 ? 'there are no layers' : undefined),
  ({ schedule: { microBatches } }) =>
    Number.isInteger(microBatches) && microBatches >= 1 ? undefined : `${microBatches} is no number of micro-batches`,
  ({ schedule: { kind, virtualStages = 1 } }) => {
    if (kind === 'interleaved-1f1b') {
      return Number.isInteger(virtualStages) && virtualStages >= 2
        ? undefined
        : 'schedule interleaved-1f1b takes 2 virtual stages or more';
    }
    return virtualStages === 1 ? undefined : `schedule ${kind} runs one chunk per stage, not ${virtualStages}`;
  },
  ({ layers, tables }) => {
    const nowhere = layers.findIndex((layerClass) => !tables[layerClass]?.some((points) => points.length > 0));
    return nowhere < 0 ? undefined : `layer ${nowhere} runs on none of the sub-meshes`;
  },
  ({ layers, pins: { stages } = {} }) => {
    if (stages === undefined) return undefined;
    if (!Number.isInteger(stages) || stages < 1) return `${stages} is no number of stages`;
    return stages > layers.length ? `${layers.length} layers do not fill ${stages} stages` : undefined;
  },
  (problem) => {
    const { ends } = problem.pins ?? {};
    if (!ends) return undefined;
    const count = problem.layers.length;
    const rising = ends.every((end, index) => Number.isInteger(end) && end > (ends[index - 1] ?? 0));
    if (!rising || ends.at(-1) !== count)
      return `the ends ${ends.join(', ')} do not rise to ${count}, the number of layers`;
    return disagreement(problem, ends.length, `${ends.length} ends`);
  },
  (problem) => {
    const { subMeshes } = problem.pins ?? {};
    if (!subMeshes) return undefined;
    const unknown = subMeshes.find((subMesh) => problem.subMeshes[subMesh] === undefined);
    if (unknown !== undefined) return `there is no sub-mesh ${unknown}`;
    const { virtualStages = 1 } = problem.schedule;
    return (
      disagreement(problem, subMeshes.length * virtualStages, `${subMeshes.length} sub-meshes`) ??
      unplaced(problem, subMeshes)
    );
  },
  ({ schedule: { kind, microBatches }, pins: { stages, subMeshes } = {} }) => {
    const count = stages ?? subMeshes?.length;
    if (kind !== 'interleaved-1f1b' || count === undefined || microBatches % count === 0) return undefined;
    return (
      `schedule interleaved-1f1b takes micro-batches in groups as large as its ${count} stages, and ` +
      `${microBatches} is no multiple of ${count}`
    );
  },
];

/** Where pins ask for different numbers of stages. */
function disagreement(
  { pins: { stages, ends } = {}, schedule: { virtualStages = 1 } }: StageProblem,
  parts: number,
  what: string,
) {
  if (stages !== undefined && stages * virtualStages !== parts) return `${what} are pinned, and ${stages} stages`;
  return ends !== undefined && ends.length !== parts ? `${what} are pinned, and ${ends.length} ends` : undefined;
}

/** Where pinned sub-meshes do not follow one another through the groups of devices. */
function unplaced(
  { groups, subMeshes, idleDevices = false }: StageProblem,
  pinned: readonly number[],
): string | undefined {
  let group = 0;
  let used = 0;
  const full = () => idleDevices || used === (groups[group]?.devices ?? 0);
  for (const [stage, subMesh] of pinned.entries()) {
    const mesh = subMeshes[subMesh];
    if (!mesh) return `there is no sub-mesh ${subMesh}`;
    while (group < mesh.group && full()) {
      group++;
      used = 0;
    }
    used += mesh.devices;
    if (mesh.group !== group || used > (groups[group]?.devices ?? 0)) {
      return (
        `the sub-mesh pinned for stage ${stage} (${mesh.name}) does not follow those before it in group ` +
        `${groups[group]?.name}`
      );
    }
  }
  while (group < groups.length - 1 && full()) {
    group++;
    used = 0;
  }
  return full() ? undefined : `the pinned sub-meshes leave devices of group ${groups[group]?.name} idle`;
}

/** What to say where the search finds that no sub-meshes and layers go together. */
export function nothingGoes({ layers, groups, subMeshes, pins: { stages } = {}, schedule }: StageProblem): string {
  const devices = groups.reduce((sum, group) => sum + group.devices, 0);
  const chunks = schedule.kind === 'interleaved-1f1b' ? ` of ${schedule.virtualStages ?? 1} chunks` : '';
  const count = stages === undefined ? 'any number of stages' : `${stages} stages`;
  return (
    `no sub-meshes (${subMeshes.map(({ name }) => name).join(', ')}) cover ${devices} devices with ` +
    `${layers.length} layers in ${count}${chunks}`
  );
}
