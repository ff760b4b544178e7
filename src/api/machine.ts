/**
 * @file Available devices: the catalogue of accelerators, and this machine.
 */
import { createRequire } from 'node:module';
import { availableParallelism, totalmem } from 'node:os';
import { clusterSize, deviceOf, parseCluster } from '../cost-model/cluster.js';
import { CPU_RANK, type DeviceSpec } from '../cost-model/device.js';
import { HARDWARE } from '../cost-model/hardware.js';
import { AutoparError } from '../ir/error.js';
import { writeOnnx } from '../ir/onnx/writer.js';
import { plainNode } from '../ir/plain-node.js';
import { BACKENDS, type BackendTraits, type SegmentSource } from '../runtime/backend.js';
import { openDevice } from '../runtime/device-client.js';
import { loadOrt } from '../runtime/ort.js';
import type { RunBackend } from './execution/backends.js';
import { checkArguments, text } from './options/kinds.js';

/** All devices that `--cluster` accepts. */
export function hardware(): readonly DeviceSpec[] {
  return [...HARDWARE, CPU_RANK];
}

/** One device by id. @throws AutoparError `unknown-device` (usage) with the nearest known id. */
export function hardwareById(id: string): DeviceSpec {
  checkArguments('hardwareById', { id: [id, text] });
  return deviceOf(id);
}

export interface LocalDevices {
  readonly cores: number;
  readonly memoryBytes: number;
  /** Number of ranks that compile uses on this machine by default. */
  readonly defaultRanks: number;
  readonly backends: readonly LocalBackend[];
}

/** A backend that `run --backend` accepts. */
export interface LocalBackend {
  readonly name: RunBackend;
  readonly engine: string;
  readonly version: string;
  /** Null if the backend works on this machine. */
  readonly missing: { readonly reason: string; readonly remedy: string } | null;
}

/**
 * This machine's devices. Each backend is tested with one operator. @throws AutoparError `backend-absent` if onnxruntime-node
 * cannot be loaded.
 */
export async function localDevices(): Promise<LocalDevices> {
  await loadOrt();
  const { version } = createRequire(import.meta.url)('onnxruntime-node/package.json') as { readonly version: string };
  const own = createRequire(import.meta.url)('../../../package.json') as { readonly version: string };
  const backends = await Promise.all(
    Object.values(BACKENDS).map(async (traits): Promise<LocalBackend> => {
      const { name, engine } = traits;
      return { name, engine, version, missing: traits.provider ? await missingFor(traits) : null };
    }),
  );
  return {
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    defaultRanks: clusterSize(parseCluster(undefined, undefined)),
    backends: [...backends, { name: 'emulated', engine: 'autopar', version: own.version, missing: null }],
  };
}

/** The reason why a device does not run an operator; null if it runs one. */
async function missingFor(traits: BackendTraits): Promise<LocalBackend['missing']> {
  try {
    const device = await openDevice(traits, 0, () => false);
    try {
      const segment = await device.load(tinySegment(), 1);
      await segment.run([device.tensor('float32', [1], new Uint8Array(4))], null);
    } finally {
      await device.close();
    }
    return null;
  } catch (error) {
    if (error instanceof AutoparError) return { reason: error.message, remedy: error.hint ?? '' };
    return { reason: error instanceof Error ? error.message : String(error), remedy: traits.remedy ?? '' };
  }
}

function tinySegment(): SegmentSource {
  const type = { dtype: 'float32', shape: [1] } as const;
  const model = writeOnnx({
    name: 'tiny',
    nodes: [plainNode({ name: 'add', op: 'Add', inputs: ['x', 'x'], outputs: ['y'] })],
    tensors: new Map([
      ['x', type],
      ['y', type],
    ]),
    inputs: ['x'],
    outputs: ['y'],
    weights: new Map(),
    state: [],
    batch: [],
  });
  return { id: 'tiny', file: 'tiny', model, inputs: ['x'], outputs: ['y'], nodes: [], weights: [] };
}
