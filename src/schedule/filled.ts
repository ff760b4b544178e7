/**
 * @file Schedules whose weight gradients fill the bubble, made by running them in units of time in which every phase of a
 * chunk takes one: at each unit a stage runs the first of the forwards and input gradients that it may run next, else the
 * weight gradient that has waited longest, else nothing. A stage never holds more micro-batches of its chunks than it may.
 */
import { actionNumbers, EARLIER_PHASE, producerOf } from './dependencies.js';
import { partAt } from './parts.js';
import type { Action, ActionPhase, Schedule, ScheduleRequest } from './schedule.js';

/**
 * An order of forwards and backwards with the backward split, weight gradients in the gaps. It ends wherever the order does: a
 * forward whose activations may not be held yet waits for a weight gradient, and the order has backwards enough before it.
 * @param mostHeld micro-batches of its chunks that each stage may hold: at least what the order holds
 */
export function filledWithWeights(
  request: Required<ScheduleRequest>,
  order: readonly (readonly Action[])[],
  mostHeld: number,
): readonly (readonly Action[])[] {
  const reached = order.map(() => 0);
  const next = (stage: number): readonly Action[] => {
    const action = order[stage]?.[reached[stage] as number];
    return action ? [action.phase === 'backward' ? { ...action, phase: 'input-gradient' } : action] : [];
  };
  return run(request, mostHeld, next, (stage) => {
    reached[stage] = (reached[stage] as number) + 1;
  });
}

/**
 * ZB-V: gradients as soon as they can run, then forwards of the second chunk, then of the first. Part k of the 2p has at most
 * 2p − k micro-batches between forward and input gradient, the first 2p − 1, and a stage holds 2p at most: as much as 1F1B's
 * first stage. It always ends: the oldest micro-batch finds nothing but itself in its chunk and less than 2p in its stage's
 * other one, so that it can go on.
 */
export function inShapeOfV(request: Required<ScheduleRequest>): readonly (readonly Action[])[] {
  const { stages, microBatches, training } = request;
  const begun: Readonly<Record<'forward' | 'input-gradient', Int32Array>> = {
    forward: new Int32Array(2 * stages),
    'input-gradient': new Int32Array(2 * stages),
  };
  const next = (stage: number): readonly Action[] =>
    TURNS.flatMap(([phase, chunk]) => {
      if (phase === 'input-gradient' && !training) return [];
      const part = partAt('zbv', stage, chunk, stages);
      const microBatch = begun[phase][part] as number;
      const inFlight = (begun.forward[part] as number) - (begun['input-gradient'][part] as number);
      const mayBegin = phase !== 'forward' || !training || inFlight < Math.min(2 * stages - part, 2 * stages - 1);
      return microBatch < microBatches && mayBegin ? [{ stage, chunk, microBatch, phase }] : [];
    });
  return run(request, 2 * stages, next, (stage, { phase, chunk }) => {
    if (phase !== 'forward' && phase !== 'input-gradient') return;
    const part = partAt('zbv', stage, chunk, stages);
    begun[phase][part] = (begun[phase][part] as number) + 1;
  });
}

/** Actions of a ZB-V stage by priority, highest first. */
const TURNS = [
  ['input-gradient', 1],
  ['input-gradient', 0],
  ['forward', 1],
  ['forward', 0],
] as const;

/**
 * @param next forwards and input gradients that a stage may run next, the best first
 * @param ran called with each of them that runs
 */
function run(
  request: Required<ScheduleRequest>,
  mostHeld: number,
  next: (stage: number) => readonly Action[],
  ran: (stage: number, action: Action) => void,
): readonly (readonly Action[])[] {
  const { stages, microBatches, virtualStages, training } = request;
  const schedule: Schedule = { ...request, actions: [] };
  const numbers = actionNumbers(schedule);
  const done = new Uint8Array(numbers.count);
  const lists: Action[][] = Array.from({ length: stages }, () => []);
  /** Weight gradients that wait, per stage: the first `taken` of them have run. */
  const weights: Action[][] = lists.map(() => []);
  const taken = lists.map(() => 0);
  const held = lists.map(() => 0);
  const isDone = (action: Action | undefined) => !action || done[numbers.of(action)] === 1;
  const mayRun = (action: Action) => {
    const { stage, phase } = action;
    const earlier: ActionPhase | undefined = EARLIER_PHASE[phase];
    if (training && phase === 'forward' && (held[stage] as number) >= mostHeld) return false;
    return isDone(producerOf(action, schedule)) && isDone(earlier && { ...action, phase: earlier });
  };
  const choose = (stage: number): Action | undefined => {
    const action = next(stage).find(mayRun);
    if (action) {
      ran(stage, action);
      return action;
    }
    const weight = weights[stage]?.[taken[stage] as number];
    if (weight) taken[stage] = (taken[stage] as number) + 1;
    return weight;
  };
  const change: Readonly<Record<ActionPhase, number>> = {
    ...{ forward: training ? 1 : 0, backward: -1 },
    ...{ 'input-gradient': 0, 'weight-gradient': -1 },
  };
  for (let left = stages * virtualStages * microBatches * (training ? 3 : 1); left > 0; ) {
    const now = lists.flatMap((_, stage) => choose(stage) ?? []);
    if (now.length === 0) throw new Error(`schedule ${request.kind} of ${stages} stages does not end`);
    for (const action of now) {
      const { stage, phase } = action;
      lists[stage]?.push(action);
      done[numbers.of(action)] = 1;
      held[stage] = (held[stage] as number) + change[phase];
      if (phase === 'input-gradient') weights[stage]?.push({ ...action, phase: 'weight-gradient' });
    }
    left -= now.length;
  }
  return lists;
}
