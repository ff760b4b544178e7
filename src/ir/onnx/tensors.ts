/**
 * @file Tensors of a file: from TensorProto's many ways of holding values to plain little-endian bytes, external data
 * included. External data is found by (file, offset, length) and never leaves the model's folder.
 */
import { existsSync, realpathSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, isAbsolute, resolve, sep } from 'node:path';
import { byteLength, type DType, dtypeOfOnnx } from '../dtype.js';
import { AutoparError } from '../error.js';
import { type ConstantTensor, elementCount, type TensorType, type WeightSource } from '../graph.js';
import { constant } from '../ops/constants.js';
import type { Initializer } from './model.js';
import type { EntryProto, Integer64, TensorProto } from './schema.js';

/** Where a tensor is met, for messages. */
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
  const data = inlineBytes(proto, type, place.file);
  if (data.length !== length) {
    throw new AutoparError(
      'tensor-size',
      'input',
      `tensor '${proto.name ?? ''}' is ${type.dtype} [${type.shape.join(', ')}], which takes ${length} bytes, but ${data.length} bytes are stored`,
      { file: place.file, tensor: proto.name ?? '' },
      'the file is damaged or was edited; export the model again',
    );
  }
  return { ...type, source: { kind: 'inline', data } };
}

/** A TensorProto whose value must be in the file itself (attributes). */
export function constantOfProto(proto: TensorProto, file: string): ConstantTensor {
  const { dtype, shape, source } = initializerOf(proto, { file, absentAllowed: false });
  if (source.kind === 'inline') return { dtype, shape, data: source.data };
  throw new AutoparError(
    'external-attribute',
    'input',
    `a tensor attribute keeps its value in another file, which autopar reads for initializers only`,
    { file, tensor: proto.name ?? '' },
    'save the model with this tensor inside the file',
  );
}

/** The bytes of a weight; null where they are absent. Reads external data. */
export async function loadWeight(source: WeightSource): Promise<Uint8Array | null> {
  if (source.kind === 'inline') return source.data;
  if (source.kind === 'absent') return null;
  const handle = await open(source.file, 'r');
  try {
    const data = new Uint8Array(source.length);
    const { bytesRead } = await handle.read(data, 0, source.length, source.offset);
    if (bytesRead === source.length) return data;
    throw new AutoparError(
      'external-data-short',
      'input',
      `external data file ends after ${source.offset + bytesRead} bytes, but a tensor reaches to byte ${source.offset + source.length}`,
      { file: source.file },
      'the file changed since the model was read; copy it again',
    );
  } finally {
    await handle.close();
  }
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
      `tensor '${proto.name ?? ''}' has the element type ${dtype ?? `number ${proto.data_type ?? 0}`}, which autopar does not handle`,
      { file, tensor: proto.name ?? '' },
      'numeric and boolean tensors are handled',
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
  const file = insideFolder(location, proto.name ?? '', place.file);
  const offset = Number(entries.get('offset') ?? 0);
  const stated = Number(entries.get('length') ?? length);
  if (!Number.isSafeInteger(offset) || offset < 0 || stated !== length) {
    throw new AutoparError(
      'external-data-range',
      'input',
      `tensor '${proto.name ?? ''}' takes ${length} bytes, but its external data entry says offset ${entries.get('offset') ?? 0}, length ${entries.get('length') ?? 'none'}`,
      { file: place.file, tensor: proto.name ?? '' },
      'the file is damaged or was edited; export the model again',
    );
  }
  const size = sizeOf(file);
  if (size === null && place.absentAllowed) return { kind: 'absent' };
  if (size === null) {
    throw new AutoparError(
      'external-data-missing',
      'input',
      `tensor '${proto.name ?? ''}' keeps its value in ${location}, which is not there`,
      { file: place.file, tensor: proto.name ?? '' },
      `put ${location} next to the model; to plan without weights, remove all of the model's data files`,
    );
  }
  if (offset + length > size) {
    throw new AutoparError(
      'external-data-short',
      'input',
      `tensor '${proto.name ?? ''}' is at bytes ${offset} to ${offset + length} of ${location}, but that file has only ${size} bytes`,
      { file: place.file, tensor: proto.name ?? '' },
      'the data file is cut short or belongs to another model; copy it again',
    );
  }
  return { kind: 'external', file, offset, length };
}

/** The absolute path of external data, or an error when it lies outside the model's folder, by name or by link. */
export function insideFolder(location: string, tensor: string, modelFile: string): string {
  const folder = dirname(modelFile);
  const file = resolve(folder, location);
  const linked = existsSync(file) && !isInside(realpathSync(file), realpathSync(folder));
  if (location === '' || isAbsolute(location) || !isInside(file, folder) || linked) {
    throw new AutoparError(
      'external-data-outside',
      'input',
      `tensor '${tensor}' keeps its value in '${location}', which is outside the model's folder`,
      { file: modelFile, tensor },
      'external data must lie in the folder of the model or below it',
    );
  }
  return file;
}

function isInside(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function sizeOf(file: string): number | null {
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats?.isFile() ? stats.size : null;
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
