/**
 * @file What a plan of operators would gain or lose if the cluster were another: it is planned again with one gigabyte more,
 * links or devices twice as fast, under the same pins.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { fasterDevices, withMemory } from '../../cost-model/faster-devices.js';
import { fasterLinks } from '../../cost-model/faster-links.js';
import { usableBytes } from '../../cost-model/predict.js';
import { AutoparError } from '../../ir/error.js';
import type { MeshDegrees } from '../../search/degrees.js';
import { plan as search } from '../../search/plan.js';
import type { Replanning } from '../planning/replan.js';

/** One change, and the best plan under it. */
export interface PlanSensitivity {
  readonly change: string;
  /** Null where nothing fits then. */
  readonly best: {
    readonly degrees: MeshDegrees;
    readonly stepSeconds: number;
    /** No plan takes less. */
    readonly boundSeconds: number;
    readonly peakBytes: number;
  } | null;
  /** Its seconds over those of the plan at hand. */
  readonly ratio: number | null;
}

/** @param now seconds of a step of the plan at hand, as the search counts them */
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

/** In the order in which they are shown. A limit that the user gave is what changes; else the memory of the devices. */
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
