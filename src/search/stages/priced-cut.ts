/**
 * @file A cut with its figures: what each stage runs, takes and holds; the step by the closed form and by simulation.
 */
import { makeSchedule } from '../../schedule/make-schedule.js';
import { simulate } from '../../schedule/simulate.js';
import type { Cut, CutStage } from './cut.js';
import { sendSeconds } from './cut-search.js';
import { onceCosts } from './once-costs.js';
import type { StageProblem } from './problem.js';
import { heldMicroBatches, scheduleWeights } from './schedule-weights.js';
import { pointsAt, type StageTables, secondsOf } from './stage-costs.js';

/** Layers side by side on one stage: all of it, or one of its chunks (interleaved 1F1B). */
export interface PricedChunk {
  readonly first: number;
  /** The layer after its last. */
  readonly end: number;
  /** For each layer the number of its point in the problem's table. */
  readonly points: readonly number[];
  /** Seconds of one micro-batch. */
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  readonly weightGradientSeconds: number;
  /** Seconds once per step. */
  readonly stepSeconds: number;
  readonly residentBytes: number;
  /** Of one micro-batch. */
  readonly savedBytes: number;
  readonly transientBytes: number;
}

export interface PricedStage {
  readonly subMesh: number;
  readonly chunks: readonly PricedChunk[];
  /** Micro-batches (of the whole stage) whose saved bytes are held at once. */
  readonly inFlight: number;
  /** Held at the peak, of the device's `limitBytes`. */
  readonly peakBytes: number;
  readonly limitBytes: number;
}

export interface PricedCut {
  readonly stages: readonly PricedStage[];
  /** Σ fill + max pace: Σ t + (m − 1) · max t for 1F1B. */
  readonly closedFormSeconds: number;
  /** By event simulation; undefined where nothing was simulated. */
  readonly simulatedSeconds: number | undefined;
  /** Seconds that results travel over each cut between stages (of interleaved: chunks), in order. */
  readonly sends: readonly { readonly forwardSeconds: number; readonly backwardSeconds: number }[];
}

/** Priced cuts, with what is proven about them. */
export interface FoundCuts {
  readonly cuts: readonly PricedCut[];
  readonly bound: number;
  readonly finished: boolean;
  /** Table entries looked at. */
  readonly work: number;
}

/** Actions of a schedule up to which it is simulated: about a second. */
const MOST_ACTIONS = 2 ** 21;

/** The figures of a chunk of a cut. */
export function chunkOf(problem: StageProblem, tables: StageTables, part: CutStage): PricedChunk {
  const { first, end, subMesh } = part;
  const points = tables.pointsOfPart(part);
  const rows = points.map((point, index) => pointsAt(problem, problem.layers[first + index] as number, subMesh)[point]);
  const once = onceCosts(problem).of(subMesh, first, end);
  const sum = (start: number, of: (row: NonNullable<(typeof rows)[number]>) => number) =>
    rows.reduce((total, row) => total + (row ? of(row) : 0), 0) + start;
  return {
    first,
    end,
    points,
    forwardSeconds: sum(once.seconds.forward, (row) => row.forwardSeconds),
    backwardSeconds: sum(once.seconds.backward, (row) => row.backwardSeconds),
    weightGradientSeconds: sum(0, (row) => row.weightGradientSeconds ?? 0),
    stepSeconds: sum(once.seconds.step, (row) => row.stepSeconds ?? 0),
    residentBytes: sum(once.residentBytes, (row) => row.residentBytes),
    savedBytes: sum(once.savedBytes, (row) => row.savedBytes),
    transientBytes: Math.max(once.transientBytes, ...rows.map((row) => row?.transientBytes ?? 0)),
  };
}

/** A cut whose stages are one chunk each. */
export function pricedCut(problem: StageProblem, tables: StageTables, cut: Cut): PricedCut {
  const stages = cut.stages.map((part, index): PricedStage => {
    const chunk = chunkOf(problem, tables, part);
    const inFlight = heldMicroBatches(problem.schedule, cut.stages.length - index, cut.stages.length);
    return {
      subMesh: part.subMesh,
      chunks: [chunk],
      inFlight,
      peakBytes: chunk.residentBytes + inFlight * chunk.savedBytes + chunk.transientBytes,
      limitBytes: problem.subMeshes[part.subMesh]?.memoryBytes ?? 0,
    };
  });
  return {
    stages,
    closedFormSeconds: cut.fill + cut.pace,
    simulatedSeconds: undefined,
    sends: sendsOf(problem, cut.stages),
  };
}

/**
 * Σ fill + max pace of a cut of one chunk per stage, from its figures. Zero-bubble's fill is taken layer by layer, as the search
 * takes it: a layer's own weight gradients fill its own share of the bubble.
 */
export function closedForm(problem: StageProblem, { stages, sends }: PricedCut): number {
  const { fill, pace, sendFill, sendPace } = scheduleWeights(problem.schedule, stages.length);
  const exposed = problem.transfers !== 'overlapped';
  const each = stages.map(({ subMesh, chunks: [chunk] }, index) => {
    if (!chunk) return { fill: 0, pace: 0 };
    const { first, end, points } = chunk;
    const rows = points.flatMap(
      (point, at) => pointsAt(problem, problem.layers[first + at] as number, subMesh)[point] ?? [],
    );
    const seconds = [...rows.map(secondsOf), onceCosts(problem).of(subMesh, first, end).seconds];
    const sent = exposed ? (sends[index]?.forwardSeconds ?? 0) + (sends[index - 1]?.backwardSeconds ?? 0) : 0;
    return {
      fill: seconds.reduce((sum, part) => sum + fill(part), 0) + sendFill * sent,
      pace: seconds.reduce((sum, part) => sum + pace(part), 0) + sendPace * sent,
    };
  });
  const wires = exposed ? [] : sends;
  return (
    each.reduce((sum, stage) => sum + stage.fill, 0) +
    wires.reduce((sum, wire) => sum + sendFill * (wire.forwardSeconds + wire.backwardSeconds), 0) +
    Math.max(
      ...each.map((stage) => stage.pace),
      ...wires.map((wire) => sendPace * Math.max(wire.forwardSeconds, wire.backwardSeconds)),
    )
  );
}

export function sendsOf(problem: StageProblem, parts: readonly CutStage[]): PricedCut['sends'] {
  const seconds = sendSeconds(problem);
  return parts.slice(1).map(({ first, subMesh }, before) => {
    const link = problem.linkOf?.(parts[before]?.subMesh ?? 0, subMesh) ?? 0;
    return {
      forwardSeconds: seconds[link]?.forward[first] ?? 0,
      backwardSeconds: seconds[link]?.backward[first] ?? 0,
    };
  });
}

/** The same cut with its simulated seconds, unless its schedule has too many actions. */
export function simulated(problem: StageProblem, cut: PricedCut): PricedCut {
  const { kind, microBatches, virtualStages = 1, training = true } = problem.schedule;
  const { stages, sends } = cut;
  if (stages.length * microBatches * virtualStages * 3 > MOST_ACTIONS) return cut;
  const schedule = makeSchedule({ kind, stages: stages.length, microBatches, virtualStages, training });
  const timeline = simulate(schedule, {
    compute: (stage, chunk, phase) => {
      const part = stages[stage]?.chunks[chunk];
      if (!part) return 0;
      const seconds = {
        forward: part.forwardSeconds,
        backward: part.backwardSeconds,
        'input-gradient': part.backwardSeconds - part.weightGradientSeconds,
        'weight-gradient': part.weightGradientSeconds,
      };
      return seconds[phase];
    },
    // Chunks share the wires between their stages: the slowest of their sends counts.
    transfer: (from, to, phase) => {
      const before = phase === 'forward' ? from : to;
      const over = sends.filter((_, cutAt) => cutAt % stages.length === before);
      const field = phase === 'forward' ? 'forwardSeconds' : 'backwardSeconds';
      return over.reduce((most, send) => Math.max(most, send[field]), 0);
    },
    sendingBlocks: problem.transfers !== 'overlapped',
  });
  const simulatedSeconds = timeline.ends.reduce((latest, ends, stage) => {
    const after = stages[stage]?.chunks.reduce((sum, { stepSeconds }) => sum + stepSeconds, 0) ?? 0;
    return Math.max(latest, (ends.at(-1) ?? 0) + after);
  }, 0);
  return { ...cut, simulatedSeconds };
}
