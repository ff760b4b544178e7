/**
 * @file Tensors as plain numbers, for comparing and for making random inputs. Sixteen-bit floats are decoded.
 */

import { byteLength } from '../../ir/dtype.js';
import type { ConstantTensor, TensorType } from '../../ir/graph.js';
import { elementCount } from '../../ir/graph.js';
import { BFLOAT16, FLOAT16 } from '../../ir/half.js';
import { allocate, typedView } from '../../program/typed.js';

/** How a tensor's element i is read as a number. 64-bit integers are exact to 2^53. */
export function numberReader(tensor: ConstantTensor): (index: number) => number {
  const values = typedView(tensor.dtype, tensor.data);
  if (tensor.dtype === 'float16') return (index) => FLOAT16.decode(values[index] as number);
  if (tensor.dtype === 'bfloat16') return (index) => BFLOAT16.decode(values[index] as number);
  return (index) => Number(values[index]);
}

/** A tensor made element by element; values are rounded to its dtype. */
export function makeTensor(type: TensorType, value: (index: number) => number): ConstantTensor {
  const made = emptyTensor(type);
  made.fill(0, elementCount(type.shape), value);
  return made.tensor;
}

/** Elements between two turns of the event loop: some hundredths of a second. */
const TURN = 2 ** 19;

/** The same for a large tensor: `turn` is awaited now and then, and stops the work by throwing. */
export async function makeTensorInTurns(
  type: TensorType,
  value: (index: number) => number,
  turn: () => Promise<void>,
): Promise<ConstantTensor> {
  const made = emptyTensor(type);
  const count = elementCount(type.shape);
  for (let from = 0; from < count; from += TURN) {
    await turn();
    made.fill(from, Math.min(count, from + TURN), value);
  }
  return made.tensor;
}

function emptyTensor(type: TensorType): {
  readonly tensor: ConstantTensor;
  readonly fill: (from: number, to: number, value: (index: number) => number) => void;
} {
  const data = allocate(bytesFor(type));
  const view = typedView(type.dtype, data) as { [index: number]: number | bigint };
  const store =
    type.dtype === 'float16'
      ? FLOAT16.encode
      : type.dtype === 'bfloat16'
        ? BFLOAT16.encode
        : type.dtype === 'int64' || type.dtype === 'uint64'
          ? (number: number) => BigInt(Math.trunc(number))
          : (number: number) => number;
  return {
    tensor: { ...type, data },
    fill: (from, to, value) => {
      for (let index = from; index < to; index++) view[index] = store(value(index));
    },
  };
}

/** Index of an element as one number per dimension. */
export function unravelIndex(index: number, shape: readonly number[]): readonly number[] {
  const result: number[] = [];
  let rest = index;
  for (const size of [...shape].reverse()) {
    result.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return result;
}

/** Uniform numbers in [0, 1), the same for equal seeds on every machine: mulberry32. */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), bits | 61)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  };
}

/** A normal number (0, 1) from two uniform ones: Box–Muller. */
export function normal(next: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

function bytesFor(type: TensorType): number {
  return byteLength(type.dtype, elementCount(type.shape));
}
