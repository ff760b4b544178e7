/**
 * @file The contents of a rank's memory at its peak: tensors by name, largest first, and bytes of each kind.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { stagesMemory } from '../../cost-model/predict-stages.js';
import type { DType } from '../../ir/dtype.js';
import type { Liveness } from '../../partition/liveness.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { tensorOfEntry } from '../../partition/rank-memory.js';
import { type TensorKind, tensorKinds } from '../../partition/tensor-kinds.js';
import { inFileOrder } from '../../sharding-propagation/file-form.js';
import { fileTensors } from '../models/file-tensors.js';
import { checkArguments, integerFrom, leftOut } from '../options/kinds.js';
import { CLUSTER, LOWERED } from '../options/results.js';
import type { LoweredPlan } from '../planning/lower-plan.js';

export type LiveTensorKind = TensorKind | 'communication buffer';

/** A tensor or buffer that takes memory. */
export interface LiveTensor {
  readonly tensor: string;
  readonly kind: LiveTensorKind;
  /** All of its bytes; a weight that several sessions hold counts once for each of them. */
  readonly bytes: number;
  /** Type and shape of one rank's shard, for a weight in the file's dimensions; null for a buffer. */
  readonly dtype: DType | null;
  readonly shape: readonly number[] | null;
}

/** The memory peak of one stage's ranks. */
export interface PeakMemory {
  readonly stage: number;
  readonly peakBytes: number;
  /** The operator that runs then (the first of its segment); null before any. */
  readonly operator: string | null;
  /** Bytes by kind, most first. */
  readonly kinds: Readonly<Record<string, number>>;
  /** Largest first. */
  readonly held: readonly LiveTensor[];
  /** Tensors that are not in the list. */
  readonly others: { readonly count: number; readonly bytes: number };
}

/** Memory limit of a device: the requested one, else all of its memory; null for ranks of this machine. */
export function memoryLimit(requested: number | undefined, { local, device }: Cluster): number | null {
  return requested ?? (local ? null : device.memoryBytes);
}

/** Per stage; the `most` largest tensors by name, the others summed. */
export function peakMemory(lowering: LoweredPlan, cluster: Cluster, most?: number): readonly PeakMemory[] {
  checkArguments('peakMemory', {
    lowering: [lowering, LOWERED],
    cluster: [cluster, CLUSTER],
    most: [most, leftOut(integerFrom(0))],
  });
  const { lowered, schedule, memory = stagesMemory(lowered, schedule, cluster) } = lowering;
  return lowered.map((stage, index) => ofStage(stage, index, memory[index] as Liveness, most));
}

function ofStage({ graph, sharded }: LoweredStage, stage: number, memory: Liveness, most?: number): PeakMemory {
  const { peakBytes, at, bytesByTensor: held } = memory;
  const kinds = tensorKinds(sharded);
  const fileOf = fileTensors(graph, sharded);
  const list = [...held()].map(([name, bytes]): LiveTensor => {
    const tensor = tensorOfEntry(name);
    if (tensor === null) return { tensor: name, kind: 'communication buffer', bytes, dtype: null, shape: null };
    const { dtype = null, localShape = null } = sharded.tensors.get(tensor) ?? {};
    const shape = localShape && inFileOrder(localShape, fileOf.get(tensor) ?? null, 1);
    return { tensor: name, kind: kinds.get(tensor) ?? 'temporary', bytes, dtype, shape };
  });
  const sums = new Map<LiveTensorKind, number>();
  for (const { kind, bytes } of list) sums.set(kind, (sums.get(kind) ?? 0) + bytes);
  list.sort((a, b) => b.bytes - a.bytes || (a.tensor < b.tensor ? -1 : 1));
  const rest = most === undefined ? [] : list.slice(most);
  return {
    stage,
    peakBytes,
    operator: at,
    kinds: Object.fromEntries([...sums].sort((a, b) => b[1] - a[1])),
    held: list.slice(0, most),
    others: { count: rest.length, bytes: rest.reduce((sum, { bytes }) => sum + bytes, 0) },
  };
}
