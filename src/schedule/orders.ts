/**
 * @file The order of actions on one stage, for each kind of schedule. p stages, m micro-batches, v chunks per stage.
 */
import { filledWithWeights, inShapeOfV } from './filled.js';
import type { Action, ActionPhase, ScheduleKind, ScheduleRequest } from './schedule.js';

type FullScheduleRequest = Required<ScheduleRequest>;

/** By kind: the actions of every stage. */
export const ORDERS: Readonly<Record<ScheduleKind, (request: FullScheduleRequest) => readonly (readonly Action[])[]>> =
  {
    naive: onEveryStage((request, stage) =>
      upTo(request.microBatches).flatMap((microBatch) => [
        action(stage, microBatch, 'forward'),
        ...(request.training ? [action(stage, microBatch, 'backward')] : []),
      ]),
    ),

    'f-then-b': onEveryStage((request, stage) => inTurns(request, stage, request.microBatches, request.microBatches)),

    '1f1b': onEveryStage((request, stage) => inTurns(request, stage, request.microBatches, request.stages - stage - 1)),

    'interleaved-1f1b': onEveryStage(interleaved),

    'zero-bubble': onEveryStage(zeroBubble),

    'interleaved-zero-bubble': (request) => {
      const order = onEveryStage(interleaved)(request);
      return request.training ? filledWithWeights(request, order, aheadOf(request, 0) + 1) : order;
    },

    zbv: inShapeOfV,
  };

function onEveryStage(
  order: (request: FullScheduleRequest, stage: number) => readonly Action[],
): (request: FullScheduleRequest) => readonly (readonly Action[])[] {
  return (request) => upTo(request.stages).map((stage) => order(request, stage));
}

function interleaved(request: FullScheduleRequest, stage: number): readonly Action[] {
  return inTurns(request, stage, request.microBatches * request.virtualStages, aheadOf(request, stage));
}

/** The forwards before the first backward: two for each later stage (there and back), and p for each further chunk. */
function aheadOf({ stages, virtualStages }: FullScheduleRequest, stage: number): number {
  return 2 * (stages - stage - 1) + (virtualStages - 1) * stages;
}

/** `ahead` forwards, then a forward and a backward in turns, then the backwards that are left; `count` of each. */
function inTurns(request: FullScheduleRequest, stage: number, count: number, ahead: number): readonly Action[] {
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
  { stages, virtualStages }: FullScheduleRequest,
  stage: number,
  index: number,
  phase: ActionPhase,
): Action {
  if (virtualStages === 1) return action(stage, index, phase);
  const group = stages * virtualStages;
  const turns = Math.floor((index % group) / stages);
  const chunk = phase === 'forward' ? turns : virtualStages - 1 - turns;
  return { stage, chunk, microBatch: Math.floor(index / group) * stages + (index % stages), phase };
}

/**
 * ZB-H1: 1F1B in which only the input gradient, which the stage before waits for, is computed at once. Stage s delays s weight
 * gradients, so that it holds p micro-batches at most as 1F1B's first stage does, and computes them in the gaps
 * between its last input gradients and after them.
 */
function zeroBubble(request: FullScheduleRequest, stage: number): readonly Action[] {
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

function action(stage: number, microBatch: number, phase: ActionPhase): Action {
  return { stage, chunk: 0, microBatch, phase };
}

function upTo(count: number): readonly number[] {
  return Array.from({ length: count }, (_, index) => index);
}
