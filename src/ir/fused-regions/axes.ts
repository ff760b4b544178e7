/**
 * @file Following dimensions through views: the position of the key dimension of a score matrix, or of the head dimension of
 * the keys, before and after a Reshape or a Transpose.
 *
 *     K  [b, s, h, d] → Transpose → [b, h, s, d] → Reshape → [b·h, s, d] → Transpose → [b·h, d, s]
 *     d   run [3, 4)                run [3, 4)                run [2, 3)                run [1, 2)
 *
 * A dimension is a run of neighbouring axes: a Reshape may have split it (positions of an image into rows and columns).
 */
import { elementCount, type Node } from '../graph.js';
import { numbersAttribute } from './matching.js';

/** The axes from `start` up to, but without, `end`. */
export interface AxisRun {
  readonly start: number;
  readonly end: number;
}

export function axisRun(axis: number): AxisRun {
  return { start: axis, end: axis + 1 };
}

/** The one axis of a run; null where it has several. */
export function soleAxis(run: AxisRun): number | null {
  return run.end === run.start + 1 ? run.start : null;
}

/** Operators that only change the view of their operand. */
export const VIEWS: readonly string[] = ['Reshape', 'Transpose', 'Squeeze', 'Unsqueeze'];

/** The position in a view's operand of a run of its result; null if the view breaks the run up. */
export function runBefore(
  view: Node,
  run: AxisRun,
  result: readonly number[],
  operand: readonly number[],
): AxisRun | null {
  if (view.op !== 'Transpose') return regrouped(run, result, operand);
  return gathered(numbersAttribute(view, 'perm').slice(run.start, run.end));
}

/** The position in a view's result of a run of its operand; null if the view breaks the run up. */
export function runAfter(
  view: Node,
  run: AxisRun,
  operand: readonly number[],
  result: readonly number[],
): AxisRun | null {
  if (view.op !== 'Transpose') return regrouped(run, operand, result);
  const perm = numbersAttribute(view, 'perm');
  return gathered(Array.from({ length: run.end - run.start }, (_, offset) => perm.indexOf(run.start + offset)));
}

/** The run of `to` that holds the same elements in the same order as `run` does in `from`. */
function regrouped(run: AxisRun, from: readonly number[], to: readonly number[]): AxisRun | null {
  const size = elementCount(from.slice(run.start, run.end));
  const inner = elementCount(from.slice(run.end));
  if (size * inner === 0) return null;
  let end = to.length;
  for (let product = 1; end > 0; end--) {
    if (product === inner && (size === 1 || to[end - 1] !== 1)) break;
    product *= to[end - 1] ?? 1;
    if (product > inner) return null;
  }
  if (size === 1) return to[end - 1] === 1 && elementCount(to.slice(end)) === inner ? axisRun(end - 1) : null;
  let start = end;
  for (let product = 1; product < size; product *= to[start] ?? 1) if (start-- === 0) return null;
  return elementCount(to.slice(start, end)) === size && elementCount(to.slice(end)) === inner ? { start, end } : null;
}

/** Consecutive axes as a run; null if they are not consecutive. */
function gathered(axes: readonly number[]): AxisRun | null {
  const [start] = axes;
  if (start === undefined || axes.some((axis, offset) => axis !== start + offset)) return null;
  return { start, end: start + axes.length };
}
