/**
 * @file Factors that are really several: a fused projection is split, or reshaped, further down, and the pieces show in the
 * rules of those readers.
 *
 *     MatMul  *b m k+, k+ n → *b m n          n is 192
 *     Add     *a, a2 → *a                     a2 is 192
 *     Split   a0 a1 (p! d) → …                dimension 2 is (3! 64): so a2 is [3, 64], so n is [3, 64]
 *
 * Pieces are followed from readers to producers through dimensions of one factor; the first reader with pieces decides. Pieces
 * whose first one is whole are followed from producers to readers as well: backward joins the pieces that forward split.
 */
import type { DimensionFactors, FactorRule } from '../ir/factor-rule.js';
import type { Graph, Node } from '../ir/graph.js';
import { operatorOf } from '../ir/operator-of.js';
import { ruleOf } from '../ir/ops/index.js';

/** A piece that a reader sees; a whole one (the three of q, k, v) takes no axis. */
export interface SeenPiece {
  readonly size: number;
  readonly whole: boolean;
}

/** Pieces of each dimension, major to minor; null where it is one. */
type DimensionPieces = readonly (readonly SeenPiece[] | null)[];

/** By factor: the pieces that it is seen as. */
type Hints = ReadonlyMap<string, readonly SeenPiece[]>;

/** Per operator: its factors that readers or producers see as several pieces. */
export function pieceHints(graph: Graph): ReadonlyMap<Node, Hints> {
  const ruled = graph.nodes.map((node) => ({ node, rule: ruleOf(operatorOf(graph, node)) }));
  const walk = new PieceWalk();
  const fromReaders = () => {
    for (const own of ruled.toReversed()) walk.carry(own, 'outputs', 'inputs');
  };
  fromReaders();
  // Gradients of a fused projection: joined from whole pieces, read by matmuls that see one dimension.
  for (const own of ruled) walk.carry(own, 'inputs', 'outputs', beginsWhole);
  fromReaders();
  return walk.hints;
}

type SeenPieces = readonly SeenPiece[] | null;

/** Only pieces that begin with a whole one: any other takes its axis at the major end, as one dimension would. */
function beginsWhole(pieces: SeenPieces): SeenPieces {
  return pieces?.[0]?.whole ? pieces : null;
}

interface RuledNode {
  readonly node: Node;
  readonly rule: FactorRule;
}

class PieceWalk {
  readonly hints = new Map<Node, Hints>();
  private readonly seen = new Map<string, DimensionPieces>();

  /** Carries the known pieces of tensors on one side of an operator to those on the other, as far as `passes` allows. */
  carry(
    { node, rule }: RuledNode,
    from: 'inputs' | 'outputs',
    to: 'inputs' | 'outputs',
    passes = (pieces: SeenPieces): SeenPieces => pieces,
  ): void {
    const hints = new Map(this.hints.get(node));
    node[from].forEach((tensor, index) => {
      const known = this.seen.get(tensor ?? '');
      rule[from][index]?.forEach(([only, ...others], dimension) => {
        const pieces = passes(known?.[dimension] ?? null);
        if (pieces && only !== undefined && others.length === 0 && !hints.has(only)) hints.set(only, pieces);
      });
    });
    if (hints.size > 0) this.hints.set(node, hints);
    node[to].forEach((tensor, index) => {
      const known = this.seen.get(tensor ?? '');
      const mine = rule[to][index]?.map(
        (factors, dimension) => known?.[dimension] ?? passes(piecesOf(factors, rule, hints)),
      );
      if (tensor !== null && mine?.some((each) => each !== null)) this.seen.set(tensor, mine);
    });
  }
}

/** How an operator divides a dimension: its factors, or the known pieces of its only factor. */
function piecesOf(factors: DimensionFactors, rule: FactorRule, hints: Hints): SeenPieces {
  if (factors.length === 1) return hints.get(factors[0] as string) ?? null;
  if (factors.length === 0) return null;
  return factors.map((name) => {
    const factor = rule.factors.get(name);
    return { size: factor?.size ?? 1, whole: factor?.kind === 'whole' };
  });
}

/** A factor as pieces of `sizes`, major to minor, of which number `cut` takes an axis. */
export interface SeenCut {
  readonly sizes: readonly number[];
  readonly cut: number;
}

/**
 * The pieces under which an axis of `axisSize` ranks shards a factor further in than at its major end: [before, rest] with
 * `rest` divisible; null where the first piece can take the axis itself, or none can.
 */
export function innerPieces(pieces: readonly SeenPiece[], axisSize: number): SeenCut | null {
  const position = pieces.findIndex((piece) => !piece.whole && piece.size % axisSize === 0);
  if (position <= 0) return null;
  return { sizes: [product(pieces.slice(0, position)), product(pieces.slice(position))], cut: 1 };
}

/**
 * The pieces under which an axis of `axisSize` ranks shards a factor between whole pieces that it does not divide: six heads on
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
