/**
 * @file The constants of whole-step prediction: what the catalogue's peaks do not say. All are physical quantities of devices
 * and of software, none belongs to a model. `bench/fit-step.ts` fits those that docs/cost-model.md marks as fitted.
 */

/** Software that a step runs in. */
export type SoftwareName = 'megatron' | 'megatron-core' | 'eager' | 'compiled';

export interface SoftwareProfile {
  /** Host seconds per kernel: the floor below which kernels cannot follow each other. */
  readonly hostSeconds: number;
  /** Passes over memory of element-wise work, compared with one kernel per operator of the graph. */
  readonly passes: number;
  /** Seconds per step outside the model: data, scalars read back, logging. */
  readonly stepSeconds: number;
}

export interface StepConstants {
  readonly software: Readonly<Record<SoftwareName, SoftwareProfile>>;
  /** Share of the highest measured matmul rate that holds for seconds, under the power limit. */
  readonly sustained: number;
  /** Summed length at which a matmul has half of its rate. */
  readonly halfDepth: number;
  /** Share of the peak that fused attention reaches on long sequences, forward and backward. */
  readonly attentionForward: number;
  readonly attentionBackward: number;
  /** Keys at which fused attention has half of its rate. */
  readonly attentionHalf: number;
  /** Bytes per score that attention in parts moves: products, mask, softmax, dropout; forward, backward. */
  readonly scoreBytesForward: number;
  readonly scoreBytesBackward: number;
  /** Share of the memory bandwidth that large element-wise kernels reach. */
  readonly memoryShare: number;
  /** Share of the peak rate of 8-bit and 4-bit formats that is left after casts and scales. */
  readonly fp8Share: number;
  readonly fp4Share: number;
  /** Seconds per round of a collective inside a node, and between nodes. */
  readonly roundSeconds: number;
  readonly roundSecondsAcross: number;
  /** Share of the measured bus bandwidth that a collective has beside compute. */
  readonly busShare: number;
  /** Share of the network's bandwidth that a collective reaches over many nodes. */
  readonly networkShare: number;
  /** Share of tensor-parallel communication that chunked overlap hides, where the run has it. */
  readonly hiddenTensor: number;
  /** Share of a backward pass under which gradients or parameters move, where the run overlaps them. */
  readonly hiddenData: number;
  /** Bytes that the optimizer moves per parameter that a rank updates. */
  readonly optimizerBytes: number;
  /** Share of a pipeline's sends that is not hidden. */
  readonly exposedSends: number;
  /** Relative growth of a step per doubling of the nodes: stragglers and jitter. */
  readonly jitter: number;
}

export const STEP_CONSTANTS: StepConstants = {
  software: {
    megatron: { hostSeconds: 1.2e-5, passes: 1, stepSeconds: 0.005 },
    'megatron-core': { hostSeconds: 8e-6, passes: 0.9, stepSeconds: 0.005 },
    eager: { hostSeconds: 1.2e-5, passes: 1.5, stepSeconds: 0.01 },
    compiled: { hostSeconds: 4e-6, passes: 0.8, stepSeconds: 0.005 },
  },
  sustained: 0.93,
  halfDepth: 64,
  attentionForward: 0.6,
  attentionBackward: 0.5,
  attentionHalf: 300,
  scoreBytesForward: 13,
  scoreBytesBackward: 21,
  memoryShare: 0.85,
  fp8Share: 0.75,
  fp4Share: 0.5,
  roundSeconds: 8e-6,
  roundSecondsAcross: 2e-5,
  busShare: 0.9,
  networkShare: 0.8,
  hiddenTensor: 0.5,
  hiddenData: 0.7,
  optimizerBytes: 36,
  exposedSends: 1,
  jitter: 0.002,
};
