/**
 * @file Seconds of a kernel on a device: the one price of compute, whether it is read off a lowered node or off the work of
 * a training step.
 *
 *     t = max(FLOP / (peak · η), bytes / (bandwidth · η_memory))
 *
 * η of a matmul is the rate that holds for seconds, times k / (k + k0) for the length k that is summed per result element, times
 * the share that whole tiles and whole waves of tiles leave; long sums of few results are split over idle processors. Attention
 * has rates of its own. The host's time to launch kernels is added to their total (`phase`), not to each.
 */
import { type DType, dtypeBits } from '../ir/dtype.js';
import { type AttentionWork, seenShare } from '../partition/kernels.js';
import { type DeviceProfile, type DeviceSpec, type PeakKind, profileOf } from './device.js';
import type { StepConfiguration } from './step/configuration.js';
import { generationOf, STEP_CONSTANTS, type StepConstants } from './step/constants.js';

/** A matmul: `batch` times [rows, depth] · [depth, columns]. */
export interface MatmulSizes {
  readonly batch: number;
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
}

/** Formats that serve one, best first. fp32 means full fp32: tf32 would change results. */
const FALLBACKS = {
  fp32: ['fp32', 'bf16', 'fp16'],
  bf16: ['bf16', 'fp16', 'fp32'],
  fp16: ['fp16', 'bf16', 'fp32'],
  fp8: ['fp8', 'bf16', 'fp16', 'fp32'],
  fp4: ['fp4', 'fp8', 'bf16', 'fp16', 'fp32'],
  int8: ['int8', 'fp16', 'fp32'],
} as const satisfies Readonly<Record<string, readonly PeakKind[]>>;

export type Format = keyof typeof FALLBACKS;

const FORMATS: Readonly<Partial<Record<DType, Format>>> = {
  float16: 'fp16',
  bfloat16: 'bf16',
  float8e4m3fn: 'fp8',
  float8e5m2: 'fp8',
  int8: 'int8',
  uint8: 'int8',
};

/** The format of matmuls in a dtype. */
export function formatOf(dtype: DType): Format {
  return FORMATS[dtype] ?? 'fp32';
}

/** FLOP/s that the largest matmuls of a format reach for seconds. */
function matmulRate(device: DeviceSpec, format: Format, constants: StepConstants): number {
  const kind = FALLBACKS[format].find((candidate) => device.peakFlops[candidate] !== undefined);
  if (kind === undefined) throw new Error(`device ${device.id} has no peak for ${format}`);
  return (
    highestRate(device, kind, constants) * (profileOf(device).sustained ?? constants.sustained[generationOf(device)])
  );
}

/** FLOP/s that were measured, or a share of the peak; 4 bits are limited by the power that 8 bits need already. */
function highestRate(device: DeviceSpec, kind: PeakKind, constants: StepConstants): number {
  const highest = device.measuredMatmulFlops?.[kind] ?? (device.peakFlops[kind] ?? 0) * profileOf(device).matmulCeiling;
  const narrower = kind === 'fp4' && device.peakFlops.fp8 !== undefined;
  return narrower ? Math.min(highest, constants.fp4Gain * highestRate(device, 'fp8', constants)) : highest;
}

/** Elements of 2 bytes (4 in fp32): activations and parameters as matmuls read them. */
export function elementBytes(precision: StepConfiguration['precision']): number {
  return precision === 'fp32' ? 4 : 2;
}

export function matmulSeconds(
  { batch, rows, columns, depth }: MatmulSizes,
  device: DeviceSpec,
  precision: StepConfiguration['precision'],
  constants: StepConstants = STEP_CONSTANTS,
): number {
  const bytes = batch * (rows * depth + depth * columns + rows * columns) * elementBytes(precision);
  return matmulSecondsByResult({ result: [batch, rows, columns], depth, bytes, format: precision }, device, constants);
}

/** A matmul by its result, which may have any dimensions. */
export interface MatmulByResult {
  readonly result: readonly number[];
  /** Terms that are summed for each element of it. */
  readonly depth: number;
  readonly bytes: number;
  readonly format: Format;
  /** Bytes of a second operand that it must pack before it begins; 0 if left out. */
  readonly packed?: number;
}

/** A sum is split over processors in pieces of at least so many terms (split-K), whose fp32 sums are written and read. */
const SPLIT_DEPTH = 512;

export function matmulSecondsByResult(
  { result, depth, bytes, format, packed = 0 }: MatmulByResult,
  device: DeviceSpec,
  constants: StepConstants = STEP_CONSTANTS,
): number {
  const profile = profileOf(device);
  const elements = result.reduce((product, size) => product * size, 1);
  // No tile is used: the share of useful work in it would be 0 / 0.
  if (elements === 0) return memorySeconds(bytes, device);
  const rate = matmulRate(device, format, constants);
  const { halfDepth, packingBandwidth } = profile;
  const seconds = (length: number, pieces: number) =>
    (2 * elements * depth) / (rate * (length / (length + halfDepth)) * tileEfficiency(result, device, profile, pieces));
  let best = seconds(depth, 1);
  const most = Math.min(depth / SPLIT_DEPTH, device.smCount ?? 1);
  for (let pieces = 2; pieces <= most; pieces *= 2) {
    const sums = (2 * 4 * pieces * elements) / device.memoryBandwidth;
    best = Math.min(best, seconds(depth / pieces, pieces) + sums);
  }
  const packing = packingBandwidth === undefined ? 0 : packed / packingBandwidth;
  return Math.max(best + packing, memorySeconds(bytes, device));
}

/** An operator that runs as a kernel of its own, its launch with it: a rank of this machine, a segment that is emulated. */
export interface KernelWork {
  readonly flops: number;
  readonly bytes: number;
  /** dtype that the arithmetic runs in. */
  readonly dtype: DType;
  /** Local shape of the largest result. */
  readonly result: readonly number[];
  /** Bytes of a second operand that a matmul must pack before it begins; 0 if left out. */
  readonly packed?: number;
}

/** Below this depth, work is elementwise: it runs on vector units, whose rate does not depend on a summed length. */
const MATMUL_DEPTH = 4;

/** A matrix–vector product does 2 FLOP for each element it reads, a reduction 1: both on vector units. */
const MATMUL_INTENSITY = 2;

/**
 * Seconds of one execution. A view (no FLOP, no bytes) is free. Nothing here looks at an operator's name. A matmul is recognised
 * by its depth, FLOP per two result elements, and because it uses its operands more than once, which a reduction does not.
 */
export function operatorSeconds({ flops, bytes, dtype, result, packed = 0 }: KernelWork, device: DeviceSpec): number {
  if (flops === 0 && bytes === 0) return 0;
  const { launchSeconds, vectorCeiling } = profileOf(device);
  const elements = result.reduce((product, size) => product * size, 1);
  const depth = flops / (2 * Math.max(1, elements));
  const streamed = flops <= MATMUL_INTENSITY * ((8 * bytes) / dtypeBits(dtype));
  if (depth >= MATMUL_DEPTH && !streamed)
    return matmulSecondsByResult({ result, depth, bytes, format: formatOf(dtype), packed }, device) + launchSeconds;
  const kind = FALLBACKS.fp32.find((candidate) => device.peakFlops[candidate] !== undefined) ?? 'fp32';
  const rate = (device.peakFlops[kind] ?? Number.NaN) * vectorCeiling;
  return Math.max(flops / rate, memorySeconds(bytes, device)) + launchSeconds;
}

/**
 * The best tile's share of useful work. The result is seen as rows × columns, split between the two dimensions that suit the
 * tile best; in a result of images, columns may also be dimensions from within (a convolution's kernel is free to choose
 * channels, or positions). Each tile is made in so many `pieces`.
 */
function tileEfficiency(result: readonly number[], device: DeviceSpec, profile: DeviceProfile, pieces = 1): number {
  const elements = result.reduce((product, size) => product * size, 1);
  const seen = new Set<number>();
  let best = 0;
  for (const from of result.length < IMAGES ? [0] : [0, ...result.keys()]) {
    let columns = 1;
    for (const size of [1, ...result.slice(from)]) {
      columns *= size;
      if (seen.has(columns)) continue;
      seen.add(columns);
      for (const tile of profile.tiles) {
        const tiles = Math.ceil(elements / columns / tile.rows) * Math.ceil(columns / tile.columns);
        const filled = elements / (tiles * tile.rows * tile.columns);
        const parts = tiles * pieces;
        const waves = device.smCount ? parts / (Math.ceil(parts / device.smCount) * device.smCount) : 1;
        best = Math.max(best, filled * waves * tile.efficiency);
      }
    }
  }
  return best;
}

/** Dimensions of a batch of images: samples, channels, height and width. */
const IMAGES = 4;

/** t = bytes / (bandwidth · ceiling / (1 + (half / bytes)^power)), where bytes that fit a cache are `cacheGain` times as fast. */
export function memorySeconds(bytes: number, device: DeviceSpec): number {
  if (bytes === 0) return 0;
  const { ceiling, halfBytes, power, cacheBytes = 0, cacheGain = 1 } = profileOf(device).memory;
  const inCache = Math.min(bytes, cacheBytes);
  const counted = bytes - inCache + inCache / cacheGain;
  return (counted / (device.memoryBandwidth * ceiling)) * (1 + (halfBytes / bytes) ** power);
}

/**
 * Attention. Fused (Dao 2023): five matmuls in backward where forward has two, half of them under a causal mask; in parts:
 * two and four matmuls, and scores that go through memory.
 */
export function attentionSeconds(
  work: AttentionWork,
  device: DeviceSpec,
  { attention, precision, plainSoftmax }: Pick<StepConfiguration, 'attention' | 'precision' | 'plainSoftmax'>,
  constants: StepConstants,
): number {
  const { batch, heads, queries, keys, width, valueWidth, causal, backward } = work;
  // Scores are never in 8 bits in the runs that exist.
  const format = precision === 'fp32' ? 'fp32' : 'bf16';
  const product = batch * heads * queries * keys * (width + valueWidth);
  if (attention !== 'parts') {
    const sixteenBit = device.peakFlops.bf16 ?? device.peakFlops.fp16 ?? device.peakFlops.fp32 ?? 0;
    const peak = device.peakFlops[format] ?? sixteenBit;
    const { share, half } = attentionRate(device, attention, constants);
    // A query's own cost, which `half` keys at the 16-bit rate model, is the same however few keys it sees, in any format.
    const seen = seenShare(work);
    const reached = (keys * seen) / (causal ? 0.5 : 1);
    const ownKeys = half * Math.min(1, peak / sixteenBit);
    const filled = (reached / (reached + ownKeys)) * Math.min(1, (width / 128) ** 0.25);
    const flops = (backward ? 5 : 2) * product * seen;
    // At most as fast as the matmuls that it is made of: not every device reaches the rate that its peak promises.
    const rate = Math.min(peak * share * (backward ? BACKWARD_ATTENTION : 1), matmulRate(device, format, constants));
    return flops / (rate * filled);
  }
  const scores = batch * heads * queries * keys;
  const one: MatmulSizes = {
    batch: batch * heads,
    rows: queries,
    columns: keys,
    depth: width,
  };
  const other: MatmulSizes = { ...one, columns: width, depth: keys };
  const units = width % ALIGNED_ELEMENTS === 0 && valueWidth % ALIGNED_ELEMENTS === 0 ? format : 'fp32';
  const matmulsSeconds = matmulSeconds(one, device, units, constants) + matmulSeconds(other, device, units, constants);
  const plain = plainSoftmax ? PLAIN_SOFTMAX.bytes : 0;
  const bytes = scores * (plain + (backward ? constants.scoreBytesBackward : constants.scoreBytesForward));
  return matmulsSeconds * (backward ? 2 : 1) + memorySeconds(bytes, device);
}

/**
 * Share of the peak that one kernel for attention reaches on long sequences, forward, and the keys at which it has half of it.
 */
function attentionRate(
  { peakFlops }: DeviceSpec,
  attention: 'fused' | 'portable' | 'early',
  constants: StepConstants,
): { readonly share: number; readonly half: number } {
  const half = constants.attentionHalf;
  if (peakFlops.fp8 === undefined)
    return { share: constants.attentionShare * (attention === 'early' ? constants.attentionEarlyShare : 1), half };
  if (attention === 'fused') return { share: constants.attentionNativeShare, half: constants.attentionNativeHalf };
  return { share: constants.attentionPortableShare, half };
}

/** Matrix units take rows of 16 bytes; matmuls on rows of other lengths (heads of 108 or 150) run on plain units. */
const ALIGNED_ELEMENTS = 8;

/** Rate of attention's backward kernels beside forward's (Dao 2023, figures 4 to 6). */
const BACKWARD_ATTENTION = 0.85;

/** Scale, mask, cast to fp32 and back around a softmax in fp32, each reading and writing every score; as many in backward. */
const PLAIN_SOFTMAX = { launches: 5, bytes: 20 };

/** Kernels that attention takes. */
export function attentionLaunches(
  { attention, plainSoftmax }: Pick<StepConfiguration, 'attention' | 'plainSoftmax'>,
  backward: boolean,
): number {
  if (attention !== 'parts') return backward ? 3 : 1;
  return (backward ? 7 : 4) + (plainSoftmax ? PLAIN_SOFTMAX.launches : 0);
}
