/**
 * @file The hardware catalogue: one record per accelerator, every figure with its source.
 *
 * Units: bytes, bytes per second and direction and device, dense FLOP per second, seconds. A source that starts with
 * `verified` names where the figure was read; `general knowledge` marks an unverified one. `cluster.ts` joins the
 * catalogue's devices with `cpu-rank`, the device of a rank on this machine's own processor.
 */
import type { DeviceSpec } from './device.js';
import { AMD } from './hardware/amd.js';
import { GOOGLE } from './hardware/google.js';
import { NVIDIA } from './hardware/nvidia.js';
import { OTHERS } from './hardware/others.js';

/** Memory that a process on an accelerator takes before the first tensor. */
export const DEVICE_OVERHEAD = {
  contextBytes: 500_000_000,
  communicationBytes: 1_500_000_000,
  fragmentation: 0.05,
  source:
    'verified range: stas00/ml-engineering@744d01e18b79:training/performance/README.md (CUDA kernels 0.47-2 GiB, ' +
    'torch.distributed init 1-2 GiB); fragmentation general knowledge',
} as const;

/** Bytes of a device that are never its tensors': its context and, where there are several devices, the communication library. */
export function fixedBytesAmong(devices: number): number {
  const { contextBytes, communicationBytes } = DEVICE_OVERHEAD;
  return contextBytes + (devices > 1 ? communicationBytes : 0);
}

/** A node's disk, a device's share of it. */
export const DISK = {
  bandwidth: 1e9,
  source: 'general knowledge: one NVMe drive reads and writes some 4-7 GB/s, which several devices of a node share',
} as const;

/** In the order in which `autopar hardware` lists them. */
export const HARDWARE: readonly DeviceSpec[] = [...NVIDIA, ...AMD, ...GOOGLE, ...OTHERS];
