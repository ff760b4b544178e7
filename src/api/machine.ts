/**
 * @file What there is to run on: the catalogue of accelerators, and this machine.
 */
import { createRequire } from 'node:module';
import { availableParallelism, totalmem } from 'node:os';
import { clusterSize, deviceOf, parseCluster } from '../cost-model/cluster.js';
import { CPU_RANK, type DeviceSpec } from '../cost-model/device.js';
import { HARDWARE } from '../cost-model/hardware.js';
import { loadOrt } from '../runtime/ort.js';

/** All devices that `--cluster` can name. */
export function hardware(): readonly DeviceSpec[] {
  return [...HARDWARE, CPU_RANK];
}

/** One device by id. @throws AutoparError `unknown-device` (usage) offering the nearest. */
export function hardwareById(id: string): DeviceSpec {
  return deviceOf(id);
}

export interface LocalDevices {
  readonly cores: number;
  readonly memoryBytes: number;
  /** Ranks that compile uses here when nothing names a number. */
  readonly defaultRanks: number;
  readonly backends: readonly { readonly name: string; readonly engine: string; readonly version: string }[];
}

/** This machine's devices. @throws AutoparError `backend-absent` where onnxruntime-node cannot be loaded. */
export async function localDevices(): Promise<LocalDevices> {
  await loadOrt();
  const { version } = createRequire(import.meta.url)('onnxruntime-node/package.json') as { readonly version: string };
  return {
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    defaultRanks: clusterSize(parseCluster(undefined, undefined)),
    backends: [{ name: 'cpu', engine: 'onnxruntime-node', version }],
  };
}
