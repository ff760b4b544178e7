/**
 * @file Which factors are really several: a fused projection is split, or reshaped, further down, and the pieces show in
 * the rules of those readers.
 *
 *     MatMul  *b m k+, k+ n → *b m n          n is 192
 *     Add     *a, a2 → *a                     a2 is 192
 *     Split   a0 a1 (p! d) → …                dimension 2 is (3! 64): so a2 is [3, 64], so n is [3, 64]
 *
 * Followed from readers to producers through dimensions that are one factor; the first reader with pieces decides. Pieces of
 * which the first is whole are followed from producers to readers as well: backward joins what forward split.
 */
import type { DimensionFactors, FactorRule } from '../ir/factor-rule.js';
import type { Graph, Node } from '../ir/graph.js';
import { ruleOf, viewOf } from '../ir/view.js';

/** A piece that a reader sees; a whole one (the three of q, k, v) takes no axis. */
export interface SeenPiece {
  readonly size: number;
  readonly whole: boolean;
}

/** Pieces of each dimension, major to minor; null where it is one. */
type DimensionPieces = readonly (readonly SeenPiece[] | null)[];

/** Per operator: its factors that its readers, or what it reads, see as several pieces. */
export function pieceHints(graph: Graph): ReadonlyMap<Node, ReadonlyMap<string, readonly SeenPiece[]>> {
  const rules = new Map(graph.nodes.map((node) => [node, ruleOf(viewOf(graph, node))]));
  const seen = new Map<string, DimensionPieces>();
  const result = new Map<Node, ReadonlyMap<string, readonly SeenPiece[]>>();
  const backwards = [...graph.nodes].reverse();
  for (const node of backwards) fromReaders(node, rules.get(node), seen, result);
  // Gradients of a fused projection: joined from whole pieces, read by products that see one dimension.
  for (const node of graph.nodes) fromProducers(node, rules.get(node), seen, result);
  for (const node of backwards) fromReaders(node, rules.get(node), seen, result);
  return result;
}

type Hints = Map<Node, ReadonlyMap<string, readonly SeenPiece[]>>;

function fromReaders(
  node: Node,
  rule: FactorRule | undefined,
  seen: Map<string, DimensionPieces>,
  result: Hints,
): void {
  if (!rule) return;
  const hints = hintsOf(node, node.outputs, rule.outputs, seen, result);
  node.inputs.forEach((input, index) => {
    const dims = rule.inputs[index];
    if (input !== null && dims) see(input, dims, (factors) => piecesOf(factors, rule, hints), seen);
  });
}

/** Only pieces that begin with a whole one: any other takes its axis at the major end, as one dimension would. */
function fromProducers(
  node: Node,
  rule: FactorRule | undefined,
  seen: Map<string, DimensionPieces>,
  result: Hints,
): void {
  if (!rule) return;
  const joined = new Map<string, DimensionPieces>();
  for (const input of node.inputs) {
    const pieces = input === null ? undefined : seen.get(input);
    if (input !== null && pieces) joined.set(input, pieces.map(beginsWhole));
  }
  const hints = hintsOf(node, node.inputs, rule.inputs, joined, result);
  node.outputs.forEach((output, index) => {
    const dims = rule.outputs[index];
    if (output !== null && dims) see(output, dims, (factors) => beginsWhole(piecesOf(factors, rule, hints)), seen);
  });
}

function beginsWhole(pieces: readonly SeenPiece[] | null): readonly SeenPiece[] | null {
  return pieces?.[0]?.whole ? pieces : null;
}

/** The operator's hints with those of its factors that are one dimension of tensors whose pieces are known. */
function hintsOf(
  node: Node,
  tensors: readonly (string | null)[],
  dimensions: FactorRule['inputs'],
  seen: ReadonlyMap<string, DimensionPieces>,
  result: Hints,
): ReadonlyMap<string, readonly SeenPiece[]> {
  const hints = new Map(result.get(node));
  tensors.forEach((tensor, index) => {
    const pieces = tensor === null ? undefined : seen.get(tensor);
    dimensions[index]?.forEach((factors, dimension) => {
      const [only, ...others] = factors;
      const sizes = pieces?.[dimension];
      if (sizes && only !== undefined && others.length === 0 && !hints.has(only)) hints.set(only, sizes);
    });
  });
  if (hints.size > 0) result.set(node, hints);
  return hints;
}

/** What an operator sees of a dimension: its factors, or what is known of its only one. */
function piecesOf(
  factors: readonly string[],
  rule: FactorRule,
  hints: ReadonlyMap<string, readonly SeenPiece[]>,
): readonly SeenPiece[] | null {
  if (factors.length === 1) return hints.get(factors[0] as string) ?? null;
  if (factors.length === 0) return null;
  return factors.map((name) => {
    const factor = rule.factors.get(name);
    return { size: factor?.size ?? 1, whole: factor?.kind === 'whole' };
  });
}

function see(
  tensor: string,
  dimensions: readonly DimensionFactors[],
  pieces: (factors: readonly string[]) => readonly SeenPiece[] | null,
  seen: Map<string, DimensionPieces>,
): void {
  const known = seen.get(tensor);
  const mine = dimensions.map((factors, dimension) => known?.[dimension] ?? pieces(factors));
  if (mine.some((each) => each !== null)) seen.set(tensor, mine);
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
