/**
 * @file Offload to the host's memory, and its cost: optimizer state, which the host then updates itself (ZeRO-Offload, Ren et al.
 * 2021), and stored activations of layers, which leave while the next layer runs and return before its backward (Megatron-LM's
 * CPU offloading, MindSpore's memory offload).
 */

import type { Cluster } from '../cluster.js';
import type { HostSpec } from '../device.js';
import { greatestCommonDivisor } from '../group-place.js';
import { elementBytes } from '../kernel-price.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { stageStride } from './mesh-order.js';
import { elapsedSeconds, type PhaseTime } from './phase-time.js';

export function offloadsOptimizer({ offload }: StepConfiguration): boolean {
  return offload === 'optimizer' || offload === 'all';
}

export function offloadsActivations({ offload }: StepConfiguration): boolean {
  return offload === 'activations' || offload === 'all';
}

/** Transfers of a rank in a step, over a host link or between data-parallel ranks. */
export interface TransferPrice {
  /** Seconds by which the step is longer, including the slowdown of compute by hidden communication. */
  readonly exposed: number;
  /** Seconds that run under compute. */
  readonly hidden: number;
  /** Bytes that the rank sends. */
  readonly bytes: number;
}

export const NO_TRANSFER: TransferPrice = { exposed: 0, hidden: 0, bytes: 0 };

/**
 * A layer's phase with the transfer of its stored activations, either way: copies overlap with compute, and the longer of the two
 * counts. Copies slow the compute that they overlap with, as any hidden communication does.
 */
export function layerTransfer(
  phase: PhaseTime,
  bytes: number,
  cluster: Cluster,
  { contention }: StepConstants,
): PhaseTime {
  const seconds = bytes / hostOf(cluster).linkBandwidth;
  const compute = elapsedSeconds(phase);
  const hiddenHost = Math.min(seconds, compute);
  return { ...phase, host: seconds - hiddenHost + contention * hiddenHost, hiddenHost };
}

/**
 * Gradients on their way to the host, bucket by bucket as they are reduced: the last bucket always waits.
 * @param updated elements of parameters that this rank updates
 * @param lastBackwards seconds of backward after a stage's first gradients are whole
 */
export function gradientTransfer(
  updated: number,
  lastBackwards: number,
  { gradientBytes, precision, overlap }: StepConfiguration,
  cluster: Cluster,
  { hiddenData, contention }: StepConstants,
): TransferPrice {
  const { linkBandwidth } = hostOf(cluster);
  const seconds = (updated * gradientBytes) / linkBandwidth;
  const exposed = overlap.data ? Math.max(LAST_BUCKET * seconds, seconds - lastBackwards * hiddenData) : seconds;
  const hidden = seconds - exposed;
  return { exposed: exposed + contention * hidden, hidden, bytes: updated * (gradientBytes + elementBytes(precision)) };
}

/** The same share of a message that reductions over data-parallel ranks cannot hide. */
const LAST_BUCKET = 0.05;

/** Seconds of an update on the host; updated parameters return tile by tile meanwhile, and the longer of the two counts. */
export function hostUpdateSeconds(
  updated: number,
  { precision }: StepConfiguration,
  cluster: Cluster,
  { optimizerBytes, hostShare }: StepConstants,
): number {
  const { memoryBandwidth, linkBandwidth } = hostOf(cluster);
  return Math.max(
    (updated * optimizerBytes) / (memoryBandwidth * hostShare),
    (updated * elementBytes(precision)) / linkBandwidth,
  );
}

/** Bytes that the ranks of the fullest node hold in its host's memory, and the bytes of that memory. */
export interface HostMemory {
  readonly node: number;
  readonly bytes: number;
  readonly memoryBytes: number;
}

/** The fullest host; null where nothing is offloaded. */
export function hostMemory(
  stages: readonly { readonly host: number }[],
  configuration: StepConfiguration,
  cluster: Cluster,
): HostMemory | null {
  if ((configuration.offload ?? 'none') === 'none') return null;
  return fullestHost(
    stages.map(({ host }) => host),
    configuration,
    cluster,
  );
}

/**
 * The node whose host holds most: ranks of one node may be of several stages, and early stages hold more.
 * @param perRank bytes of a rank of each stage
 */
export function fullestHost(
  perRank: readonly number[],
  { degrees, meshOrder }: Pick<StepConfiguration, 'degrees' | 'meshOrder'>,
  cluster: Cluster,
): HostMemory {
  const { perNode, nodes } = cluster;
  const { pp } = degrees;
  const stride = stageStride(degrees, meshOrder);
  let fullest = { node: 0, bytes: 0 };
  // After so many nodes the stages come in the same order again.
  const different = Math.min(nodes, (stride * pp) / greatestCommonDivisor(stride * pp, perNode));
  // Where nodes are of one stage each, the next that may differ is of the next stage.
  const alike = stride % perNode === 0 ? stride / perNode : 1;
  for (let node = 0; node < different; node += alike) {
    let bytes = 0;
    for (let rank = node * perNode; rank < (node + 1) * perNode; ) {
      const end = Math.min((node + 1) * perNode, (Math.floor(rank / stride) + 1) * stride);
      bytes += (end - rank) * (perRank[Math.floor(rank / stride) % pp] ?? 0);
      rank = end;
    }
    if (bytes > fullest.bytes) fullest = { node, bytes };
  }
  return { ...fullest, memoryBytes: hostOf(cluster).memoryBytes * perNode };
}

/** @throws Error where the host is unknown: callers report that before they request offload */
function hostOf({ device }: Cluster): HostSpec {
  if (!device.host) throw new Error(`device ${device.id} has no host data`);
  return device.host;
}
