/**
 * @file Elements of a data file as a program's input takes them: whole numbers widened without loss, and checked against their
 * range.
 */
import { byteLength, type DType } from '../ir/dtype.js';
import { isInRange, outOfRange, type ValueRange } from '../ir/value-range.js';
import { typedView } from '../program/typed.js';
import type { SlicedArray } from './data-file.js';

/** An input of the program. */
export interface DataInput {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** The dimension that counts samples; null: one value serves all of them. */
  readonly batchAxis: number | null;
  /** The range that its whole numbers may have. */
  readonly range?: ValueRange;
  /** The value of rows that pad the last batch; 0 where it is left out. */
  readonly padding?: number;
}

/** `where`: the sample in its file and the sample's element that the bytes begin with. */
export type Convert = (bytes: Uint8Array, where: { readonly sample: number; readonly element: number }) => Uint8Array;

/** By dtype of a file, the wider ones that hold all of its numbers. */
const WIDER: Readonly<Partial<Record<DType, readonly DType[]>>> = {
  uint8: ['int16', 'int32', 'int64', 'uint16', 'uint32', 'uint64'],
  int8: ['int16', 'int32', 'int64'],
  uint16: ['int32', 'int64', 'uint32', 'uint64'],
  int16: ['int32', 'int64'],
  uint32: ['int64', 'uint64'],
  int32: ['int64'],
};

/** Whether every number of one type is one of the other. */
export function isWidened(from: DType, to: DType): boolean {
  return WIDER[from]?.includes(to) ?? false;
}

const ADVICE = '; prepare the data with the tokenizer of the model, and --token-type sets the type of raw tokens';

export function converter(input: DataInput, array: SlicedArray, perSample: number): Convert {
  const { range, dtype } = input;
  const isWhole = /^u?int\d+$/.test(array.dtype);
  return (bytes, { sample, element }) => {
    if (isWhole && range) {
      const numbers = integers(array.dtype, bytes);
      for (let index = 0; index < numbers.length; index++) {
        const value = numbers[index] as number;
        if (isInRange(value, range)) continue;
        const at = `${input.name} of sample ${sample}${perSample > 1 ? `, element ${element + index},` : ''}`;
        throw outOfRange(at, value, range, { file: array.place, tensor: input.name }, ADVICE);
      }
    }
    return array.dtype === dtype ? bytes : widened(array.dtype, dtype, bytes);
  };
}

function integers(dtype: DType, bytes: Uint8Array): ArrayLike<number> {
  const values = typedView(dtype, bytes);
  if (!(values instanceof BigInt64Array || values instanceof BigUint64Array)) return values;
  return Float64Array.from(values as BigInt64Array, Number);
}

function widened(from: DType, to: DType, bytes: Uint8Array): Uint8Array {
  const values = integers(from, bytes);
  const result = new Uint8Array(byteLength(to, values.length));
  if (to !== 'int64' && to !== 'uint64') {
    (typedView(to, result) as Int32Array).set(values);
    return result;
  }
  const words = new Int32Array(result.buffer);
  for (let index = 0; index < values.length; index++) {
    const value = values[index] as number;
    words[2 * index] = value;
    words[2 * index + 1] = value < 0 ? -1 : 0;
  }
  return result;
}
