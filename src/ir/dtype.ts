/**
 * @file Element types: names, sizes and ONNX numbers, as one table.
 */

/** `bits` per element as stored; `onnx` is TensorProto.DataType. int4 and friends are packed two to a byte. */
const DTYPES = {
  float32: { onnx: 1, bits: 32, floating: true },
  uint8: { onnx: 2, bits: 8, floating: false },
  int8: { onnx: 3, bits: 8, floating: false },
  uint16: { onnx: 4, bits: 16, floating: false },
  int16: { onnx: 5, bits: 16, floating: false },
  int32: { onnx: 6, bits: 32, floating: false },
  int64: { onnx: 7, bits: 64, floating: false },
  string: { onnx: 8, bits: 0, floating: false },
  bool: { onnx: 9, bits: 8, floating: false },
  float16: { onnx: 10, bits: 16, floating: true },
  float64: { onnx: 11, bits: 64, floating: true },
  uint32: { onnx: 12, bits: 32, floating: false },
  uint64: { onnx: 13, bits: 64, floating: false },
  complex64: { onnx: 14, bits: 64, floating: false },
  complex128: { onnx: 15, bits: 128, floating: false },
  bfloat16: { onnx: 16, bits: 16, floating: true },
  float8e4m3fn: { onnx: 17, bits: 8, floating: true },
  float8e4m3fnuz: { onnx: 18, bits: 8, floating: true },
  float8e5m2: { onnx: 19, bits: 8, floating: true },
  float8e5m2fnuz: { onnx: 20, bits: 8, floating: true },
  uint4: { onnx: 21, bits: 4, floating: false },
  int4: { onnx: 22, bits: 4, floating: false },
} as const;

export type DType = keyof typeof DTYPES;

/** The dtype of an ONNX TensorProto.DataType number; undefined where autopar does not know it. */
export function dtypeOfOnnx(number: number): DType | undefined {
  return BY_NUMBER.get(number);
}

/** ONNX's element types that no operator here takes, by number: for messages. */
const UNHANDLED: ReadonlyMap<number, string> = new Map([
  [23, 'float4e2m1'],
  [24, 'float8e8m0'],
  [25, 'uint2'],
  [26, 'int2'],
  [27, 'float6e2m3'],
  [28, 'float6e3m2'],
]);

/** A name for a TensorProto.DataType number, whether autopar handles the type or not. */
export function elementTypeText(number: number): string {
  return BY_NUMBER.get(number) ?? UNHANDLED.get(number) ?? `number ${number}`;
}

/** The ONNX TensorProto.DataType number of a dtype. */
export function onnxOfDtype(dtype: DType): number {
  return DTYPES[dtype].onnx;
}

/** Bytes that `elements` elements of `dtype` take; 4-bit types are packed and rounded up. */
export function byteLength(dtype: DType, elements: number): number {
  return Math.ceil((DTYPES[dtype].bits * elements) / 8);
}

/** Bits per element as stored. */
export function dtypeBits(dtype: DType): number {
  return DTYPES[dtype].bits;
}

export function isFloating(dtype: DType): boolean {
  return DTYPES[dtype].floating;
}

/** Whether a text names a dtype of the table (user input, file headers). */
export function isDType(text: string): text is DType {
  return Object.hasOwn(DTYPES, text);
}

const BY_NUMBER: ReadonlyMap<number, DType> = new Map(
  (Object.keys(DTYPES) as DType[]).map((name) => [DTYPES[name].onnx, name]),
);
