/**
 * @file Combining partial values: the elementwise sum, maximum or minimum of several operands.
 *
 * Operands are combined in the order given, so that all ranks that combine the same operands get the same bits.
 * Sixteen-bit floats are accumulated in float32 and rounded once; integers wrap; for bool, sum and max are *or*, min is
 * *and*; a NaN in any operand is a NaN in the result.
 */
import type { DType } from '../ir/dtype.js';
import type { Reduction } from '../ir/factor-rule.js';
import { HALF_FORMATS, type HalfFormat } from '../ir/half.js';
import { typedView } from './typed.js';

/** Whether values of a dtype can be combined at all: numbers and bool of at least eight bits. */
export function canReduce(dtype: DType): boolean {
  return dtype in HALVES || PLAIN.has(dtype) || BIG.has(dtype);
}

/**
 * Writes the reduction of `operands` to `target`; all have the same byte length, a whole number of elements.
 * `target` may be one of the operands' own memory only at the same place (elementwise, it is read before it is written).
 * Throws for a dtype that cannot be combined (`canReduce`).
 */
export function reduceElementwise(
  dtype: DType,
  reduction: Reduction,
  operands: readonly Uint8Array[],
  target: Uint8Array,
): void {
  const half = HALVES[dtype];
  if (half) {
    reduceHalves(half, reduction, operands.map(asHalves), asHalves(target));
    return;
  }
  const views = operands.map((operand) => typedView(dtype, operand));
  const out = typedView(dtype, target);
  if (out.buffer !== target.buffer) throw new Error('the target of a reduction must be aligned to its element size');
  if (BIG.has(dtype)) reduceBig(reduction, views as BigArray[], out as BigArray);
  else if (!PLAIN.has(dtype)) throw new Error(`values of type ${dtype} cannot be combined`);
  else if (dtype === 'bool') reduceBool(reduction, views as Uint8Array[], out as Uint8Array);
  else if (dtype === 'float32') reduceFloat32(reduction, views as Float32Array[], out as Float32Array);
  else reducePlain(reduction, views as PlainArray[], out as PlainArray);
}

type BigArray = BigInt64Array | BigUint64Array;
type PlainArray = Exclude<ReturnType<typeof typedView>, BigArray>;

const HALVES: Readonly<Partial<Record<DType, HalfFormat>>> = HALF_FORMATS;
const BIG: ReadonlySet<DType> = new Set<DType>(['int64', 'uint64']);
const PLAIN: ReadonlySet<DType> = new Set<DType>([
  'float32',
  'float64',
  'int8',
  'uint8',
  'int16',
  'uint16',
  'int32',
  'uint32',
  'bool',
]);

/** Elements of sixteen-bit floats accumulated at a time. */
const CHUNK = 4096;

function asHalves(bytes: Uint8Array): Uint16Array {
  return typedView('uint16', bytes) as Uint16Array;
}

/** float32 is nearly all traffic, so the loops see one array type and two operands at a time. */
function reduceFloat32(reduction: Reduction, operands: readonly Float32Array[], out: Float32Array): void {
  let left = operands[0] as Float32Array;
  if (operands.length === 1 && left !== out) out.set(left);
  for (let member = 1; member < operands.length; member++) {
    const right = operands[member] as Float32Array;
    if (reduction === 'sum') addFloat32(left, right, out);
    else reducePair(reduction, left, right, out);
    left = out;
  }
}

/** Four elements per iteration: a third faster than one. */
function addFloat32(left: Float32Array, right: Float32Array, out: Float32Array): void {
  const { length } = out;
  let index = 0;
  for (; index + 3 < length; index += 4) {
    out[index] = (left[index] as number) + (right[index] as number);
    out[index + 1] = (left[index + 1] as number) + (right[index + 1] as number);
    out[index + 2] = (left[index + 2] as number) + (right[index + 2] as number);
    out[index + 3] = (left[index + 3] as number) + (right[index + 3] as number);
  }
  for (; index < length; index++) out[index] = (left[index] as number) + (right[index] as number);
}

function reducePlain(reduction: Reduction, operands: readonly PlainArray[], out: PlainArray): void {
  let left = operands[0] as PlainArray;
  if (operands.length === 1) out.set(left);
  for (let member = 1; member < operands.length; member++) {
    reducePair(reduction, left, operands[member] as PlainArray, out);
    left = out;
  }
}

function reducePair(reduction: Reduction, left: PlainArray, right: PlainArray, out: PlainArray): void {
  const length = out.length;
  if (reduction === 'sum') {
    for (let index = 0; index < length; index++) out[index] = (left[index] as number) + (right[index] as number);
  } else if (reduction === 'max') {
    for (let index = 0; index < length; index++) out[index] = larger(left[index] as number, right[index] as number);
  } else {
    for (let index = 0; index < length; index++) out[index] = smaller(left[index] as number, right[index] as number);
  }
}

/** NaN wins, as in ONNX Max and Min. */
function larger(left: number, right: number): number {
  return left > right || Number.isNaN(left) ? left : right;
}

function smaller(left: number, right: number): number {
  return left < right || Number.isNaN(left) ? left : right;
}

/** Any non-zero byte is true. */
function reduceBool(reduction: Reduction, operands: readonly Uint8Array[], out: Uint8Array): void {
  let left = operands[0] as Uint8Array;
  for (let member = 1; member < operands.length; member++) {
    const right = operands[member] as Uint8Array;
    if (reduction === 'min') {
      for (let index = 0; index < out.length; index++) out[index] = left[index] && right[index] ? 1 : 0;
    } else {
      for (let index = 0; index < out.length; index++) out[index] = left[index] || right[index] ? 1 : 0;
    }
    left = out;
  }
  if (operands.length === 1) out.set(left);
}

function reduceBig(reduction: Reduction, operands: readonly BigArray[], out: BigArray): void {
  for (let index = 0; index < out.length; index++) {
    let value = (operands[0] as BigArray)[index] as bigint;
    for (let member = 1; member < operands.length; member++) {
      const other = (operands[member] as BigArray)[index] as bigint;
      if (reduction === 'sum') value += other;
      else if (reduction === 'max' ? other > value : other < value) value = other;
    }
    out[index] = value;
  }
}

function reduceHalves(
  format: HalfFormat,
  reduction: Reduction,
  operands: readonly Uint16Array[],
  out: Uint16Array,
): void {
  const values = format.values();
  const sums = new Float32Array(Math.min(CHUNK, out.length));
  const next = new Float32Array(sums.length);
  const patterns = new Int32Array(sums.buffer);
  for (let from = 0; from < out.length; from += CHUNK) {
    const length = Math.min(CHUNK, out.length - from);
    widenInto(values, operands[0] as Uint16Array, from, length, sums);
    for (let member = 1; member < operands.length; member++) {
      const operand = operands[member] as Uint16Array;
      if (reduction === 'sum') addWidened(values, operand, from, length, sums);
      else {
        widenInto(values, operand, from, length, next);
        reducePair(reduction, sums, next, sums);
      }
    }
    format.narrowAll(patterns, length, out, from);
  }
}

function widenInto(values: Float32Array, operand: Uint16Array, from: number, length: number, into: Float32Array): void {
  for (let index = 0; index < length; index++) into[index] = values[operand[from + index] as number] as number;
}

function addWidened(values: Float32Array, operand: Uint16Array, from: number, length: number, to: Float32Array): void {
  for (let index = 0; index < length; index++) {
    to[index] = (to[index] as number) + (values[operand[from + index] as number] as number);
  }
}
