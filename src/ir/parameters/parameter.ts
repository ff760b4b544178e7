/**
 * @file The results of the parameter analysis. A parameter is a value that training changes as one: a set of places of the
 * graph that share it. Files store something else: exporters merge parameters whose initial values are equal, and
 * store a shared one twice, once transposed.
 */
import type { TensorType } from '../graph.js';
import type { InputKind } from '../onnx/model.js';
import type { IdentityUse } from './identities.js';
import type { ParameterPlace } from './places.js';
import type { SameValues } from './same-values.js';

/** A place with the weight that serves it. */
export interface WeightPlace extends ParameterPlace {
  /** Name of the graph's weight. */
  readonly weight: string;
  /** Whether that weight is the transpose of the parameter's first one. */
  readonly isTransposeOfFirst: boolean;
}

export interface Parameter extends TensorType {
  /** Unique: the module's name for it (`h.0.attn.c_attn.weight`) where file or places give it, else the weight's. */
  readonly name: string;
  readonly elements: number;
  readonly bytes: number;
  /** The graph's weights that hold its value; the first has its shape. Another parameter may hold the same ones. */
  readonly weights: readonly string[];
  /** Whether its value is in the file. */
  readonly present: boolean;
  readonly role: 'parameter' | 'buffer' | 'constant';
  readonly trainable: boolean;
  /** Why it is trainable, or not. */
  readonly why: string;
  /** Where it is used. Places of a weight that is stored transposed are marked as such. */
  readonly places: readonly WeightPlace[];
}

/** A decision that the file does not state: that several weights are one parameter, or that one is several. */
export interface TieDecision {
  readonly kind: 'tied' | 'separated';
  /** The one parameter, or the several. */
  readonly parameters: readonly string[];
  /** The graph's weights concerned. */
  readonly weights: readonly string[];
  readonly why: string;
}

/** A tensor in the place of a weight that no initializer holds: the graph itself makes it. */
export interface GeneratedWeight extends TensorType {
  readonly tensor: string;
  readonly elements: number;
  readonly place: ParameterPlace;
}

export interface Parameters {
  /** All floating-point parameters, in the order of their first places. */
  readonly parameters: readonly Parameter[];
  /** Buffers: running statistics, tables that the exporter calls so. */
  readonly buffers: readonly Parameter[];
  /** Values that are folded or baked in. */
  readonly constants: readonly Parameter[];
  readonly generated: readonly GeneratedWeight[];
  readonly decisions: readonly TieDecision[];
}

/** The evidence to decide by, besides the graph. */
export interface ParameterEvidence {
  /** Kinds of the file's initializers and inputs in exporter metadata. */
  readonly kinds: ReadonlyMap<string, InputKind>;
  readonly identities: readonly IdentityUse[];
  /** By weight: why import made it a parameter, a buffer or a constant. */
  readonly reasons: ReadonlyMap<string, string>;
  readonly values: SameValues;
}

/** The user's overrides. */
export interface ParameterOptions {
  /** `a=b`: these two are one. */
  readonly tie?: readonly string[];
  /** Each place of this parameter becomes a parameter of its own; the name of one of its places separates that place only. */
  readonly untie?: readonly string[];
  /** Globs of names that are trained, whatever the evidence. */
  readonly trainable?: readonly string[];
  /** Globs of names that are not, unless `trainable` has them. */
  readonly frozen?: readonly string[];
}
