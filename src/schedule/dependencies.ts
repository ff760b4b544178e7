/**
 * @file Dependencies of an action besides the action before it on its stage: a forward needs the part of the model before, a
 * gradient the part behind.
 */
import { partAt, placeOfPart } from './parts.js';
import type { Action, ActionPhase, Schedule } from './schedule.js';

/** The action whose result arrives from another part of the model, if one does. */
export function producerOf(action: Action, schedule: Schedule): Action | undefined {
  return beside(action, PRODUCER[action.phase], schedule);
}

/** The action on another part of the model that needs this one's result, if one does. */
export function consumerOf(action: Action, schedule: Schedule): Action | undefined {
  return beside(action, -PRODUCER[action.phase], schedule);
}

/** The same phase of the same micro-batch some parts behind. */
function beside(action: Action, by: number, { kind, stages, virtualStages }: Schedule): Action | undefined {
  const part = partAt(kind, action.stage, action.chunk, stages) + by;
  if (by === 0 || part < 0 || part >= stages * virtualStages) return undefined;
  const { stage, chunk } = placeOfPart(kind, part, stages);
  return { ...action, stage, chunk };
}

/** The phase that the same stage must have run for the same chunk and micro-batch, if there is one. */
export const EARLIER_PHASE: Readonly<Record<ActionPhase, ActionPhase | undefined>> = {
  forward: undefined,
  backward: 'forward',
  'input-gradient': 'forward',
  'weight-gradient': 'input-gradient',
};

/** The part of the producer: the one before, the one behind, or none. */
const PRODUCER: Readonly<Record<ActionPhase, -1 | 0 | 1>> = {
  forward: -1,
  backward: 1,
  'input-gradient': 1,
  'weight-gradient': 0,
};

/** Numbers the actions of a schedule from 0, so that tables over them are arrays. */
export function actionNumbers({ stages, virtualStages, microBatches }: Schedule): {
  readonly count: number;
  readonly of: (action: Action) => number;
} {
  const perPhase = stages * virtualStages * microBatches;
  return {
    count: 4 * perPhase,
    of: ({ phase, stage, chunk, microBatch }) =>
      PLACE[phase] * perPhase + (stage * virtualStages + chunk) * microBatches + microBatch,
  };
}

const PLACE: Readonly<Record<ActionPhase, number>> = {
  forward: 0,
  backward: 1,
  'input-gradient': 2,
  'weight-gradient': 3,
};
