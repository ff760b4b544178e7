/**
 * @file program.json: all that passes from codegen to a runtime. SPMD per stage: one instruction list that all ranks of a
 * stage run. Groups are named by axes, so the size does not depend on the number of devices.
 */
import type { DType } from '../ir/dtype.js';
import type { Reduction } from '../ir/factor-rule.js';
import type { Lifetime, OuterMemory, TensorOrder } from '../ir/graph.js';
import type { Border } from '../sharding-propagation/collective-rule.js';

export const PROGRAM_VERSION = 2;

export interface Program {
  readonly format: 'autopar-program';
  readonly version: typeof PROGRAM_VERSION;
  /** `plan`: SHA-256 of the plan that the program was made from. */
  readonly model: { readonly name: string; readonly fingerprint: string; readonly plan?: string };
  /** Axes outermost first, with the prime sub-axes; ranks are numbered with the last sub-axis fastest. */
  readonly mesh: readonly ProgramAxis[];
  /** Whole tensors that the user provides. */
  readonly inputs: readonly ProgramValue[];
  readonly outputs: readonly ProgramValue[];
  readonly stages: readonly ProgramStage[];
  /**
   * State: the value of `from` at the end of a step is the value of `to` at the beginning of the next, shard for shard. Both are
   * tensors of the stage, and they swap buffers. The first step reads `to` from the weights; a list that runs once a step may
   * free it, because the step ends with the new value. Left out where there is no state.
   */
  readonly state?: readonly { readonly stage: number; readonly from: string; readonly to: string }[];
  /**
   * Order of actions, one stage after the other. One (`forward`) where a step is one batch; with micro-batches `micro` for
   * each of them, then `step`; for a pipeline stage `begin`, the actions of its schedule and the transfers between them, and
   * `update`. A phase is one list of instructions, however often it runs. Run in this order the stages finish even if every
   * transfer is a rendezvous without a buffer.
   */
  readonly schedule: readonly ProgramAction[];
}

export interface ProgramAxis {
  readonly axis: string;
  readonly size: number;
  readonly subAxes: readonly { readonly name: string; readonly size: number }[];
}

/** A whole tensor and how a stage's ranks hold it. */
export interface ProgramValue {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly stage: number;
  /** The local tensor's name in the stage. */
  readonly tensor: string;
  /** Rows of the table that the values of an input index; left out where they index none. */
  readonly rows?: number;
  /** `count` equal parts along a dimension, one per micro-batch; the local tensor is a shard of one of them. */
  readonly microBatches?: { readonly axis: number; readonly count: number };
}

/** How a tensor is sharded: per dimension the pieces [size, axes]. As in Layout, in plain JSON. */
export interface ProgramLayout {
  readonly dims: readonly (readonly { readonly size: number; readonly axes: readonly string[] }[])[];
  readonly partial: readonly { readonly axis: string; readonly reduction: Reduction }[];
  /** Padding, per dimension: parts that multiply to the padded size, and how much of each is valid; null if none. */
  readonly extents?: readonly (readonly { readonly size: number; readonly valid: number }[] | null)[];
  /** Where positions are in another order than the model's: the tensor in that order is sharded. Left out where none are. */
  readonly order?: TensorOrder;
}

export interface ProgramTensor {
  readonly dtype: DType;
  readonly localShape: readonly number[];
  /** Whole shape. */
  readonly shape: readonly number[];
  readonly layout: ProgramLayout;
  /** `micro`: actions of a micro-batch alone name it. `run`: no instruction makes it. */
  readonly lifetime: Lifetime;
  /** Where ranks have it; the device's memory where it is left out. */
  readonly place?: OuterMemory;
  /** Axes along which ranks hold values that are not parts of one tensor; left out if none. */
  readonly varying?: readonly string[];
  /** For rows that a rank sends to the next, or has received: their position. */
  readonly border?: Border;
  /**
   * Axes along which only the first rank holds it; all ranks do where it is left out. Other ranks skip the instructions that make
   * it, and those that read it alone.
   */
  readonly first?: readonly string[];
  /** The unsharded graph's tensor it is a shard of (for verify), if it is one; several tensors may be shards of one. */
  readonly source?: string;
}

export interface ProgramStage {
  /**
   * The stage's own axes, where stages differ: the sub-axes of the program's mesh inside a stage, in their order, as this stage
   * groups them.
   */
  readonly mesh?: readonly ProgramAxis[];
  readonly tensors: Readonly<Record<string, ProgramTensor>>;
  /** Hash of structure and types → file of the segment (an ONNX model over local shapes), relative to program.json. */
  readonly segments: Readonly<Record<string, ProgramSegment>>;
  readonly weights: Readonly<Record<string, ProgramWeight>>;
  readonly coordinates: Readonly<
    Record<string, { readonly axes: readonly string[]; readonly block: number; readonly bias: number }>
  >;
  /** The tensor (int64 [1]) that holds the number of the micro-batch, where something reads it. */
  readonly microBatch?: string;
  readonly phases: Readonly<Record<string, readonly Instruction[]>>;
}

export interface ProgramSegment {
  readonly file: string;
  /** Names inside the ONNX file, in the order of a compute instruction's `inputs`, `weights`, `outputs`. */
  readonly inputs: readonly string[];
  readonly weights: readonly string[];
  readonly outputs: readonly string[];
  /** SHA-256 of the file, in hex. */
  readonly sha256: string;
  /** The same in plainer operators, for a device that lacks some of it; left out where the registry has no expansion. */
  readonly plain?: { readonly file: string; readonly sha256: string };
  /**
   * Types (tensor-type.ts) of the tensors that stand for them: it was made for these, and is wrong for others of the same shape.
   */
  readonly types: {
    readonly inputs: readonly string[];
    readonly weights: readonly string[];
    readonly outputs: readonly string[];
  };
  /** Temporary bytes while it runs, beside its operands and results; 0 where it is left out. */
  readonly temporaryBytes?: number;
  /** Work of one execution on one rank. */
  readonly flops: number;
  /** Seconds that one execution is predicted to take; left out where the program was made without a prediction. */
  readonly seconds?: number;
  readonly operators: readonly string[];
  /** The model's nodes behind its operators, in their order, of the first instruction that runs it: for errors. */
  readonly nodes?: readonly ProgramNode[];
}

/** An operator of the model, as errors name it. */
export interface ProgramNode {
  readonly name: string;
  /** With its domain, where that is not ONNX's own. */
  readonly op: string;
  /** Types of its operands and results, each once. */
  readonly dtypes: readonly string[];
}

export interface ProgramWeight {
  /**
   * safetensors file and the key in it; null where the value is zero on all ranks (moments before the first step). `{k}` in the
   * file name is replaced by the shard number: the rank's mixed-radix index on `axes`. Files are relative to program.json; equal
   * shards are stored once.
   */
  readonly file: string | null;
  readonly key: string;
  readonly axes: readonly string[];
  readonly dtype: DType;
  readonly localShape: readonly number[];
  /** Ranks whose index on these axes is not 0 hold zeros instead (a value partial over them). */
  readonly zeroUnlessFirst: readonly string[];
  /** As of its tensor. */
  readonly first?: readonly string[];
  /** The model's weight that it is a shard of, its whole shape, and how it is sharded: for recutting without the model. */
  readonly source?: string;
  readonly shape?: readonly number[];
  readonly layout?: ProgramLayout;
}

/** A collective that begins, to be waited for. */
export type StartInstruction = Extract<Instruction, { readonly kind: 'start' }>;

/** `half`: it works on the second half of a micro-batch in two halves: the micro-batch behind that of its action. */
export type Instruction = { readonly half?: 1 } & (
  | {
      readonly kind: 'compute';
      readonly segment: string;
      readonly inputs: readonly string[];
      readonly weights: readonly string[];
      readonly outputs: readonly string[];
      /** Layer and first operator, for reports and errors. */
      readonly label: string;
      /** In training without stages, where a list has several: `forward`, `backward`, `update`, `begin`. */
      readonly pass?: string;
    }
  /**
   * Begins a collective; `output` is defined by the `wait` with the same id. One that is marked `last` begins only where its list
   * runs for the last time in a step, and a list that runs once waits for it. Those of a `bucket` begin one after the other, and
   * may travel as one message.
   */
  | {
      readonly kind: 'start';
      readonly id: number;
      readonly collective: ProgramCollective;
      readonly axes: readonly string[];
      readonly input: string;
      readonly output: string;
      readonly label: string;
      readonly last?: true;
      readonly bucket?: number;
    }
  | { readonly kind: 'wait'; readonly id: number }
  /** To and from the same rank of another stage. `label` is the name by which both ends know the tensor. */
  | { readonly kind: 'send'; readonly tensor: string; readonly stage: number; readonly label: string }
  | { readonly kind: 'recv'; readonly tensor: string; readonly stage: number; readonly label: string }
  /** `output` holds the sum of `input` over the micro-batches so far; in the first it begins anew. */
  | { readonly kind: 'accumulate'; readonly input: string; readonly output: string; readonly label: string }
  /** Copies a tensor between the device's memory and another one. */
  | { readonly kind: 'move'; readonly input: string; readonly output: string; readonly label: string }
  | { readonly kind: 'free'; readonly tensors: readonly string[] }
);

/** As Collective in the sharded graph (see there for the meaning of outer and inner). */
export type ProgramCollective =
  | { readonly kind: 'all-reduce'; readonly reduction: Reduction }
  | { readonly kind: 'reduce'; readonly reduction: Reduction }
  | { readonly kind: 'all-gather'; readonly outer: number; readonly inner: number }
  | { readonly kind: 'reduce-scatter'; readonly reduction: Reduction; readonly outer: number; readonly inner: number }
  | {
      readonly kind: 'all-to-all';
      readonly split: { readonly outer: number; readonly inner: number };
      readonly concat: { readonly outer: number; readonly inner: number };
      /** Elements of a row: rows that are zero throughout are not sent. It divides `split.inner`. */
      readonly filled?: number;
    }
  | { readonly kind: 'permute'; readonly to: readonly number[] }
  | { readonly kind: 'broadcast' };

export interface ProgramAction {
  readonly stage: number;
  readonly chunk: number;
  /**
   * The micro-batch, of two halves the first, whose tensors of lifetime `micro` the action reads and makes; null: it runs once a
   * step, and has none.
   */
  readonly microBatch: number | null;
  readonly phase: string;
}
