/**
 * @file What one rank does for one micro-batch in one part of a model (a layer, what is before the layers, what is after),
 * as a list of kernels and collectives. Read off the sharded graph of the training step; knows shapes, and no times.
 */
import type { AttentionWork as AttentionSizes } from '../../partition/kernels.js';
import type { ProductSizes } from '../kernel-price.js';
import type { CollectiveKind } from '../levels.js';

/** A matrix product. */
export interface MatmulWork extends ProductSizes {
  readonly kind: 'matmul';
  /** Whether the products side by side are experts', each with tokens of its own. */
  readonly experts: boolean;
  /** Of experts': elements of each row that come from other ranks of ep, and that go to them; none where left out. */
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
  /** Losses are summed in fp32 whatever the rest is in. */
  readonly loss: boolean;
}

/** A collective over the tensor-parallel ranks; elements of the whole array. */
export interface ExchangeWork {
  readonly kind: 'exchange';
  readonly collective: CollectiveKind;
  readonly elements: number;
  /** Result of a contraction over the axis: what sequence parallelism splits into a scatter and a gather, where it is large. */
  readonly activation: boolean;
  /** A part of the loss, which is in fp32 whatever the rest is in. */
  readonly loss: boolean;
}

export type StepWork = MatmulWork | StepAttentionWork | MemoryWork | ExchangeWork;

/** One part of a model on one rank. */
export interface PartWork {
  readonly forward: readonly StepWork[];
  readonly backward: readonly StepWork[];
  /** Elements of parameters that this rank holds. */
  readonly parameters: number;
  /** Of these, parameters of experts, by number of experts. */
  readonly expertParameters: number;
  /** Elements of tables and running statistics: held, and never trained. */
  readonly buffers: number;
  /** Elements kept from forward to backward, attention's scores left out. */
  readonly saved: number;
  /** Of these, what every tensor-parallel rank keeps whole. */
  readonly savedRepeated: number;
  /** How many times as much a program in 16 bit keeps, which computes some of it in float32; 1 where it is left out. */
  readonly keptByPrograms?: number;
  /** Bytes of truth values kept (dropout). */
  readonly savedMasks: number;
  /** Elements live at once while its forward runs, its operands and results among them: what inference needs room for. */
  readonly live: number;
  /** The same where tensor-parallel ranks share out what each of them would have whole (sequence parallelism). */
  readonly liveShared: number;
}

/** A part that does and holds nothing. */
export const NO_WORK: PartWork = {
  ...{ forward: [], backward: [], parameters: 0, expertParameters: 0, buffers: 0 },
  ...{ saved: 0, savedRepeated: 0, savedMasks: 0, live: 0, liveShared: 0 },
};

/** The parts of a model: which repeat, and how often. */
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
  /** Elements of a layer's input: what a stage sends on, what full recomputation keeps. */
  readonly boundary: number;
  /** How many times as much that is in a program in 16 bit, which hands float32 on; 1 where it is left out. */
  readonly boundaryOfPrograms?: number;
  /** Elements of parameters before the layers that what is after them reads too: a head's, of the embedding's table. */
  readonly tied: number;
}
