/**
 * @file The registry's entry for an operator: one record, which does not depend on a mesh. Files in `ops/` fill the table, one
 * file per family.
 */
import type { FactorRule } from './factor-rule.js';
import type { Attributes, ConstantTensor, Graph, TensorType } from './graph.js';
import type { OwnForms } from './onnx/attribute-types.js';

/** An operator with the types around it: all that a registry entry's functions may look at. */
export interface Operator {
  readonly name: string;
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
  /** Types of the operands; null where an optional one is left out. */
  readonly inputs: readonly (TensorType | null)[];
  /** Types of the results; null where one is not used. Empty while `infer` runs. */
  readonly outputs: readonly (TensorType | null)[];
  /** How many results the node names (before their types are known). */
  readonly outputCount: number;
  /** The subgraph that a fused region stands for. */
  readonly body?: Graph;
}

/** An input that must be known when planning, kept as an attribute after import and turned back into an input on export. */
export interface ConstantInput {
  readonly index: number;
  readonly attribute: string;
  /** int64 list, int64 scalar, any scalar number, or a whole tensor kept as it is. */
  readonly form: 'ints' | 'int' | 'float' | 'tensor';
}

/** One of the operators that are written in place of another. */
export interface WrittenOperator {
  readonly op: string;
  readonly domain?: string;
  readonly attributes?: Attributes;
  /** `in0`, `in1`, … the operands of the other; `out0`, … its results; other names are local. */
  readonly inputs: readonly (string | null)[];
  readonly outputs: readonly string[];
}

/** Operators in topological order. */
export interface WrittenOperators {
  readonly nodes: readonly WrittenOperator[];
  /** Small constants that the nodes read, by name. */
  readonly constants: Readonly<Record<string, ConstantTensor>>;
}

/** One operator of an expansion. */
export interface ExpansionNode extends WrittenOperator {
  /** Per result: its dimensions as factors of the expanded operator's rule ([] = a dimension of size 1). */
  readonly dims: readonly (readonly (readonly string[])[])[];
}

export interface Expansion extends WrittenOperators {
  readonly nodes: readonly ExpansionNode[];
  /**
   * Attributes that hold whole sizes (the 1/n of a mean) must be computed from whole shapes, before sharding:
   * an expansion is built from the unsharded operator, and partition resizes each node by its own entry.
   */
}

/** An operator whose operands arrive in chunks along a factor that streams: the computation for one chunk after the other. */
export interface Streamed {
  readonly first: Expansion;
  /** Null where results of chunks add up. */
  readonly online: {
    /** For the chunks after the first: they read the kept tensors of the chunk before, after all other operands. */
    readonly next: Expansion;
    /** After the last of them: the operator's results, from the kept tensors alone. */
    readonly end: Expansion;
    /**
     * The dimensions of booleans that mark the positions of a chunk that exist, an operand after the operator's own; null where
     * all exist.
     */
    readonly there: readonly (readonly string[])[] | null;
    /** Tensors that are kept from chunk to chunk, with dimensions as in an expansion. */
    readonly kept: readonly (readonly (readonly string[])[])[];
  } | null;
}

/** Work of an operator on the shapes given (whole or local). */
export interface Work {
  /** Floating-point operations; a multiply-add counts two. */
  readonly flops: number;
  /** Bytes read and written when that differs from operands + results (a Gather reads rows, not its table). */
  readonly bytes?: number;
}

/** An operator whose gradient is wanted. */
export interface DifferentiatedOperator extends Operator {
  /** Per operand: whether its gradient is wanted. Never so for integers and booleans. */
  readonly wanted: readonly boolean[];
  /** Per result: whether it has a gradient. One of them has. */
  readonly given: readonly boolean[];
  /** Per operand: its value, where it is one number that is known when compiling. Left out: none is. */
  readonly known?: readonly (number | null)[];
}

/**
 * The operators that make an operator's gradients: they may read `in0`, … (operands), `out0`, … (results), and `grad0`, …
 * (gradients of the results that are given), and make `d0`, … for the wanted operands, of their types. The tensors that they
 * read are stored from the forward. They are sharded by their own rules.
 */
export type Gradient = (operator: DifferentiatedOperator) => WrittenOperators;

/**
 * The operator in plainer ones, over whole shapes: they read its operands as `in0`, … and make its results as `out0`, …, all that
 * depends on the operands in a way that can be differentiated.
 */
export type PlainForm = (operator: Operator) => WrittenOperators;

/** Where an operator's gradient comes from. */
export type GradientSource =
  /** Operators of its own. */
  | { readonly kind: 'operators'; readonly write: Gradient }
  /** The operator's plain form, which is computed again and differentiated (autodiff/backpropagation.ts). */
  | { readonly kind: 'plain'; readonly form: PlainForm }
  /** No gradient passes, and why (`whole numbers`): the operator's results are treated as constants. */
  | { readonly kind: 'none'; readonly why: string }
  /** A gradient is conceivable, and why there is none: training through the operator is an error with this reason. */
  | { readonly kind: 'refused'; readonly why: string };

/** All that a fused region computes, as a function of its first operands. */
export interface Formula {
  readonly attributes: Attributes;
  /** How many operands it reads. */
  readonly operands: number;
  /** Factors that a rank must have whole for it to be the formula of the rank's shards. */
  readonly whole: readonly string[];
}

export type OperatorFamily =
  | 'elementwise'
  | 'contraction'
  | 'normalisation'
  | 'reduction'
  | 'view'
  | 'indexing'
  | 'convolution'
  | 'pooling'
  | 'attention'
  | 'recurrent'
  | 'loss'
  | 'generator'
  | 'sort'
  | 'other';

/**
 * The precision of an operator of float32 operands where a model is trained in 16 bit (autodiff/mixed-precision.ts): `low`: 16
 * bit; `full`: float32; `follow`: the type of its operands, the wider of them where they differ; `data`: the type of its first
 * operand, beside which the others, its parameters and statistics, stay float32. As in PyTorch's autocast.
 */
export type OperatorPrecision = 'low' | 'full' | 'follow' | 'data';

/** The effect of an operator on values, where other code depends on it and its family does not show it. */
export type OperatorRole =
  /** Its first operand as it is. */
  | 'copy'
  /** Its first operand in another type. */
  | 'cast'
  /** Its operand rounded to a narrower type, in its own type. */
  | 'rounding'
  /** All operands added up. */
  | 'sum'
  /** Elements of operand 1 where operand 0 is true, else of operand 2. */
  | 'choice'
  /** Probabilities of scores, as between the two matmuls of attention. */
  | 'softmax'
  /** Numbers rounded to integers with a scale, and the numbers that such integers represent. */
  | 'quantise'
  | 'dequantise'
  /** Results differ from run to run: never folded, never merged. */
  | 'random';

/** The kinds of fused regions (fused-regions/fused-region.ts). */
export type RegionKind =
  | 'Attention'
  | 'LayerNormalization'
  | 'RMSNormalization'
  | 'BatchNormalization'
  | 'Gelu'
  | 'SwiGLU'
  | 'RotaryEmbedding'
  | 'CrossEntropy'
  /** Rounds a result to values that a narrower type can hold (autodiff/held-in-float32.ts). */
  | 'Rounding'
  /** An optimizer's update of a weight and its moments from the gradient (autodiff/append-optimizer.ts). */
  | 'OptimizerUpdate';

/** How an operator in training differs from evaluation, the form that most files have. */
export type TrainingForm =
  /**
   * Its attribute `mode` makes it take statistics of the batch instead of running ones (operands), which move towards them:
   * `running` names each such operand and pairs it with the result that is its next value.
   */
  | {
      readonly kind: 'batch-statistics';
      readonly mode: string;
      readonly running: readonly { readonly name: string; readonly operand: number; readonly result: number }[];
    }
  /** Elements of operand 0 are dropped at random: the operands with the ratio and the mode, and the result with the mask. */
  | {
      readonly kind: 'dropout';
      readonly ratio: number;
      readonly mode: number;
      readonly mask: number;
      readonly defaultRatio: number;
    };

export interface OperatorEntry {
  readonly op: string;
  readonly domain: string;
  readonly family: OperatorFamily;
  readonly precision: OperatorPrecision;
  /** Left out where no other code depends on it. */
  readonly role?: OperatorRole;
  /** The kind of region that it is by itself; left out for plain operators and for gradients of regions. */
  readonly region?: RegionKind;
  /** The opset that brought it, where that is newer than INTERNAL_OPSET: models with it are written in that opset. */
  readonly since?: number;
  /**
   * The newest opset whose form of it ONNX Runtime has, where that is older than INTERNAL_OPSET: models with it are written in
   * that opset.
   */
  readonly until?: number;
  /** Forms of attributes whose names mean something else for other operators (onnx/attribute-types.ts). */
  readonly attributes?: OwnForms;
  readonly constantInputs: readonly ConstantInput[];
  /**
   * Types of all `outputCount` results from operands and attributes. Throws AutoparError code `shape-mismatch` naming
   * operator.name where operands do not fit each other.
   */
  readonly infer: (operator: Operator) => readonly TensorType[];
  /** The factor rule for these types and attributes. */
  readonly rule: (operator: Operator) => FactorRule;
  /**
   * Sets of operand indices in which the operator is linear: if all operands of a set arrive partial (sum) over an axis
   * and no other operand is, so leave all results. [] where it is not linear at all.
   */
  readonly linear: (operator: Operator) => readonly (readonly number[])[];
  /**
   * The attributes in full, for operands of known types, so that rules and `resize` see one form: axes counted from the front,
   * sizes without −1. Left out where they are.
   */
  readonly complete?: (operator: Operator) => Attributes;
  /**
   * The attributes at other factor sizes: for a shard, and for another global batch. `size(name)` is a factor's new size.
   * Left out where attributes never hold sizes.
   */
  readonly resize?: (operator: Operator, rule: FactorRule, size: (factor: string) => number) => Attributes;
  /**
   * For rules with factors of kind `halo`: the attributes on a shard that has its halos, values outside of the tensor included.
   * `cut` names the factors that are sharded.
   */
  readonly bordered?: (operator: Operator, cut: ReadonlySet<string>) => Attributes;
  /** Whether it is (a part of) a state-space layer: each position reads a state that the ones before it leave. */
  readonly carriesState?: (operator: Operator) => boolean;
  /** For fused regions of many forms: null where no formula says all that this one computes. */
  readonly formula?: (operator: Operator, knownValue: (operand: number) => ConstantTensor | null) => Formula | null;
  /** No runtime has it: its expansion always takes its place. */
  readonly isWritten?: boolean;
  /** Equivalent plainer operators, for when an `expanded` factor is sharded or a target lacks the operator. */
  readonly expansion?: (operator: Operator) => Expansion;
  /**
   * For a factor that streams: the operator on one chunk after the other, at other sizes of its factors. `isPadded`: the last
   * chunk ends in padding.
   */
  readonly streamed?: (operator: Operator, size: (factor: string) => number, isPadded: boolean) => Streamed;
  /**
   * A mean as a ratio of two sums: scalars `numerator` and `denominator`, both linear in the
   * samples (result 0 is their quotient; further results as in an expansion). null where the operator is not such a mean.
   */
  readonly ratio?: (operator: Operator) => Expansion | null;
  /** Left out for fused regions alone, whose bodies are differentiated. */
  readonly gradient?: GradientSource;
  /** For devices that lack the operator, where neither its expansion nor its gradient has it in plainer ones. */
  readonly plain?: PlainForm;
  /** Operand that holds indices into the factor of kind `mask`. */
  readonly indexInput?: number;
  /**
   * For factors of kind `indexed`: the operator on a shard. `offsets[factor]` names an int64 tensor of shape [1] with the
   * shard's first position along that factor, `shardSizes[factor]` is how many positions a shard has. Results named and
   * dimensioned as in an expansion.
   */
  readonly indexed?: (
    operator: Operator,
    offsets: Readonly<Record<string, string>>,
    shardSizes: Readonly<Record<string, number>>,
  ) => Expansion;
  /**
   * Its attributes hold sizes, and its results repeat an operand along dimensions that the operand lacks, or count positions: a
   * rank makes its shard of them from operands that all ranks have.
   */
  readonly repeats?: true;
  /**
   * Operands that are added to the sum over contracting factors: where such a factor is sharded, they count on the first rank
   * alone, and are zero on the others.
   */
  readonly countedOnce?: readonly number[];
  readonly work: (operator: Operator) => Work;
  /** Result i may reuse operand j's buffer or is a view of it: costs no memory traffic. */
  readonly isView?: boolean;
  /** Which operands are parameters by nature (a Gemm's B, a BatchNormalization's mean); for telling weights from data. */
  readonly parameterInputs?: readonly number[];
  /** Which of them are running statistics (a BatchNormalization's mean and variance): state that is not trained. */
  readonly statisticsInputs?: readonly number[];
  /** Left out where training does not differ. */
  readonly training?: TrainingForm;
  /** Floating-point operands hold positions or indices, so that nothing of the operator may be padded (padding.ts). */
  readonly readsPositions?: boolean;
  /** One line for docs/reference/operators.md: what stays whole, and why. */
  readonly note?: string;
  /** Why no run in ONNX Runtime proves the rule, where none does: for docs/reference/operators.md. */
  readonly unproven?: string;
}

/** Whether a gradient passes an operator. */
export function isDifferentiable(entry: OperatorEntry | undefined): boolean {
  return entry?.gradient?.kind === 'operators' || entry?.gradient?.kind === 'plain';
}
