/**
 * @file Weights in another floating-point type than their file has them in: rounded to 16 bit, or widened to float32.
 */
import { byteLength, type DType } from '../dtype.js';
import type { WeightSource } from '../graph.js';
import { HALF_FORMATS, type HalfType } from '../half.js';

/** Types between which elements are converted; one of the two is float32. */
type ConvertedType = HalfType | 'float32';

/** The same elements in another type; rounded to nearest, ties to even, as ONNX's Cast does. */
export function convertedSource(source: WeightSource, from: ConvertedType, to: ConvertedType): WeightSource {
  switch (source.kind) {
    case 'absent':
      return to === 'float32' ? source : { ...source, rounded: to };
    case 'zero':
      return { kind: 'zero', length: convertedLength(source.length, from, to) };
    case 'inline': {
      const data = new Uint8Array(convertedLength(source.data.length, from, to));
      convertElements(source.data, from, to, data);
      return { kind: 'inline', data };
    }
    default:
      return { kind: 'converted', length: convertedLength(source.length, from, to), from, to, of: source };
  }
}

/** The bytes that elements of `length` bytes take in another type. */
export function convertedLength(length: number, from: DType, to: DType): number {
  return (length / byteLength(from, 1)) * byteLength(to, 1);
}

/** Writes elements in another type to `into`, which is aligned for it. */
export function convertElements(data: Uint8Array, from: ConvertedType, to: ConvertedType, into: Uint8Array): void {
  const count = data.length / byteLength(from, 1);
  const bytes = data.byteOffset % byteLength(from, 1) === 0 ? data : new Uint8Array(data);
  if (from === 'float32' && to !== 'float32') {
    const singles = new Int32Array(bytes.buffer, bytes.byteOffset, count);
    HALF_FORMATS[to].narrowAll(singles, count, new Uint16Array(into.buffer, into.byteOffset, count), 0);
  } else if (from !== 'float32' && to === 'float32') {
    const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
    const values = HALF_FORMATS[from].values();
    const singles = new Float32Array(into.buffer, into.byteOffset, count);
    for (let index = 0; index < count; index++) singles[index] = values[halves[index] as number] as number;
  } else throw new Error(`elements are not converted from ${from} to ${to}`);
}
