/**
 * @file The work of one rank for one micro-batch in one part of a model (a layer, the part before the layers, the part after),
 * as a list of kernels and collectives. Read off the sharded graph of the training step; knows shapes, and no times.
 */
import type { AttentionWork as AttentionSizes } from '../../partition/kernels.js';
import type { MatmulSizes } from '../kernel-price.js';
import type { CollectiveKind } from '../levels.js';

/** A matmul. */
export interface MatmulWork extends MatmulSizes {
  readonly kind: 'matmul';
  /** Whether the batched matmuls are experts', each with tokens of its own. */
  readonly experts: boolean;
  /** For experts: elements of each row that come from other ranks of ep, and that go to them; none where left out. */
  readonly routed?: number;
  /** Which of them counts tokens: the depth in the gradient of a weight. */
  readonly tokens: 'rows' | 'depth';
  /** In 16 bits whatever recipe the layers' own weights are multiplied in: part of a scan. */
  readonly wide?: true;
}

/** Attention on one rank. */
export interface StepAttentionWork extends AttentionSizes {
  readonly kind: 'attention';
}

/** A kernel that does little but read and write so many elements. */
export interface MemoryWork {
  readonly kind: 'memory';
  readonly elements: number;
  /** Whether tensor parallelism repeats it on every rank: Megatron's sequence parallelism divides exactly these. */
  readonly repeated: boolean;
  /** Normalisations are one kernel only where someone wrote one. */
  readonly norm: boolean;
  /** Losses are summed in fp32, whatever the format of the rest. */
  readonly loss: boolean;
}

/** A collective over the tensor-parallel ranks; elements of the whole array. */
export interface ExchangeWork {
  readonly kind: 'exchange';
  readonly collective: CollectiveKind;
  readonly elements: number;
  /** Result of a contraction over the axis: sequence parallelism splits its all-reduce into a scatter and a gather, if large. */
  readonly activation: boolean;
  /** A part of the loss, which is in fp32 whatever the format of the rest. */
  readonly loss: boolean;
}

export type StepWork = MatmulWork | StepAttentionWork | MemoryWork | ExchangeWork;

/** One part of a model on one rank. */
export interface PartWork {
  readonly forward: readonly StepWork[];
  readonly backward: readonly StepWork[];
  /** Elements of parameters that this rank holds. */
  readonly parameters: number;
  /** Those of `parameters` that belong to experts, before ep shards them. */
  readonly expertParameters: number;
  /** Elements of tables and running statistics: held, and never trained. */
  readonly buffers: number;
  /** Elements of stored activations, without attention's scores. */
  readonly saved: number;
  /** Those of `saved` that every tensor-parallel rank stores whole. */
  readonly savedRepeated: number;
  /** How many times as much a program in 16 bit stores, which computes some of it in float32; 1 where it is left out. */
  readonly storedByPrograms?: number;
  /** Bytes of stored boolean masks (dropout). */
  readonly savedMasks: number;
  /** Elements live at once while its forward runs, operands and results included: inference needs room for them. */
  readonly live: number;
  /** The same where tensor-parallel ranks shard the tensors that each of them would hold whole (sequence parallelism). */
  readonly liveShared: number;
}

/** A part that does and holds nothing. */
export const NO_WORK: PartWork = {
  ...{ forward: [], backward: [], parameters: 0, expertParameters: 0, buffers: 0 },
  ...{ saved: 0, savedRepeated: 0, savedMasks: 0, live: 0, liveShared: 0 },
};

/** The parts of a model, with the number of repetitions of each class of layers. */
export interface ModelWork {
  /** Before the layers: the embedding. */
  readonly first: PartWork;
  /** Classes of layers in order, with how many there are of each. */
  readonly layers: readonly { readonly count: number; readonly part: PartWork }[];
  /** The class of each layer, from the first to the last; where left out, classes follow one another. */
  readonly order?: readonly number[];
  /** After the layers: last norm, head and loss. */
  readonly last: PartWork;
  /** Experts per token; 1 without experts. */
  readonly chosen: number;
  /** Elements of a layer's input: a stage sends them on, and full recomputation stores them. */
  readonly boundary: number;
  /** How many times as much that is in a program in 16 bit, which passes float32 on; 1 where it is left out. */
  readonly boundaryOfPrograms?: number;
  /** Elements of parameters before the layers that the part after them reads too: a head that reads the embedding's table. */
  readonly tied: number;
}
