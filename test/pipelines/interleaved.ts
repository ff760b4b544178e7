/**
 * @file Micro-batches in two interleaved halves: bit for bit what twice as many micro-batches give, and one rank's losses and
 * state within rounding; as many bytes and the peak that are predicted; and instructions of one half while a collective of the
 * other is under way.
 */
import type { ExecutionContext } from 'ava';
import type { Instruction } from '../../src/program/program.js';
import { alone, type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { worstDifference } from './difference.js';
import { checkRanks } from './server-mode.js';

export async function checkInterleaved(
  t: ExecutionContext,
  task: Task,
  pipeline: Pipeline,
  steps: number,
): Promise<void> {
  const { request, ...others } = pipeline;
  const halves = await train(task, steps, { ...others, request: { ...request, interleave: 2 } });
  t.is(halves.plan.schedule.interleave, 2);
  t.is(halves.plan.schedule.microBatches, 2 * task.microBatches);
  t.deepEqual(halves.peaks.counted, halves.peaks.predicted);
  t.deepEqual(halves.sent.counted, halves.sent.predicted);
  if (halves.plan.server) checkRanks(t, halves);
  t.true(isInterleaved(halves));
  const twice = await train({ ...task, microBatches: 2 * task.microBatches }, steps, pipeline);
  t.deepEqual(halves.losses, twice.losses);
  t.deepEqual(halves.state, twice.state);
  t.deepEqual(halves.sentByRank, twice.sentByRank);
  const one = await alone({ ...task, microBatches: 1 }, steps);
  t.true(worstDifference(one, halves) < 1e-5);
}

/**
 * Whether some collectives of each half of a micro-batch are under way while the other half computes.
 */
export function isInterleaved({ program }: Trained): boolean {
  const lists = program.stages.flatMap(({ phases }) => Object.values(phases));
  const hidden = lists.flatMap((list) => list.filter((each, index) => isHidden(list, each, index)));
  return hidden.some(({ half }) => half === 1) && hidden.some(({ half }) => half === undefined);
}

function isHidden(list: readonly Instruction[], start: Instruction, from: number): boolean {
  if (start.kind !== 'start') return false;
  const to = list.findIndex((each) => each.kind === 'wait' && each.id === start.id);
  return list.slice(from, to).some(({ kind, half }) => kind === 'compute' && half !== start.half);
}
