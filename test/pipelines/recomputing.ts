/**
 * @file Properties of a program that recomputes, against the same without recomputation and against one rank.
 */
import type { ExecutionContext } from 'ava';
import { alone, type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { worstDifference } from './difference.js';

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;

/** Relative, of losses: some units in the last place. */
const ROUNDING = 1e-6;

/** Meshes, and schedules of two stages. */
export const MESHES = {
  'dp 2': { stages: 1, dp: 2 },
  'tp 2': { stages: 1, tp: 2 },
  '1f1b': { stages: 2, kind: '1f1b' },
  'f-then-b': { stages: 2, kind: 'f-then-b' },
  'zero-bubble': { stages: 2, kind: 'zero-bubble' },
} as const satisfies Readonly<Record<string, Pipeline>>;

export const KINDS = ['selective', 'operators', 'full', 'stage', 'full:except-last', 'stage:except-last'] as const;

/**
 * Trains a task on a mesh with every kind, without, and on one rank: losses, weights and momentum (which are linear in the
 * gradients and in their norm) are those of one rank; losses those without recompute, but for what ONNX Runtime's fusion of other
 * segments rounds otherwise: another mask of a dropout would differ by far more; and ranks hold at their fullest
 * moment what was predicted, which is less by what recompute is predicted to free.
 */
export async function checkRecompute(
  t: ExecutionContext,
  task: Task,
  mesh: Pipeline,
  kinds: readonly string[],
  steps: number,
): Promise<readonly Trained[]> {
  const one = await alone(task, steps);
  const kept = await train(task, steps, mesh);
  t.deepEqual(kept.peaks.counted, kept.peaks.predicted);
  const all: Trained[] = [];
  for (const recompute of kinds) {
    const again = await train(task, steps, { ...mesh, recompute });
    t.true(worstDifference(one, again) <= TOLERANCE, `${recompute}: ${worstDifference(one, again)}`);
    const apart = again.losses.map((loss, step) => Math.abs(loss - (kept.losses[step] ?? Number.NaN)) / Math.abs(loss));
    t.true(Math.max(...apart) <= ROUNDING, `${recompute}: ${Math.max(...apart)}`);
    t.deepEqual(again.peaks.counted, again.peaks.predicted, recompute);
    const freed = kept.peaks.counted.map((bytes, stage) => bytes - (again.peaks.counted[stage] ?? 0));
    // The freed bytes are predicted for the same strategies; where others cost less with recompute, the plans have other shards.
    if (strategies(again) === strategies(kept))
      // Where there is nothing of the kind, nothing is cloned and no freed bytes are predicted.
      t.deepEqual(again.freed.length > 0 ? again.freed : freed.map(() => 0), freed, recompute);
    t.log(`${recompute}: ${freed.join(' ')} of ${kept.peaks.counted.join(' ')} bytes less`);
    all.push(again);
  }
  return all;
}

function strategies({ plan }: Trained): string {
  const { operators, tensors, redistributions } = plan;
  return JSON.stringify([
    Object.entries(operators).map(([name, { strategy }]) => [name, strategy]),
    tensors,
    redistributions,
  ]);
}
