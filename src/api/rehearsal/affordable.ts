/**
 * @file Whether a rehearsal fits on this machine: the memory of its ranks and of one rank with the whole model, and its time.
 * Both are rough estimates: they serve to reject a model that is far too large before it is run.
 */
import { freemem } from 'node:os';
import { byteLength } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { elementCount, type Graph } from '../../ir/graph.js';
import { actionsOf } from '../../partition/placed-actions.js';
import { rankMemory } from '../../partition/rank-memory.js';
import type { Program } from '../../program/program.js';
import { deviceCount } from '../../sharding-propagation/mesh.js';
import type { SmallPlan } from './small-plan.js';

export interface RehearsalNeed {
  /** Bytes of all ranks, plus those of the model on one rank. */
  readonly bytes: number;
  readonly seconds: number;
}

export interface RehearsalLimits {
  readonly bytes: number;
  readonly seconds: number;
}

/** Bytes of a rank's thread and its sessions, without weights and tensors. */
const RANK_BYTES = 32e6;
/** The process itself. */
const PROCESS_BYTES = 150e6;
/** Runs of a reference step: the step itself, and two runs with every value off by a rounding. */
const REFERENCE_RUNS = 3;
/** Seconds of a core: to open a rank, to open and run the session of a segment, and for a FLOP. */
const RANK_SECONDS = 0.1;
const SEGMENT_SECONDS = 0.004;
const FLOP_SECONDS = 1e-9;
const PROCESS_SECONDS = 1;
/** Training steps that are compared; the program is opened again for each. */
const STEPS = 2;

export function rehearsalLimits({
  memory,
  timeLimit,
}: {
  readonly memory?: number;
  readonly timeLimit?: number;
}): RehearsalLimits {
  return { bytes: memory ?? freemem(), seconds: timeLimit ?? TIME_LIMIT };
}

const TIME_LIMIT = 600;

/** @param cores of this machine */
export function needOf({ lowered, schedule, whole }: SmallPlan, program: Program, cores: number): RehearsalNeed {
  const actions = actionsOf(lowered, schedule?.actions ?? []);
  const runs = whole.training ? STEPS : 1;
  let [bytes, seconds] = [PROCESS_BYTES + wholeBytes(whole.graph) * (whole.training ? REFERENCE_RUNS : 1), 0];
  for (const [stage, { sharded }] of lowered.entries()) {
    const ranks = deviceCount(sharded.mesh);
    const flops = sharded.nodes.reduce((sum, node) => sum + (node.kind === 'compute' ? node.flops : 0), 0);
    bytes += ranks * (RANK_BYTES + rankMemory(sharded, actions[stage]).peakBytes);
    const own = RANK_SECONDS + segmentsOf(program, stage) * SEGMENT_SECONDS + flops * FLOP_SECONDS * REFERENCE_RUNS;
    seconds += (ranks * own * runs) / cores;
  }
  return { bytes, seconds: PROCESS_SECONDS + seconds };
}

function segmentsOf({ stages }: Program, stage: number): number {
  return Object.keys(stages[stage]?.segments ?? {}).length;
}

function wholeBytes({ tensors }: Graph): number {
  return [...tensors.values()].reduce((sum, { dtype, shape }) => sum + byteLength(dtype, elementCount(shape)), 0);
}

/** @throws AutoparError (noPlan) `rehearsal-too-large` where the rehearsal needs more than there is */
export function refuseUnaffordable(need: RehearsalNeed, limits: RehearsalLimits): void {
  const size = (bytes: number) => `${(bytes / 1e9).toPrecision(3)} GB`;
  if (need.bytes > limits.bytes)
    throw tooLarge(`it takes ${size(need.bytes)} of memory, more than the limit of ${size(limits.bytes)}`, '--memory');
  if (need.seconds > limits.seconds)
    throw tooLarge(
      `it takes about ${need.seconds.toPrecision(2)} s, more than the limit of ${limits.seconds} s`,
      '--time-limit',
    );
}

function tooLarge(reason: string, option: string): AutoparError {
  return new AutoparError(
    'rehearsal-too-large',
    'noPlan',
    `the rehearsal does not fit on this machine: ${reason}`,
    {},
    `give more with ${option}, or fewer --ranks; widths of a model file are fixed, those of --model FAMILY shrink`,
  );
}

/** The error of a rehearsal that ran out of time. */
export function rehearsalOutOfTime({ seconds }: RehearsalLimits, doing: string): AutoparError {
  return new AutoparError(
    'rehearsal-too-large',
    'noPlan',
    `the rehearsal has not ended after ${seconds} s: it was at "${doing}"`,
    {},
    'give more with --time-limit, or fewer --ranks',
  );
}
