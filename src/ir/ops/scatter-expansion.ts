/**
 * @file Scatters that add, as products with a one-hot matrix: what they become where the updates or the rows are sharded.
 *
 *     data[index[i]] += updates[i]      data + onehot(index)ᵀ · updates
 *
 * Over sharded updates the product is a partial sum, and the data joins it once that is complete; over sharded rows each
 * rank makes its own rows of the one-hot matrix. On whole tensors the scatter itself is cheaper.
 */
import type { DType } from '../dtype.js';
import { isFloating } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import { elementCount } from '../graph.js';
import type { Expansion, OperatorView } from '../operator.js';
import { constant } from './constants.js';
import { ExpansionWriter } from './expansion.js';
import { axisOf, operand } from './operands.js';

/** The type that one-hot matrices are made and multiplied in: runtimes have OneHot and MatMul in few. */
function productType(dtype: DType): DType {
  if (!isFloating(dtype)) return 'int64';
  return dtype === 'float64' ? 'float64' : 'float32';
}

/** ScatterND with reduction `add`. */
export function scatterRowsExpansion(view: OperatorView, rule: FactorRule): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(view, 0);
  const type = productType(dtype);
  const indices = operand(view, 1).shape;
  const depth = indices.at(-1) ?? 0;
  const [data = [], tuples = []] = [rule.inputs[0] ?? [], rule.inputs[1] ?? []];
  const places = tuples.slice(0, -1);
  const [rowSizes, ownSizes] = [shape.slice(0, depth), shape.slice(depth)];
  const [rows, own] = [[data.slice(0, depth).flat()], [data.slice(depth).flat()]];
  const all = [places.flat()];
  const count = elementCount(indices.slice(0, -1));
  const flat = write.add('Reshape', [flatIndex(write, view, tuples, rowSizes)], all, { shape: [count] });
  const hot = oneHot(write, flat, { depth: elementCount(rowSizes), axis: 0, type, dims: [...rows, ...all] });
  const updates = write.add('Reshape', [inType(write, 'in2', dtype, type, rule.inputs[2] ?? [])], [...all, ...own], {
    shape: [count, elementCount(ownSizes)],
  });
  const sum = write.add('MatMul', [hot, updates], [...rows, ...own]);
  const shaped = write.add('Reshape', [sum], data, { shape });
  write.add('Add', ['in0', inType(write, shaped, type, dtype, data)], data, {}, 'out0');
  return write.finish();
}

/** One number per index tuple: the row it addresses among all rows. */
function flatIndex(
  write: ExpansionWriter,
  view: OperatorView,
  tuples: readonly (readonly string[])[],
  sizes: readonly number[],
): string {
  const places = tuples.slice(0, -1);
  const { dtype } = operand(view, 1);
  const last = tuples.length - 1;
  const index = inType(write, 'in1', dtype, 'int64', tuples);
  if (sizes.length === 1) return write.add('Squeeze', [index], places, { axes: [last] });
  const negative = write.add('Less', [index, write.scalar('int64', 0)], tuples);
  const whole = write.tensor(constant('int64', sizes, [sizes.length]));
  const counted = write.add('Where', [negative, write.add('Add', [index, whole], tuples), index], tuples);
  const strides = sizes.map((_, axis) => elementCount(sizes.slice(axis + 1)));
  const scaled = write.add('Mul', [counted, write.tensor(constant('int64', strides, [sizes.length]))], tuples);
  return write.add('ReduceSum', [scaled], places, { axes: [last], keepdims: 0 });
}

/** ScatterElements with reduction `add`: the one-hot matrix stands beside every element. */
export function scatterElementsExpansion(view: OperatorView, rule: FactorRule): Expansion {
  const write = new ExpansionWriter();
  const { dtype, shape } = operand(view, 0);
  const type = productType(dtype);
  const axis = axisOf(view, 'axis', shape.length, 0);
  const [data = [], places = []] = [rule.inputs[0] ?? [], rule.inputs[1] ?? []];
  const own = data[axis] ?? [];
  const beside = places.flatMap((names, other) => (other === axis ? [names, own] : [names]));
  const index = inType(write, 'in1', operand(view, 1).dtype, 'int64', places);
  const hot = oneHot(write, index, { depth: shape[axis] ?? 1, axis: axis + 1, type, dims: beside });
  const single = places.flatMap((names, other) => (other === axis ? [names, []] : [names]));
  const updates = write.add('Unsqueeze', [inType(write, 'in2', dtype, type, places)], single, { axes: [axis + 1] });
  const placed = write.add('Mul', [hot, updates], beside);
  const summedDims = places.map((names, other) => (other === axis ? own : names));
  let sum = write.add('ReduceSum', [placed], summedDims, { axes: [axis], keepdims: 0 });
  const covered = operand(view, 1).shape;
  const missing = shape.map((size, other) => (other === axis ? 0 : size - (covered[other] ?? size)));
  const short = missing.flatMap((size, other) => (size > 0 ? [other] : []));
  if (short.length > 0) {
    const pads = [...short.map(() => 0), ...short.map((other) => missing[other] ?? 0)];
    sum = write.add('Pad', [sum], data, { pads, axes: short });
  }
  write.add('Add', ['in0', inType(write, sum, type, dtype, data)], data, {}, 'out0');
  return write.finish();
}

function oneHot(
  write: ExpansionWriter,
  index: string,
  to: {
    readonly depth: number;
    readonly axis: number;
    readonly type: DType;
    readonly dims: readonly (readonly string[])[];
  },
): string {
  const { depth, axis, type, dims } = to;
  const made: DType = type === 'int64' ? 'int64' : 'float32';
  const pair = write.tensor(constant(made, [0, 1], [2]));
  const attributes = { depth: constant('int64', [depth]), axis };
  return inType(write, write.add('OneHot', [index, null, pair], dims, attributes), made, type, dims);
}

function inType(
  write: ExpansionWriter,
  name: string,
  from: DType,
  to: DType,
  dims: readonly (readonly string[])[],
): string {
  return from === to ? name : write.cast(name, dims, to);
}
