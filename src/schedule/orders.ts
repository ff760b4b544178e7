/**
 * @file The order of actions on one stage, for each kind of schedule. p stages, m micro-batches, v chunks per stage.
 */
import type { Action, Phase, ScheduleKind, ScheduleRequest } from './schedule.js';

type Order = (request: Required<ScheduleRequest>, stage: number) => readonly Action[];

export const ORDERS: Readonly<Record<ScheduleKind, Order>> = {
  naive: (request, stage) =>
    upTo(request.microBatches).flatMap((microBatch) => [
      action(stage, microBatch, 'forward'),
      ...(request.training ? [action(stage, microBatch, 'backward')] : []),
    ]),

  'f-then-b': (request, stage) => inTurns(request, stage, request.microBatches, request.microBatches),

  '1f1b': (request, stage) => inTurns(request, stage, request.microBatches, request.stages - stage - 1),

  // The forwards before the first backward: two for each later stage (there and back), and p for each further chunk.
  'interleaved-1f1b': (request, stage) => {
    const { stages, microBatches, virtualStages } = request;
    const ahead = 2 * (stages - stage - 1) + (virtualStages - 1) * stages;
    return inTurns(request, stage, microBatches * virtualStages, ahead);
  },

  'zero-bubble': zeroBubble,
};

/** `ahead` forwards, then a forward and a backward in turns, then the backwards that are left; `count` of each. */
function inTurns(request: Required<ScheduleRequest>, stage: number, count: number, ahead: number): readonly Action[] {
  const actions: Action[] = [];
  const warm = request.training ? Math.min(ahead, count) : count;
  for (let index = 0; index < warm; index++) actions.push(turn(request, stage, index, 'forward'));
  if (!request.training) return actions;
  for (let index = 0; index < count; index++) {
    if (warm + index < count) actions.push(turn(request, stage, warm + index, 'forward'));
    actions.push(turn(request, stage, index, 'backward'));
  }
  return actions;
}

/** Forward or backward number `index` of a stage: p micro-batches through a chunk, then the same p through the next. */
function turn(
  { stages, virtualStages }: Required<ScheduleRequest>,
  stage: number,
  index: number,
  phase: Phase,
): Action {
  if (virtualStages === 1) return action(stage, index, phase);
  const group = stages * virtualStages;
  const turns = Math.floor((index % group) / stages);
  const chunk = phase === 'forward' ? turns : virtualStages - 1 - turns;
  return { stage, chunk, microBatch: Math.floor(index / group) * stages + (index % stages), phase };
}

/**
 * ZB-H1: 1F1B in which only the input gradient, which the stage before waits for, is computed at once. Stage s keeps s weight
 * gradients back, so that it holds p micro-batches at most as 1F1B's first stage does, and computes them in the gaps
 * between its last input gradients and after them.
 */
function zeroBubble(request: Required<ScheduleRequest>, stage: number): readonly Action[] {
  const { stages, microBatches, training } = request;
  const actions: Action[] = [];
  const warm = training ? Math.min(stages - stage - 1, microBatches) : microBatches;
  for (let index = 0; index < warm; index++) actions.push(action(stage, index, 'forward'));
  if (!training) return actions;
  let weights = 0;
  for (let index = 0; index < microBatches; index++) {
    const steady = warm + index < microBatches;
    if (steady) actions.push(action(stage, warm + index, 'forward'));
    actions.push(action(stage, index, 'input-gradient'));
    if (!steady || index >= stage) actions.push(action(stage, weights++, 'weight-gradient'));
  }
  while (weights < microBatches) actions.push(action(stage, weights++, 'weight-gradient'));
  return actions;
}

function action(stage: number, microBatch: number, phase: Phase): Action {
  return { stage, chunk: 0, microBatch, phase };
}

function upTo(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => index);
}
