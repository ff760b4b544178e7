/**
 * @file The claims of a pin on an operator's factors, in whichever notation.
 *
 *     factors {n: tp}                  n is sharded over tp
 *     operand 1 has layout [-, tp]     k is whole, n is sharded over tp
 *     operand 0 is split (4, 2)        m is in 4 parts, k in 2, over any axes
 *     the result has layout [dp, tp]   for a sum: m and n end up so, sharded or scattered; else: they are sharded so
 */
import { demandText } from '../annotations/agreement.js';
import { borderProblem } from '../halo.js';
import { layoutText } from '../layout-text.js';
import { axesSize, type Mesh, type SubAxis } from '../mesh.js';
import type { LayoutDemand, OperatorPin } from '../pin.js';
import {
  axesOfCut,
  type Cut,
  cutOfPlacement,
  cutsOfLayout,
  holds,
  joinCuts,
  layoutOfCuts,
  resizedCut,
  sameCut,
  splitCut,
  UNCUT,
} from './cut.js';
import { type CellDimension, type CellSide, mayTake, type OperatorCells } from './operator-cells.js';
import { pinCannotBeKept } from './refusals.js';

/** Factors that together have so many parts, major to minor. */
export interface CountedFactors {
  readonly factors: readonly number[];
  readonly parts: number;
  /** For a sum's result, its tensor and dimension: a scatter may make some of the parts. Else null. */
  readonly result: { readonly tensor: string; readonly dimension: number } | null;
}

/** By number of the factor. */
export interface Claims {
  readonly pin: OperatorPin;
  /** The path from the pin's target to the operator: the tensor that it names, or nothing. */
  readonly path: readonly string[];
  readonly cuts: ReadonlyMap<number, Cut>;
  readonly counts: readonly CountedFactors[];
  /** For an operator that sums: the cuts of results after the reduction. */
  readonly results: ReadonlyMap<number, Cut>;
}

/** Chooses the cut that is meant by axes of a factor that may instead shard a piece of it. */
export type ChoosePiece = (factor: number, axes: readonly SubAxis[]) => Cut;

/** @throws AutoparError `pin-cannot-be-kept` where the rule does not allow a claim */
export function claimsOf(
  pin: OperatorPin,
  path: readonly string[],
  cells: OperatorCells,
  mesh: Mesh,
  choosePiece: ChoosePiece,
): Claims {
  const cuts = new Map<number, Cut>();
  const counts: CountedFactors[] = [];
  const results = new Map<number, Cut>();
  const put = (into: Map<number, Cut>, factor: number, cut: Cut) => {
    const own = cells.factors[factor];
    if (!own) return;
    const known = into.get(factor);
    const problem =
      known && !sameCut(known, cut)
        ? `factor ${own.name} would be both ${cutText(known, own.size, mesh)} and ${cutText(cut, own.size, mesh)}`
        : refusalOf(cells, factor, cut, mesh);
    if (problem !== null) throw refused(pin, cells, problem);
    into.set(factor, cut);
  };
  cells.factors.forEach(({ name, size }, factor) => {
    const inPieces = pin.pieces?.[name] !== undefined;
    const axes = pin.axes?.[name];
    if (axes === undefined && !inPieces) return;
    const either = axes !== undefined && axes.length > 0 && pin.eitherPiece?.includes(name);
    put(
      cuts,
      factor,
      either ? choosePiece(factor, axes) : cutOfPlacement(name, size, pin.axes ?? {}, pin.pieces, mesh),
    );
  });
  for (const side of cells.sides) {
    const demand = (side.kind === 'operand' ? pin.operands : pin.results)?.[side.index];
    if (!demand) continue;
    const into = side.kind === 'result' && cells.contracts ? results : cuts;
    if (demand.kind === 'split') counts.push(...countsOf(demand.counts, side, into === results));
    else for (const [factor, cut] of factorsOf(demand, side, pin, cells, mesh)) put(into, factor, cut);
  }
  return { pin, path, cuts, counts, results };
}

/** Why two pins' claims cannot both hold, as a sentence's end that names the factor; null where they can. */
export function clashOf(first: Claims, second: Claims, cells: OperatorCells, mesh: Mesh): string | null {
  return (
    sameFactorClash(first, second, cells, mesh) ??
    axisClash(first.cuts, second.cuts, cells) ??
    forbiddenClash(first, second, cells, ['first', 'second']) ??
    forbiddenClash(second, first, cells, ['second', 'first'])
  );
}

/** A cut in words: `on tp`, `on no axis`, `(3 | 64:tp)`. */
function cutText(cut: Cut, size: number, mesh: Mesh): string {
  if (cut.length === 0) return 'on no axis';
  const text = layoutText(layoutOfCuts([size], [cut], mesh), mesh).slice(1, -1);
  return text.includes(':') ? `cut as ${text}` : `on ${text}`;
}

function refused(pin: OperatorPin, cells: OperatorCells, problem: string) {
  return pinCannotBeKept(
    `${cells.operator.op} ${cells.node.name}`,
    [pin.source],
    `its rule is ${cells.rule.text}, and ${problem}`,
  );
}

function refusalOf(cells: OperatorCells, factor: number, cut: Cut, mesh: Mesh): string | null {
  const own = cells.factors[factor];
  if (!own || cut.every((item) => mayTake(cells, own, item, mesh))) return null;
  const border = borderProblem(cells.rule, own.name, axesSize(mesh, axesOfCut(cut)));
  if (own.usable && border !== null) return border;
  return own.usable
    ? `factor ${own.name} of size ${own.size} cannot be ${cutText(cut, own.size, mesh)}`
    : `factor ${own.name} may not be sharded`;
}

function factorsOf(
  demand: Extract<LayoutDemand, { kind: 'layout' }>,
  side: CellSide,
  pin: OperatorPin,
  cells: OperatorCells,
  mesh: Mesh,
): readonly (readonly [number, Cut])[] {
  const cuts = cutsOfLayout(demand.layout, mesh);
  return side.dims.flatMap((dimension, axis) => {
    const cut = cuts[axis] ?? UNCUT;
    const parts = splitCut(cut, dimension.sizes);
    if (!sameCut(joinCuts(parts, dimension.sizes), cut))
      throw refused(
        pin,
        cells,
        `the factors of dimension ${axis} of its ${side.kind} ${side.index} cannot take the layout ${demandText(demand, mesh)}`,
      );
    return dimension.factors.map((factor, index) => {
      const size = cells.factors[factor]?.size ?? 1;
      return [factor, resizedCut(parts[index] ?? UNCUT, dimension.sizes[index] ?? 1, size, mesh)] as const;
    });
  });
}

function countsOf(counts: readonly number[], side: CellSide, summed: boolean): readonly CountedFactors[] {
  return side.dims.flatMap((dimension: CellDimension, axis) =>
    dimension.factors.length === 0
      ? []
      : [
          {
            factors: dimension.factors,
            parts: counts[axis] ?? 1,
            result: summed ? { tensor: side.tensor, dimension: axis } : null,
          },
        ],
  );
}

function sameFactorClash(first: Claims, second: Claims, cells: OperatorCells, mesh: Mesh): string | null {
  const parts = (cut: Cut) => axesSize(mesh, axesOfCut(cut));
  for (const [at, factor] of cells.factors.entries()) {
    const [one, other] = [first.cuts.get(at), second.cuts.get(at)];
    const say = (a: string, b: string) => `factor ${factor.name} is ${a} by the first and ${b} by the second`;
    if (one && other && !sameCut(one, other))
      return say(cutText(one, factor.size, mesh), cutText(other, factor.size, mesh));
    const [left, right] = [first.results.get(at), second.results.get(at)];
    if (left && right && !sameCut(left, right))
      return say(
        `${cutText(left, factor.size, mesh)} in the result`,
        `${cutText(right, factor.size, mesh)} in the result`,
      );
    if (one && right && !one.every((item) => holds(right, item)))
      return say(cutText(one, factor.size, mesh), `${cutText(right, factor.size, mesh)} in the result`);
    if (other && left && !other.every((item) => holds(left, item)))
      return say(`${cutText(left, factor.size, mesh)} in the result`, cutText(other, factor.size, mesh));
    const [counted, counting] = [countOf(first, at), countOf(second, at)];
    if (counted !== null && counting !== null && counted !== counting)
      return say(`in ${counted} parts`, `in ${counting} parts`);
    if (one && counting !== null && parts(one) !== counting)
      return say(cutText(one, factor.size, mesh), `in ${counting} parts`);
    if (other && counted !== null && parts(other) !== counted)
      return say(`in ${counted} parts`, cutText(other, factor.size, mesh));
  }
  return null;
}

/** Parts that a pin asks of a factor: those of a dimension of this factor alone, or 1 for a dimension left whole. */
function countOf(claims: Claims, factor: number): number | null {
  for (const { factors, parts, result } of claims.counts)
    if (result === null && factors.includes(factor) && (factors.length === 1 || parts === 1)) return parts;
  return null;
}

/** An axis shards one factor of an operator. */
function axisClash(first: Claims['cuts'], second: Claims['cuts'], cells: OperatorCells): string | null {
  for (const [one, cut] of first)
    for (const [other, against] of second) {
      if (one === other) continue;
      const shared = axesOfCut(cut).find((axis) => axesOfCut(against).includes(axis));
      const [name, also] = [cells.factors[one]?.name, cells.factors[other]?.name];
      if (shared !== undefined) return `${shared} shards factor ${name} by the first and factor ${also} by the second`;
    }
  return null;
}

function forbiddenClash(
  first: Claims,
  second: Claims,
  cells: OperatorCells,
  [here, there]: readonly [string, string],
): string | null {
  for (const axis of first.pin.without ?? [])
    for (const [factor, cut] of second.cuts)
      if (axesOfCut(cut).includes(axis))
        return `the ${here} excludes ${axis}, and the ${there} shards factor ${cells.factors[factor]?.name} over it`;
  return null;
}
