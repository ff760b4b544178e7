/**
 * @file Schedules of every kind are sound for all p, m and v; sizes without a schedule are refused; the check finds every error.
 */
import test from 'ava';
import fc from 'fast-check';
import { inFlight } from '../../src/schedule/in-flight.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { partAt, placeOfPart } from '../../src/schedule/parts.js';
import {
  type Action,
  SCHEDULE_KINDS,
  type Schedule,
  type ScheduleKind,
  UNIT_SECONDS,
} from '../../src/schedule/schedule.js';
import { simulate } from '../../src/schedule/simulate.js';
import { draws } from '../selection.js';
import { anySchedule } from './any-schedule.js';
import { scheduleProblems } from './schedule-problems.js';

test('every kind runs every action once, in order, and never stops', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anySchedule, (schedule) => {
        const problems = scheduleProblems(schedule);
        if (problems.length > 0) throw new Error(problems.join('; '));
      }),
      { numRuns: draws(300) },
    ),
  );
});

test('in-flight micro-batches: all for F-then-B, min(p − i, m) for 1F1B, p at most for zero-bubble', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anySchedule, (schedule) => {
        const held = inFlight(schedule);
        const isPromised = held.every((count, stage) => {
          const promised = promisedInFlight(schedule, stage);
          return filled(schedule) ? count <= promised : count === promised;
        });
        if (!isPromised) throw new Error(`${held} is not what ${schedule.kind} promises`);
      }),
      { numRuns: draws(300) },
    ),
  );
});

/** Whether stages hold up to what is promised: gaps are filled as they come. */
function filled({ kind, training }: Schedule): boolean {
  return training && (kind === 'interleaved-zero-bubble' || kind === 'zbv');
}

/** Micro-batches of its chunks that a stage holds at once. */
function promisedInFlight({ kind, stages, microBatches, virtualStages, training }: Schedule, stage: number): number {
  if (!training) return 1;
  // Korthikanti et al. 2022: 1 + (p − 1)/(p·v) times 1F1B on the first stage, in chunks of 1/v.
  const ahead = (of: number) => stages * virtualStages + stages - 1 - 2 * of;
  const promised: Readonly<Record<ScheduleKind, number>> = {
    naive: 1,
    'f-then-b': microBatches,
    '1f1b': stages - stage,
    'interleaved-1f1b': ahead(stage),
    'zero-bubble': stages,
    'interleaved-zero-bubble': ahead(0),
    zbv: 2 * stages,
  };
  return Math.min(promised[kind], microBatches * virtualStages);
}

test('each kind’s chunks are all parts of the model, and the part beside each is where the schedule sends', (t) => {
  for (const kind of SCHEDULE_KINDS)
    for (const stages of [1, 2, 5]) {
      const chunks = kind === 'zbv' ? 2 : 3;
      const places = Array.from({ length: stages * chunks }, (_, part) => placeOfPart(kind, part, stages));
      t.is(new Set(places.map(({ stage, chunk }) => `${stage} ${chunk}`)).size, stages * chunks);
      for (const { part, stage, chunk } of places) t.is(partAt(kind, stage, chunk, stages), part);
    }
  const ends = [0, 9].map((part) => placeOfPart('zbv', part, 5).stage);
  t.deepEqual(ends, [0, 0]);
  const [middle, next] = [4, 5].map((part) => placeOfPart('zbv', part, 5));
  t.deepEqual([middle?.stage, next?.stage], [4, 4]);
});

test('split backwards leave less bubble: interleaved a v-th of ZB-H1’s, ZB-V less than ZB-H1', (t) => {
  const idle = (kind: ScheduleKind, stages: number, virtualStages: number) => {
    const schedule = makeSchedule({ kind, stages, microBatches: 2 * stages, virtualStages });
    const { makespan } = simulate(schedule, { compute: (_stage, _chunk, phase) => UNIT_SECONDS[phase] });
    return makespan / virtualStages - 6 * stages;
  };
  for (const stages of [2, 3, 4, 8]) {
    t.is(idle('zero-bubble', stages, 1), stages - 1);
    for (const chunks of [2, 4]) t.is(idle('interleaved-zero-bubble', stages, chunks), (stages - 1) / chunks);
    t.true(idle('zbv', stages, 2) < idle('zero-bubble', stages, 1));
  }
});

test('weight gradients that keep nothing free their micro-batch with the input gradient, as in 1F1B', (t) => {
  const shape = { stages: 4, microBatches: 9 };
  const zeroBubble = makeSchedule({ kind: 'zero-bubble', ...shape });
  t.deepEqual(inFlight(zeroBubble, 0), inFlight(makeSchedule({ kind: '1f1b', ...shape })));
});

test('the check names what is absent, doubled, misplaced, foreign, out of order and stuck', (t) => {
  const good = makeSchedule({ kind: '1f1b', stages: 2, microBatches: 2 });
  const [first = [], second = []] = good.actions;
  const problems = (...actions: readonly (readonly Action[])[]) => scheduleProblems({ ...good, actions });
  const forward = (stage: number, microBatch: number): Action => ({ stage, microBatch, chunk: 0, phase: 'forward' });

  t.deepEqual(problems(first, second), []);
  t.deepEqual(problems(first, second.slice(0, -1)), ['stage 1 runs backward of micro-batch 1, chunk 0 0 times']);
  t.deepEqual(problems([forward(0, 0), ...first], second), ['stage 0 runs forward of micro-batch 0, chunk 0 2 times']);
  t.deepEqual(problems(first), ['1 stages have actions, not 2']);
  t.deepEqual(problems([...first, forward(1, 0)], second), [
    'stage 0 has forward of micro-batch 0, chunk 0 of stage 1, which belongs to another stage',
  ]);
  t.deepEqual(problems([...first, forward(0, 2)], second), [
    'stage 0 has forward of micro-batch 2, chunk 0 of stage 0, which belongs to another stage',
  ]);
  t.deepEqual(problems(first, [...second].reverse()), [
    'stage 1 runs backward of micro-batch 1, chunk 0 before its forward',
    'stage 1 runs backward of micro-batch 0, chunk 0 before its forward',
  ]);
  const backwardFirst = [forward(0, 0), { ...forward(0, 0), phase: 'backward' as const }];
  const late = [...backwardFirst, ...first.filter((action) => action.microBatch === 1)];
  const allForward = [...second].sort((a, b) => (a.phase < b.phase ? 1 : -1));
  t.deepEqual(problems(late, allForward), [
    'deadlock: stage 0 at backward of micro-batch 0, chunk 0, stage 1 at forward of micro-batch 1, chunk 0',
  ]);
});

const REFUSALS: readonly (readonly [Parameters<typeof makeSchedule>[0], RegExp, RegExp])[] = [
  [{ kind: '1f1b', stages: 0, microBatches: 4 }, /^0 is not a number of stages/, /positive/],
  [{ kind: '1f1b', stages: 2, microBatches: 1.5 }, /^1.5 is not a number of micro-batches/, /positive/],
  [
    { kind: 'interleaved-1f1b', stages: 2, microBatches: 2, virtualStages: -1 },
    /^-1 is not a number of virtual stages/,
    /positive/,
  ],
  [{ kind: '1f1b', stages: 4, microBatches: 8, virtualStages: 2 }, /1f1b runs one chunk per stage/, /interleaved-1f1b/],
  [{ kind: 'interleaved-1f1b', stages: 4, microBatches: 8 }, /1 virtual stage is one chunk/, /2 virtual stages/],
  [
    { kind: 'interleaved-1f1b', stages: 4, microBatches: 10, virtualStages: 2 },
    /10 is not a multiple of 4/,
    /give 8 or 12 micro-batches/,
  ],
  [
    { kind: 'interleaved-1f1b', stages: 4, microBatches: 3, virtualStages: 2 },
    /3 is not a multiple of 4/,
    /give 4 micro-batches/,
  ],
  [
    { kind: 'zero-bubble', stages: 4, microBatches: 8, virtualStages: 2 },
    /zero-bubble runs one chunk per stage, not 2/,
    /interleaved-zero-bubble/,
  ],
  [
    { kind: 'interleaved-zero-bubble', stages: 4, microBatches: 8 },
    /interleaved-zero-bubble interleaves .* 1 virtual stage/,
    /or choose zero-bubble/,
  ],
  [
    { kind: 'interleaved-zero-bubble', stages: 4, microBatches: 6, virtualStages: 2 },
    /its 4 stages, and 6 is not a multiple of 4/,
    /give 4 or 8 micro-batches, or choose zero-bubble/,
  ],
  [
    { kind: 'zbv', stages: 4, microBatches: 8, virtualStages: 3 },
    /zbv runs 2 chunks per stage, .* not 3 virtual stages/,
    /interleaved-zero-bubble for more/,
  ],
  [
    { kind: 'zbv', stages: 4, microBatches: 8, virtualStages: 1 },
    /zbv runs 2 chunks per stage, .* not 1 virtual stage$/,
    /zero-bubble for 1/,
  ],
  [{ kind: '1f1b', stages: 64, microBatches: 1e6 }, /has 128000000 actions; at most 4194304/, /larger micro-batches/],
];

test('what has no schedule is refused with what would have one', (t) => {
  for (const [request, message, hint] of REFUSALS) {
    const error = t.throws(() => makeSchedule(request), { code: 'bad-schedule', message }) as { hint?: string };
    t.regex(error.hint ?? '', hint);
  }
});
