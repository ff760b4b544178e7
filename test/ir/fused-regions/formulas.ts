/**
 * @file Formulas of the regions, in float64 and nothing else: the results of a fused kernel from a region's inputs and
 * attributes.
 */

import type { ConstantTensor } from '../../../src/ir/graph.js';
import { elementCount } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';

/** A tensor as numbers, its last two dimensions as rows and columns of `count` matrices. */
export interface Matrices {
  readonly count: number;
  readonly rows: number;
  readonly columns: number;
  readonly at: (matrix: number, row: number, column: number) => number;
}

export function matrices(tensor: ConstantTensor, perm?: readonly number[]): Matrices {
  const { shape, data } = perm ? transposed(tensor, perm) : { shape: tensor.shape, data: numbersOf(tensor) };
  const [rows = 1, columns = 1] = shape.slice(-2);
  const at = (matrix: number, row: number, column: number): number =>
    data[(matrix * rows + row) * columns + column] ?? Number.NaN;
  return { count: elementCount(shape.slice(0, -2)), rows, columns, at };
}

function transposed(
  tensor: ConstantTensor,
  perm: readonly number[],
): { shape: readonly number[]; data: readonly number[] } {
  const values = numbersOf(tensor);
  const shape = perm.map((axis) => tensor.shape[axis] ?? 1);
  const strides = tensor.shape.map((_, axis) => elementCount(tensor.shape.slice(axis + 1)));
  const data = Array.from({ length: values.length }, (_, flat) => {
    const place = placeOf(flat, shape).reduce((sum, index, axis) => sum + index * (strides[perm[axis] ?? 0] ?? 0), 0);
    return values[place] ?? Number.NaN;
  });
  return { shape, data };
}

/** The indices of an element of a shape. */
function placeOf(flat: number, shape: readonly number[]): readonly number[] {
  return shape.map((size, axis) => Math.floor(flat / elementCount(shape.slice(axis + 1))) % size);
}

/** A tensor broadcast to `shape`. */
export function broadcastTo(tensor: ConstantTensor, shape: readonly number[]): readonly number[] {
  const values = numbersOf(tensor);
  const own = [...new Array<number>(shape.length - tensor.shape.length).fill(1), ...tensor.shape];
  return Array.from({ length: elementCount(shape) }, (_, flat) => {
    const place = placeOf(flat, shape).map((index, axis) => (own[axis] === 1 ? 0 : index));
    return values[place.reduce((sum, index, axis) => sum * (own[axis] ?? 1) + index, 0)] ?? Number.NaN;
  });
}

/** softmax(cap(scale · q·kᵀ) + mask)·v; `mask` by flat position among the scores; `head` gives the key head of a query head. */
export function attention(
  query: Matrices,
  key: Matrices,
  values: Matrices,
  told: { readonly scale: number; readonly softcap?: number | undefined },
  mask: (flat: number, score: number) => number,
  head: (head: number) => number = (own) => Math.floor(own / (query.count / key.count)),
): number[] {
  const result: number[] = [];
  for (let own = 0; own < query.count; own++) {
    for (let row = 0; row < query.rows; row++) {
      const scores = range(key.rows).map((column) => {
        const dot = range(query.columns).reduce(
          (sum, feature) => sum + query.at(own, row, feature) * key.at(head(own), column, feature),
          0,
        );
        const scaled = told.scale * dot;
        const capped = told.softcap === undefined ? scaled : told.softcap * Math.tanh(scaled / told.softcap);
        return mask((own * query.rows + row) * key.rows + column, capped);
      });
      const greatest = Math.max(...scores);
      const weights = scores.map((score) => (greatest === Number.NEGATIVE_INFINITY ? 0 : Math.exp(score - greatest)));
      const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
      for (const feature of range(values.columns))
        result.push(
          weights.reduce((sum, weight, column) => sum + (weight / total) * values.at(head(own), column, feature), 0),
        );
    }
  }
  return result;
}

/** Rows of `size` numbers brought to mean 0 (if centred) and mean square 1, times scale, plus bias. */
export function normalised(
  data: readonly number[],
  size: number,
  told: { readonly epsilon: number; readonly centred: boolean },
  scale?: readonly number[],
  bias?: readonly number[],
): number[] {
  return data.map((number, flat) => {
    const start = flat - (flat % size);
    const row = data.slice(start, start + size);
    const mean = told.centred ? row.reduce((sum, other) => sum + other, 0) / size : 0;
    const square = row.reduce((sum, other) => sum + (other - mean) ** 2, 0) / size;
    const result = (number - mean) / Math.sqrt(square + told.epsilon);
    return result * (scale?.[flat % size] ?? 1) + (bias?.[flat % size] ?? 0);
  });
}

export function gelu(x: number, approximate: string): number {
  if (approximate === 'quick') return x / (1 + Math.exp(-1.702 * x));
  if (approximate === 'tanh') return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  return 0.5 * x * (1 + erf(x / Math.SQRT2));
}

/** By its series, which converges for every x; enough terms for |x| < 3. */
function erf(x: number): number {
  let [term, sum] = [x, x];
  for (let n = 1; n < 60; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

/** Pairs of the last dimension turned; cos and sin have the whole dimension, or one number for each pair. */
export function rotated(
  data: readonly number[],
  cos: readonly number[],
  sin: readonly number[],
  size: number,
  interleaved: boolean,
): number[] {
  const half = size / 2;
  return data.map((number, flat) => {
    const [start, place] = [flat - (flat % size), flat % size];
    const second = interleaved ? place % 2 === 1 : place >= half;
    const partner = start + (interleaved ? place + (second ? -1 : 1) : place + (second ? -half : half));
    const other = data[partner] ?? Number.NaN;
    return number * (cos[flat] ?? 0) + (second ? other : -other) * (sin[flat] ?? 0);
  });
}

/** Minus the log-probability of each label, and 0 for labels that are ignored. */
export function crossEntropy(
  logits: Matrices,
  labels: readonly number[],
  told: { readonly reduction: string; readonly ignore?: number | undefined },
): number {
  const losses = labels.map((label, row) => {
    if (label === told.ignore) return 0;
    const all = range(logits.columns).map((column) => logits.at(0, row, column));
    return Math.log(all.reduce((sum, logit) => sum + Math.exp(logit), 0)) - (all[label] ?? Number.NaN);
  });
  const total = losses.reduce((sum, loss) => sum + loss, 0);
  return told.reduction === 'sum' ? total : total / labels.filter((label) => label !== told.ignore).length;
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
