/**
 * @file Gains and losses of a plan of operators on another cluster: the model is planned again with one gigabyte more memory,
 * or with links or devices twice as fast, under the same pins.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { fasterDevices, withMemory } from '../../cost-model/faster-devices.js';
import { fasterLinks } from '../../cost-model/faster-links.js';
import { usableBytes } from '../../cost-model/predict.js';
import { AutoparError } from '../../ir/error.js';
import type { MeshDegrees } from '../../search/degrees.js';
import { plan as search } from '../../search/plan.js';
import type { Replanning } from '../planning/replan.js';

/** One change of the cluster, and the best plan for it. */
export interface PlanSensitivity {
  readonly change: string;
  /** Null if nothing fits. */
  readonly best: {
    readonly degrees: MeshDegrees;
    readonly stepSeconds: number;
    /** Lower bound of the step time of any plan. */
    readonly boundSeconds: number;
    readonly peakBytes: number;
  } | null;
  /** Its step time divided by that of the current plan. */
  readonly ratio: number | null;
}

/** @param now seconds of a step of the current plan, as the search counts them */
export async function planSensitivities(
  { imported, cluster, options }: Replanning,
  now: number,
  signal: AbortSignal | undefined,
  onProgress: (text: string) => void,
): Promise<readonly PlanSensitivity[]> {
  const all: PlanSensitivity[] = [];
  for (const { change, on, memoryBytes } of changesOf(cluster, options.memoryBytes)) {
    onProgress(`sensitivity: ${change}`);
    const given = { ...options, ...(memoryBytes === undefined ? {} : { memoryBytes }), ...(signal ? { signal } : {}) };
    const found = await search(imported.graph, on, given).catch((error: unknown) => {
      if (error instanceof AutoparError && error.code === 'nothing-fits') return null;
      throw error;
    });
    const best = found && {
      degrees: found.degrees,
      stepSeconds: found.prediction.stepSeconds,
      boundSeconds: found.boundNanoseconds / 1e9,
      peakBytes: Math.max(...found.prediction.peakBytes),
    };
    all.push({ change, best, ratio: best && best.stepSeconds / now });
  }
  return all;
}

interface ClusterChange {
  readonly change: string;
  readonly on: Cluster;
  readonly memoryBytes?: number;
}

/** Changes in display order. Changes of memory apply to the user's limit if there is one, otherwise to the devices. */
function changesOf(cluster: Cluster, given: number | undefined): readonly ClusterChange[] {
  const isLimited = given !== undefined || usableBytes(cluster) !== undefined;
  const memory = (change: string, bytes: (of: number) => number): ClusterChange =>
    given === undefined
      ? { change, on: withMemory(cluster, bytes) }
      : { change, on: cluster, memoryBytes: bytes(given) };
  return [
    ...(isLimited
      ? [
          memory('1 GB more memory per device', (of) => of + 1e9),
          memory('twice the memory', (of) => 2 * of),
          memory('half the memory', (of) => of / 2),
        ]
      : []),
    ...(cluster.nodes > 1
      ? [{ change: 'twice the network between nodes', on: fasterLinks(cluster, 'between', 2) }]
      : []),
    { change: 'twice the links inside a node', on: fasterLinks(cluster, 'inside', 2) },
    { change: 'twice the compute', on: fasterDevices(cluster, 'compute', 2) },
    { change: 'twice the memory bandwidth', on: fasterDevices(cluster, 'memory', 2) },
  ];
}
