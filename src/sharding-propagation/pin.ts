/**
 * @file Pins: a user's decisions about single operators and tensors of a graph on a mesh. All notations (docs/annotations.md)
 * are resolved to pins; search and propagation complete the rest and never break one.
 */
import type { FactorRule } from '../ir/factor-rule.js';
import { type Layout, sameShards } from './layout.js';
import { axesSize, type Mesh, type SubAxis } from './mesh.js';
import { type FactorPieces, pieceName } from './refine.js';
import { operandLayouts, pendingPartial, reducedLayouts, type Strategy } from './strategy.js';

/** The origin of a pin, for errors and explanations. */
export interface PinSource {
  /** The annotation file, the model (ONNX multi-device fields), or null for the command line or the API. */
  readonly file: string | null;
  readonly line: number | null;
  /** As the user wrote it, short: `pins[2]: layout [dp, -] on h.*.c_fc`. */
  readonly text: string;
  /** Higher wins where propagation meets two; pins of one priority must agree. */
  readonly priority: number;
  readonly why: string | null;
}

/**
 * The demand on one tensor: a layout, or the number of parts of each dimension, over any axes. `written` is the same demand in
 * the dimensions of the model's file, where the graph has a weight's in another order (file-form.ts): for messages.
 */
export type LayoutDemand =
  | { readonly kind: 'layout'; readonly layout: Layout; readonly written?: LayoutDemand }
  | { readonly kind: 'split'; readonly counts: readonly number[]; readonly written?: LayoutDemand };

/** A strategy of an operator (group) must satisfy all that is given. */
export interface OperatorPin {
  readonly kind: 'operator';
  /** Name of the node. */
  readonly node: string;
  readonly source: PinSource;
  /** Sub-axes of factors, major to minor; factors not named are free, `[]` keeps one whole. */
  readonly axes?: Readonly<Record<string, readonly SubAxis[]>>;
  /** Factors that must be seen as these pieces, which `axes` then names (`n.0`, `n.1`). */
  readonly pieces?: FactorPieces;
  /** Factors of `axes` whose axes may instead shard one of their pieces (a fused projection's n is (3 | 64)). */
  readonly eitherPiece?: readonly string[];
  /** Sub-axes that the operator may not use at all. */
  readonly without?: readonly SubAxis[];
  /** Partial sums of contracting factors are reduced at once (all-reduce or scatter), not left for readers. */
  readonly reduced?: true;
  /** Per operand and result; null where nothing is asked. Layouts of results are those after their pending reductions. */
  readonly operands?: readonly (LayoutDemand | null)[];
  readonly results?: readonly (LayoutDemand | null)[];
}

/** A tensor has this layout where it is made, fed, or (a weight) kept. */
export interface TensorPin {
  readonly kind: 'tensor';
  readonly tensor: string;
  readonly source: PinSource;
  readonly demand: LayoutDemand;
}

/** The stage of the pipeline on which a forward operator runs; it decides no strategy. */
export interface StagePin {
  readonly kind: 'stage';
  readonly node: string;
  readonly source: PinSource;
  readonly stage: number;
  /** A chunk of the stage, where each has several. */
  readonly chunk?: number;
}

export interface RecomputePin {
  readonly kind: 'recompute';
  readonly node: string;
  readonly source: PinSource;
  readonly recompute: boolean;
}

/** Where the operator's weights and state are kept when they are not in use. */
export interface PlacePin {
  readonly kind: 'place';
  readonly node: string;
  readonly source: PinSource;
  readonly place: 'device' | 'host';
}

export type Pin = OperatorPin | TensorPin | StagePin | RecomputePin | PlacePin;

/** Whether a layout meets a demand. A split ignores partial sums. */
export function meets(demand: LayoutDemand, layout: Layout, mesh: Mesh): boolean {
  if (demand.kind === 'layout') return sameShards(demand.layout, layout, mesh);
  return demand.counts.every((count, axis) => {
    const pieces = layout.dims[axis] ?? [];
    return pieces.reduce((product, piece) => product * axesSize(mesh, piece.axes), 1) === count;
  });
}

/** Whether a strategy satisfies a pin on its operator. */
export function satisfies(
  pin: OperatorPin,
  strategy: Strategy,
  rule: FactorRule,
  linear: readonly (readonly number[])[],
  mesh: Mesh,
): boolean {
  if (!hasAxes(pin, strategy)) return false;
  if (pin.reduced && strategy.pending.kind === 'none' && pendingPartial(rule, strategy).length > 0) return false;
  const operands = operandLayouts(rule, strategy, linear, mesh);
  const results = reducedLayouts(rule, strategy, linear, mesh);
  const agree = (demands: readonly (LayoutDemand | null)[] | undefined, layouts: readonly (Layout | null)[]) =>
    (demands ?? []).every((demand, index) => {
      const layout = layouts[index];
      return !demand || !layout || meets(demand, layout, mesh);
    });
  return agree(pin.operands, operands) && agree(pin.results, results);
}

/** Whether factors and pieces have the axes that the pin gives them, and none has one that it forbids. */
function hasAxes({ axes = {}, pieces = {}, eitherPiece = [], without = [] }: OperatorPin, strategy: Strategy): boolean {
  // A factor that is seen as pieces has its axes on those: it is neither whole nor sharded at its major end.
  const own = (factor: string, wanted: readonly SubAxis[]) =>
    strategy.pieces?.[factor] === undefined && (strategy.axes[factor] ?? []).join() === wanted.join();
  const inPieces = (factor: string, wanted: readonly SubAxis[]) =>
    eitherPiece.includes(factor) &&
    (strategy.pieces?.[factor] ?? []).some((_, index) => own(pieceName(factor, index), wanted));
  if (!Object.entries(axes).every(([factor, wanted]) => own(factor, wanted) || inPieces(factor, wanted))) return false;
  const seenSo = ([factor, sizes]: [string, readonly number[]]) => strategy.pieces?.[factor]?.join() === sizes.join();
  if (!Object.entries(pieces).every(seenSo)) return false;
  if (without.length === 0) return true;
  const used = [...Object.values(strategy.axes).flat(), ...(strategy.partialOperands?.axes ?? [])];
  return !used.some((axis) => without.includes(axis));
}
