/**
 * @file Makes a schedule of a kind, and refuses requests that have none.
 */
import { AutoparError } from '../ir/error.js';
import { ORDERS } from './orders.js';
import { interleaves, phasesOf, type Schedule, type ScheduleRequest, splitsBackward } from './schedule.js';

/**
 * The schedule of a kind.
 * @throws AutoparError `bad-schedule` (usage) where the kind has no schedule for these numbers
 */
export function makeSchedule(request: ScheduleRequest): Schedule {
  const virtualStages = request.virtualStages ?? (request.kind === 'zbv' ? 2 : 1);
  const whole = { ...request, virtualStages, training: request.training ?? true };
  checkRequest(whole);
  checkLength(whole);
  return { ...whole, actions: ORDERS[whole.kind](whole) };
}

/** A limit, so that a typo is reported at once; the largest pipelines published have some 10^5 actions. */
const MOST_ACTIONS = 2 ** 22;

/**
 * Whether a kind has an order for these numbers, however many actions that is.
 * @throws AutoparError `bad-schedule` (usage) where it has none
 */
export function checkRequest({ kind, stages, microBatches, virtualStages }: Required<ScheduleRequest>): void {
  for (const [what, value] of [
    ['stages', stages],
    ['micro-batches', microBatches],
    ['virtual stages', virtualStages],
  ] as const) {
    if (Number.isInteger(value) && value >= 1) continue;
    throw refused(`${value} is not a number of ${what}`, 'give a positive whole number');
  }
  const isInterleaved = interleaves(kind);
  const plain = splitsBackward(kind) ? 'zero-bubble' : '1f1b';
  if (kind === 'zbv' && virtualStages !== 2) {
    throw refused(
      `schedule zbv runs 2 chunks per stage, the first and the last of the model on stage 0, not ${virtualStages} ` +
        `virtual ${virtualStages === 1 ? 'stage' : 'stages'}`,
      'give 2 virtual stages, or choose interleaved-zero-bubble for more and zero-bubble for 1',
    );
  }
  if (kind !== 'zbv' && !isInterleaved && virtualStages > 1) {
    throw refused(
      `schedule ${kind} runs one chunk per stage, not ${virtualStages} virtual stages`,
      `choose interleaved-${plain}, or 1 virtual stage`,
    );
  }
  if (isInterleaved && virtualStages === 1) {
    throw refused(
      `schedule ${kind} interleaves the chunks of a stage, and 1 virtual stage is one chunk`,
      `give 2 virtual stages or more, or choose ${plain}`,
    );
  }
  if (isInterleaved && microBatches % stages !== 0) {
    const below = Math.floor(microBatches / stages) * stages;
    const near = below > 0 ? `${below} or ${below + stages}` : `${stages}`;
    throw refused(
      `schedule ${kind} takes micro-batches in groups of its ${stages} stages, and ${microBatches} is not a ` +
        `multiple of ${stages}`,
      `give ${near} micro-batches, or choose ${plain}`,
    );
  }
}

function checkLength({ kind, stages, microBatches, virtualStages, training }: Required<ScheduleRequest>): void {
  const actions = stages * microBatches * virtualStages * phasesOf({ kind, training }).length;
  if (actions > MOST_ACTIONS) {
    throw refused(
      `a schedule of ${stages} stages, ${microBatches} micro-batches and ${virtualStages} virtual stages has ` +
        `${actions} actions; at most ${MOST_ACTIONS} can be planned`,
      'give fewer, larger micro-batches',
    );
  }
}

function refused(message: string, hint: string): AutoparError {
  return new AutoparError('bad-schedule', 'usage', message, {}, hint);
}
