/**
 * @file Where nothing fits: the cut whose worst stage lacks least, found by the same search with bytes in the place of
 * seconds, and what that stage lacks.
 */
import type { CutStage } from './cut.js';
import { CutSearch } from './cut-search.js';
import { type CutSpace, deviceSpace, sequenceSpace } from './device-space.js';
import { stageSequences } from './interleaved.js';
import { onceCosts } from './once-costs.js';
import type { StageProblem } from './problem.js';
import { heldMicroBatches, scheduleWeights } from './schedule-weights.js';
import { pointsAt, type StageCosts, type StageOptions } from './stage-costs.js';
import { sweep } from './sweep.js';

/** The stage that lacks most in the cut whose worst stage lacks least. */
export interface TooLarge {
  readonly kind: 'too-large';
  readonly stage: number;
  readonly stages: number;
  /** Its layers; of interleaved 1F1B those of the chunk that holds most. */
  readonly first: number;
  readonly end: number;
  readonly subMesh: number;
  readonly inFlight: number;
  /** At the least, whatever is recomputed; of interleaved 1F1B of that chunk, against its share of the device. */
  readonly needBytes: number;
  readonly limitBytes: number;
}

/** What lacks least; undefined where no cut exists whatever the memory. */
export function shortageOf(problem: StageProblem): TooLarge | undefined {
  const { schedule, layers, pins = {} } = problem;
  const { kind, virtualStages = 1 } = schedule;
  if (kind === 'interleaved-1f1b') {
    const share = problem.subMeshes.map((mesh) => ({ ...mesh, memoryBytes: mesh.memoryBytes / virtualStages }));
    const found = stageSequences(problem).flatMap((sequence) => {
      const parts = Array.from({ length: virtualStages }, () => sequence).flat();
      const shared = { ...problem, subMeshes: share };
      // 1F1B's, and (p − 1)/v more, over all chunks alike.
      const ahead = (sequence.length - 1) / virtualStages;
      const inFlight = (remaining: number) =>
        Math.min(schedule.microBatches, ((remaining - 1) % sequence.length) + 1 + ahead);
      const lacking = lackingLeast(shared, sequenceSpace(shared, parts), inFlight);
      return lacking ? [{ ...lacking, stage: lacking.stage % sequence.length, stages: sequence.length }] : [];
    });
    return leastShort(found);
  }
  const space = pins.subMeshes ? sequenceSpace(problem, pins.subMeshes) : deviceSpace(problem);
  const counts =
    space.stages === undefined && kind === 'zero-bubble' ? layers.map((_, index) => index + 1) : [space.stages];
  const found = counts.flatMap((stages) => {
    const held = (remaining: number) => heldMicroBatches(schedule, remaining, stages ?? remaining);
    return lackingLeast(problem, { ...space, stages }, held) ?? [];
  });
  return leastShort(found);
}

function leastShort(found: readonly TooLarge[]): TooLarge | undefined {
  const lacks = ({ needBytes, limitBytes }: TooLarge) => needBytes - limitBytes;
  return [...found].sort((a, b) => lacks(a) - lacks(b))[0];
}

function lackingLeast(
  problem: StageProblem,
  space: CutSpace,
  inFlight: (remaining: number) => number,
): TooLarge | undefined {
  const least = leastBytes(problem);
  const weights = scheduleWeights({ ...problem.schedule, kind: '1f1b' });
  // Only bytes count: what crosses a cut takes no time.
  const search = new CutSearch({ ...problem, tensors: [] }, shortageCosts(problem, least), space, {
    weights,
    inFlight,
  });
  const [cut] = sweep(search, 0).cuts;
  if (!cut) return undefined;
  const figures = cut.stages.map((stage: CutStage, index): TooLarge => {
    const { first, end, subMesh } = stage;
    const held = inFlight(cut.stages.length - index);
    return {
      kind: 'too-large',
      stage: index,
      stages: cut.stages.length,
      first,
      end,
      subMesh,
      inFlight: held,
      needBytes: least(subMesh, first, end, held),
      limitBytes: problem.subMeshes[subMesh]?.memoryBytes ?? 0,
    };
  });
  return figures.reduce((worst, figure) =>
    figure.needBytes - figure.limitBytes > worst.needBytes - worst.limitBytes ? figure : worst,
  );
}

/** Costs as the search reads them. Pace: the bytes that a stage lacks at the least; fill: none. */
function shortageCosts(problem: StageProblem, least: LeastBytes): StageCosts {
  const layers = problem.layers.length;
  const width = layers + 1;
  const meshes = problem.subMeshes.map((_, index) => index);
  const table = (runs: number, otherwise: number) =>
    meshes.map((subMesh) => {
      const values = new Float64Array(layers * width).fill(otherwise);
      for (let first = 0; first < layers; first++) {
        for (let end = first + 1; end <= layers; end++) {
          if (pointsAt(problem, problem.layers[end - 1] as number, subMesh).length === 0) break;
          values[first * width + end] = runs;
        }
      }
      return values;
    });
  const nothing = table(0, Number.POSITIVE_INFINITY);
  return {
    layers,
    subMeshes: meshes.length,
    fill: nothing,
    pace: nothing,
    leastPace: nothing,
    freeUpTo: table(-1, -1),
    fitsUpTo: table(Number.POSITIVE_INFINITY, -1),
    options: (subMesh, first, end, inFlight): StageOptions => {
      const limit = problem.subMeshes[subMesh]?.memoryBytes ?? 0;
      const lacking = Math.max(0, least(subMesh, first, end, inFlight) - limit);
      return { fill: Float64Array.of(0), pace: Float64Array.of(lacking), slack: 1 };
    },
  };
}

type LeastBytes = (subMesh: number, first: number, end: number, inFlight: number) => number;

/**
 * Least bytes of a stage, whatever it takes in time: for each ceiling on transient bytes every layer takes the point that
 * holds least under it.
 */
function leastBytes(problem: StageProblem): LeastBytes {
  const once = onceCosts(problem);
  /** By sub-mesh and micro-batches in flight: ceilings, and for each class the least held under each. */
  const known = new Map<string, { readonly ceilings: readonly number[]; readonly held: readonly Float64Array[] }>();
  const tableOf = (subMesh: number, inFlight: number) => {
    const key = `${subMesh} ${inFlight}`;
    const found = known.get(key);
    if (found) return found;
    const classes = problem.tables.map((_, layerClass) => pointsAt(problem, layerClass, subMesh));
    const ceilings = [...new Set(classes.flat().map(({ transientBytes }) => transientBytes))];
    const held = classes.map((points) =>
      Float64Array.from(ceilings, (ceiling) =>
        points
          .filter(({ transientBytes }) => transientBytes <= ceiling)
          .reduce((bytes, point) => Math.min(bytes, point.residentBytes + inFlight * point.savedBytes), Infinity),
      ),
    );
    const made = { ceilings, held };
    known.set(key, made);
    return made;
  };
  return (subMesh, first, end, inFlight) => {
    const { ceilings, held } = tableOf(subMesh, inFlight);
    const { residentBytes, savedBytes, transientBytes } = once.of(subMesh, first, end);
    return ceilings.reduce((bytes, ceiling, index) => {
      let sum = residentBytes + inFlight * savedBytes + Math.max(ceiling, transientBytes);
      for (let layer = first; layer < end; layer++) sum += held[problem.layers[layer] as number]?.[index] as number;
      return Math.min(bytes, sum);
    }, Infinity);
  };
}
