/**
 * @file Whether an attention's mask lets no position see a later one: told by its values where they are at hand, else by how it
 * is made. What cannot be told is not causal.
 */
import { type GraphIndex, isFloatCast, isOp, makerOf, operandOf, scalarOf, shapeOf, valuesOf } from './matching.js';

/** Added to a score, this leaves nothing of it (exporters write -1e4, the least float, or minus infinity). */
const MASKED = -1e4;

/** Masks that are looked at whole: 2,048 × 2,048. */
const MOST_VALUES = 2 ** 22;

/** How far back a mask is followed. */
const MOST_STEPS = 12;

/** Operators that leave the last two dimensions as they are, where both have the same sizes. */
const CARRIERS = ['Identity', 'Expand', 'Unsqueeze', 'Reshape'];

/** Whether `mask`, [..., queries, keys] and true or near 0 where a query sees a key, hides every key after the query. */
export function isCausalMask(index: GraphIndex, mask: string | null | undefined, steps = MOST_STEPS): boolean {
  if (!mask || steps === 0 || !isSquare(shapeOf(index, mask))) return false;
  if (index.graph.weights.has(mask)) return hidesLater(index, mask);
  const maker = makerOf(index, mask);
  if (!maker) return false;
  const is = (operand: number) => isCausalMask(index, maker.inputs[operand], steps - 1);
  if (isOp(maker, ...CARRIERS)) return shapeOf(index, operandOf(maker)).at(-1) === shapeOf(index, mask).at(-1) && is(0);
  if (isFloatCast(index, maker)) return is(0);
  // Either hides what it hides: sums of masks, and what both of two allow.
  if (isOp(maker, 'And', 'Add')) return is(0) || is(1);
  if (isOp(maker, 'Where')) return is(0) && (scalarOf(index, maker.inputs[2]) ?? 0) <= MASKED;
  if (isOp(maker, 'LessOrEqual')) return areOrdered(index, operandOf(maker, 0), operandOf(maker, 1));
  if (isOp(maker, 'GreaterOrEqual')) return areOrdered(index, operandOf(maker, 1), operandOf(maker, 0));
  return false;
}

function isSquare(shape: readonly number[]): boolean {
  const [queries = 0, keys = 0] = shape.slice(-2);
  return shape.length >= 2 && queries > 1 && queries === keys;
}

function hidesLater(index: GraphIndex, mask: string): boolean {
  const values = valuesOf(index, mask, MOST_VALUES);
  if (!values) return false;
  const size = shapeOf(index, mask).at(-1) ?? 1;
  const isTruth = index.graph.weights.get(mask)?.dtype === 'bool';
  return values.every((value, at) => {
    const [key, query] = [at % size, Math.floor(at / size) % size];
    return key <= query || (isTruth ? value === 0 : value <= MASKED);
  });
}

/** Whether these are the positions of keys, [..., 1, n] or [n], and of queries, [..., n, 1], the same and growing. */
function areOrdered(index: GraphIndex, keys: string, queries: string): boolean {
  const [across, down] = [shapeOf(index, keys), shapeOf(index, queries)];
  if ((across.at(-2) ?? 1) !== 1 || down.at(-1) !== 1) return false;
  const [columns, rows] = [valuesOf(index, keys), valuesOf(index, queries)];
  if (!columns || !rows || columns.length !== across.at(-1) || rows.length !== columns.length) return false;
  return columns.every((value, at) => value === rows[at] && (at === 0 || value > (columns[at - 1] ?? value)));
}
