/**
 * @file The constants of whole-step prediction: what the catalogue's peaks do not say. All are physical quantities of devices
 * and of software, none belongs to a model. `bench/fit-step.ts` fits those that docs/cost-model.md marks as fitted.
 */

import type { DeviceSpec } from '../device.js';

/** Software that a step runs in. */
export type SoftwareName = 'megatron' | 'megatron-core' | 'eager' | 'compiled';

/** By the newest format that a device multiplies: fp16, bf16, fp8, fp4. */
export type Generation = 'volta' | 'ampere' | 'hopper' | 'blackwell';

export function generationOf({ peakFlops }: DeviceSpec): Generation {
  if (peakFlops.fp4 !== undefined) return 'blackwell';
  if (peakFlops.fp8 !== undefined) return 'hopper';
  return peakFlops.bf16 !== undefined ? 'ampere' : 'volta';
}

export interface SoftwareProfile {
  /** Host seconds per kernel: the floor below which kernels cannot follow each other. */
  readonly hostSeconds: number;
  /** Host seconds per collective. */
  readonly exchangeSeconds: number;
  /** Passes over memory of element-wise work, compared with one kernel per operator of the graph. */
  readonly passes: number;
  /** Host seconds that a block of experts costs each way: routing, sorting, sizes read back. */
  readonly expertSeconds: number;
  /** Seconds per step outside the model: data, scalars read back, logging. */
  readonly stepSeconds: number;
}

export interface StepConstants {
  readonly software: Readonly<Record<SoftwareName, SoftwareProfile>>;
  /** Share of the highest measured matmul rate that holds for seconds, under the power limit, by what a device is. */
  readonly sustained: Readonly<Record<Generation, number>>;
  /** Summed length at which a matmul has half of its rate. */
  readonly halfDepth: number;
  /** Share of the peak that fused attention reaches on long sequences, forward; backward it reaches 0.85 of that. */
  readonly attentionShare: number;
  /** Share of a newer device's attention rate that is left to kernels written for Ampere (FlashAttention 2). */
  readonly attentionPortableShare: number;
  /** Keys at which fused attention has half of its rate. */
  readonly attentionHalf: number;
  /** Bytes per score that attention in parts moves: products, mask, softmax, dropout; forward, backward. */
  readonly scoreBytesForward: number;
  readonly scoreBytesBackward: number;
  /** Share of the memory bandwidth that large element-wise kernels reach. */
  readonly memoryShare: number;
  /** Passes over memory of a normalisation that is written operator by operator, compared with one kernel. */
  readonly plainNormPasses: number;
  /** Bytes that are moved per element of an activation to cast it to 8 or 4 bits, both ways round. */
  readonly castBytes: number;
  /** Share of the rate of 4-bit formats that is left after scales and transforms. */
  readonly fp4Share: number;
  /** Seconds per round of a collective inside a node, and between nodes. */
  readonly roundSeconds: number;
  readonly roundSecondsAcross: number;
  /** Seconds per rank of a ring: gathers and scatters pass every rank, whatever their size. */
  readonly ringHopSeconds: number;
  /** Share of the measured bus bandwidth that a collective has beside compute. */
  readonly busShare: number;
  /** Share of the network's bandwidth that a collective reaches over many nodes. */
  readonly networkShare: number;
  /** Share of tensor-parallel communication that chunked overlap hides, where the run has it. */
  readonly hiddenTensor: number;
  /** The same of what experts' tokens take, where dispatch runs beside other work. */
  readonly hiddenExperts: number;
  /** Share of a backward pass under which gradients or parameters move, where the run overlaps them. */
  readonly hiddenData: number;
  /** Compute lost per second of fast-link communication that runs under it: both want the same processors and memory. */
  readonly contention: number;
  /** Bytes that the optimizer moves per parameter that a rank updates. */
  readonly optimizerBytes: number;
  /** Share of a pipeline's sends that is not hidden. */
  readonly exposedSends: number;
  /** The same where sends are overlapped with other chunks' work. */
  readonly overlappedSends: number;
  /** Relative growth of a step per doubling of the nodes: stragglers and jitter. */
  readonly jitter: number;
}

export const STEP_CONSTANTS: StepConstants = {
  software: {
    megatron: {
      hostSeconds: 6.22e-5,
      exchangeSeconds: 7.06e-5,
      passes: 0.703,
      expertSeconds: 0.003,
      stepSeconds: 0.00551,
    },
    'megatron-core': {
      hostSeconds: 1.06e-5,
      exchangeSeconds: 5.28e-5,
      passes: 1.46,
      expertSeconds: 0.00422,
      stepSeconds: 0.00581,
    },
    eager: { hostSeconds: 1.2e-5, exchangeSeconds: 5e-5, passes: 2.69, expertSeconds: 0.003, stepSeconds: 0.01 },
    compiled: { hostSeconds: 4e-6, exchangeSeconds: 5e-5, passes: 3.18, expertSeconds: 0.003, stepSeconds: 0.00702 },
  },
  sustained: { volta: 0.99, ampere: 0.9, hopper: 0.8, blackwell: 0.711 },
  halfDepth: 59.8,
  attentionShare: 0.398,
  attentionPortableShare: 0.528,
  attentionHalf: 300,
  scoreBytesForward: 8.71,
  scoreBytesBackward: 21,
  memoryShare: 0.85,
  plainNormPasses: 21.2,
  castBytes: 3.64,
  fp4Share: 0.766,
  roundSeconds: 8.26e-6,
  roundSecondsAcross: 2.07e-5,
  ringHopSeconds: 9.04e-6,
  busShare: 0.897,
  networkShare: 0.8,
  hiddenTensor: 0.929,
  hiddenExperts: 0.99,
  hiddenData: 0.613,
  contention: 0.145,
  optimizerBytes: 30.9,
  exposedSends: 1.06,
  overlappedSends: 0.204,
  jitter: 0.00192,
};
