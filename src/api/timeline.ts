/**
 * @file A step's pipeline as a timeline: the schedule's actions by event simulation over each stage's own times, in the trace
 * event format that Perfetto and chrome://tracing read.
 */
import type { StepConfiguration } from '../cost-model/step/configuration.js';
import { phaseSeconds, type StepPrice, scheduleRequest } from '../cost-model/step/step-price.js';
import { writeFileAtomic } from '../program/atomic.js';
import { makeSchedule } from '../schedule/make-schedule.js';
import { simulate } from '../schedule/simulate.js';

/** @throws AutoparError `bad-schedule` (usage) where the schedule has no order for these numbers; (cannotWrite) */
export async function writeTimeline(file: string, configuration: StepConfiguration, price: StepPrice): Promise<void> {
  const schedule = makeSchedule(scheduleRequest(configuration));
  const timeline = simulate(schedule, {
    compute: (stage, _, phase) => phaseSeconds(price.stageSeconds[stage], phase) / schedule.virtualStages,
    transfer: () => price.sendSeconds,
  });
  const events = schedule.actions.flatMap((actions, stage) =>
    actions.map(({ microBatch, phase, chunk }, index) => {
      const start = timeline.starts[stage]?.[index] ?? 0;
      const end = timeline.ends[stage]?.[index] ?? start;
      return {
        name: `${phase} ${microBatch}`,
        cat: phase,
        ph: 'X',
        pid: 0,
        tid: stage,
        ts: start * MICROSECONDS,
        dur: (end - start) * MICROSECONDS,
        args: { microBatch, chunk },
      };
    }),
  );
  const names = schedule.actions.map((_, stage) => ({
    name: 'thread_name',
    ph: 'M',
    pid: 0,
    tid: stage,
    args: { name: `stage ${stage}` },
  }));
  await writeFileAtomic(file, `${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: [...names, ...events] })}\n`);
}

const MICROSECONDS = 1e6;
