/**
 * @file Tensors of a file: from TensorProto's many ways of holding values to plain little-endian bytes, external data
 * included. External data is found by (file, offset, length).
 */
import { byteLength, type DType, dtypeOfOnnx, elementTypeText } from '../dtype.js';
import { AutoparError } from '../error.js';
import { type ConstantTensor, elementCount, MOST_DIMENSIONS, type TensorType, type WeightSource } from '../graph.js';
import { constant } from '../ops/constants.js';
import { dataFile, isMissing, withoutData } from './external-data.js';
import type { Initializer } from './model.js';
import type { EntryProto, Integer64, TensorProto } from './schema.js';
import { bytesInParts, bytesOfFile } from './weight-reader.js';

/** Where a tensor is found, for messages. */
export interface TensorPlace {
  /** Absolute path of the model's file. */
  readonly file: string;
  /** Whether a missing external file leaves the tensor absent instead of being an error. */
  readonly absentAllowed: boolean;
}

const EXTERNAL = 1;

/** A TensorProto as dtype, shape and the place of its bytes. */
export function initializerOf(proto: TensorProto, place: TensorPlace): Initializer {
  const type = typeOfProto(proto, place.file);
  const length = byteLength(type.dtype, elementCount(type.shape));
  if (proto.data_location === EXTERNAL) return { ...type, source: externalSource(proto, place, length) };
  if (proto.span) {
    checkLength(proto, type, length, proto.span.length, place.file);
    return { ...type, source: { kind: 'external', file: place.file, ...proto.span } };
  }
  const data = inlineBytes(proto, type, place.file);
  checkLength(proto, type, length, data.length, place.file);
  return { ...type, source: { kind: 'inline', data } };
}

/** A TensorProto whose value must be in the file itself (attributes). */
export function constantOfProto(proto: TensorProto, file: string): ConstantTensor {
  const { dtype, shape, source } = initializerOf(proto, { file, absentAllowed: false });
  if (source.kind === 'inline') return { dtype, shape, data: source.data };
  throw new AutoparError(
    'external-attribute',
    'input',
    `the value of a tensor attribute is in another file, and autopar reads such files for initializers only`,
    { file, tensor: proto.name ?? '' },
    'save the model with this tensor inside the file',
  );
}

/** The bytes of a weight; null where they are absent. Reads external data. Throws `external-data-missing`, `-short`. */
export async function loadWeight(source: WeightSource): Promise<Uint8Array | null> {
  return readWeight(source);
}

/** As `loadWeight`, synchronously. */
export function readWeight(source: WeightSource): Uint8Array | null {
  if (source.kind === 'inline') return source.data;
  if (source.kind === 'absent') return null;
  if (source.kind === 'zero') return new Uint8Array(source.length);
  if (source.kind === 'external') return bytesOfFile(source);
  if (source.kind === 'converted') return bytesInParts(source);
  const parts = source.parts.flatMap((part) => readWeight(part) ?? []);
  return parts.length === source.parts.length ? Buffer.concat(parts) : null;
}

function checkLength(proto: TensorProto, type: TensorType, length: number, stored: number, file: string): void {
  if (stored === length) return;
  throw new AutoparError(
    'tensor-size',
    'input',
    `tensor '${proto.name ?? ''}' is ${type.dtype} [${type.shape.join(', ')}], which takes ${length} bytes, but ` +
      `${stored} bytes are stored`,
    { file, tensor: proto.name ?? '' },
    'the file is damaged or was edited; export the model again',
  );
}

/** A 64-bit integer as a number; the ends of the int64 range saturate, others must be exact. */
export function integerOf(value: Integer64 | undefined): number {
  if (value === undefined) return 0;
  if (typeof value === 'number') return value;
  const number = value.high * 2 ** 32 + (value.low >>> 0);
  if (Number.isSafeInteger(number)) return number;
  return number > 0 ? Number.MAX_SAFE_INTEGER : Number.MIN_SAFE_INTEGER;
}

function typeOfProto(proto: TensorProto, file: string): TensorType {
  const dtype = dtypeOfOnnx(proto.data_type ?? 0);
  if (!dtype || dtype === 'string') {
    throw new AutoparError(
      'unsupported-dtype',
      'input',
      `tensor '${proto.name ?? ''}' has the element type ${elementTypeText(proto.data_type ?? 0)}, which ` +
        'autopar does not handle',
      { file, tensor: proto.name ?? '' },
      'numeric and boolean tensors are handled',
    );
  }
  const rank = proto.dims?.length ?? 0;
  if (rank > MOST_DIMENSIONS) {
    throw new AutoparError(
      'tensor-size',
      'input',
      `tensor '${proto.name ?? ''}' has ${rank} dimensions; ${MOST_DIMENSIONS} is the maximum`,
      { file, tensor: proto.name ?? '' },
      'the file is damaged, or its exporter is wrong; reshape the tensor',
    );
  }
  const shape = (proto.dims ?? []).map(integerOf);
  if (shape.every((size) => size >= 0)) return { dtype, shape };
  throw new AutoparError(
    'tensor-size',
    'input',
    `tensor '${proto.name ?? ''}' has the shape [${shape.join(', ')}]: a size is negative`,
    { file, tensor: proto.name ?? '' },
    'the file is damaged or was edited; export the model again',
  );
}

function externalSource(proto: TensorProto, place: TensorPlace, length: number): WeightSource {
  const entries = new Map((proto.external_data ?? []).map((entry: EntryProto) => [entry.key ?? '', entry.value ?? '']));
  const location = entries.get('location') ?? '';
  const tensor = proto.name ?? '';
  const data = dataFile(location, place.file);
  if (isMissing(data) && (location === '' || !place.absentAllowed)) throw withoutData(tensor, data, place.file);
  const offset = Number(entries.get('offset') ?? 0);
  const stated = Number(entries.get('length') ?? length);
  if (!Number.isSafeInteger(offset) || offset < 0 || stated !== length) {
    throw new AutoparError(
      'external-data-range',
      'input',
      `tensor '${proto.name ?? ''}' takes ${length} bytes, but its external data entry has offset ` +
        `${entries.get('offset') ?? 0}, length ${entries.get('length') ?? 'none'}`,
      { file: place.file, tensor: proto.name ?? '' },
      'the file is damaged or was edited; export the model again',
    );
  }
  if (isMissing(data)) return { kind: 'absent', data };
  const { file, size } = data;
  if (offset + length > size) {
    throw new AutoparError(
      'external-data-short',
      'input',
      `tensor '${proto.name ?? ''}' is at bytes ${offset} to ${offset + length} of ${location}, but that file has ` +
        `only ${size} bytes`,
      { file: place.file, tensor: proto.name ?? '' },
      'the data file is truncated or belongs to another model; copy it again',
    );
  }
  return { kind: 'external', file, offset, length };
}

/** Values held in typed lists instead of raw bytes; which list holds which dtype is ONNX's rule. */
function inlineBytes(proto: TensorProto, type: TensorType, file: string): Uint8Array {
  if (proto.raw_data && proto.raw_data.length > 0) return proto.raw_data;
  const { dtype } = type;
  if (proto.float_data?.length) return listBytes('float32', proto.float_data);
  if (proto.double_data?.length) return listBytes('float64', proto.double_data);
  if (proto.int64_data?.length) return bytesOf64(proto.int64_data);
  if (proto.uint64_data?.length)
    return dtype === 'uint32' ? listBytes('uint32', proto.uint64_data.map(integerOf)) : bytesOf64(proto.uint64_data);
  if (proto.int32_data?.length) return int32Bytes(dtype, proto.int32_data);
  if (proto.string_data?.length)
    throw new AutoparError('unsupported-dtype', 'input', `tensor '${proto.name ?? ''}' holds strings`, { file });
  return new Uint8Array(0);
}

/** int32_data carries small integers as such and 16-bit or 8-bit floats and 4-bit pairs by their bits. */
function int32Bytes(dtype: DType, values: readonly number[]): Uint8Array {
  const width =
    dtype === 'int32'
      ? 4
      : dtype === 'float16' || dtype === 'bfloat16' || dtype === 'int16' || dtype === 'uint16'
        ? 2
        : 1;
  const data = new Uint8Array(values.length * width);
  const view = new DataView(data.buffer);
  values.forEach((value, index) => {
    if (width === 4) view.setInt32(index * 4, value, true);
    else if (width === 2) view.setUint16(index * 2, value & 0xffff, true);
    else view.setUint8(index, value & 0xff);
  });
  return data;
}

function bytesOf64(values: readonly Integer64[]): Uint8Array {
  const data = new Uint8Array(values.length * 8);
  const view = new DataView(data.buffer);
  values.forEach((value, index) => {
    if (typeof value === 'number') view.setBigInt64(index * 8, BigInt(value), true);
    else {
      view.setInt32(index * 8, value.low, true);
      view.setInt32(index * 8 + 4, value.high, true);
    }
  });
  return data;
}

function listBytes(dtype: DType, values: readonly number[]): Uint8Array {
  return constant(dtype, values, [values.length]).data;
}
