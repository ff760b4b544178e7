/**
 * @file Event simulation of a schedule: when each action starts and ends, given how long each takes and how long results
 * travel. Exact, and linear in the number of actions.
 */
import { actionNumbers, consumerOf, producerOf } from './dependencies.js';
import { type Action, type ActionPhase, phasesOf, type Schedule } from './schedule.js';

/** Seconds of the actions and transfers of a schedule. Stages may differ, and so may the chunks of a stage. */
export interface Durations {
  /** Seconds of one action; called once per stage, chunk and phase. */
  readonly compute: (stage: number, chunk: number, phase: ActionPhase) => number;
  /** The same for the last micro-batch, where it takes another time than the others. */
  readonly last?: (stage: number, chunk: number, phase: ActionPhase) => number;
  /** Seconds that a result travels from one stage to another, 0 if left out; called once per pair and phase. */
  readonly transfer?: (from: number, to: number, phase: ActionPhase) => number;
  /** True: a stage computes nothing while it sends (it has no stream for that). */
  readonly sendingBlocks?: boolean;
  /** Called for every result that travels, for pictures. */
  readonly onSend?: (sent: SentResult) => void;
}

/** A result on its way to another stage; seconds from the step's beginning. */
export interface SentResult {
  readonly from: number;
  readonly to: number;
  readonly phase: ActionPhase;
  readonly start: number;
  readonly end: number;
}

export interface Timeline {
  /** Seconds from the step's beginning, per stage and action, in the order of `schedule.actions`. */
  readonly starts: readonly Float64Array[];
  readonly ends: readonly Float64Array[];
  /** Seconds until the last action has ended. */
  readonly makespan: number;
  /** Seconds that each stage computes. */
  readonly busy: readonly number[];
  /** Idle share of the stages' time: 1 − Σ busy / (p · makespan). */
  readonly bubble: number;
}

/**
 * Runs a schedule. An action starts when the one before it on its stage has ended and its operands have arrived; results
 * of one phase that go the same way travel one after another.
 * @throws Error for a schedule that never ends (see `check.ts`)
 */
export function simulate(schedule: Schedule, durations: Durations): Timeline {
  const { actions, stages, virtualStages } = schedule;
  const numbers = actionNumbers(schedule);
  const compute = computeTable(schedule, durations.compute);
  const last = durations.last && computeTable(schedule, durations.last);
  const starts = actions.map((list) => new Float64Array(list.length));
  const ends = actions.map((list) => new Float64Array(list.length));
  /** When the result of an action is where it is needed; NaN: not known yet. */
  const arrivals = new Float64Array(numbers.count).fill(Number.NaN);
  const wires: Partial<Record<ActionPhase, Wire[]>> = {};
  const next = new Int32Array(stages);
  const free = new Float64Array(stages);
  const busy = new Array<number>(stages).fill(0);
  /** Stages that wait, by the number of the action they wait for. */
  const waiting = new Map<number, number>();
  const ready = Array.from({ length: stages }, (_, stage) => stages - 1 - stage);

  /** Runs the next actions of a stage until one needs a result that is not there yet. */
  const advance = (stage: number): void => {
    const list = actions[stage] ?? [];
    for (let index = next[stage] as number; index < list.length; index++) {
      const action = list[index] as Action;
      const producer = producerOf(action, schedule);
      const arrival = producer ? (arrivals[numbers.of(producer)] as number) : 0;
      if (producer && Number.isNaN(arrival)) {
        waiting.set(numbers.of(producer), stage);
        return;
      }
      const table = last && action.microBatch === schedule.microBatches - 1 ? last : compute;
      const seconds = table[action.phase]?.[stage * virtualStages + action.chunk] as number;
      const start = Math.max(free[stage] as number, arrival);
      const end = start + seconds;
      (starts[stage] as Float64Array)[index] = start;
      (ends[stage] as Float64Array)[index] = end;
      busy[stage] = (busy[stage] as number) + seconds;
      const consumer = consumerOf(action, schedule);
      const sent = consumer && consumer.stage !== stage ? send(stage, consumer.stage, action.phase, end) : end;
      free[stage] = durations.sendingBlocks ? sent : end;
      next[stage] = index + 1;
      const number = numbers.of(action);
      arrivals[number] = sent;
      const woken = waiting.get(number);
      if (woken !== undefined) ready.push(woken);
      waiting.delete(number);
    }
  };

  /** When a result that is ready at `at` has arrived. */
  const send = (from: number, to: number, phase: ActionPhase, at: number): number => {
    const sending = wires[phase] ?? [];
    wires[phase] = sending;
    const way = from * stages + to;
    const wire = sending[way] ?? { seconds: durations.transfer?.(from, to, phase) ?? 0, free: 0 };
    sending[way] = wire;
    const start = Math.max(at, wire.free);
    wire.free = start + wire.seconds;
    durations.onSend?.({ from, to, phase, start, end: wire.free });
    return wire.free;
  };

  for (let stage = ready.pop(); stage !== undefined; stage = ready.pop()) advance(stage);
  if (waiting.size > 0) throw new Error('this schedule never ends: its stages wait for one another');
  const makespan = ends.reduce((latest, list) => Math.max(latest, list.at(-1) ?? 0), 0);
  const worked = busy.reduce((sum, seconds) => sum + seconds, 0);
  return { starts, ends, makespan, busy, bubble: makespan === 0 ? 0 : 1 - worked / (stages * makespan) };
}

/** The way of one stage's results of one phase to another; `free`: when the last one so far has arrived. */
interface Wire {
  readonly seconds: number;
  free: number;
}

/** Seconds by phase, at stage · v + chunk. */
function computeTable(
  schedule: Schedule,
  compute: Durations['compute'],
): Readonly<Partial<Record<ActionPhase, Float64Array>>> {
  const { stages, virtualStages } = schedule;
  const table = (phase: ActionPhase) =>
    Float64Array.from({ length: stages * virtualStages }, (_, place) =>
      compute(Math.floor(place / virtualStages), place % virtualStages, phase),
    );
  return Object.fromEntries(phasesOf(schedule).map((phase) => [phase, table(phase)]));
}
