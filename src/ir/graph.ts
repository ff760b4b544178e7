/**
 * @file The graph: operators over named tensors with static shapes. Everything between import and codegen is a
 * pure function from one of these immutable records to another.
 */
import type { DType } from './dtype.js';

/** A tensor's dtype and static shape. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** An attribute's value. Tensors appear for Constant-like attributes only; `graph` for control flow that is refused later. */
export type AttributeValue =
  | number
  | bigint
  | string
  | readonly number[]
  | readonly string[]
  | ConstantTensor
  | TypedNumbers;

/** The types that ONNX gives numbers in attributes. */
export type NumberType = 'int' | 'ints' | 'float' | 'floats';

/** Numbers with the type that the file gives them: of operators that the registry lacks, which does not know it. */
export interface TypedNumbers {
  readonly type: NumberType;
  readonly numbers: readonly number[];
}

/** Integers are plain numbers (exact to 2^53); the reader refuses larger ones. */
export type Attributes = Readonly<Record<string, AttributeValue>>;

/** A tensor whose value is known: little-endian bytes, row-major, length byteLength(dtype, elements). */
export interface ConstantTensor extends TensorType {
  readonly data: Uint8Array;
}

/**
 * `micro`: runs once per micro-batch. `step`: runs once per optimizer step.
 * A graph without training has only `micro`.
 */
export type Scope = 'micro' | 'step';

export type Phase = 'forward' | 'recompute' | 'backward' | 'update';

/** One operator. `null` in `inputs` is an optional input that is left out; '' is never used. */
export interface Node {
  /** Unique in the graph. The exporter's name where it is unique, else operator and ordinal. */
  readonly name: string;
  readonly op: string;
  /** '' is ONNX's own domain. */
  readonly domain: string;
  readonly attributes: Attributes;
  readonly inputs: readonly (string | null)[];
  readonly outputs: readonly (string | null)[];
  /** Path in the module hierarchy, outermost first, e.g. ['m', 'model', 'layers.0', 'self_attn']. Empty when unknown. */
  readonly module: readonly string[];
  /** The repeated layer it belongs to (`m.model.layers.0`), or null. Set by the pass `find-layers`. */
  readonly layer: string | null;
  readonly scope: Scope;
  readonly phase: Phase;
  /** Operators that share one strategy (an operator, its gradient operators, its recompute clones): the forward operator's name. */
  readonly group: string;
  /** The subgraph that a recognised block stands for; null for plain operators. */
  readonly body: Graph | null;
}

/** A transposition that is still to be done: of a tensor of `shape` (of whole bytes per element), by `order` as in Transpose. */
export interface Turn {
  readonly shape: readonly number[];
  readonly order: readonly number[];
}

/** Where a weight's bytes are. `absent`: the file names the weight but holds no value (planning needs none). */
export type WeightSource =
  | { readonly kind: 'inline'; readonly data: Uint8Array }
  | {
      readonly kind: 'external';
      readonly file: string;
      readonly offset: number;
      readonly length: number;
      /** The bytes in the file are those of the weight before a transposition. */
      readonly turned?: Turn;
    }
  /** All zeros, of so many bytes: the moments of an optimizer that has not begun. */
  | { readonly kind: 'zero'; readonly length: number }
  | { readonly kind: 'absent' };

/** A parameter, buffer or folded constant: a graph-level value that is no input. */
export interface Weight extends TensorType {
  readonly source: WeightSource;
  /** `parameter`: can be trained. `buffer`: state that is not. `constant`: folded or baked in. */
  readonly role: 'parameter' | 'buffer' | 'constant';
}

/** One buffer seen as an input and as an output of a step: both have one layout. */
export interface StatePair {
  readonly input: string;
  readonly output: string;
}

/** A user-visible dimension: axis `axis` of graph input `input` is the batch. */
export interface BatchDimension {
  readonly input: string;
  readonly axis: number;
}

/**
 * A step in several micro-batches: operators of scope `micro` run once for each of them, on tensors of a micro-batch's size, those
 * of scope `step` once. What the former hand the latter is summed up on the way (ops/accumulate.ts).
 */
export interface MicroBatches {
  readonly count: number;
  /** By graph input or output: the dimension along which the whole batch's tensor is the micro-batches' one after the other. */
  readonly cut: ReadonlyMap<string, number>;
  /** The graph input (int64 [1]) that holds the number of the micro-batch, from 0 on; left out where nothing reads it. */
  readonly index?: string;
}

export interface Graph {
  readonly name: string;
  /** In topological order. */
  readonly nodes: readonly Node[];
  /** Type of every tensor: inputs, weights, and each node's outputs. */
  readonly tensors: ReadonlyMap<string, TensorType>;
  /** Data inputs, in the file's order. Weights are not among them. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly weights: ReadonlyMap<string, Weight>;
  readonly state: readonly StatePair[];
  /** Values that state inputs have before the first step; they are inputs, and no weights. Left out where there is no state. */
  readonly initial?: ReadonlyMap<string, Weight>;
  /** The inputs' batch dimensions; empty where no input has one. */
  readonly batch: readonly BatchDimension[];
  /** Left out where a step is one batch. */
  readonly microBatches?: MicroBatches;
  /** Versions of the operator sets other than ONNX's own that the file imports. */
  readonly domains?: ReadonlyMap<string, number>;
}

/** The opset of ONNX's own domain that every graph after import uses, and that segments are written in. */
export const INTERNAL_OPSET = 24;

/** Tensors of more dimensions are refused, as by NumPy and PyTorch: rules and layouts name every one of them. */
export const MOST_DIMENSIONS = 64;

/** How often an operator of a scope runs in a step. */
export function runsPerStep(scope: Scope, { microBatches }: Pick<Graph, 'microBatches'>): number {
  return scope === 'micro' ? (microBatches?.count ?? 1) : 1;
}

/** Number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** The type of a tensor that must exist: a missing one is a fault of ours, not of the user's. */
export function typeOf(graph: Graph, tensor: string): TensorType {
  const type = graph.tensors.get(tensor);
  if (!type) throw new Error(`tensor ${tensor} is not in graph ${graph.name}`);
  return type;
}
