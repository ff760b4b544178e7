/**
 * @file The piece of a fused projection that a pin shards. One MatMul makes q, k and v side by side, and only its readers show
 * that its n is really (3 | 64): a pin that may instead shard a piece is meant for that one.
 */
import { axesSize, type Mesh, type SubAxis } from '../mesh.js';
import type { ChoosePiece } from './claims.js';
import { type Cut, joinCuts, plainCut, UNCUT } from './cut.js';
import type { CellFactor, OperatorCells } from './operator-cells.js';

/** The most operators between a projection and the one that splits it: a bias, a quantisation, a view. */
const FARTHEST = 8;

/** @param readers the operators that read a tensor, in graph order */
export function pieceChooser(
  cells: OperatorCells,
  readers: (tensor: string) => readonly OperatorCells[],
  mesh: Mesh,
): ChoosePiece {
  return (factor, axes) => {
    const own = cells.factors[factor];
    if (!own) return UNCUT;
    const seen = seenBelow(cells, factor, readers, FARTHEST);
    return (seen && cutInside(seen, axes, mesh)) ?? plainCut(axes, own.size, mesh);
  };
}

/** The factors that readers see in a dimension that consists of this factor alone; null where all see one. */
function seenBelow(
  cells: OperatorCells,
  factor: number,
  readers: (tensor: string) => readonly OperatorCells[],
  left: number,
): readonly CellFactor[] | null {
  if (left === 0) return null;
  for (const side of cells.sides) {
    if (side.kind !== 'result') continue;
    const dimension = side.dims.findIndex(({ factors }) => factors.length === 1 && factors[0] === factor);
    if (dimension < 0) continue;
    for (const reader of readers(side.tensor)) {
      for (const operand of reader.sides) {
        if (operand.kind !== 'operand' || operand.tensor !== side.tensor) continue;
        const { factors = [] } = operand.dims[dimension] ?? {};
        if (factors.length > 1) return factors.flatMap((at) => reader.factors[at] ?? []);
        const seen = factors.length === 1 ? seenBelow(reader, factors[0] ?? -1, readers, left - 1) : null;
        if (seen) return seen;
      }
    }
  }
  return null;
}

/**
 * Axes on the first piece that they divide, else padded on the first that has more elements than they make parts; null where
 * that piece is the factor's major end anyway, or there is none.
 */
function cutInside(seen: readonly CellFactor[], axes: readonly SubAxis[], mesh: Mesh): Cut | null {
  const parts = axesSize(mesh, axes);
  const divided = seen.findIndex(({ usable, size }) => usable && size % parts === 0);
  const at = divided >= 0 ? divided : seen.findIndex(({ usable, size }) => usable && size > parts);
  if (at < 0 || divided === 0) return null;
  return joinCuts(
    seen.map(({ size }, index) => (index === at ? plainCut(axes, size, mesh) : UNCUT)),
    seen.map(({ size }) => size),
  );
}
