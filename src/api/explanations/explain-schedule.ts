/**
 * @file explain --schedule: the pipeline of a compiled plan as its price simulates it: when each stage runs which action, and how
 * long it is idle.
 */
import { simulateStages } from '../../cost-model/predict-stages.js';
import { drawScaled } from '../../schedule/draw.js';
import type { Action, ScheduleKind } from '../../schedule/schedule.js';
import { openPlan } from '../models/compiled-model.js';
import { checkArguments, leftOut, text } from '../options/kinds.js';
import { clusterOf, lowerPlan } from '../planning/lower-plan.js';

/** An action; seconds from the beginning of the step. */
export interface ScheduledAction extends Pick<Action, 'phase' | 'microBatch' | 'chunk'> {
  readonly startSeconds: number;
  readonly endSeconds: number;
}

/** The micro-batches of a step, until the last action has ended. */
export interface ScheduledPipeline {
  readonly kind: ScheduleKind;
  readonly microBatches: number;
  /** Chunks of a stage. */
  readonly virtualStages: number;
  readonly seconds: number;
  /** Idle share of the time of all stages. */
  readonly bubble: number;
  readonly stages: readonly {
    readonly stage: number;
    readonly busySeconds: number;
    /** Idle share of `seconds`. */
    readonly bubble: number;
    /** In the order in which the stage runs them. */
    readonly actions: readonly ScheduledAction[];
  }[];
}

export interface ExplainedSchedule {
  readonly stepSeconds: number;
  readonly precision: string | null;
  /** Null for a plan of one stage. */
  readonly pipeline: ScheduledPipeline | null;
  /** The pipeline as text, a line per stage, time on so many columns; nothing for a plan of one stage. */
  readonly draw: (columns: number) => readonly string[];
}

/**
 * The simulated pipeline of a compiled plan.
 * @throws AutoparError (input) if the folder or its model has changed
 */
export async function explainSchedule(directory: string, model?: string): Promise<ExplainedSchedule> {
  checkArguments('explainSchedule', { directory: [directory, text], model: [model, leftOut(text)] });
  const { plan, planned } = await openPlan(directory, model);
  const { lowered, schedule } = lowerPlan(plan, planned.graph);
  const { stepSeconds, precision = null } = plan.predicted;
  if (!schedule) return { stepSeconds, precision, pipeline: null, draw: () => [] };
  const { timeline } = simulateStages(lowered, schedule, clusterOf(plan));
  const { makespan, busy, bubble, starts, ends } = timeline;
  const { kind, microBatches, virtualStages } = schedule;
  return {
    stepSeconds,
    precision,
    pipeline: {
      ...{ kind, microBatches, virtualStages, seconds: makespan, bubble },
      stages: schedule.actions.map((actions, stage) => ({
        stage,
        busySeconds: busy[stage] ?? 0,
        bubble: makespan === 0 ? 0 : 1 - (busy[stage] ?? 0) / makespan,
        actions: actions.map(({ phase, microBatch, chunk }, index) => ({
          ...{ phase, microBatch, chunk },
          startSeconds: starts[stage]?.[index] ?? 0,
          endSeconds: ends[stage]?.[index] ?? 0,
        })),
      })),
    },
    draw: (columns) => drawScaled(schedule, timeline, columns),
  };
}
