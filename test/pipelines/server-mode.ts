/**
 * @file Parameter-server mode of one task under given degrees against one rank and against all-reduce: the properties that
 * `server.test.ts` and `server.slow.ts` check.
 */
import type { ExecutionContext } from 'ava';
import { actionsOf } from '../../src/partition/placed-actions.js';
import { rankMemory } from '../../src/partition/rank-memory.js';
import type { ShardedGraph } from '../../src/partition/sharded-graph.js';
import { shardIndex } from '../../src/program/mesh.js';
import { alone, type Pipeline, sentBytes, type Task, type Trained, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import { STEPS, TOLERANCE } from './zero-levels.js';

export const SERVED = { gradientSync: 'parameter-server' } as const;

/**
 * Losses over 20 steps with clipping active, every gradient (momentum after the first step) and state are those of one rank;
 * bytes and peaks that ranks count are those predicted for each of them.
 */
export async function checkServer(t: ExecutionContext, task: Task, pipeline: Pipeline): Promise<Trained> {
  const request = { ...pipeline.request, ...SERVED };
  const [one, all] = [await alone(task, STEPS), await train(task, STEPS, { ...pipeline, request })];
  const apart = worstDifference(one.first, all.first);
  t.true(apart <= TOLERANCE, `first step: ${apart}`);
  t.true(difference(one.losses, all.losses) <= TOLERANCE, 'losses');
  checkRanks(t, all);
  t.is(all.plan.requested?.gradientSync, 'parameter-server');
  return all;
}

/** Each rank counts the bytes that are predicted for it; the plan's peaks are the servers'. */
export function checkRanks(t: ExecutionContext, trained: Trained): void {
  const { sent, peaks, sentByRank, peakByRank, lowered, schedule, program } = trained;
  t.deepEqual(sent.counted, sent.predicted);
  t.deepEqual(peaks.counted, peaks.predicted);
  const axes = program.mesh.filter(({ axis }) => axis !== 'pp');
  const perStage = sentByRank.length / lowered.length;
  const actions = actionsOf(lowered, schedule?.actions);
  for (const [rank, peak] of peakByRank.entries()) {
    const stage = Math.floor(rank / perStage);
    const { sharded } = lowered[stage] as { readonly sharded: ShardedGraph };
    const names = axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
    const behind = new Set(names.filter((name) => shardIndex(axes, [name], rank % perStage) > 0));
    t.is(peak, rankMemory(sharded, actions[stage], behind).peakBytes, `peak of rank ${rank}`);
    t.is(sentByRank[rank], sentBytes(sharded, behind), `bytes of rank ${rank}`);
  }
}
