/**
 * @file Micro-batches held and closed forms, against the schedules themselves.
 */
import test from 'ava';
import fc from 'fast-check';
import { inFlight } from '../../../src/schedule/check.js';
import { closedFormSeconds } from '../../../src/schedule/closed-form.js';
import { heldMicroBatches, scheduleWeights } from '../../../src/search/stages/schedule-weights.js';
import { schedulesOf } from '../../schedule/any-schedule.js';

const PLAIN = ['naive', 'f-then-b', '1f1b', 'zero-bubble'] as const;

test('what stages hold is what their schedule holds', (t) => {
  fc.assert(
    fc.property(schedulesOf(PLAIN), (schedule) =>
      inFlight(schedule).every(
        (held, stage) => held === heldMicroBatches(schedule, schedule.stages - stage, schedule.stages),
      ),
    ),
  );
  t.pass();
});

test('Σ fill + max pace is the closed form of every schedule of equal stages', (t) => {
  fc.assert(
    fc.property(
      schedulesOf([...PLAIN, 'interleaved-1f1b']),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 0, max: 9 }),
      (schedule, forward, input, weightGradient) => {
        const { stages, virtualStages } = schedule;
        const whole = { forward, backward: input + weightGradient, weightGradient };
        const part = {
          forward: forward / virtualStages,
          backward: whole.backward / virtualStages,
          weightGradient: weightGradient / virtualStages,
          step: 0,
        };
        const { fill, pace } = scheduleWeights(schedule, stages);
        const seconds = stages * virtualStages * fill(part) + pace(part);
        return Math.abs(seconds - closedFormSeconds(schedule, whole)) < 1e-9 * seconds;
      },
    ),
  );
  t.pass();
});
