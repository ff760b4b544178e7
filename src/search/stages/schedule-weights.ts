/**
 * @file What a stage adds to a step, by schedule: seconds to the *fill* that every stage adds to, and to the *pace*, of which
 * only the largest counts. For every schedule
 *
 *     T = Σ over stages of fill + max over stages of pace
 *
 * equals its closed form where stages are alike (src/schedule/closed-form.ts). For 1F1B and F-then-B it is Alpa's
 * Σ t + (m − 1) · max t (Zheng et al. 2022, equation 2), with seconds once per step added to the pace.
 */
import type { PipelineSchedule } from '../../cost-model/step/configuration.js';
import type { StageProblem } from './problem.js';

/** Seconds of a stage, or of one layer of it, for one micro-batch; `step` once. */
export interface PhaseSeconds {
  readonly forward: number;
  readonly backward: number;
  readonly weightGradient: number;
  readonly step: number;
}

export interface ScheduleWeights {
  /** Seconds that a stage (interleaved: a chunk) adds to the fill. */
  readonly fill: (seconds: PhaseSeconds) => number;
  /** Seconds of its pace. */
  readonly pace: (seconds: PhaseSeconds) => number;
  /** Fill of each second of sending; pace of each. */
  readonly sendFill: number;
  readonly sendPace: number;
  /** Whether pace is a fixed multiple of fill but for seconds once per step. */
  readonly proportional: boolean;
}

type Schedule = StageProblem['schedule'];

/**
 * @param stages of the pipeline: interleaved 1F1B and zero-bubble depend on it, others may leave it out
 */
export function scheduleWeights(
  { kind, microBatches, virtualStages = 1, training = true }: Schedule,
  stages = 1,
): ScheduleWeights {
  const m = microBatches;
  const linear = (fill: number, pace: number, step = 1): ScheduleWeights => ({
    fill: ({ forward, backward }) => fill * (forward + (training ? backward : 0)),
    pace: (seconds) => pace * (seconds.forward + (training ? seconds.backward : 0)) + step * seconds.step,
    sendFill: fill,
    sendPace: pace,
    proportional: true,
  });
  const interleaved = linear(1, m * virtualStages + stages - 1 - stages * virtualStages, virtualStages);
  if (!training) return kind === 'interleaved-1f1b' ? interleaved : linear(1, m - 1);
  // With fewer micro-batches than stages, weight gradients cannot fill all of the bubble.
  const unfilled = stages > 1 ? Math.max(0, stages - m) / (stages - 1) : 0;
  const filled = ({ forward, backward, weightGradient }: PhaseSeconds): number => {
    const filling = Math.min(forward, backward - weightGradient, weightGradient);
    return forward + backward - weightGradient - filling + unfilled * filling;
  };
  const rules: Readonly<Record<PipelineSchedule, ScheduleWeights>> = {
    naive: linear(m, 0),
    'f-then-b': linear(1, m - 1),
    '1f1b': linear(1, m - 1),
    'interleaved-1f1b': interleaved,
    'zero-bubble': {
      fill: filled,
      pace: (seconds) => m * (seconds.forward + seconds.backward) - filled(seconds) + seconds.step,
      sendFill: 1,
      sendPace: m - 1,
      proportional: false,
    },
  };
  return rules[kind];
}

/**
 * Micro-batches whose saved bytes a stage holds at once (`inFlight` of src/schedule/check.ts in one formula).
 * @param remaining stages from this one to the last
 * @param stages of the pipeline; only zero-bubble depends on it
 */
export function heldMicroBatches(
  { kind, microBatches, training = true }: Schedule,
  remaining: number,
  stages: number,
): number {
  if (!training) return 1;
  if (kind === 'naive') return 1;
  if (kind === 'f-then-b') return microBatches;
  return Math.min(microBatches, kind === 'zero-bubble' ? stages : remaining);
}
