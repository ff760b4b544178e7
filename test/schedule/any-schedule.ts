/**
 * @file Schedules of every kind with up to 7 stages, 4 chunks and 21 micro-batches, for property tests.
 */
import fc from 'fast-check';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { SCHEDULE_KINDS, type Schedule, type ScheduleKind } from '../../src/schedule/schedule.js';

/** Schedules of some kinds. */
function schedulesOf<Kind extends ScheduleKind>(
  kinds: readonly Kind[],
): fc.Arbitrary<Schedule & { readonly kind: Kind }> {
  return fc
    .record({
      kind: fc.constantFrom(...kinds),
      stages: fc.integer({ min: 1, max: 7 }),
      microBatches: fc.integer({ min: 1, max: 21 }),
      chunks: fc.integer({ min: 2, max: 4 }),
      training: fc.boolean(),
    })
    .map(({ kind, stages, microBatches, chunks, training }) => {
      if (!kind.startsWith('interleaved')) return { ...makeSchedule({ kind, stages, microBatches, training }), kind };
      const whole = stages * Math.ceil(microBatches / stages);
      return { ...makeSchedule({ kind, stages, microBatches: whole, virtualStages: chunks, training }), kind };
    });
}

export const anySchedule = schedulesOf(SCHEDULE_KINDS);
