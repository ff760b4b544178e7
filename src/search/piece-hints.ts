/**
 * @file Which factors are really several: a fused projection is split, or reshaped, further down, and the pieces show in
 * the rules of those readers.
 *
 *     MatMul  *b m k+, k+ n → *b m n          n is 192
 *     Add     *a, a2 → *a                     a2 is 192
 *     Split   a0 a1 (p! d) → …                dimension 2 is (3! 64): so a2 is [3, 64], so n is [3, 64]
 *
 * Followed from readers to producers through dimensions that are one factor. The first reader with pieces decides.
 */
import type { Graph, Node } from '../ir/graph.js';
import { ruleOf, viewOf } from '../ir/view.js';

/** A piece that a reader sees; a whole one (the three of q, k, v) takes no axis. */
export interface SeenPiece {
  readonly size: number;
  readonly whole: boolean;
}

/** Pieces of each dimension, major to minor; null where it is one. */
type DimensionPieces = readonly (readonly SeenPiece[] | null)[];

/** Per operator: its factors that its readers see as several pieces. */
export function pieceHints(graph: Graph): ReadonlyMap<Node, ReadonlyMap<string, readonly SeenPiece[]>> {
  const seen = new Map<string, DimensionPieces>();
  const result = new Map<Node, ReadonlyMap<string, readonly SeenPiece[]>>();
  for (const node of [...graph.nodes].reverse()) {
    const rule = ruleOf(viewOf(graph, node));
    const hints = new Map<string, readonly SeenPiece[]>();
    node.outputs.forEach((output, index) => {
      const pieces = output === null ? undefined : seen.get(output);
      rule.outputs[index]?.forEach((factors, dimension) => {
        const [only, ...others] = factors;
        const sizes = pieces?.[dimension];
        if (sizes && only !== undefined && others.length === 0 && !hints.has(only)) hints.set(only, sizes);
      });
    });
    if (hints.size > 0) result.set(node, hints);
    node.inputs.forEach((input, index) => {
      const dims = rule.inputs[index];
      if (input === null || !dims) return;
      const known = seen.get(input);
      const mine = dims.map((factors, dimension) => {
        const before = known?.[dimension];
        if (before) return before;
        if (factors.length === 1) return hints.get(factors[0] as string) ?? null;
        if (factors.length === 0) return null;
        return factors.map((name) => {
          const factor = rule.factors.get(name);
          return { size: factor?.size ?? 1, whole: factor?.kind === 'whole' };
        });
      });
      if (mine.some((pieces) => pieces !== null)) seen.set(input, mine);
    });
  }
  return result;
}

/** A factor as pieces of `sizes`, major to minor, of which number `cut` takes an axis. */
export interface SeenCut {
  readonly sizes: readonly number[];
  readonly cut: number;
}

/**
 * The pieces under which an axis of `axisSize` ranks cuts a factor further in than at its major end: [before, rest] with
 * `rest` divisible; null where the first piece can take the axis itself, or none can.
 */
export function innerPieces(pieces: readonly SeenPiece[], axisSize: number): SeenCut | null {
  const position = pieces.findIndex((piece) => !piece.whole && piece.size % axisSize === 0);
  if (position <= 0) return null;
  return { sizes: [product(pieces.slice(0, position)), product(pieces.slice(position))], cut: 1 };
}

/**
 * The pieces under which an axis of `axisSize` ranks cuts a factor between whole pieces that it does not divide: six heads on
 * four ranks are two heads each, two of them padding. Null where the first piece that may be cut is divided.
 */
export function paddedPieces(pieces: readonly SeenPiece[], axisSize: number): SeenCut | null {
  const position = pieces.findIndex((piece) => !piece.whole && piece.size > 1);
  const size = pieces[position]?.size ?? 0;
  if (size <= axisSize || size % axisSize === 0) return null;
  const before = product(pieces.slice(0, position));
  const sizes = [...(before > 1 ? [before] : []), size, product(pieces.slice(position + 1))];
  return { sizes, cut: before > 1 ? 1 : 0 };
}

function product(pieces: readonly SeenPiece[]): number {
  return pieces.reduce((all, piece) => all * piece.size, 1);
}
