/**
 * @file Factor rules: which dimensions of an operator's operands and results move together.
 *
 *     MatMul   *b m k+, *b k+ n -> *b m n
 *
 * Operands left of `->`, results right, commas between. A dimension is one factor or a parenthesised list of
 * factors, major to minor; `1` is a dimension without a factor (size 1, broadcast); `*b` stands for any number of
 * leading dimensions and becomes b0, b1, …; an absent optional operand is `_`. A trailing mark gives the kind.
 */

/**
 * The effect of a mesh axis on a factor.
 * `pass`: all tensors that have it are sharded, nothing is reduced. `contracting`: results are partial.
 * `mask`: contracting, and out-of-shard indices contribute zero (the shard takes its offset). `whole`: may not be sharded.
 * `expanded`: may be sharded, once the operator is replaced by its expansion. `indexed`: values depend on the position,
 * a shard takes its offset. `halo`: sharded like the factor that it names (`x~y`), shard by shard, and neighbours exchange halos;
 * without such a factor it is whole. `blocked`: sharded only on request, never propagated across.
 */
export type FactorKind = 'pass' | 'contracting' | 'mask' | 'whole' | 'expanded' | 'indexed' | 'halo' | 'blocked';

export type Reduction = 'sum' | 'max' | 'min';

export interface Factor {
  readonly name: string;
  readonly size: number;
  readonly kind: FactorKind;
  /** How partial results combine; `sum` unless the kind is `contracting` with another mark. */
  readonly reduction: Reduction;
  /** For a factor of kind `halo` that may be sharded: the window that reads its positions. */
  readonly halo?: Halo;
  /**
   * The axes of another factor may also shard it: its chunks are passed around the ranks, and each rank joins its results.
   */
  readonly streams?: true;
}

/** A window over the positions of a factor, one for each position of another. */
export interface Window {
  /** Position o reads ⌈(o · stride − before) / up⌉ … ⌊(o · stride − before + reach − 1) / up⌋. */
  readonly stride: number;
  readonly before: number;
  readonly reach: number;
  /** Above 1: the result has so many positions for one of the operand (a transposed convolution's stride). */
  readonly up: number;
  /** The value that is read outside of the positions. */
  readonly fill: number;
}

export interface Halo extends Window {
  /** The factor that it is sharded like. */
  readonly of: string;
}

/** Factor names of one dimension, major to minor; empty for a dimension of size 1 that has no factor. */
export type DimensionFactors = readonly string[];

/** The factors of all dimensions of a tensor. */
export type TensorFactors = readonly DimensionFactors[];

/** A rule bound to shapes. `null`: an absent optional operand or result. */
export interface FactorRule {
  readonly factors: ReadonlyMap<string, Factor>;
  readonly inputs: readonly (readonly DimensionFactors[] | null)[];
  readonly outputs: readonly (readonly DimensionFactors[] | null)[];
  /** The text it was parsed from (or that generation wrote), as errors and docs print it. */
  readonly text: string;
}

/** The item at an operand or result, with its dimensions as the rule has them. */
export interface RuleSide<Thing> {
  readonly of: Thing;
  readonly dims: TensorFactors;
}

/** The items at an operator's operands and then at its results, with their dimensions; absent ones are left out. */
export function ruleSides<Thing>(
  rule: FactorRule,
  { inputs, outputs }: { readonly inputs: readonly (Thing | null)[]; readonly outputs: readonly (Thing | null)[] },
): readonly RuleSide<Thing>[] {
  const sides = (things: readonly (Thing | null)[], dims: FactorRule['inputs']) =>
    things.flatMap((of, index) => (of === null ? [] : [{ of, dims: dims[index] ?? [] }]));
  return [...sides(inputs, rule.inputs), ...sides(outputs, rule.outputs)];
}
