/**
 * @file The part of the model that each chunk of each stage runs. With p stages of v chunks a model has p·v parts, counted from
 * its inputs.
 *
 *     zbv      part k on stage k, and back again: chunk 1 of stage s is part 2p − 1 − s, so that the first stage has both ends
 *     others   in rounds: chunk c of stage s is part c·p + s
 */
import type { ScheduleKind } from './schedule.js';

/** A part of the model and where it is. */
export interface PartPlace {
  readonly part: number;
  readonly stage: number;
  readonly chunk: number;
}

/** The stage and chunk of a part of the model in a kind of schedule. */
export function placeOfPart(kind: ScheduleKind, part: number, stages: number): PartPlace {
  const chunk = Math.floor(part / stages);
  const along = part % stages;
  return { part, stage: kind === 'zbv' && chunk === 1 ? stages - 1 - along : along, chunk };
}

/** The part of the model that a chunk of a stage runs. */
export function partAt(kind: ScheduleKind, stage: number, chunk: number, stages: number): number {
  return chunk * stages + (kind === 'zbv' && chunk === 1 ? stages - 1 - stage : stage);
}
