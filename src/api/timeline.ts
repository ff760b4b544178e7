/**
 * @file A step's pipeline as a timeline: the schedule's actions by event simulation over each stage's own times, in the trace
 * event format that Perfetto and chrome://tracing read.
 */
import type { StepConfiguration } from '../cost-model/step/configuration.js';
import { microBatches, type StepPrice } from '../cost-model/step/step-price.js';
import { writeFileAtomic } from '../program/atomic.js';
import { makeSchedule } from '../schedule/make-schedule.js';
import type { Phase, ScheduleKind } from '../schedule/schedule.js';
import { simulate } from '../schedule/simulate.js';

/** Shares of a stage's backward: zero-bubble runs its halves apart. */
const SHARES: Readonly<Record<Phase, number>> = {
  forward: 1,
  backward: 1,
  'input-gradient': 0.5,
  'weight-gradient': 0.5,
};

/** @throws AutoparError `bad-schedule` (usage) where the schedule has no order for these numbers; (cannotWrite) */
export async function writeTimeline(file: string, configuration: StepConfiguration, price: StepPrice): Promise<void> {
  const { degrees, virtualStages, inference } = configuration;
  const kind: ScheduleKind = configuration.schedule ?? (virtualStages > 1 ? 'interleaved-1f1b' : '1f1b');
  const schedule = makeSchedule({
    kind,
    stages: degrees.pp,
    microBatches: microBatches(configuration),
    virtualStages,
    training: inference !== true,
  });
  const timeline = simulate(schedule, {
    compute: (stage, _, phase) => {
      const { forward = 0, backward = 0 } = price.stageSeconds[stage] ?? {};
      return ((phase === 'forward' ? forward : backward) * SHARES[phase]) / virtualStages;
    },
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
