/**
 * @file Schedules of every kind with up to 7 stages, 4 chunks and 21 micro-batches, for property tests.
 */
import fc from 'fast-check';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';

export const anySchedule = fc
  .record({
    kind: fc.constantFrom(...SCHEDULE_KINDS),
    stages: fc.integer({ min: 1, max: 7 }),
    microBatches: fc.integer({ min: 1, max: 21 }),
    chunks: fc.integer({ min: 2, max: 4 }),
    training: fc.boolean(),
  })
  .map(({ kind, stages, microBatches, chunks, training }) =>
    kind === 'interleaved-1f1b'
      ? makeSchedule({
          kind,
          stages,
          microBatches: stages * Math.ceil(microBatches / stages),
          virtualStages: chunks,
          training,
        })
      : makeSchedule({ kind, stages, microBatches, training }),
  );
