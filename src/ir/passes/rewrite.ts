/**
 * @file The context of a rewrite of one node: what it may read and do. The tables of `opset`, `normalise`, `sequences` and
 * `subgraphs` hold rewrites by operator; `resolveValues` applies them while it walks the graph in order.
 */
import type { ConstantTensor, TensorType } from '../graph.js';
import type { SourceAttributes, SourceNode } from '../onnx/model.js';

/** A node that was emitted already, seen from one of its results. */
export interface Producer {
  readonly op: string;
  readonly domain: string;
  readonly attributes: SourceAttributes;
  /** Names of its operands, as rewrites may use them. */
  readonly inputs: readonly (string | null)[];
}

export interface RewriteContext {
  /** Type of a tensor in scope. Throws where it is a sequence. */
  readonly typeOf: (name: string) => TensorType;
  /** The value of a tensor; null where it depends on the data. */
  readonly valueOf: (name: string) => Promise<ConstantTensor | null>;
  /** The same, and null where the file does not hold it: for rewrites that can do without. */
  readonly heldValueOf: (name: string) => Promise<ConstantTensor | null>;
  /** Brings a constant into scope; returns its name, made from `base`. */
  readonly literal: (base: string, value: ConstantTensor) => string;
  /** `name` becomes another name of the tensor or sequence `of`. */
  readonly alias: (name: string, of: string) => void;
  /** `name` becomes a parameter of its own with the value of the initializer `of`; false where `of` is not one. */
  readonly copyParameter: (name: string, of: string) => boolean;
  /** `name` becomes a sequence of the tensors named. */
  readonly sequence: (name: string, elements: readonly string[]) => void;
  /** The elements of a sequence; null where `name` is a tensor. */
  readonly elementsOf: (name: string) => readonly string[] | null;
  /** `name` becomes an optional without a value. */
  readonly absent: (name: string) => void;
  /** Whether `name` is an optional without a value. */
  readonly isAbsent: (name: string) => boolean;
  /** Takes nodes through the walk now, so that their results are in scope when this returns. */
  readonly resolve: (nodes: readonly SourceNode[]) => Promise<void>;
  /** A prefix for derived names (`${prefix}/…`), made from `base`, that no other name of the model has. */
  readonly prefix: (base: string) => string;
  /** Adds to the number of nodes that loops have become and returns it. */
  readonly countUnrolled: (nodes: number) => number;
  /** The node that makes the tensor; null for inputs and constants. */
  readonly producerOf: (name: string) => Producer | null;
  /** Whether operators that only training needs stay. */
  readonly forTraining: boolean;
  /** The model's file, for messages. */
  readonly file: string;
}

/** Null: nothing to do. Else the nodes to go on with instead; [] when `alias`, `sequence` and the like have done it. */
export type Rewrite = (
  node: SourceNode,
  context: RewriteContext,
) => readonly SourceNode[] | null | Promise<readonly SourceNode[] | null>;

export function numberAttribute(attributes: SourceAttributes, name: string, otherwise: number): number {
  const value = attributes[name];
  return typeof value === 'number' ? value : otherwise;
}

export function numbersAttribute(attributes: SourceAttributes, name: string): readonly number[] {
  const value = attributes[name];
  return Array.isArray(value) && value.every((item) => typeof item === 'number') ? value : [];
}
