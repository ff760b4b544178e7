/**
 * @file Which tensor of the file a weight is. Import folds operators on weights into them, so that a graph's weight may have the
 * file's dimensions in another order, with more or fewer of size 1, or in another type:
 *
 *     Gemm (transB = 1) of w [8, 32]      weight [32, 8], dims [1, 0] of w
 *     Unsqueeze of scale [16]             weight [16, 1, 1], dims [0, null, null] of scale
 */
import type { Attributes, FileTensor } from '../graph.js';

/** The part of a constant that shows where its elements are from. */
interface Derived<Constant> {
  readonly name: string;
  /** Whether it is an initializer of the file. */
  readonly stated: boolean;
  readonly application: {
    readonly operator: { readonly op: string; readonly domain: string; readonly attributes: Attributes };
    readonly inputs: readonly (Constant | null)[];
  } | null;
  /** Which result of the operator it is. */
  readonly result: number;
}

/** The file's tensor that `constant` is; null where it is one unchanged, or is computed otherwise. */
export function fileTensor<Constant extends Derived<Constant>>(
  constant: Constant,
  shapeOf: (constant: Constant) => readonly number[] | null,
): FileTensor | null {
  const steps: Constant[] = [];
  let origin = constant;
  while (!origin.stated) {
    const [operand] = origin.application?.inputs ?? [];
    if (!operand || origin.result !== 0) return null;
    steps.push(origin);
    origin = operand;
  }
  const shape = shapeOf(origin);
  if (steps.length === 0 || !shape) return null;
  let dims: readonly (number | null)[] = shape.map((_, axis) => axis);
  for (const step of steps.reverse()) {
    const next = dimsAfter(step, dims, shape, shapeOf(step));
    if (!next) return null;
    dims = next;
  }
  return { name: origin.name, shape, dims, result: constant.name };
}

/** Where the file's dimensions are after an operator; null where it does more than move them. */
function dimsAfter(
  { application }: Pick<Derived<unknown>, 'application'>,
  dims: readonly (number | null)[],
  file: readonly number[],
  shape: readonly number[] | null,
): readonly (number | null)[] | null {
  const { op = '', domain = '', attributes = {} } = application?.operator ?? {};
  if (domain !== '' || !shape) return null;
  if (op === 'Cast' || op === 'Identity') return dims;
  if (op === 'Transpose') {
    const { perm } = attributes;
    const order: readonly unknown[] = Array.isArray(perm) ? perm : dims.map((_, axis) => axis).reverse();
    return order.map((axis) => dims[Number(axis)] ?? null);
  }
  return RESHAPES.has(op) ? dimsReshaped(dims, file, shape) : null;
}

const RESHAPES: ReadonlySet<string> = new Set(['Reshape', 'Unsqueeze', 'Squeeze', 'Flatten']);

/** The dimensions after a reshape that keeps the dimensions larger than 1 in their order; null for any other reshape. */
function dimsReshaped(
  dims: readonly (number | null)[],
  file: readonly number[],
  shape: readonly number[],
): readonly (number | null)[] | null {
  const large = dims.filter((axis): axis is number => axis !== null && file[axis] !== 1);
  const kept = shape.filter((size) => size !== 1);
  if (large.length !== kept.length || large.some((axis, index) => file[axis] !== kept[index])) return null;
  let next = 0;
  return shape.map((size) => (size === 1 ? null : (large[next++] ?? null)));
}
