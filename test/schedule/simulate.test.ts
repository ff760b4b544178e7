/**
 * @file The simulation against closed forms, against the longest path through the actions, and against published bubbles.
 */
import test from 'ava';
import fc from 'fast-check';
import { closedFormSeconds } from '../../src/schedule/closed-form.js';
import { producerOf } from '../../src/schedule/dependencies.js';
import { drawScaled, drawSchedule } from '../../src/schedule/draw.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import type { Action, ActionPhase, Schedule } from '../../src/schedule/schedule.js';
import { type Durations, simulate } from '../../src/schedule/simulate.js';
import { draws } from '../selection.js';
import { anySchedule } from './any-schedule.js';

const seconds = fc.integer({ min: 1, max: 50 });

/** Equal stages: every chunk takes 1/v of a stage's time. */
function equalStages(schedule: Schedule, forward: number, input: number, weight: number): Durations {
  const whole: Readonly<Record<ActionPhase, number>> = {
    forward,
    backward: input + weight,
    'input-gradient': input,
    'weight-gradient': weight,
  };
  return { compute: (_stage, _chunk, phase) => whole[phase] / schedule.virtualStages };
}

test('closed forms are exact for equal stages', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anySchedule, seconds, seconds, seconds, (schedule, forward, input, weight) => {
        const exact = schedule.kind !== 'zero-bubble' || schedule.microBatches >= schedule.stages || weight <= input;
        if (!exact) return;
        const { makespan } = simulate(schedule, equalStages(schedule, forward, input, weight));
        const formula = closedFormSeconds(schedule, { forward, backward: input + weight, weightGradient: weight });
        if (Math.abs(makespan - formula) > 1e-9 * formula) throw new Error(`${makespan} is not ${formula}`);
      }),
      { numRuns: draws(500) },
    ),
  );
});

test('the bubble of interleaving is 1/v, that of zero-bubble a third of 1F1B', (t) => {
  const idle = (kind: Schedule['kind'], virtualStages: number) => {
    const schedule = makeSchedule({ kind, stages: 8, microBatches: 32, virtualStages });
    const { makespan } = simulate(schedule, equalStages(schedule, 1, 1, 1));
    return makespan - 32 * 3;
  };
  t.is(idle('1f1b', 1), 7 * 3);
  t.is(idle('f-then-b', 1), 7 * 3);
  t.is(Math.round(idle('interleaved-1f1b', 3) * 1e6), 7 * 1e6);
  t.is(idle('zero-bubble', 1), 7);
});

test('with stages, chunks and transfers that all differ, each action starts when the last thing it needs is there', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anySchedule, fc.integer(), fc.boolean(), (schedule, seed, sendingBlocks) => {
        const durations: Durations = {
          compute: (stage, chunk, phase) => 1 + hash(`${seed} ${stage} ${chunk} ${phase}`),
          transfer: (from, to, phase) => hash(`${seed} ${from}>${to} ${phase}`) / 4,
          sendingBlocks,
        };
        const { starts, ends, makespan, busy, bubble } = simulate(schedule, durations);
        const expected = longestPaths(schedule, durations);
        schedule.actions.forEach((list, stage) => {
          list.forEach((action, index) => {
            const { start, end } = expected.get(nameOf(action)) ?? { start: Number.NaN, end: Number.NaN };
            if (Math.abs((starts[stage]?.[index] as number) - start) > 1e-6)
              throw new Error(`${nameOf(action)} starts`);
            if (Math.abs((ends[stage]?.[index] as number) - end) > 1e-6) throw new Error(`${nameOf(action)} ends`);
          });
        });
        const latest = Math.max(...[...expected.values()].map(({ end }) => end));
        if (Math.abs(makespan - latest) > 1e-6) throw new Error('makespan');
        const idle = busy.map((worked) => makespan - worked).reduce((a, b) => a + b, 0);
        if (Math.abs(idle - bubble * makespan * schedule.stages) > 1e-6) throw new Error('bubble');
      }),
      { numRuns: draws(300) },
    ),
  );
});

test('a slower stage sets the pace: m of its turns, and the way to it and back', (t) => {
  const schedule = makeSchedule({ kind: '1f1b', stages: 4, microBatches: 16 });
  const pace = [1, 1, 3, 1];
  const { makespan, busy } = simulate(schedule, {
    compute: (stage, _chunk, phase) => (pace[stage] ?? 1) * (phase === 'forward' ? 1 : 2),
  });
  t.is(makespan, 16 * 9 + 2 * 3);
  t.deepEqual(busy, [48, 48, 144, 48]);
});

test('a schedule that never ends is a fault', (t) => {
  const good = makeSchedule({ kind: 'f-then-b', stages: 2, microBatches: 2 });
  const [first = [], second = []] = good.actions;
  const inTurns = [0, 2, 1, 3].flatMap((index) => first[index] ?? []);
  t.throws(() => simulate({ ...good, actions: [inTurns, second] }, { compute: () => 1 }), { message: /never ends/ });
});

test('drawn: one stage a line, one unit a column', (t) => {
  const schedule = makeSchedule({ kind: '1f1b', stages: 2, microBatches: 2 });
  const timeline = simulate(schedule, { compute: (_stage, _chunk, phase) => (phase === 'forward' ? 1 : 2) });
  t.deepEqual(drawSchedule(schedule, timeline), [
    'stage 0  F1 F2 .  .  B1 -  .  B2 -',
    'stage 1  .  F1 B1 -  F2 B2 -  .  .',
  ]);
});

test('drawn to scale: the columns of equal stages are busy and idle as the closed form says, whatever the unit', (t) => {
  const schedule = makeSchedule({ kind: '1f1b', stages: 4, microBatches: 8 });
  const timeline = simulate(schedule, { compute: (_stage, _chunk, phase) => (phase === 'forward' ? 0.37 : 0.74) });
  for (const columns of [200, 92]) {
    for (const line of drawScaled(schedule, timeline, columns)) {
      const cells = line.slice('stage 0  '.length);
      t.is(cells.length, columns);
      // Each of the idle stretches, one before and one after each forward at most, is rounded at both of its ends.
      t.true(Math.abs(cells.replaceAll(/[^.]/g, '').length - (columns * 3) / 11) <= 5, line);
      t.deepEqual(cells.match(/F\d/g), ['F1', 'F2', 'F3', 'F4', 'F5', 'F6', 'F7', 'F8']);
    }
  }
  const narrow = drawScaled(schedule, timeline, 33);
  t.is(narrow[3], 'stage 3  ...FB1FB2FB3FB4FB5FB6FB7FB8......');
});

/** Starts and ends by recursion from the definition; results of one phase leave a stage one after another. */
function longestPaths(schedule: Schedule, durations: Durations): ReadonlyMap<string, { start: number; end: number }> {
  const known = new Map<string, { start: number; end: number }>();
  const arrived = new Map<string, number>();
  const receivers = new Map<string, Action>();
  for (const action of schedule.actions.flat()) {
    const producer = producerOf(action, schedule);
    if (producer) receivers.set(nameOf(producer), action);
  }
  const arrival = (action: Action): number => {
    const found = arrived.get(nameOf(action));
    if (found !== undefined) return found;
    const { end } = times(action);
    const to = receivers.get(nameOf(action))?.stage;
    if (to === undefined || to === action.stage) return end;
    const list = schedule.actions[action.stage] ?? [];
    const place = list.findIndex((other) => nameOf(other) === nameOf(action));
    const before = list.slice(0, place).findLast((other) => {
      const receiver = receivers.get(nameOf(other));
      return other.phase === action.phase && receiver?.stage === to;
    });
    const free = before ? arrival(before) : 0;
    const at = Math.max(end, free) + (durations.transfer?.(action.stage, to, action.phase) ?? 0);
    arrived.set(nameOf(action), at);
    return at;
  };
  const times = (action: Action): { start: number; end: number } => {
    const found = known.get(nameOf(action));
    if (found) return found;
    const list = schedule.actions[action.stage] ?? [];
    const before = list[list.findIndex((other) => nameOf(other) === nameOf(action)) - 1];
    const free = before ? (durations.sendingBlocks ? arrival(before) : times(before).end) : 0;
    const producer = producerOf(action, schedule);
    const start = Math.max(free, producer ? arrival(producer) : 0);
    const span = { start, end: start + durations.compute(action.stage, action.chunk, action.phase) };
    known.set(nameOf(action), span);
    return span;
  };
  for (const action of schedule.actions.flat()) times(action);
  return known;
}

function nameOf({ stage, chunk, microBatch, phase }: Action): string {
  return `${stage} ${chunk} ${microBatch} ${phase}`;
}

/** A number from 0 to 10 that depends on the text. */
function hash(text: string): number {
  let value = 7;
  for (const letter of text) value = (value * 31 + letter.charCodeAt(0)) % 10007;
  return value / 1000;
}
