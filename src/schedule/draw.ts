/**
 * @file A schedule as text: a line per stage, time from left to right, the name of each action where it starts. `F1` is the
 * forward of the first micro-batch, `B1` its backward (`b1` and `w1` input and weight gradient), `F1b` its forward through a
 * stage's second chunk; `-` goes on, `.` is idle.
 */
import type { Action, ActionPhase, Schedule } from './schedule.js';
import type { Timeline } from './simulate.js';

/** Draws a simulation with durations of whole numbers: a column per unit of time, as wide as the longest name. */
export function drawSchedule(schedule: Schedule, timeline: Timeline): readonly string[] {
  const width = Math.max(...schedule.actions.flat().map((action) => nameOf(action, schedule).length)) + 1;
  return schedule.actions.map((list, stage) => {
    const cells = Array.from({ length: timeline.makespan }, () => '.');
    for (const [index, action] of list.entries()) {
      const start = timeline.starts[stage]?.[index] as number;
      const end = timeline.ends[stage]?.[index] as number;
      cells.fill('-', start, end);
      cells[start] = nameOf(action, schedule);
    }
    return `${labelOf(stage, schedule)}${cells.map((cell) => cell.padEnd(width)).join('')}`.trimEnd();
  });
}

/**
 * Draws any simulation on so many columns of one character: starts and ends are rounded to whole columns. An action whose name
 * is wider has its letter alone; one that rounds to no column is left out.
 */
export function drawScaled(schedule: Schedule, timeline: Timeline, columns: number): readonly string[] {
  const scale = columns / timeline.makespan;
  return schedule.actions.map((list, stage) => {
    const cells = Array.from({ length: columns }, () => '.');
    for (const [index, action] of list.entries()) {
      const start = Math.round((timeline.starts[stage]?.[index] as number) * scale);
      const width = Math.round((timeline.ends[stage]?.[index] as number) * scale) - start;
      const name = nameOf(action, schedule);
      const shown = name.length <= width ? name : LETTERS[action.phase];
      cells.splice(start, width, ...shown.padEnd(width, '-').slice(0, width));
    }
    return `${labelOf(stage, schedule)}${cells.join('')}`;
  });
}

function labelOf(stage: number, { stages }: Schedule): string {
  return `stage ${stage}`.padEnd(`stage ${stages - 1}  `.length);
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
