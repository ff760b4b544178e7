/**
 * @file A schedule as text: a line per stage, a column per unit of time, the name of each action where it starts.
 */
import type { Action, ActionPhase, Schedule } from './schedule.js';
import type { Timeline } from './simulate.js';

/**
 * Draws a simulation with durations of whole numbers. `F1` is the forward of the first micro-batch, `B1` its backward
 * (`b1` and `w1` input and weight gradient), `F1b` its forward through a stage's second chunk; `-` goes on, `.` is idle.
 */
export function drawSchedule(schedule: Schedule, timeline: Timeline): readonly string[] {
  const width = Math.max(...schedule.actions.flat().map((action) => nameOf(action, schedule).length)) + 1;
  const label = `stage ${schedule.stages - 1} `.length;
  return schedule.actions.map((list, stage) => {
    const cells = Array.from({ length: timeline.makespan }, () => '.');
    for (const [index, action] of list.entries()) {
      const start = timeline.starts[stage]?.[index] as number;
      const end = timeline.ends[stage]?.[index] as number;
      cells.fill('-', start, end);
      cells[start] = nameOf(action, schedule);
    }
    const line = `${`stage ${stage}`.padEnd(label)} ${cells.map((cell) => cell.padEnd(width)).join('')}`;
    return line.trimEnd();
  });
}

function nameOf({ phase, microBatch, chunk }: Action, { virtualStages }: Schedule): string {
  return `${LETTERS[phase]}${microBatch + 1}${virtualStages > 1 ? String.fromCharCode(97 + chunk) : ''}`;
}

const LETTERS: Readonly<Record<ActionPhase, string>> = {
  forward: 'F',
  backward: 'B',
  'input-gradient': 'b',
  'weight-gradient': 'w',
};
