/**
 * @file Seconds of one kernel of a step, without the host's time to launch it.
 */

import { matmulShare, memorySeconds } from '../compute-price.js';
import { type DeviceSpec, type PeakKind, profileOf } from '../device.js';
import type { StepConfiguration } from './configuration.js';
import { generationOf, type StepConstants } from './constants.js';
import { seenShare } from './model-flops.js';
import type { AttentionWork, MatmulWork } from './work.js';

export { memorySeconds };

const FALLBACKS: Readonly<Record<StepConfiguration['precision'], readonly PeakKind[]>> = {
  fp32: ['fp32', 'bf16', 'fp16'],
  bf16: ['bf16', 'fp16', 'fp32'],
  fp16: ['fp16', 'bf16', 'fp32'],
  fp8: ['fp8', 'bf16', 'fp16', 'fp32'],
  fp4: ['fp4', 'fp8', 'bf16', 'fp16', 'fp32'],
};

/** FLOP/s that the largest products of a format reach for seconds. */
function productRate(device: DeviceSpec, precision: StepConfiguration['precision'], constants: StepConstants): number {
  const kind = FALLBACKS[precision].find((candidate) => device.peakFlops[candidate] !== undefined);
  if (kind === undefined) throw new Error(`device ${device.id} has no peak for ${precision}`);
  return highestRate(device, kind, constants) * constants.sustained[generationOf(device)];
}

/** FLOP/s that were measured, or a share of the peak; 4 bits are limited by the power that 8 bits need already. */
function highestRate(device: DeviceSpec, kind: PeakKind, constants: StepConstants): number {
  const highest = device.measuredMatmulFlops?.[kind] ?? (device.peakFlops[kind] ?? 0) * profileOf(device).matmulCeiling;
  const narrower = kind === 'fp4' && device.peakFlops.fp8 !== undefined;
  return narrower ? Math.min(highest, constants.fp4Gain * highestRate(device, 'fp8', constants)) : highest;
}

/** Elements of 2 bytes (4 in fp32): activations and parameters as products read them. */
export function elementBytes(precision: StepConfiguration['precision']): number {
  return precision === 'fp32' ? 4 : 2;
}

export function matmulSeconds(
  { batch, rows, columns, depth }: MatmulWork,
  device: DeviceSpec,
  precision: StepConfiguration['precision'],
  constants: StepConstants,
): number {
  const flops = 2 * batch * rows * columns * depth;
  const rate = productRate(device, precision, constants);
  const depthShare = depth / (depth + profileOf(device).halfDepth);
  const arithmetic = flops / (rate * depthShare * matmulShare([batch, rows, columns], device));
  const bytes = batch * (rows * depth + depth * columns + rows * columns) * elementBytes(precision);
  return Math.max(arithmetic, memorySeconds(bytes, device));
}

/**
 * Attention. Fused (Dao 2023): five products in backward where forward has two, half of them under a causal mask; in parts:
 * two and four products, and scores that go through memory.
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
    const peak = device.peakFlops[format] ?? device.peakFlops.fp16 ?? device.peakFlops.fp32 ?? 0;
    const { share, half } = attentionRate(device, attention, constants);
    // A query's own cost, which half of the keys stands for, is the same however few of them it sees.
    const seen = seenShare(work);
    const reached = (keys * seen) / (causal ? 0.5 : 1);
    const filled = (reached / (reached + half)) * Math.min(1, (width / 128) ** 0.25);
    const flops = (backward ? 5 : 2) * product * seen;
    // No faster than the products that it is made of: what a device's peak promises, not every device keeps.
    const rate = Math.min(peak * share * (backward ? BACKWARD_ATTENTION : 1), productRate(device, format, constants));
    return flops / (rate * filled);
  }
  const scores = batch * heads * queries * keys;
  const one: MatmulWork = {
    kind: 'matmul',
    batch: batch * heads,
    rows: queries,
    columns: keys,
    depth: width,
    experts: false,
    tokens: 'rows',
  };
  const other: MatmulWork = { ...one, columns: width, depth: keys };
  const units = width % ALIGNED_ELEMENTS === 0 && valueWidth % ALIGNED_ELEMENTS === 0 ? format : 'fp32';
  const products = matmulSeconds(one, device, units, constants) + matmulSeconds(other, device, units, constants);
  const plain = plainSoftmax ? PLAIN_SOFTMAX.bytes : 0;
  const bytes = scores * (plain + (backward ? constants.scoreBytesBackward : constants.scoreBytesForward));
  return products * (backward ? 2 : 1) + memorySeconds(bytes, device);
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

/** Matrix units take rows of 16 bytes; products on rows of other lengths (heads of 108 or 150) run on plain units. */
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
