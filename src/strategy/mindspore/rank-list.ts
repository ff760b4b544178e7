/**
 * @file Which ranks' files a rank needs when a checkpoint is cut anew: MindSpore's rank_list_for_transform.
 *
 *     from dp 2 · tp 2, w [-, tp]      ranks hold  0 | 1 | 0 | 1   (halves of w)
 *     to   tp 4,        w [-, tp]      rank 1 holds the second quarter, so it needs half 0: from rank 0
 *
 * Of ranks that hold the same part the one nearest in the mesh is asked: it shares the longest run of coordinates.
 */
import { AutoparError } from '../../ir/error.js';
import {
  type DeviceLayout,
  type MindSporeStrategy,
  type ParameterLayout,
  parameterOf,
  stageDevices,
} from './document.js';

/** A checkpoint with its file's name; null stands for one that is not sharded: every rank, or rank 0 alone, holds all. */
export type Sharded = { readonly document: MindSporeStrategy; readonly file: string } | null;

/**
 * Ranks whose files hold what `rank` needs, ascending.
 * @throws AutoparError `strategy-mismatch` (input) where device matrices differ within a file or the two have no parameter
 *   in common; `bad-option` (usage) for a rank that the target does not have
 */
export function rankListForTransform(from: Sharded, to: Sharded, rank: number): readonly number[] {
  const target = to ? layoutsByStage(to) : null;
  const stage = target ? Math.floor(rank / target.devices) : 0;
  if (target && stage >= target.stages) {
    const ranks = target.devices * target.stages;
    throw new AutoparError('bad-option', 'usage', `--rank ${rank}: the target has ${ranks} ranks, counted from 0`);
  }
  if (!from) return [0];
  const source = layoutsByStage(from);
  const needed = new Set<number>();
  let common = 0;
  for (const [parameter, places] of source.parameters) {
    const wanted = target ? target.parameters.get(parameter)?.find((place) => place.stage === stage) : null;
    if (wanted === undefined) continue;
    const place = places.find((candidate) => candidate.stage === stage) ?? places[0];
    if (!place) continue;
    common++;
    for (const holder of holdersOf(
      withOptimizerShards(place.layout, parameter, from.file),
      source.devices,
      wanted && {
        layout: withOptimizerShards(wanted.layout, parameter, to?.file ?? ''),
        rank: rank % (target?.devices ?? 1),
      },
      rank,
    ))
      needed.add(place.stage * source.devices + holder);
  }
  if (common === 0) {
    throw new AutoparError(
      'strategy-mismatch',
      'input',
      `the two checkpoints have no parameter in common for rank ${rank}`,
      { file: from.file },
      'give two checkpoints of one model',
    );
  }
  return [...needed].sort((a, b) => a - b);
}

interface Place {
  readonly stage: number;
  readonly layout: ParameterLayout;
}

interface ByStage {
  /** Devices of one stage. */
  readonly devices: number;
  readonly stages: number;
  readonly parameters: ReadonlyMap<string, readonly Place[]>;
}

function layoutsByStage({ document, file }: NonNullable<Sharded>): ByStage {
  const { devices, differs } = stageDevices(document);
  if (differs !== undefined || devices === null) {
    throw new AutoparError(
      'strategy-mismatch',
      'input',
      `the strategy checkpoint ${differs === undefined ? 'holds no parameters' : `contradicts itself: ${differs}`}`,
      { file },
      'give a checkpoint that was saved while training or compiling',
    );
  }
  const parameters = new Map<string, Place[]>();
  let stages = 1;
  for (const [name, layout] of document.parameters) {
    const { stage, parameter } = parameterOf(name);
    stages = Math.max(stages, (stage ?? 0) + 1);
    parameters.set(parameter, [...(parameters.get(parameter) ?? []), { stage: stage ?? 0, layout }]);
  }
  return { devices, stages, parameters };
}

/** Of every part that overlaps the target's, the nearest holder; without a target, of every part. */
function holdersOf(
  layout: DeviceLayout,
  devices: number,
  wanted: { readonly layout: DeviceLayout; readonly rank: number } | null,
  near: number,
): readonly number[] {
  const box = wanted && boxOf(wanted.layout, wanted.rank);
  const home = coordinatesOf(layout.deviceMatrix, near % devices);
  const best = new Map<string, { readonly rank: number; readonly shared: number }>();
  for (let rank = 0; rank < devices; rank++) {
    const mine = boxOf(layout, rank);
    if (box && !overlap(mine, box)) continue;
    const key = mine.map(({ index }) => index).join();
    const coordinates = coordinatesOf(layout.deviceMatrix, rank);
    const differs = coordinates.findIndex((coordinate, axis) => coordinate !== home[axis]);
    const shared = differs < 0 ? coordinates.length : differs;
    const before = best.get(key);
    if (!before || shared > before.shared) best.set(key, { rank, shared });
  }
  return [...best.values()].map(({ rank }) => rank);
}

/** A rank's part of each dimension: the index-th of `parts`. */
type Box = readonly { readonly index: number; readonly parts: number }[];

function boxOf({ deviceMatrix, tensorMap }: DeviceLayout, rank: number): Box {
  const coordinates = coordinatesOf(deviceMatrix, rank);
  const last = deviceMatrix.length - 1;
  return tensorMap.map((axes) =>
    axes
      .filter((axis) => axis !== -1)
      .reduce(
        ({ index, parts }, axis) => {
          const size = deviceMatrix[last - axis] ?? 1;
          return { index: index * size + (coordinates[last - axis] ?? 0), parts: parts * size };
        },
        { index: 0, parts: 1 },
      ),
  );
}

function overlap(a: Box, b: Box): boolean {
  return a.every(({ index, parts }, dimension) => {
    const other = b[dimension] ?? { index: 0, parts: 1 };
    return index * other.parts < (other.index + 1) * parts && other.index * parts < (index + 1) * other.parts;
  });
}

function coordinatesOf(deviceMatrix: readonly number[], rank: number): readonly number[] {
  let rest = rank;
  return deviceMatrix
    .toReversed()
    .map((size) => {
      const coordinate = rest % size;
      rest = Math.floor(rest / size);
      return coordinate;
    })
    .reverse();
}

/** Optimizer parallelism cuts dimension 0 once more, over ranks that would hold the same part. */
function withOptimizerShards(layout: ParameterLayout, parameter: string, file: string): DeviceLayout {
  const { deviceMatrix, tensorMap, optimizerShardStep: step, optimizerShardSize: size } = layout;
  if (step <= 0 || size <= 1) return layout;
  const last = deviceMatrix.length - 1;
  const counts = tensorMap.map((axes) =>
    axes.reduce((product, axis) => product * (axis === -1 ? 1 : (deviceMatrix[last - axis] ?? 1)), 1),
  );
  const shards = counts.reduce((product, count) => product * count, 1);
  const devices = deviceMatrix.reduce((product, count) => product * count, 1);
  if (shards !== step || devices % (step * size) !== 0) {
    throw new AutoparError(
      'strategy-mismatch',
      'input',
      `parameter ${parameter} has optimizer shards of step ${step} and size ${size}, which do not fit its ${shards} parts on ${devices} devices`,
      { file },
      'save the checkpoint without optimizer parallelism',
    );
  }
  const rank = counts.length;
  return {
    deviceMatrix: [devices / (step * size), size, ...counts],
    tensorMap: counts.map((_, dimension) => (dimension === 0 ? [rank - 1, rank] : [rank - 1 - dimension])),
  };
}
