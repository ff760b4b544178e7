/**
 * @file Seconds that an operator takes on its local blocks:
 *
 *     t = max(FLOP / (peak · η), bytes / (bandwidth · η_memory)) + launch
 *
 * η is the product of a ceiling, of k / (k + k0) for the length k that is summed per result element, and of what whole
 * tiles and whole waves of tiles waste on these shapes; long sums of few results are shared out over idle processors. Nothing
 * here looks at an operator's name: a matmul shows by its depth, FLOP per two result elements, and by using what it reads
 * more than once, which a reduction does not.
 */
import { type DType, dtypeBits } from '../ir/dtype.js';
import { type DeviceProfile, type DeviceSpec, type PeakKind, profileOf } from './device.js';

export interface ComputeWork {
  readonly flops: number;
  readonly bytes: number;
  /** dtype that the arithmetic runs in. */
  readonly dtype: DType;
  /** Local shape of the largest result. */
  readonly result: readonly number[];
  /** Bytes of a second operand that a product must arrange before it begins; 0 if left out. */
  readonly packed?: number;
}

/** Below this depth, work is element-wise: it runs on vector units, whose rate does not depend on a summed length. */
const MATMUL_DEPTH = 4;

/** A product of a matrix and a vector does 2 FLOP for each element it reads, a reduction 1: both on vector units. */
const MATMUL_INTENSITY = 2;

/** A sum is parted among processors in pieces of at least so many terms (split-K), whose fp32 sums are written and read. */
const SPLIT_DEPTH = 512;

/** Formats that serve a dtype, best first. fp32 means full fp32: tf32 would change results. */
const FORMATS: Readonly<Partial<Record<DType, readonly PeakKind[]>>> = {
  float16: ['fp16', 'bf16', 'fp32'],
  bfloat16: ['bf16', 'fp16', 'fp32'],
  float8e4m3fn: ['fp8', 'bf16', 'fp16'],
  float8e5m2: ['fp8', 'bf16', 'fp16'],
  int8: ['int8', 'fp16', 'fp32'],
  uint8: ['int8', 'fp16', 'fp32'],
};
const FULL_PRECISION: readonly PeakKind[] = ['fp32', 'bf16', 'fp16'];

/** Seconds of one execution. A view (no FLOP, no bytes) is free; part of a larger kernel `launches` nothing of its own. */
export function computeSeconds(work: ComputeWork, device: DeviceSpec, launches = true): number {
  if (work.flops === 0 && work.bytes === 0) return 0;
  const profile = profileOf(device);
  return (
    Math.max(arithmeticSeconds(work, device, profile), memorySeconds(work.bytes, device)) +
    (launches ? profile.launchSeconds : 0)
  );
}

function arithmeticSeconds(work: ComputeWork, device: DeviceSpec, profile: DeviceProfile): number {
  if (work.flops === 0) return 0;
  const elements = work.result.reduce((product, size) => product * size, 1);
  const depth = work.flops / (2 * Math.max(1, elements));
  const streamed = work.flops <= MATMUL_INTENSITY * ((8 * work.bytes) / dtypeBits(work.dtype));
  if (depth < MATMUL_DEPTH || streamed) return work.flops / (peak(device, FULL_PRECISION).rate * profile.vectorCeiling);
  const { rate, kind } = peak(device, FORMATS[work.dtype] ?? FULL_PRECISION);
  const measured = device.measuredMatmulFlops?.[kind];
  const ceiling = measured === undefined ? profile.matmulCeiling : measured / rate;
  const seconds = (length: number, pieces: number) =>
    work.flops /
    (rate * ceiling * (length / (length + profile.halfDepth)) * tileEfficiency(work.result, device, profile, pieces));
  let best = seconds(depth, 1);
  const most = Math.min(depth / SPLIT_DEPTH, device.smCount ?? 1);
  for (let pieces = 2; pieces <= most; pieces *= 2) {
    const sums = (2 * 4 * pieces * elements) / device.memoryBandwidth;
    best = Math.min(best, seconds(depth / pieces, pieces) + sums);
  }
  const { packingBandwidth } = profile;
  return best + (packingBandwidth === undefined ? 0 : (work.packed ?? 0) / packingBandwidth);
}

/** The first format of the list that the device has. */
function peak(device: DeviceSpec, formats: readonly PeakKind[]): { readonly rate: number; readonly kind: PeakKind } {
  for (const kind of formats) {
    const rate = device.peakFlops[kind];
    if (rate !== undefined) return { rate, kind };
  }
  throw new Error(`device ${device.id} has none of the peaks ${formats.join(', ')}`);
}

/**
 * The best tile's share of useful work. The result is seen as rows × columns at the cut between two dimensions that suits the
 * tile best; in one of images columns may also be dimensions from within (a convolution's kernel is free to choose channels,
 * or positions). Each tile is made in so many `pieces`.
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

/** Share of useful work in whole tiles and waves, for a result of this shape. */
export function matmulShare(result: readonly number[], device: DeviceSpec): number {
  return tileEfficiency(result, device, profileOf(device));
}

/** t = bytes / (bandwidth · ceiling / (1 + (half / bytes)^power)), of which what fits a cache is `cacheGain` times as fast. */
export function memorySeconds(bytes: number, device: DeviceSpec): number {
  if (bytes === 0) return 0;
  const { ceiling, halfBytes, power, cacheBytes = 0, cacheGain = 1 } = profileOf(device).memory;
  const inCache = Math.min(bytes, cacheBytes);
  const counted = bytes - inCache + inCache / cacheGain;
  return (counted / (device.memoryBandwidth * ceiling)) * (1 + (halfBytes / bytes) ** power);
}
