/**
 * @file Pipelines whose stages differ, in one formula, against event simulation of the same schedule.
 */
import test from 'ava';
import fc from 'fast-check';
import { pipelineSeconds, type StageSeconds, type StageTravel } from '../../src/schedule/closed-form.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { interleaves, type ScheduleRequest } from '../../src/schedule/schedule.js';
import { simulate } from '../../src/schedule/simulate.js';
import { draws } from '../selection.js';

const STILL: StageTravel = { seconds: 0, blocks: false };

/** Seconds of the simulated schedule. */
function simulated(
  request: ScheduleRequest,
  stages: readonly StageSeconds[],
  { seconds, blocks }: StageTravel,
): number {
  const v = request.virtualStages ?? 1;
  return simulate(makeSchedule(request), {
    compute: (stage, _, phase) => {
      const { forward = 0, backward = 0, weightGradient = 0 } = stages[stage] ?? {};
      const byPhase = {
        forward,
        backward,
        'input-gradient': backward - weightGradient,
        'weight-gradient': weightGradient,
      };
      return byPhase[phase] / v;
    },
    transfer: () => seconds,
    sendingBlocks: blocks,
  }).makespan;
}

/** p stages of which a forward takes 1 to 1 + spread, and a backward twice that. */
const pipelines = (spread: number) =>
  fc
    .record({ p: fc.integer({ min: 1, max: 10 }), times: fc.integer({ min: 1, max: 6 }), v: fc.constantFrom(2, 3) })
    .chain(({ p, times, v }) =>
      fc.array(fc.double({ min: 1, max: 1 + spread, noNaN: true }), { minLength: p, maxLength: p }).map((forwards) => ({
        p,
        m: p * times,
        v,
        stages: forwards.map((forward) => ({ forward, backward: 2 * forward, weightGradient: forward })),
      })),
    );

/** How far below and above the simulation the formula may be: for equal stages, and where some take up to twice as long. */
const KINDS = [
  { kind: 'naive', equal: 1e-9, under: 1e-9, over: 1e-9 },
  { kind: 'f-then-b', equal: 1e-9, under: 1e-9, over: 1e-9 },
  { kind: '1f1b', equal: 1e-9, under: 0.06, over: 1e-9 },
  { kind: 'interleaved-1f1b', equal: 1e-9, under: 0.1, over: 1e-9 },
  { kind: 'zero-bubble', equal: 1e-9, under: 0.06, over: 0.1 },
  { kind: 'interleaved-zero-bubble', equal: 0.05, under: 0.12, over: 0.12 },
] as const;

for (const { kind, equal, under, over } of KINDS) {
  test(`${kind}: one formula is within ${equal} for equal stages, and near where some take up to twice as long`, (t) => {
    for (const spread of [0, 1]) {
      fc.assert(
        fc.property(pipelines(spread), ({ p, m, v, stages }) => {
          const request = {
            kind,
            stages: p,
            microBatches: m,
            ...(interleaves(kind) ? { virtualStages: v } : {}),
          };
          const ratio = pipelineSeconds(request, stages, STILL) / simulated(request, stages, STILL);
          const [below, above] = spread === 0 ? [equal, equal] : [under, over];
          return ratio >= 1 - below && ratio <= 1 + above;
        }),
        { numRuns: draws(60) },
      );
    }
    t.pass();
  });
}

test('results that travel a tenth of a forward cost what the simulation says, within 4 % of a 1F1B step', (t) => {
  fc.assert(
    fc.property(pipelines(0.5), fc.boolean(), ({ p, m, stages }, blocks) => {
      const request = { kind: '1f1b' as const, stages: p, microBatches: m };
      const travel = { seconds: 0.1, blocks };
      const ratio = pipelineSeconds(request, stages, travel) / simulated(request, stages, travel);
      return Math.abs(ratio - 1) < 0.04;
    }),
    { numRuns: draws(100) },
  );
  t.pass();
});
