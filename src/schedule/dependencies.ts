/**
 * @file What an action waits for besides the action before it on its stage. With p stages of v chunks the model has p·v
 * parts, part c·p + s being chunk c of stage s; a forward needs the part before, a gradient the part behind.
 */
import type { Action, Phase, Schedule } from './schedule.js';

/** The action whose result arrives from another part of the model, if one does. */
export function producerOf(action: Action, { stages, virtualStages }: Schedule): Action | undefined {
  const part = action.chunk * stages + action.stage + PRODUCER[action.phase];
  if (PRODUCER[action.phase] === 0 || part < 0 || part >= stages * virtualStages) return undefined;
  return { ...action, stage: part % stages, chunk: Math.floor(part / stages) };
}

/** The action on another part of the model that needs this one's result, if one does. */
export function consumerOf(action: Action, { stages, virtualStages }: Schedule): Action | undefined {
  const part = action.chunk * stages + action.stage - PRODUCER[action.phase];
  if (PRODUCER[action.phase] === 0 || part < 0 || part >= stages * virtualStages) return undefined;
  return { ...action, stage: part % stages, chunk: Math.floor(part / stages) };
}

/** The phase that the same stage must have run for the same chunk and micro-batch, if there is one. */
export const EARLIER_PHASE: Readonly<Record<Phase, Phase | undefined>> = {
  forward: undefined,
  backward: 'forward',
  'input-gradient': 'forward',
  'weight-gradient': 'input-gradient',
};

/** Where the producer lies: the part before, the part behind, or nowhere. */
const PRODUCER: Readonly<Record<Phase, -1 | 0 | 1>> = {
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

const PLACE: Readonly<Record<Phase, number>> = {
  forward: 0,
  backward: 1,
  'input-gradient': 2,
  'weight-gradient': 3,
};
