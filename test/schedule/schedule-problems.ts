/**
 * @file Checks of a schedule: every action is there once and on its stage, phases follow one another, and no stages wait for one
 * another in a cycle.
 */
import { actionNumbers, EARLIER_PHASE, producerOf } from '../../src/schedule/dependencies.js';
import { type Action, phasesOf, type Schedule } from '../../src/schedule/schedule.js';

/** All problems of a schedule, in words; empty for a valid one. */
export function scheduleProblems(schedule: Schedule): readonly string[] {
  const problems = [...missing(schedule), ...misplaced(schedule)];
  if (problems.length > 0) return problems;
  const stuck = findDeadlock(schedule);
  if (stuck.length === 0) return [];
  return [`deadlock: ${stuck.map((action) => `stage ${action.stage} at ${nameOf(action)}`).join(', ')}`];
}

/** Problems with actions that are absent, there twice, or of another schedule. */
function missing(schedule: Schedule): readonly string[] {
  const { actions, stages, virtualStages, microBatches } = schedule;
  const numbers = actionNumbers(schedule);
  const phases = phasesOf(schedule);
  const times = new Uint32Array(numbers.count);
  const problems: string[] = [];
  if (actions.length !== stages) problems.push(`${actions.length} stages have actions, not ${stages}`);
  for (const [stage, list] of actions.entries()) {
    for (const action of list) {
      const known =
        action.stage === stage &&
        within(action.chunk, virtualStages) &&
        within(action.microBatch, microBatches) &&
        phases.includes(action.phase);
      if (known) times[numbers.of(action)] = (times[numbers.of(action)] as number) + 1;
      else
        problems.push(`stage ${stage} has ${nameOf(action)} of stage ${action.stage}, which belongs to another stage`);
    }
  }
  if (problems.length > 0) return problems;
  for (const action of everyAction(schedule)) {
    const count = times[numbers.of(action)];
    if (count !== 1) problems.push(`stage ${action.stage} runs ${nameOf(action)} ${count} times`);
  }
  return problems;
}

/** Actions that come before the phase of the same stage, chunk and micro-batch that they build on. */
function misplaced(schedule: Schedule): readonly string[] {
  const numbers = actionNumbers(schedule);
  const done = new Uint8Array(numbers.count);
  return schedule.actions.flat().flatMap((action) => {
    done[numbers.of(action)] = 1;
    const phase = EARLIER_PHASE[action.phase];
    return phase === undefined || done[numbers.of({ ...action, phase })] === 1
      ? []
      : [`stage ${action.stage} runs ${nameOf(action)} before its ${phase}`];
  });
}

/** Where each stage of a schedule that never ends is stuck; empty where it ends. */
function findDeadlock(schedule: Schedule): readonly Action[] {
  const numbers = actionNumbers(schedule);
  const done = new Uint8Array(numbers.count);
  const reached = new Int32Array(schedule.stages);
  const mayRun = (action: Action): boolean => {
    const producer = producerOf(action, schedule);
    return !producer || done[numbers.of(producer)] === 1;
  };
  for (let moved = true; moved; ) {
    moved = false;
    for (const [stage, list] of schedule.actions.entries()) {
      for (let next = list[reached[stage] as number]; next && mayRun(next); next = list[reached[stage] as number]) {
        done[numbers.of(next)] = 1;
        reached[stage] = (reached[stage] as number) + 1;
        moved = true;
      }
    }
  }
  return schedule.actions.flatMap((list, stage) => list[reached[stage] as number] ?? []);
}

function* everyAction(schedule: Schedule): Generator<Action> {
  const { stages, virtualStages, microBatches } = schedule;
  for (const phase of phasesOf(schedule))
    for (let stage = 0; stage < stages; stage++)
      for (let chunk = 0; chunk < virtualStages; chunk++)
        for (let microBatch = 0; microBatch < microBatches; microBatch++) yield { stage, chunk, microBatch, phase };
}

function within(value: number, count: number): boolean {
  return Number.isInteger(value) && value >= 0 && value < count;
}

function nameOf({ phase, chunk, microBatch }: Action): string {
  return `${phase} of micro-batch ${microBatch}, chunk ${chunk}`;
}
