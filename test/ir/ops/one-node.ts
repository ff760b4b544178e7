/**
 * @file Runs single operators in ONNX Runtime: the ground truth that rules, expansions and inference are held against.
 * Tensors are plain numbers here; a session is kept per operator and shapes.
 */
import * as ort from 'onnxruntime-node';
import type { DType } from '../../../src/ir/dtype.js';
import { type Attributes, type ConstantTensor, elementCount, type TensorType } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { operatorModel } from '../../reference/one-operator.js';

/** A tensor's values as numbers, row-major. */
export interface Values extends TensorType {
  readonly data: readonly number[];
}

export interface Operation {
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
}

ort.env.logLevel = 'fatal';

/** Results of one operator on the operands given; absent operands are null. */
export type Run = (
  operation: Operation,
  inputs: readonly (Values | null)[],
  wanted: readonly (TensorType | null)[],
) => Promise<readonly (Values | null)[]>;

/** Runs operators, keeping one session for equal operators over equal shapes. */
export function makeRun(): Run {
  const sessions = new Map<string, Promise<ort.InferenceSession>>();
  return async (operation, inputs, wanted) => {
    const types = inputs.map((value) => (value ? { dtype: value.dtype, shape: value.shape } : null));
    const key = JSON.stringify([operation, types, wanted], (_, value) =>
      value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value,
    );
    const session = await (sessions.get(key) ?? sessions.set(key, open(operation, types, wanted)).get(key));
    const feeds: Record<string, ort.Tensor> = {};
    for (const [index, value] of inputs.entries()) if (value) feeds[`x${index}`] = toOrt(value);
    const results = await session?.run(feeds);
    return wanted.map((type, index) => {
      const tensor = results?.[`y${index}`];
      return type && tensor ? fromOrt(tensor) : null;
    });
  };
}

function open(
  operation: Operation,
  inputs: readonly (TensorType | null)[],
  outputs: readonly (TensorType | null)[],
): Promise<ort.InferenceSession> {
  return ort.InferenceSession.create(operatorModel({ ...operation, inputs, outputs }), {
    graphOptimizationLevel: 'disabled',
    intraOpNumThreads: 1,
    logSeverityLevel: 4,
  });
}

function toOrt(value: Values): ort.Tensor {
  const { data } = constant(value.dtype, value.data, value.shape);
  const copy = data.slice().buffer;
  const array = ARRAYS[value.dtype];
  if (!array) throw new Error(`no array for ${value.dtype}`);
  return new ort.Tensor(value.dtype as 'float32', new array(copy) as Float32Array, value.shape);
}

function fromOrt(tensor: ort.Tensor): Values {
  const dtype = tensor.type as DType;
  const array = tensor.data as unknown as Uint8Array;
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const held: ConstantTensor = { dtype, shape: [...tensor.dims], data: bytes };
  return { dtype, shape: held.shape, data: elementCount(held.shape) === 0 ? [] : numbersOf(held) };
}

type ArrayMaker = new (buffer: ArrayBuffer) => ArrayLike<number | bigint>;

const ARRAYS: Readonly<Partial<Record<DType, ArrayMaker>>> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};
