/**
 * @file The constants of training-step prediction that the catalogue's peaks do not give. All are physical quantities of devices
 * and of software, none belongs to a model. `bench/published/fit-step.ts` fits those that docs/reference/constants.md marks.
 */

import type { DeviceSpec } from '../device.js';

/** Software that a step runs in. */
export type SoftwareName = 'megatron' | 'megatron-core' | 'eager' | 'compiled';

/** The software that is priced where none is given. */
export const USUAL_SOFTWARE: SoftwareName = 'megatron-core';

/** By the newest format that a device multiplies, 16, 8 or 4 bits, and how much faster that one is than the one before it. */
export type Generation = 'ampere' | 'hopper' | 'blackwell' | 'blackwellUltra';

export function generationOf({ peakFlops }: DeviceSpec): Generation {
  if (peakFlops.fp4 !== undefined) return peakFlops.fp4 > 2.5 * (peakFlops.fp8 ?? 0) ? 'blackwellUltra' : 'blackwell';
  return peakFlops.fp8 === undefined ? 'ampere' : 'hopper';
}

export interface SoftwareProfile {
  /** Host seconds per kernel: the floor below which kernels cannot follow each other. */
  readonly hostSeconds: number;
  /** Passes over memory of elementwise work, compared with one kernel per operator of the graph. */
  readonly passes: number;
}

export interface StepConstants {
  readonly software: Readonly<Record<SoftwareName, SoftwareProfile>>;
  /** n of (hostⁿ + deviceⁿ)^(1/n): how nearly the longer of the two alone counts. */
  readonly hostPower: number;
  /** Host seconds per collective. */
  readonly exchangeSeconds: number;
  /**
   * How many times as long a collective over tp takes in software that is not made around it: it copies and waits, eager or
   * compiled.
   */
  readonly plainExchange: number;
  /** Host seconds of one expert's matmul in software that multiplies expert by expert: casts, scales, a launch for each. */
  readonly expertSeconds: number;
  /** Framework overhead in seconds per step: data, scalars read back, logging. */
  readonly stepSeconds: number;
  /** Share of the highest measured matmul rate that holds for seconds, under the power limit, by generation of devices. */
  readonly sustained: Readonly<Record<Generation, number>>;
  /**
   * Share of the peak that kernels of FlashAttention 2 reach on long sequences, forward (backward 0.85 of that), and the keys at
   * which they have half of it.
   */
  readonly attentionShare: number;
  readonly attentionHalf: number;
  /** Share of that share that FlashAttention 1 reaches. */
  readonly attentionEarlyShare: number;
  /** Share of the peak that either of them reaches on devices newer than they are. */
  readonly attentionPortableShare: number;
  /** The same for kernels that are written for such devices (FlashAttention 3, cuDNN): faster, and slower to fill. */
  readonly attentionNativeShare: number;
  readonly attentionNativeHalf: number;
  /** Bytes per score that attention in parts moves: matmuls, mask, softmax, dropout; forward, backward. */
  readonly scoreBytesForward: number;
  readonly scoreBytesBackward: number;
  /** Passes over memory of a normalisation that is written operator by operator, compared with one kernel. */
  readonly plainNormPasses: number;
  /** Bytes that are moved per element of an activation to cast it to 8 or 4 bits, both ways round. */
  readonly castBytes: number;
  /** How many times as fast matmuls in 4 bits are as in 8: less than their peaks are, for power, scales and transforms. */
  readonly fp4Gain: number;
  /** Seconds per rank of a ring: gathers and scatters pass every rank, whatever their size. */
  readonly ringHopSeconds: number;
  /** Share of tensor-parallel communication that chunked overlap hides, where the run has it. */
  readonly hiddenTensor: number;
  /** The same for expert dispatch, where it runs beside other work. */
  readonly hiddenExperts: number;
  /** Share of a backward pass under which gradients or parameters move, where the run overlaps them. */
  readonly hiddenData: number;
  /** Compute lost per second of fast-link communication that runs under it: both want the same processors and memory. */
  readonly contention: number;
  /** Bytes that the optimizer moves per parameter that a rank updates. */
  readonly optimizerBytes: number;
  /** Share of the host's memory bandwidth that an update of optimizer state there reaches. */
  readonly hostShare: number;
  /** Relative growth of a step per doubling of the nodes: stragglers and jitter. */
  readonly jitter: number;
}

export const STEP_CONSTANTS: StepConstants = {
  software: {
    megatron: { hostSeconds: 5.83e-5, passes: 0.846 },
    'megatron-core': { hostSeconds: 1e-5, passes: 2.04 },
    eager: { hostSeconds: 1.2e-5, passes: 2.32 },
    compiled: { hostSeconds: 4e-6, passes: 2.81 },
  },
  hostPower: 2.78,
  exchangeSeconds: 5.1e-5,
  plainExchange: 2.23,
  expertSeconds: 7.85e-5,
  stepSeconds: 0.00606,
  // biome-ignore lint/suspicious/noApproximativeNumericConstant: fitted, and near ln 2 by chance
  sustained: { ampere: 0.925, hopper: 0.797, blackwell: 0.693, blackwellUltra: 0.795 },
  attentionShare: 0.73,
  attentionEarlyShare: 0.5,
  attentionHalf: 800,
  attentionPortableShare: 0.215,
  attentionNativeShare: 0.65,
  attentionNativeHalf: 1570,
  scoreBytesForward: 10,
  scoreBytesBackward: 21,
  plainNormPasses: 17,
  castBytes: 4,
  fp4Gain: 1.94,
  ringHopSeconds: 2.84e-6,
  hiddenTensor: 0.705,
  hiddenExperts: 0.96,
  hiddenData: 0.483,
  contention: 0.15,
  optimizerBytes: 32,
  hostShare: 0.5,
  jitter: 0.002,
};
