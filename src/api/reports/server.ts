/**
 * @file Memory and traffic of a parameter server, beside those of the ranks that it serves.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { memoryOf } from '../../cost-model/predict.js';
import { stagesMemory } from '../../cost-model/predict-stages.js';
import { communicatedBytes } from '../../cost-model/price.js';
import { runsPerStep } from '../../ir/graph.js';
import { localBytes } from '../../partition/partition.js';
import type { ShardedGraph, ShardedTensor } from '../../partition/sharded-graph.js';
import type { Plan } from '../../strategy/plan.js';
import type { LoweredPlan } from '../planning/lower-plan.js';

/** Memory of the fullest stage and traffic of the busiest stage. */
export interface Server {
  /** Axes whose first rank updates. */
  readonly axes: readonly string[];
  /** Most bytes held at once. */
  readonly peakBytes: OfRanks;
  /** Bytes of reduced gradients and new values that pass through a rank in a step. */
  readonly passedBytes: OfRanks;
}

interface OfRanks {
  readonly server: number;
  /** Each rank that is not the first on any of the axes. */
  readonly others: number;
}

/** Null where all ranks update. */
export function serverOf({ lowered, schedule }: LoweredPlan, { server }: Plan, cluster: Cluster): Server | null {
  const axes = lowered[0]?.sharded.mesh.axes.filter(({ name }) => server?.includes(name)) ?? [];
  if (!server || axes.length === 0) return null;
  const behind = new Set(axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name)));
  const peak = (others?: ReadonlySet<string>) => {
    const memory = schedule
      ? stagesMemory(lowered, schedule, cluster, others)
      : lowered.map(({ sharded }) => memoryOf(sharded, cluster, undefined, others));
    return Math.max(...memory.map(({ peakBytes }) => peakBytes));
  };
  const passed = (isServer: boolean) => Math.max(...lowered.map(({ sharded }) => passedBytes(sharded, isServer)));
  return {
    axes: server,
    peakBytes: { server: peak(), others: peak(behind) },
    passedBytes: { server: passed(true), others: passed(false) },
  };
}

function passedBytes(graph: ShardedGraph, isServer: boolean): number {
  return graph.nodes.reduce((sum, node) => {
    if (node.kind !== 'communicate' || !['reduce', 'broadcast'].includes(node.collective.kind)) return sum;
    const bytes = localBytes(graph.tensors.get(node.input) as ShardedTensor);
    return sum + runsPerStep(node.phase, graph) * (isServer ? communicatedBytes(node, graph) : bytes);
  }, 0);
}
