/**
 * @file Cuts for interleaved 1F1B: stage s of p holds chunks s, s + p, … of p · v, so the chunks' sub-meshes repeat, and the
 * chunks of a stage share its memory. Each chunk is held to the pace of the slowest:
 *
 *     T = Σ over chunks of t + (m·v + p − 1 − p·v) · max t
 *
 * First each chunk is charged as if it had the device to itself: nothing can be faster, and where the stages of that cut fit
 * it is the optimum. Else chunks get shares of the memory, and the gap to that bound is said.
 */
import { inFlight } from '../../schedule/check.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import type { Schedule } from '../../schedule/schedule.js';
import type { Cut } from './cut.js';
import { CutSearch } from './cut-search.js';
import { sequenceSpace } from './device-space.js';
import { chunkOf, type FoundCuts, type PricedCut, type PricedStage, sendsOf } from './priced-cut.js';
import type { StageProblem } from './problem.js';
import { scheduleWeights } from './schedule-weights.js';
import { StageTables } from './stage-costs.js';
import { type SweepOptions, sweep } from './sweep.js';

/** Shares of a device's memory that each of v chunks may take, in parts of 1/v. */
const SHARES = [1.4, 1.2, 1.1, 1.05, 1, 0.95, 0.9, 0.85, 0.8];

export function interleavedCuts(problem: StageProblem, options: SweepOptions): FoundCuts {
  const found: FoundCuts[] = [];
  let below = Number.POSITIVE_INFINITY;
  let work = 0;
  for (const sequence of stageSequences(problem)) {
    const left = (options.work ?? Number.POSITIVE_INFINITY) - work;
    const cuts = cutsAlong(problem, sequence, { ...options, below, work: left });
    found.push(cuts);
    work += cuts.work;
    below = Math.min(below, ...cuts.cuts.map(({ closedFormSeconds }) => closedFormSeconds));
  }
  return {
    cuts: found.flatMap(({ cuts }) => cuts).sort((a, b) => a.closedFormSeconds - b.closedFormSeconds),
    bound: Math.min(Number.POSITIVE_INFINITY, ...found.map(({ bound }) => bound)),
    finished: found.every(({ finished }) => finished),
    work,
  };
}

/** Sub-meshes of the stages: in each group alike ones that fill it; micro-batches must be a multiple of the stages. */
export function stageSequences(problem: StageProblem): readonly (readonly number[])[] {
  const { groups, subMeshes, pins = {}, schedule, layers } = problem;
  const { microBatches, virtualStages = 1 } = schedule;
  const perGroup = groups.map((group, index) =>
    subMeshes.flatMap((mesh, subMesh) =>
      mesh.group === index && group.devices % mesh.devices === 0
        ? [Array.from({ length: group.devices / mesh.devices }, () => subMesh)]
        : [],
    ),
  );
  const filling = perGroup.reduce<readonly (readonly number[])[]>(
    (before, ways) => before.flatMap((start) => ways.map((way) => [...start, ...way])),
    [[]],
  );
  const sequences = pins.subMeshes ? [pins.subMeshes] : filling;
  return sequences.filter(
    ({ length }) =>
      (pins.stages ?? length) === length && microBatches % length === 0 && length * virtualStages <= layers.length,
  );
}

/** A problem and its schedule along one sequence of sub-meshes. */
interface Along {
  readonly problem: StageProblem;
  readonly sequence: readonly number[];
  readonly parts: readonly number[];
  readonly held: readonly StageHeld[];
}

function cutsAlong(problem: StageProblem, sequence: readonly number[], options: SweepOptions): FoundCuts {
  const stages = sequence.length;
  const { microBatches, virtualStages = 1, training = true } = problem.schedule;
  const schedule = makeSchedule({ kind: 'interleaved-1f1b', stages, microBatches, virtualStages, training });
  const along: Along = {
    problem,
    sequence,
    parts: Array.from({ length: stages * virtualStages }, (_, part) => sequence[part % stages] as number),
    held: schedule.actions.map((_, stage) => heldByChunk(schedule, stage)),
  };
  const alone = sweepWith(along, 1, options);
  const fitting = alone.cuts.filter(fits);
  const best = fitting[0]?.closedFormSeconds ?? Number.POSITIVE_INFINITY;
  if (alone.cuts.length === 0 || best <= alone.bound) return { ...alone, cuts: fitting };
  const shared = SHARES.map((share) => sweepWith(along, share / virtualStages, options));
  return {
    cuts: [...fitting, ...shared.flatMap(({ cuts }) => cuts.filter(fits))],
    bound: alone.bound,
    finished: alone.finished,
    work: shared.reduce((sum, { work }) => sum + work, alone.work),
  };
}

function fits({ stages }: PricedCut): boolean {
  return stages.every(({ peakBytes, limitBytes }) => peakBytes <= limitBytes);
}

/** Cuts whose chunks each take at most a share of the memory. */
function sweepWith({ problem, sequence, parts, held }: Along, share: number, options: SweepOptions): FoundCuts {
  const stages = sequence.length;
  const weights = scheduleWeights(problem.schedule, stages);
  const limits = problem.subMeshes.map(({ memoryBytes }) => memoryBytes * share);
  const tables = new StageTables(problem, weights, limits);
  const search = new CutSearch(problem, tables, sequenceSpace(problem, parts), {
    weights,
    inFlight: (remaining) => {
      const part = parts.length - remaining;
      return held[part % stages]?.most[Math.floor(part / stages)] ?? 0;
    },
  });
  const { cuts, bound, finished } = sweep(search, 0, options);
  return {
    cuts: cuts.map((cut) => pricedChunks(problem, tables, sequence, held, cut)),
    bound: bound / search.slack,
    finished,
    work: search.work,
  };
}

function pricedChunks(
  problem: StageProblem,
  tables: StageTables,
  sequence: readonly number[],
  held: readonly StageHeld[],
  cut: Cut,
): PricedCut {
  const virtualStages = cut.stages.length / sequence.length;
  const stages = sequence.map((subMesh, stage): PricedStage => {
    const chunks = cut.stages.filter((_, part) => part % sequence.length === stage);
    const priced = chunks.map((part) => chunkOf(problem, tables, part));
    const { together, total } = held[stage] as StageHeld;
    const resident = priced.reduce((sum, { residentBytes }) => sum + residentBytes, 0);
    const saved = together.map((counts) =>
      priced.reduce((sum, { savedBytes }, chunk) => sum + (counts[chunk] ?? 0) * savedBytes, 0),
    );
    return {
      subMesh,
      chunks: priced,
      inFlight: total / virtualStages,
      peakBytes: resident + Math.max(0, ...saved) + Math.max(...priced.map(({ transientBytes }) => transientBytes)),
      limitBytes: problem.subMeshes[subMesh]?.memoryBytes ?? 0,
    };
  });
  return {
    stages,
    closedFormSeconds: cut.fill + cut.pace,
    simulatedSeconds: undefined,
    sends: sendsOf(problem, cut.stages),
  };
}

/** How many micro-batches of each chunk a stage holds. */
interface StageHeld {
  /** By chunk, at its own fullest. */
  readonly most: readonly number[];
  /** By chunk, at the moments of which none holds as much of every chunk as another. */
  readonly together: readonly (readonly number[])[];
  /** Chunks' micro-batches at the fullest moment. */
  readonly total: number;
}

function heldByChunk(schedule: Schedule, stage: number): StageHeld {
  const { virtualStages, training } = schedule;
  const now = new Array<number>(virtualStages).fill(0);
  const moments = new Map<string, readonly number[]>();
  for (const { chunk, phase } of schedule.actions[stage] ?? []) {
    if (!training) now.fill(0);
    now[chunk] = (now[chunk] as number) + (phase === 'forward' ? 1 : -1);
    if (phase === 'forward') moments.set(now.join(), [...now]);
  }
  const all = [...moments.values()];
  const covers = (a: readonly number[], b: readonly number[]) =>
    a !== b && a.every((count, chunk) => count >= (b[chunk] as number));
  return {
    most: now.map((_, chunk) => Math.max(...all.map((counts) => counts[chunk] as number))),
    together: all.filter((counts) => !all.some((other) => covers(other, counts))),
    total: inFlight(schedule)[stage] as number,
  };
}
