/**
 * @file Strategies: how one operator is sharded over a mesh, and the layouts that follow from it and the operator's rule.
 *
 * MatMul `b m k+, b k+ n -> b m n` with {b: [dp], k: [tp]} reads its operands as [dp, -, tp] and [dp, tp, -] and leaves
 * [dp, -, -] + partial(tp). With `pending` all-reduce that is [dp, -, -]; with scatter onto m it is [dp, tp, -].
 */
import type { Factor, FactorKind, FactorRule, Reduction } from '../ir/factor-rule.js';
import { borderProblem, type FactorSubAxes, withFollowers } from './halo.js';
import { type Layout, layoutFromFactors, type PartialAxis } from './layout.js';
import { axesSize, hasSubAxis, type Mesh, type SubAxis } from './mesh.js';
import { type FactorPieces, piecesProblem, refineRule } from './refine.js';

export interface Strategy {
  /** Per factor of the rule that is sharded: its sub-axes, major to minor. Factors left out are whole. */
  readonly axes: FactorSubAxes;
  /** Factors that are seen as several (refine.ts): their pieces, named `n.0`, `n.1`, take the axes. */
  readonly pieces?: FactorPieces;
  /**
   * Sub-axes over which a linear operator's operands arrive and its results leave partial (sum), with the index of
   * the operand set in the entry's `linear` list. Null where nothing arrives partial.
   */
  readonly partialOperands: { readonly set: number; readonly axes: readonly SubAxis[] } | null;
  /**
   * The immediate reduction of the partial sums that contracting factors leave, per result:
   * `none` leaves them partial; `all-reduce`; `scatter` reduces and scatters onto the factor named.
   * Axes of partial operands are not part of it: they stay partial.
   */
  readonly pending: PendingReduction;
}

/** The axes of a strategy: of factors, and of the pieces that factors are seen as. */
export type FactorAxes = Pick<Strategy, 'axes' | 'pieces'>;

export type PendingReduction =
  | { readonly kind: 'none' }
  | { readonly kind: 'all-reduce' }
  | { readonly kind: 'scatter'; readonly factor: string };

/** The strategy under which every rank computes everything. */
export const REPLICATED: Strategy = { axes: {}, partialOperands: null, pending: { kind: 'none' } };

/** Per operand the layout in which it is read; null where an optional operand is absent. */
export function operandLayouts(
  rule: FactorRule,
  strategy: Strategy,
  linear: readonly (readonly number[])[],
  mesh?: Mesh,
): readonly (Layout | null)[] {
  const refined = refineRule(rule, strategy.pieces);
  const set = strategy.partialOperands === null ? [] : (linear[strategy.partialOperands.set] ?? []);
  const partialAxes = partialOperandAxes(strategy);
  const stream = streamOf(refined, strategy);
  const axes = withFollowers(refined, strategy.axes);
  return refined.inputs.map((dims, index) =>
    dims === null
      ? null
      : layoutFromFactors(
          dims,
          sizesOf(refined),
          axesWithin(dims, { ...strategy, axes }, stream),
          set.includes(index) ? partialAxes : [],
          mesh,
        ),
  );
}

/** A factor on the axes of another one: each rank has a chunk of it, and its chunks are passed round the ranks of the axes. */
export interface Stream {
  readonly streamed: string;
  readonly beside: string;
  readonly axes: readonly SubAxis[];
}

/** The factor that a strategy streams; null for most. `rule`: refined by the strategy's pieces. */
export function streamOf(rule: FactorRule, { axes }: Pick<Strategy, 'axes'>): Stream | null {
  for (const { name, streams } of rule.factors.values()) {
    const own = streams ? axes[name] : undefined;
    if (!own || own.length === 0) continue;
    const beside = Object.keys(axes).find((other) => other !== name && axes[other]?.some((axis) => own.includes(axis)));
    if (beside !== undefined) return { streamed: name, beside, axes: own };
  }
  return null;
}

/** The axes that shard a tensor: where it has both factors of a stream, a rank has all chunks of the streamed factor. */
function axesWithin(dims: readonly (readonly string[])[], { axes }: Strategy, stream: Stream | null): Strategy['axes'] {
  if (!stream || !hasFactor(dims, stream.streamed) || !hasFactor(dims, stream.beside)) return axes;
  return { ...axes, [stream.streamed]: NO_AXES };
}

function hasFactor(dims: readonly (readonly string[])[], factor: string): boolean {
  return dims.some((names) => names.includes(factor));
}

/**
 * Per result the layout that the computation itself leaves, before a pending reduction: partial over the axes of partial operands
 * and those of contracting factors, except where the result has such a factor (a normalisation's gradient sums over rows for the
 * scale, and keeps them for the data): that one is sharded. Null where a result is not used.
 */
export function resultLayouts(
  rule: FactorRule,
  strategy: Strategy,
  _linear: readonly (readonly number[])[],
  mesh?: Mesh,
): readonly (Layout | null)[] {
  const refined = refineRule(rule, strategy.pieces);
  const partialAxes = partialOperandAxes(strategy);
  return refined.outputs.map((dims) => {
    if (dims === null) return null;
    const partial = [...partialOver(refined, strategy, dims), ...partialAxes];
    return layoutFromFactors(dims, sizesOf(refined), strategy.axes, partial, mesh);
  });
}

/**
 * Per result its layout after its pending reduction, as the operator's readers get it. A scatter appends the pending
 * axes, sorted by name as `Layout.partial` has them, to those of its factor.
 */
export function reducedLayouts(
  rule: FactorRule,
  strategy: Strategy,
  linear: readonly (readonly number[])[],
  mesh?: Mesh,
): readonly (Layout | null)[] {
  const { pending } = strategy;
  if (pending.kind === 'none') return resultLayouts(rule, strategy, linear, mesh);
  const refined = refineRule(rule, strategy.pieces);
  const axes: Record<string, readonly SubAxis[]> = { ...strategy.axes };
  if (pending.kind === 'scatter') {
    const scattered = pendingPartial(rule, strategy)
      .map((entry) => entry.axis)
      .sort();
    axes[pending.factor] = [...(axes[pending.factor] ?? []), ...scattered];
  }
  const partialAxes = partialOperandAxes(strategy);
  return refined.outputs.map((dims) =>
    dims === null ? null : layoutFromFactors(dims, sizesOf(refined), axes, partialAxes, mesh),
  );
}

/**
 * Why the strategy is not legal for an operator with this rule, as a sentence's end ("factor k: …"); null where it is.
 *
 * Legal means that lowering supports it. Whether an `expanded` or `indexed` factor's operator has the
 * expansion that lowering needs is known to the registry, not here.
 */
export function checkStrategy(
  rule: FactorRule,
  strategy: Strategy,
  linear: readonly (readonly number[])[],
  mesh: Mesh,
): string | null {
  const refined = refineRule(rule, strategy.pieces);
  return (
    piecesProblem(rule, strategy.pieces) ??
    factorsProblem(refined, strategy, mesh) ??
    sharingProblem(refined, strategy) ??
    streamProblem(refined, strategy) ??
    partialOperandsProblem(refined, strategy, linear, mesh) ??
    pendingProblem(refined, strategy, mesh)
  );
}

/** The axes that contracting factors leave the results partial over, in the order of the rule's factors. */
export function pendingPartial(rule: FactorRule, strategy: Strategy): readonly PartialAxis[] {
  return partialOver(refineRule(rule, strategy.pieces), strategy, []);
}

/** The axes that contracting factors leave a result of these dimensions partial over. */
function partialOver(
  refined: FactorRule,
  strategy: Strategy,
  dims: readonly (readonly string[])[],
): readonly PartialAxis[] {
  const partial: PartialAxis[] = [];
  // Where chunks are passed round, each rank adds up all of them.
  const streamed = streamOf(refined, strategy)?.axes ?? NO_AXES;
  for (const factor of refined.factors.values()) {
    const axes = strategy.axes[factor.name] ?? NO_AXES;
    if (axes.length === 0 || !isContracting(factor) || dims.some((names) => names.includes(factor.name))) continue;
    for (const axis of axes) if (!streamed.includes(axis)) partial.push({ axis, reduction: factor.reduction });
  }
  return partial;
}

const NO_AXES: readonly SubAxis[] = [];

const CONTRACTING: readonly FactorKind[] = ['contracting', 'mask'];

/** Kinds that no axis may shard. */
const UNSHARDABLE: Readonly<Partial<Record<FactorKind, string>>> = {
  whole: 'may not be sharded',
  halo: 'is sharded with the result of its windows only',
};

function isContracting(factor: Factor): boolean {
  return CONTRACTING.includes(factor.kind);
}

function sizesOf(rule: FactorRule): (factor: string) => number {
  return (name) => {
    const factor = rule.factors.get(name);
    if (!factor) throw new Error(`rule ${rule.text} has no factor ${name}`);
    return factor.size;
  };
}

function partialOperandAxes(strategy: Strategy): readonly PartialAxis[] {
  return (strategy.partialOperands?.axes ?? []).map((axis) => ({ axis, reduction: 'sum' }));
}

function factorsProblem(rule: FactorRule, strategy: Strategy, mesh: Mesh): string | null {
  for (const [name, axes] of Object.entries(strategy.axes)) {
    const factor = rule.factors.get(name);
    if (!factor) return `factor ${name}: the operator has no such factor (${[...rule.factors.keys()].join(', ')})`;
    const problem = axesProblem(axes, mesh);
    if (problem) return `factor ${name}: ${problem}`;
    if (axes.length === 0) continue;
    const refusal = UNSHARDABLE[factor.kind];
    if (refusal) return `factor ${name}: ${refusal}`;
    const shards = axesSize(mesh, axes);
    // A factor that its axes do not divide is padded; with fewer elements than ranks there is nothing to shard.
    if (factor.size < shards) return `factor ${name}: its size ${factor.size} is less than ${shards} parts`;
    const border = borderProblem(rule, name, shards);
    if (border) return border;
  }
  return null;
}

function axesProblem(axes: readonly SubAxis[], mesh: Mesh): string | null {
  const unknown = axes.find((axis) => !hasSubAxis(mesh, axis));
  if (unknown !== undefined) return `the mesh has no sub-axis ${unknown}`;
  const twice = firstRepeated(axes);
  return twice === undefined ? null : `axis ${twice} is used twice`;
}

/** An axis shards one factor, unless another streams. */
function sharingProblem(rule: FactorRule, strategy: Strategy): string | null {
  const holder = new Map<SubAxis, string>();
  for (const factor of rule.factors.values()) {
    if (factor.streams) continue;
    for (const axis of strategy.axes[factor.name] ?? []) {
      const other = holder.get(axis);
      if (other !== undefined) return `axis ${axis} shards both factor ${other} and factor ${factor.name}`;
      holder.set(axis, factor.name);
    }
  }
  return null;
}

function partialOperandsProblem(
  rule: FactorRule,
  strategy: Strategy,
  linear: readonly (readonly number[])[],
  mesh: Mesh,
): string | null {
  const { partialOperands } = strategy;
  if (partialOperands === null) return null;
  const set = linear[partialOperands.set];
  if (!set)
    return `partial operands: the operator has ${linear.length} linear operand sets, none with number ${partialOperands.set}`;
  if (set.every((operand) => (rule.inputs[operand] ?? null) === null))
    return 'partial operands: the operands are absent';
  if (partialOperands.axes.length === 0) return 'partial operands: no axes are named';
  const problem = axesProblem(partialOperands.axes, mesh);
  if (problem) return `partial operands: ${problem}`;
  const used = new Set(Object.values(strategy.axes).flat());
  const both = partialOperands.axes.find((axis) => used.has(axis));
  if (both !== undefined) return `partial operands: axis ${both} also shards a factor`;
  return reductionsOf(rule, strategy).every((reduction) => reduction === 'sum')
    ? null
    : 'partial operands: a pending sum cannot be combined with another reduction';
}

function pendingProblem(rule: FactorRule, strategy: Strategy, mesh: Mesh): string | null {
  if (reductionsOf(rule, strategy).length > 1) return 'results would be partial in two reductions';
  if (strategy.pending.kind !== 'scatter') return null;
  const name = strategy.pending.factor;
  const factor = rule.factors.get(name);
  if (!factor) return `scatter: the operator has no factor ${name}`;
  const pending = pendingPartial(rule, strategy).map((entry) => entry.axis);
  if (pending.length === 0) return 'scatter: no reduction is pending';
  if (isContracting(factor)) return `scatter: factor ${name} is contracted`;
  const kept = [...rule.factors.values()].find(
    (other) =>
      isContracting(other) &&
      (strategy.axes[other.name] ?? []).length > 0 &&
      rule.outputs.some((dims) => dims?.some((names) => names.includes(other.name))),
  );
  if (kept) return `scatter: factor ${kept.name} cuts one of the results, which is not partial`;
  const missing = rule.outputs.some((dims) => dims !== null && !dims.some((factors) => factors.includes(name)));
  if (missing) return `scatter: factor ${name} is not in every result`;
  const shards = axesSize(mesh, [...(strategy.axes[name] ?? []), ...pending]);
  if (factor.size % shards !== 0) return `scatter: size ${factor.size} of factor ${name} is not divisible by ${shards}`;
  return null;
}

/** Why the chunks of a factor cannot be passed round; null where nothing streams, or it can. */
function streamProblem(rule: FactorRule, strategy: Strategy): string | null {
  const stream = streamOf(rule, strategy);
  if (!stream) return null;
  const { streamed, beside, axes } = stream;
  if (axes.join() !== strategy.axes[beside]?.join())
    return `factor ${streamed} must stream over the axes of ${beside}, and its axes differ`;
  const [tensors, results] = [[...rule.inputs, ...rule.outputs], rule.outputs];
  const has = (name: string, dims: readonly (readonly string[])[] | null) => dims !== null && hasFactor(dims, name);
  const alone = (name: string, other: string) => tensors.some((dims) => has(name, dims) && !has(other, dims));
  if (!alone(streamed, beside) || !alone(beside, streamed))
    return `factors ${streamed} and ${beside} occur only together, so neither can stream`;
  const wrong = results.findIndex((dims) => dims !== null && has(streamed, dims) === has(beside, dims));
  if (wrong >= 0) return `result ${wrong} needs one of the factors ${streamed} and ${beside}, and not both`;
  for (const [name, own] of Object.entries(strategy.axes)) {
    const kind = rule.factors.get(name)?.kind;
    if (own.length > 0 && name !== streamed && name !== beside && kind !== 'pass' && kind !== 'contracting')
      return `factor ${name} is ${kind} and cannot be sharded while chunks of ${streamed} stream`;
  }
  return strategy.partialOperands === null ? null : 'partial operands: not possible while chunks stream';
}

function reductionsOf(rule: FactorRule, strategy: Strategy): readonly Reduction[] {
  return [...new Set(pendingPartial(rule, strategy).map((entry) => entry.reduction))];
}

function firstRepeated<T>(items: readonly T[]): T | undefined {
  return items.find((item, index) => items.indexOf(item) !== index);
}
