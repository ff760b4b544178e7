/**
 * @file The graph: operators over named tensors with static shapes. Everything between import and codegen is a
 * pure function from one of these immutable records to another.
 */
import type { DType } from './dtype.js';
import type { HalfType } from './half.js';

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

/** Numbers with the type that the file gives them: for operators that are not in the registry, which would know it. */
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
 * When an operator runs. `begin` runs once per step before its micro-batches, `update` once after them, all others once per
 * micro-batch; inference has `forward` alone.
 * `backward-input` leads to the gradient of an activation, which an earlier operator waits for; `backward-weight` to gradients of
 * parameters alone, so that it may run later (Qi et al. 2023, zero-bubble pipelines).
 */
export type Phase = 'begin' | 'forward' | 'recompute' | 'backward-input' | 'backward-weight' | 'update';

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
  readonly phase: Phase;
  /**
   * The forward operator that a gradient, a recompute clone or an update belongs to. null for forward operators, for sums of a
   * parameter's gradients, and for operators of the step as a whole (its number, the gradient norm).
   */
  readonly forward: string | null;
  /**
   * The search's key: operators of one group share a strategy, as an operator and its recompute clone do. A gradient may have its
   * own, which is how ZeRO-1 is found.
   */
  readonly group: string;
  /** The subgraph that a fused region stands for; null for plain operators. */
  readonly body: Graph | null;
  /** For an operator's gradient as a region, by result: the operand of `forward` that it is the gradient of. */
  readonly differentiated?: readonly number[];
}

/** A transposition that is still to be done: of a tensor of `shape` (of whole bytes per element), by `order` as in Transpose. */
export interface Transposition {
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
      readonly transposition?: Transposition;
    }
  /** All zeros, of so many bytes: the moments of an optimizer that has not begun. */
  | { readonly kind: 'zero'; readonly length: number }
  /** Weights of the file, all of one length, concatenated: the weights of experts that have one of their own each. */
  | { readonly kind: 'stacked'; readonly length: number; readonly parts: readonly WeightSource[] }
  /** The elements of another source, converted when they are read: a weight in 16 bit that the file has in float32. */
  | {
      readonly kind: 'converted';
      readonly length: number;
      readonly from: HalfType | 'float32';
      readonly to: HalfType | 'float32';
      readonly of: WeightSource;
    }
  /** `rounded`: the type that values which are made for it are rounded to, before they have the weight's own. */
  | { readonly kind: 'absent'; readonly data?: MissingData; readonly rounded?: HalfType };

/** The data file that a model names for a weight's value, and why the value cannot be read from it. */
export interface MissingData {
  /** As the model writes it. */
  readonly location: string;
  readonly problem: 'missing' | 'folder' | 'outside';
}

/** The tensor of the model's file that a weight is, where import has renamed it or moved its dimensions. */
export interface FileTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Per dimension of the weight the file's dimension that it is; null for one of size 1 that the file's tensor lacks. */
  readonly dims: readonly (number | null)[];
  /**
   * A tensor of the file that has the weight's own form: the result of the operators that were folded; null if none.
   */
  readonly result: string | null;
  /** Tensors of the file, by the weight's first dimension, which the file does not have: one name for all of them is made up. */
  readonly parts?: readonly FilePart[];
}

/** A weight of the file that is one row of a stacked one. */
export interface FilePart {
  /** Its name in the graph before it was stacked: the module's. */
  readonly weight: string;
  readonly file: FileTensor;
}

/** A parameter, buffer or folded constant: a graph-level value that is not an input. */
export interface Weight extends TensorType {
  readonly source: WeightSource;
  /** Left out where the weight is the file's tensor as it is. */
  readonly file?: FileTensor;
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

/** Memory of a rank beside its device's: the host's, and files. */
export const OUTER_MEMORIES = ['host', 'disk'] as const;
export type OuterMemory = (typeof OUTER_MEMORIES)[number];

export const LIFETIMES = ['micro', 'step', 'run'] as const;

/**
 * How long a tensor's value lasts. `micro`: it belongs to a micro-batch, of which a pipeline's stage has several in flight.
 * `step`: to the step. `run`: it is there from the first step to the last (weights, state, coordinates).
 */
export type Lifetime = (typeof LIFETIMES)[number];

/**
 * A step in several micro-batches: operators of all phases but `update` run once for each of them, on tensors of a micro-batch's
 * size, those of `update` once. Tensors that the latter read from the former are accumulated (ops/accumulate.ts).
 */
export interface MicroBatches {
  readonly count: number;
  /** By graph input or output: the dimension along which the whole batch's tensor is the micro-batches' one after the other. */
  readonly cut: ReadonlyMap<string, number>;
  /** The graph input (int64 [1]) that holds the number of the micro-batch, from 0 on; left out where nothing reads it. */
  readonly index?: string;
  /** The last micro-batch stores the activations that the others recompute. */
  readonly exceptLast?: true;
}

/**
 * The part of a dimension that is in zig-zag order (sequence-order.ts): dimension = major · size · minor, and the middle digit
 * is.
 */
export interface DimensionOrder {
  readonly size: number;
  readonly minor: number;
  /** Twice as many as ranks; divides `size`. */
  readonly pieces: number;
}

/** Per dimension; null where positions are in the model's order. */
export type TensorOrder = readonly (DimensionOrder | null)[];

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
  /** Values of state inputs before the first step; they are inputs, and not weights. Left out where there is no state. */
  readonly initial?: ReadonlyMap<string, Weight>;
  /** The inputs' batch dimensions; empty where no input has one. */
  readonly batch: readonly BatchDimension[];
  /** Left out where a step is one batch. */
  readonly microBatches?: MicroBatches;
  /** By tensor that is in another order than the model's, how (passes/order-sequence.ts). Left out where none is. */
  readonly ordered?: ReadonlyMap<string, TensorOrder>;
  /** Versions of the operator sets other than ONNX's own that the file imports. */
  readonly domains?: ReadonlyMap<string, number>;
}

/** The opset of ONNX's own domain that every graph after import uses, and that segments are written in. */
export const INTERNAL_OPSET = 24;

/** Tensors of more dimensions are refused, as by NumPy and PyTorch: rules and layouts name every one of them. */
export const MOST_DIMENSIONS = 64;

/** The file's tensor of a weight that has another name, but the dimensions of the file. */
export function plainFileTensor(name: string, { shape }: TensorType): FileTensor {
  return { name, shape, dims: shape.map((_, axis) => axis), result: null };
}

/** A weight, or state that steps change, with its initial value. Trained parameters are state, and not in `weights`. */
export function storedIn({ weights, initial }: Pick<Graph, 'weights' | 'initial'>, tensor: string): Weight | undefined {
  return weights.get(tensor) ?? initial?.get(tensor);
}

/** The tensor of the file that a tensor of the graph is; null for one that is in the file as it is, or that is not a weight. */
export function fileTensorOf(graph: Pick<Graph, 'weights' | 'initial'>, tensor: string | null): FileTensor | null {
  return tensor === null ? null : (storedIn(graph, tensor)?.file ?? null);
}

/** How often an operator of a phase runs in a step. */
export function runsPerStep(phase: Phase, { microBatches }: Pick<Graph, 'microBatches'>): number {
  return isOnceAStep(phase) ? 1 : (microBatches?.count ?? 1);
}

/** Whether operators of a phase run once a step, however many micro-batches it has. */
export function isOnceAStep(phase: Phase): boolean {
  return phase === 'begin' || phase === 'update';
}

/** Whether operators of a phase are the model's own: its forward, of which a part may run once for all micro-batches. */
export function isOfModel(phase: Phase): boolean {
  return phase === 'begin' || phase === 'forward';
}

/** Whether operators of a phase make gradients. */
export function isBackward(phase: Phase): boolean {
  return phase === 'backward-input' || phase === 'backward-weight';
}

/** A phase, with the two phases of the backward as one: they run together unless a schedule separates them. */
export function passOf(phase: Phase): string {
  return isBackward(phase) ? 'backward' : phase;
}

/** Number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  let product = 1;
  for (const size of shape) product *= size;
  return product;
}

/** The type of a tensor that must exist: a missing one is an internal error, not the user's. */
export function typeOf(graph: Graph, tensor: string): TensorType {
  const type = graph.tensors.get(tensor);
  if (!type) throw new Error(`tensor ${tensor} is not in graph ${graph.name}`);
  return type;
}
