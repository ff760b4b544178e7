/**
 * @file One device in the cost model: the catalogue's record, and the few physical constants that turn peak figures into
 * times.
 */

/** Number formats that a device has a separate peak for. */
export type PeakKind = 'fp32' | 'tf32' | 'bf16' | 'fp16' | 'fp8' | 'fp4' | 'int8';

/** A device's share of its node's host: its own link, and its share of the memory. */
export interface HostSpec {
  /** Bytes per second and direction between the device and the host's memory, all devices of the node at once. */
  readonly linkBandwidth: number;
  /** Bytes of the node's memory, over its devices. */
  readonly memoryBytes: number;
  /** Peak of the node's memory, over its devices. */
  readonly memoryBandwidth: number;
}

/** A device of the catalogue. Bytes, bytes per second (one direction), dense FLOP per second, seconds. */
export interface DeviceSpec {
  readonly id: string;
  readonly name: string;
  readonly vendor: string;
  readonly peakFlops: Readonly<Partial<Record<PeakKind, number>>>;
  /** Highest matmul rate anyone measured, where someone did. */
  readonly measuredMatmulFlops?: Readonly<Partial<Record<PeakKind, number>>>;
  readonly memoryBytes: number;
  readonly memoryBandwidth: number;
  /** The fast links between devices of one node (or rack). */
  readonly scaleUp: {
    readonly bandwidth: number;
    readonly latencySeconds: number;
    readonly domainSize: number;
    /** In words. */
    readonly topology: string;
    /** How they join the devices, a switch if left out; `bandwidth` is of one link in a mesh or torus, else of all. */
    readonly links?: 'mesh' | 'torus';
    /** Dimensions of a torus. */
    readonly dimensions?: number;
  };
  /** The network between nodes, per device. */
  readonly scaleOut: { readonly bandwidth: number; readonly latencySeconds: number };
  /** Left out where no source states which hosts such devices have. */
  readonly host?: HostSpec;
  /** Bus bandwidths as measured, in NCCL's convention. */
  readonly measuredCollectives?: Readonly<Record<string, number | string>>;
  /** Processors that run tiles of a matmul side by side; where left out, waves are not counted. */
  readonly smCount?: number;
  readonly l2Bytes?: number;
  /** The attention kernel of devices that the newest ones are not written for. */
  readonly attention?: 'early';
  /** The constants that go with it, where they are not those of its kind. */
  readonly profile?: DeviceProfile;
  /** The source of each figure. */
  readonly source: Readonly<Record<string, string>>;
  readonly notes?: string;
}

/** A tile of a matmul's result that one processor computes, and the share of the peak that such tiles reach. */
export interface Tile {
  readonly rows: number;
  readonly columns: number;
  readonly efficiency: number;
}

/**
 * Memory: η(bytes) = ceiling / (1 + (halfBytes / bytes)^power), `bytes` being those that an operator reads and writes. Where
 * there is a cache, up to `cacheBytes` of them go `cacheGain` times as fast.
 */
export interface MemoryCurve {
  readonly ceiling: number;
  readonly halfBytes: number;
  readonly power: number;
  readonly cacheBytes?: number;
  readonly cacheGain?: number;
}

/** How far a device gets from its peaks. One record per kind of device, never one per model. */
export interface DeviceProfile {
  /** Share of the peak that the largest matmuls reach, where the catalogue has no measured rate. */
  readonly matmulCeiling: number;
  /** Share of that rate that holds for seconds; left out: that of the device's generation. */
  readonly sustained?: number;
  /** Share of the fp32 peak that elementwise arithmetic reaches. */
  readonly vectorCeiling: number;
  /** Summed length k at which a matmul reaches half of its ceiling: η ∝ k / (k + k0). */
  readonly halfDepth: number;
  readonly tiles: readonly Tile[];
  readonly memory: MemoryCurve;
  /**
   * Bytes per second at which a matmul packs a second operand that is not a stored weight (a kernel on a CPU copies it into
   * panels first); left out where that costs nothing.
   */
  readonly packingBandwidth?: number;
  /** Bytes per second at which a session passes results on; left out: as memory reads and writes them. */
  readonly resultBandwidth?: number;
  /** Seconds that an operator costs before it does anything. */
  readonly launchSeconds: number;
  /** Seconds that a run of operators costs beyond them, where a collective does not begin or end it. */
  readonly segmentSeconds: number;
  /** Seconds per tensor that a run of operators reads or makes, beyond one of each; 0 if left out. */
  readonly tensorSeconds?: number;
  /** Seconds that a collective costs beyond the links' latency: leaving and entering compute, meeting the others. */
  readonly collectiveSeconds: number;
  /** Share of a link's bandwidth that a collective reaches, where the catalogue has no measured figure. */
  readonly linkCeiling: number;
  /** Whether messages must be large to fill links, as NCCL's (`levels.ts`); shared memory has no such pipeline. */
  readonly fillsLinks: boolean;
  /** Whether fused regions (attention, normalisation, …) run as one kernel, whose inner tensors never reach memory. */
  readonly fusesRegions: boolean;
}

/**
 * Accelerators. Ceiling and memory figures: docs/cost-model.md (A100 reaches 0.87 of its peak, H100 0.80, B200 0.78;
 * 0.9, 0.75, 0.6 of the memory bandwidth at 100, 10 and 1 MB). Launch: 4–8 µs a kernel when launched eagerly.
 */
const ACCELERATOR: DeviceProfile = {
  matmulCeiling: 0.8,
  vectorCeiling: 0.5,
  halfDepth: 64,
  tiles: [
    { rows: 256, columns: 128, efficiency: 1 },
    { rows: 128, columns: 256, efficiency: 1 },
    { rows: 128, columns: 128, efficiency: 0.95 },
    { rows: 128, columns: 64, efficiency: 0.8 },
    { rows: 64, columns: 128, efficiency: 0.8 },
    { rows: 64, columns: 64, efficiency: 0.65 },
    { rows: 32, columns: 64, efficiency: 0.4 },
    { rows: 16, columns: 64, efficiency: 0.25 },
  ],
  memory: { ceiling: 0.9, halfBytes: 175_000, power: 0.4 },
  launchSeconds: 5e-6,
  segmentSeconds: 0,
  // Fitted with the links' latencies: npm run bench:collective-fit.
  collectiveSeconds: 10e-6,
  linkCeiling: 0.8,
  fillsLinks: true,
  fusesRegions: true,
};

/** ONNX Runtime on one core: as measured with onnxruntime-node 1.30 on two cores (see `CPU_RANK`). */
const CPU_CORE: DeviceProfile = {
  matmulCeiling: 0.9,
  sustained: 1,
  vectorCeiling: 0.2,
  halfDepth: 16,
  tiles: [
    { rows: 6, columns: 16, efficiency: 1 },
    { rows: 1, columns: 16, efficiency: 0.4 },
  ],
  memory: { ceiling: 1, halfBytes: 0, power: 1 },
  launchSeconds: 2e-6,
  segmentSeconds: 10e-6,
  collectiveSeconds: 20e-6,
  linkCeiling: 1,
  fillsLinks: false,
  fusesRegions: false,
};

/** A rank on this machine: a worker thread with one core, joined to the others by shared memory. */
export const CPU_RANK: DeviceSpec = {
  id: 'cpu-rank',
  name: 'one CPU core of this machine',
  vendor: 'any',
  peakFlops: { fp32: 1.25e11, fp16: 5e10, bf16: 5e10 },
  memoryBytes: 8e9,
  memoryBandwidth: 1e10,
  scaleUp: { bandwidth: 2e9, latencySeconds: 5e-6, domainSize: 1024, topology: 'shared memory between worker threads' },
  scaleOut: { bandwidth: 1e9, latencySeconds: 5e-5 },
  source: {
    flops: 'measured: onnxruntime-node 1.30, 110-141 GFLOP/s per core on a 1024^3 fp32 matmul; fp16 runs through fp32',
    memory: 'measured: copies in and out of a shared buffer, single thread, about 10 GB/s',
    scaleUp: 'measured: 4 MB in and out of a shared buffer in 1 to 2 ms; a barrier by Atomics.wait 5 us',
    launch: 'measured: session.run 7-10 us, a small operator inside a session about 2 us',
  },
};

/** The constants that go with a device. */
export function profileOf(device: DeviceSpec): DeviceProfile {
  return device.profile ?? (device.id === CPU_RANK.id ? CPU_CORE : ACCELERATOR);
}

/** Whether a device runs fused regions as one kernel each. */
export function fusesRegions(device: DeviceSpec): boolean {
  return profileOf(device).fusesRegions;
}

/** The format of matmuls where none is given: one of 16 bits where the device has it, bfloat16 before float16. */
export function usualPrecision({ peakFlops }: Pick<DeviceSpec, 'peakFlops'>): 'bf16' | 'fp16' | 'fp32' {
  return (['bf16', 'fp16'] as const).find((kind) => peakFlops[kind] !== undefined) ?? 'fp32';
}
