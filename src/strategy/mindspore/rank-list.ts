/**
 * @file Ranks whose files a rank needs when a checkpoint is resharded: MindSpore's rank_list_for_transform.
 *
 *     from dp 2 · tp 2, w [-, tp]      ranks hold  0 | 1 | 0 | 1   (halves of w)
 *     to   tp 4,        w [-, tp]      rank 1 holds the second quarter, so it needs half 0: from rank 0
 *
 * Several ranks may hold the same shard: the nearest in the mesh is taken, which shares the longest run of coordinates.
 */
import { AutoparError, badOption } from '../../ir/error.js';
import {
  type DeviceLayout,
  type MindSporeStrategy,
  type ParameterLayout,
  parameterOf,
  stageDevices,
} from './document.js';

/** A checkpoint with its file's name; null is one that is not sharded: every rank, or rank 0 alone, holds all. */
export type ShardedCheckpoint = { readonly document: MindSporeStrategy; readonly file: string } | null;

/**
 * Ranks whose files hold the shards that `rank` needs, ascending.
 * @throws AutoparError `strategy-mismatch` (input) where device matrices differ within a file or the two have no parameter
 *   in common; `bad-option` (usage) for a rank that the target does not have
 */
export function rankListForTransform(from: ShardedCheckpoint, to: ShardedCheckpoint, rank: number): readonly number[] {
  const target = to ? layoutsByStage(to) : null;
  const stage = target ? Math.floor(rank / target.devices) : 0;
  if (target && stage >= target.stages) {
    const ranks = target.devices * target.stages;
    throw badOption(`--rank ${rank}: the target has ${ranks} ranks, counted from 0`);
  }
  if (!from) return [0];
  const source = layoutsByStage(from);
  const needed = new Set<number>();
  /** Layouts already handled: parameters that are sharded alike need the same ranks. */
  const done = new Set<string>();
  let common = 0;
  for (const [parameter, places] of source.parameters) {
    const wanted = target ? target.parameters.get(parameter)?.find((place) => place.stage === stage) : null;
    if (wanted === undefined) continue;
    const place = places.find((candidate) => candidate.stage === stage) ?? places[0];
    if (!place) continue;
    common++;
    const layout = withOptimizerShards(place.layout, parameter, from.file);
    const own = wanted && withOptimizerShards(wanted.layout, parameter, to?.file ?? '');
    const asked = JSON.stringify([
      place.stage,
      layout.deviceMatrix,
      layout.tensorMap,
      own?.deviceMatrix,
      own?.tensorMap,
    ]);
    if (done.has(asked)) continue;
    done.add(asked);
    for (const holder of holdersOf(
      layout,
      own && { layout: own, rank: rank % (target?.devices ?? 1) },
      rank % source.devices,
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

interface StagedLayout {
  readonly stage: number;
  readonly layout: ParameterLayout;
}

interface ByStage {
  /** Devices of one stage. */
  readonly devices: number;
  readonly stages: number;
  readonly parameters: ReadonlyMap<string, readonly StagedLayout[]>;
}

function layoutsByStage({ document, file }: NonNullable<ShardedCheckpoint>): ByStage {
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
  const parameters = new Map<string, StagedLayout[]>();
  let stages = 1;
  for (const [name, layout] of document.parameters) {
    const { stage, parameter } = parameterOf(name);
    stages = Math.max(stages, (stage ?? 0) + 1);
    parameters.set(parameter, [...(parameters.get(parameter) ?? []), { stage: stage ?? 0, layout }]);
  }
  return { devices, stages, parameters };
}

/**
 * The nearest holder of every shard that overlaps the target's; without a target, of every shard. The work is one step per
 * holder found, whatever the number of devices.
 */
function* holdersOf(
  { deviceMatrix, tensorMap }: DeviceLayout,
  wanted: { readonly layout: DeviceLayout; readonly rank: number } | null,
  near: number,
): Generator<number> {
  const box = wanted && boxOf(wanted.layout, wanted.rank);
  const home = coordinatesOf(deviceMatrix, near);
  const last = deviceMatrix.length - 1;
  /** Holders of shards whose dimensions before `dimension` are chosen: `fixed` has the coordinates of their axes. */
  function* from(dimension: number, fixed: readonly (number | null)[]): Generator<number> {
    const axes = tensorMap[dimension]?.filter((axis) => axis !== -1).map((axis) => last - axis);
    if (!axes) {
      yield nearest(deviceMatrix, fixed, home);
      return;
    }
    const sizes = axes.map((axis) => deviceMatrix[axis] ?? 1);
    const parts = sizes.reduce((product, size) => product * size, 1);
    const other = box?.[dimension] ?? { index: 0, parts: 1 };
    const end = Math.ceil(((other.index + 1) * parts) / other.parts);
    for (let index = Math.floor((other.index * parts) / other.parts); index < end; index++) {
      const coordinates = coordinatesOf(sizes, index);
      const next = fixed.map((before, axis) => coordinates[axes.indexOf(axis)] ?? before);
      yield* from(dimension + 1, next);
    }
  }
  yield* from(0, new Array<null>(deviceMatrix.length).fill(null));
}

/** The rank with these coordinates that shares the longest run with `home`; the first of several such ranks. */
function nearest(deviceMatrix: readonly number[], fixed: readonly (number | null)[], home: readonly number[]): number {
  const differs = fixed.findIndex((coordinate, axis) => coordinate !== null && coordinate !== home[axis]);
  return deviceMatrix.reduce((rank, size, axis) => {
    const free = differs < 0 || axis < differs ? (home[axis] ?? 0) : 0;
    return rank * size + (fixed[axis] ?? free);
  }, 0);
}

/** A rank's shard of each dimension: the index-th of `parts`. */
type RankBox = readonly { readonly index: number; readonly parts: number }[];

function boxOf({ deviceMatrix, tensorMap }: DeviceLayout, rank: number): RankBox {
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

/** Optimizer parallelism shards dimension 0 once more, over ranks that would hold the same shard. */
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
      `parameter ${parameter} has optimizer shards of step ${step} and size ${size}, which do not fit its ` +
        `${shards} parts on ${devices} devices`,
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
