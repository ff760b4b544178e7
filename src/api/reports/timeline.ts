/**
 * @file A step's pipeline as a timeline: the schedule's actions by event simulation over each stage's own times, in the trace
 * event format that Perfetto and chrome://tracing read.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { phaseSeconds, type StepPrice, scheduleRequest } from '../../cost-model/step/step-price.js';
import type { StepSpan } from '../../cost-model/step-spans.js';
import { writeFileAtomic } from '../../program/atomic.js';
import type { Program } from '../../program/program.js';
import type { StepResult } from '../../runtime/session.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import { simulate } from '../../schedule/simulate.js';

/**
 * The actions of a step's pipeline, stage by stage.
 * @throws AutoparError `bad-schedule` (usage) where the schedule has no order for these numbers
 */
export function pipelineSpans(configuration: StepConfiguration, price: StepPrice): readonly PipelineSpan[] {
  const schedule = makeSchedule(scheduleRequest(configuration));
  const timeline = simulate(schedule, {
    compute: (stage, _, phase) => phaseSeconds(price.stageSeconds[stage], phase) / schedule.virtualStages,
    transfer: () => price.sendSeconds,
  });
  return schedule.actions.flatMap((actions, stage) =>
    actions.map(({ microBatch, phase, chunk }, index) => {
      const from = timeline.starts[stage]?.[index] ?? 0;
      const until = timeline.ends[stage]?.[index] ?? from;
      return { line: stage, from, until, kind: phase, label: `${phase} ${microBatch}`, microBatch, chunk };
    }),
  );
}

interface PipelineSpan extends StepSpan {
  readonly microBatch: number;
  readonly chunk: number;
}

/** @throws AutoparError `bad-schedule` (usage) where the schedule has no order for these numbers; (cannotWrite) */
export async function writeTimeline(file: string, configuration: StepConfiguration, price: StepPrice): Promise<void> {
  const events = pipelineSpans(configuration, price).map(({ line, from, until, kind, label, microBatch, chunk }) => ({
    name: label,
    cat: kind,
    ...{ ph: 'X', pid: 0, tid: line },
    ts: from * MICROSECONDS,
    dur: (until - from) * MICROSECONDS,
    args: { microBatch, chunk },
  }));
  const lines = Array.from({ length: configuration.degrees.pp }, (_, stage) => `stage ${stage}`);
  await writeEvents(file, lines, events);
}

/**
 * Writes when ranks ran the actions and instructions of a step, in the same form: a line per rank, instructions inside of their
 * action, or of their pass (forward, backward, update) where an action has several.
 * @throws AutoparError (cannotWrite)
 */
export async function writeSpans(file: string, program: Program, spans: StepResult['spans']): Promise<void> {
  const perStage = spans.length / program.stages.length;
  const first = spans.flat().reduce((least, { from }) => Math.min(least, from), Number.POSITIVE_INFINITY);
  const events = spans.flatMap((own, tid) =>
    own.map(({ kind, label, chunk, microBatch, from, until }) => ({
      name: label ?? (microBatch === null ? kind : `${kind} ${microBatch}`),
      cat: kind,
      ...{ ph: 'X', pid: 0, tid },
      ts: (from - first) * MICROSECONDS_PER_MILLISECOND,
      dur: (until - from) * MICROSECONDS_PER_MILLISECOND,
      args: { microBatch, chunk },
    })),
  );
  const stageText = (rank: number) => (program.stages.length > 1 ? `, stage ${Math.floor(rank / perStage)}` : '');
  await writeEvents(
    file,
    spans.map((_, rank) => `rank ${rank}${stageText(rank)}`),
    events,
  );
}

async function writeEvents(file: string, lines: readonly string[], events: readonly object[]): Promise<void> {
  const names = lines.map((name, tid) => ({ name: 'thread_name', ph: 'M', pid: 0, tid, args: { name } }));
  await writeFileAtomic(file, `${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: [...names, ...events] })}\n`);
}

const MICROSECONDS = 1e6;
const MICROSECONDS_PER_MILLISECOND = 1e3;
