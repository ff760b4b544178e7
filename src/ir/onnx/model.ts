/**
 * @file A model as its file states it, before any pass: dynamic dimensions, subgraphs, functions and old opsets are
 * still there. `readOnnx` makes it and the import passes turn it into a Graph.
 */
import type { DType } from '../dtype.js';
import type { AttributeValue, NumberType, TensorType, WeightSource } from '../graph.js';
import type { MultiDevice } from './device-annotations.js';

/** Nodes of a model, function calls expanded. The largest published models have some tens of thousands. */
export const MOST_NODES = 200_000;

/** A dimension: its size, its name or expression (`s0 + 1`), or null where the file states none. */
export type SourceDimension = number | string | null;

/** A named value with the type that the file declares for it. */
export interface SourceValue {
  readonly name: string;
  /** Null for a value that is not a tensor (a sequence) or has no type. */
  readonly dtype: DType | null;
  /** The element type of a tensor that is not of numbers, or of none that autopar handles. */
  readonly unhandled?: string;
  /** Null where not even the rank is known. */
  readonly shape: readonly SourceDimension[] | null;
}

/** The kind that the exporter states for a graph input or an initializer. */
export type InputKind = 'input' | 'parameter' | 'buffer' | 'constant';

export interface Initializer extends TensorType {
  readonly source: WeightSource;
}

/** An attribute that stands for an attribute of the function's caller. */
interface AttributeReference {
  readonly reference: string;
}

/** An attribute of a kind that autopar has no use for (types, sparse tensors, lists of graphs). */
interface OpaqueAttribute {
  readonly opaque: string;
}

export type SourceAttribute = AttributeValue | SourceGraph | AttributeReference | OpaqueAttribute;

export type SourceAttributes = Readonly<Record<string, SourceAttribute>>;

export interface SourceNode {
  /** As in the file; may be empty or repeated. */
  readonly name: string;
  readonly op: string;
  /** '' is ONNX's own domain. */
  readonly domain: string;
  readonly overload: string;
  readonly attributes: SourceAttributes;
  /** The types of its numbers in the file; left out for operators that import makes. */
  readonly numberTypes?: Readonly<Record<string, NumberType>>;
  readonly inputs: readonly (string | null)[];
  readonly outputs: readonly (string | null)[];
  readonly module: readonly string[];
  /**
   * The operator of the traced program that it is part of, as PyTorch's exporter writes it: `%mul : … (args = (%view, %p_w))`.
   */
  readonly traced?: string;
  /** The version of its domain that it is written for; 0 where the file imports no such domain. */
  readonly opset: number;
}

export interface SourceGraph {
  readonly name: string;
  readonly nodes: readonly SourceNode[];
  readonly inputs: readonly SourceValue[];
  readonly outputs: readonly SourceValue[];
  readonly initializers: ReadonlyMap<string, Initializer>;
  readonly valueInfo: ReadonlyMap<string, SourceValue>;
}

export interface SourceFunction {
  readonly name: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly defaults: SourceAttributes;
  readonly nodes: readonly SourceNode[];
}

export interface OnnxModel {
  /** Absolute path of the file. */
  readonly file: string;
  readonly irVersion: number;
  readonly producer: string;
  readonly opsets: ReadonlyMap<string, number>;
  readonly graph: SourceGraph;
  /** By `functionKey`. */
  readonly functions: ReadonlyMap<string, SourceFunction>;
  /** Kinds of inputs and initializers in exporter metadata, by name. */
  readonly kinds: ReadonlyMap<string, InputKind>;
  /** The parameters and buffers that the exported program had, as PyTorch's exporter records them; [] without a record. */
  readonly recorded: readonly RecordedTensor[];
  /** By initializer that the exporter computed: the values of the program that it was computed from. */
  readonly foldedFrom: ReadonlyMap<string, readonly string[]>;
  /** The devices that the file wants its nodes on; null where it states none. */
  readonly multiDevice: MultiDevice | null;
  readonly notes: readonly string[];
}

/** A tensor of the exported program's modules. */
export interface RecordedTensor {
  readonly name: string;
  /** Its name in operators of the program: `p_h_0_weight`. */
  readonly placeholder: string;
  readonly kind: 'parameter' | 'buffer';
}

/** The key of a model-local function: domain, name and overload together identify it. */
export function functionKey(domain: string, name: string, overload: string): string {
  return JSON.stringify([domain, name, overload]);
}

export function isSourceGraph(attribute: SourceAttribute | undefined): attribute is SourceGraph {
  return typeof attribute === 'object' && 'nodes' in attribute;
}

export function isReference(attribute: SourceAttribute): attribute is AttributeReference {
  return typeof attribute === 'object' && 'reference' in attribute;
}

export function isOpaque(attribute: SourceAttribute): attribute is OpaqueAttribute {
  return typeof attribute === 'object' && 'opaque' in attribute;
}
