/**
 * @file How a model is trained or run on a cluster: degrees, batches, recomputation, formats, and overlap.
 */
import type { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-names.js';
import type { ScheduleKind } from '../../schedule/schedule.js';
import type { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import type { SoftwareName } from './constants.js';

export interface Degrees {
  readonly tp: number;
  readonly pp: number;
  /** Context parallelism: the sequence is sharded inside attention too. */
  readonly sp: number;
  readonly dp: number;
  /** Ranks of dp · sp over which experts are spread. */
  readonly ep: number;
}

/** The mesh's axes from outermost to innermost. */
export type MeshOrder = readonly (typeof AXIS_ORDER)[number][];

export type StepRecompute = (typeof LAYER_RECOMPUTE_KINDS)[number];

/** Offload to the host's memory: optimizer state, which is then updated there, and stored activations of layers. */
export type Offload = 'none' | 'optimizer' | 'activations' | 'all';

/** Formats of matmuls. */
export type MatmulPrecision = 'fp32' | 'bf16' | 'fp16' | 'fp8' | 'fp4';

export interface StepConfiguration {
  readonly degrees: Degrees;
  /** Axes of the mesh, outermost first; pp, dp, sp, tp where it is left out. */
  readonly meshOrder?: MeshOrder;
  /** Order of micro-batches in a pipeline; 1F1B (interleaved with several chunks) where it is left out. */
  readonly schedule?: ScheduleKind;
  /** Ranks of this machine: no accelerator's context in memory, no framework around the step. */
  readonly bundledRuntime?: boolean;
  /** Forward alone: no gradients, no optimizer. */
  readonly inference?: boolean;
  /** Model chunks per stage: 2 or more where the schedule interleaves them, 2 in zbv, else 1. */
  readonly virtualStages: number;
  /** Layers of each stage, or of each part of the model (`placeOfPart`); as even as they go where left out. */
  readonly stageLayers?: readonly number[];
  /** Samples per rank and micro-batch. */
  readonly microBatch: number;
  /** Samples per step. */
  readonly globalBatch: number;
  /** Megatron's sequence parallelism: norms and dropout along the sequence over tp. */
  readonly tpSequence: boolean;
  readonly zero: 0 | 1 | 2 | 3;
  readonly recompute: StepRecompute;
  /** How many layers of each stage recompute so; all where left out. */
  readonly recomputedLayers?: readonly number[];
  /** Nothing where it is left out. */
  readonly offload?: Offload;
  /** One kernel for attention: written for the device, or for any (FlashAttention 2, or 1); or matmuls and softmax in parts. */
  readonly attention: 'fused' | 'portable' | 'early' | 'parts';
  /** Attention in parts whose softmax is written operator by operator: scale, mask and casts are kernels of their own. */
  readonly plainSoftmax?: boolean;
  readonly precision: MatmulPrecision;
  readonly software: SoftwareName;
  /**
   * A program that is written for the step runs in this software's kernels, but with three differences. Its experts' matmuls are
   * one kernel. It sends a token once to each of its experts. Experts choose among all tokens of a sequence: it gathers over sp.
   */
  readonly program?: true;
  readonly overlap: {
    readonly tensor: boolean;
    readonly data: boolean;
    readonly pipeline: boolean;
    readonly experts: boolean;
  };
  /** Whether each normalisation is one kernel. */
  readonly fusedNorms: boolean;
  /** Pipelines send each tensor-parallel rank's share of an activation, and gather it inside the node. */
  readonly scatteredSends: boolean;
  /** The loss over the vocabulary: one kernel, each rank on its shard, or written operator by operator. */
  readonly loss: 'fused' | 'parallel' | 'plain';
  /** Bytes per element in which gradients are added up over micro-batches and reduced: Megatron's 4, or 2. */
  readonly gradientBytes: number;
}

/**
 * Bytes per element in which software adds up and reduces gradients by default: Megatron makes those of bf16 fp32, and
 * leaves its recipes for 8 and 4 bits, and other software all of them, at 16 bits.
 */
export function usualGradientBytes(precision: MatmulPrecision, software: SoftwareName): number {
  if (precision === 'fp32') return 4;
  return precision === 'bf16' && software.startsWith('megatron') ? 4 : 2;
}
