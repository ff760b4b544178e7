/**
 * @file safetensors: named tensors in one file.
 *
 *     8 bytes          header length N, little-endian
 *     N bytes          JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [from, to]}, …}, padded with spaces
 *     the rest         data; offsets count from here
 *
 * Written piece by piece and read by key, so that no more than one tensor need be in memory.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { byteLength, type DType } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { type ConstantTensor, elementCount, type TensorType } from '../ir/graph.js';
import { streamFileAtomic } from './atomic.js';
import { allocate } from './typed.js';

/**
 * A tensor to write: its bytes in pieces. The next piece is requested while one is written: each is valid until the one after the
 * next is requested.
 */
export interface SafetensorsEntry extends TensorType {
  readonly key: string;
  readonly pieces: () => Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
}

/** An open file. `read` gives a fresh copy of one tensor's bytes. */
export interface SafetensorsFile {
  readonly entries: ReadonlyMap<string, TensorType & { readonly offset: number; readonly length: number }>;
  /** Where data begin in the file, from which offsets count. */
  readonly start: number;
  readonly read: (key: string) => Promise<ConstantTensor>;
  readonly close: () => Promise<void>;
}

/** Writes `entries` in the order given. Throws AutoparError (exit cannotWrite); dtypes that the format lacks are refused. */
export async function writeSafetensors(file: string, entries: readonly SafetensorsEntry[]): Promise<void> {
  const header: Record<string, { dtype: string; shape: readonly number[]; data_offsets: [number, number] }> = {};
  let offset = 0;
  for (const { key, dtype, shape } of entries) {
    const name = NAMES[dtype];
    if (!name)
      throw new AutoparError('unsupported-dtype', 'input', `safetensors cannot hold ${dtype} (${key})`, { file });
    const end = offset + byteLength(dtype, elementCount(shape));
    header[key] = { dtype: name, shape, data_offsets: [offset, end] };
    offset = end;
  }
  const text = Buffer.from(JSON.stringify(header), 'utf8');
  const padded = Buffer.alloc(Math.ceil(text.byteLength / 8) * 8, ' ');
  text.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.byteLength));
  await streamFileAtomic(file, async (write) => {
    await write(length);
    await write(padded);
    for (const { key, dtype, shape, pieces } of entries) {
      let bytes = 0;
      let writing: Promise<unknown> = Promise.resolve();
      for await (const piece of pieces()) {
        bytes += piece.byteLength;
        await writing;
        writing = write(piece);
        // Where making the next piece fails, that is the error.
        writing.catch(() => undefined);
      }
      await writing;
      if (bytes !== byteLength(dtype, elementCount(shape))) {
        throw new Error(`${key}: ${bytes} bytes do not fill ${dtype} [${shape.join(', ')}]`);
      }
    }
  });
}

/** Opens a file and checks its header against its size. Throws AutoparError (exit input) for a missing, truncated or bad file. */
export async function openSafetensors(file: string): Promise<SafetensorsFile> {
  const handle = await open(file, 'r').catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${error.code ?? error.message})`;
    throw new AutoparError('missing-weights', 'input', `the weights file ${file} ${reason}`, { file }, COMPILE_AGAIN);
  });
  try {
    const found = await handle.stat();
    if (!found.isFile()) throw bad(file, 'is a folder or a device');
    const { size } = found;
    const { entries, start } = await readHeader(handle, size, file);
    return {
      entries,
      start,
      read: async (key) => {
        const entry = entries.get(key);
        if (!entry) throw bad(file, `holds no tensor named ${key}`);
        const data = allocate(entry.length);
        await readAt(handle, data, start + entry.offset, file);
        return { dtype: entry.dtype, shape: entry.shape, data };
      },
      close: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Bytes of a header, as the format's own readers bound it. */
const LONGEST_HEADER = 1e8;

const COMPILE_AGAIN = 'compile the model again';

const NAMES: Readonly<Partial<Record<DType, string>>> = {
  bool: 'BOOL',
  uint8: 'U8',
  int8: 'I8',
  float8e5m2: 'F8_E5M2',
  float8e4m3fn: 'F8_E4M3',
  int16: 'I16',
  uint16: 'U16',
  float16: 'F16',
  bfloat16: 'BF16',
  int32: 'I32',
  uint32: 'U32',
  float32: 'F32',
  float64: 'F64',
  int64: 'I64',
  uint64: 'U64',
};

const DTYPES: ReadonlyMap<string, DType> = new Map(
  (Object.keys(NAMES) as DType[]).map((dtype) => [NAMES[dtype] as string, dtype]),
);

type Entries = Map<string, TensorType & { readonly offset: number; readonly length: number }>;

async function readHeader(
  handle: FileHandle,
  size: number,
  file: string,
): Promise<{ entries: Entries; start: number }> {
  if (size < 8) throw bad(file, `is only ${size} bytes long`);
  const prefix = Buffer.alloc(8);
  await readAt(handle, prefix, 0, file);
  const length = Number(prefix.readBigUInt64LE());
  if (length > size - 8) throw bad(file, `states a header of ${length} bytes, but has ${size} in total`);
  if (length > LONGEST_HEADER)
    throw bad(file, `has a header of ${length} bytes, more than the ${LONGEST_HEADER} of the format`);
  const text = Buffer.alloc(length);
  await readAt(handle, text, 8, file);
  let header: unknown;
  try {
    header = JSON.parse(text.toString('utf8'));
  } catch {
    throw bad(file, 'has a header that is not JSON');
  }
  if (header === null || typeof header !== 'object') throw bad(file, 'has a header that is not an object');
  const start = 8 + length;
  const entries: Entries = new Map();
  for (const [key, value] of Object.entries(header)) {
    if (key !== '__metadata__') entries.set(key, entryOf(key, value, size - start, file));
  }
  let end = 0;
  // Tensors follow each other: overlapping ones could amount to several times the size of the file.
  for (const [key, { offset, length: bytes }] of [...entries].sort(
    ([, a], [, b]) => a.offset - b.offset || a.length - b.length,
  )) {
    if (offset !== end) throw bad(file, `has data of ${key} from byte ${offset} on, where byte ${end} comes next`);
    end = offset + bytes;
  }
  if (end !== size - start) throw bad(file, `has ${size - start} bytes of data, but its header states ${end}`);
  return { entries, start };
}

function entryOf(
  key: string,
  value: { dtype?: unknown; shape?: unknown; data_offsets?: unknown } | null,
  available: number,
  file: string,
): TensorType & { readonly offset: number; readonly length: number } {
  const dtype = DTYPES.get(String(value?.dtype));
  if (!dtype) throw bad(file, `gives ${key} the unknown dtype ${String(value?.dtype)}`);
  const { shape, data_offsets: offsets } = value ?? {};
  if (!isCounts(shape) || !isCounts(offsets) || offsets.length !== 2)
    throw bad(file, `has a malformed entry for ${key}`);
  const [offset, end] = offsets as [number, number];
  if (end - offset !== byteLength(dtype, elementCount(shape)))
    throw bad(file, `has offsets of ${key} that do not fit its shape`);
  if (end > available) throw bad(file, `is truncated: ${key} ends at byte ${end} of the data, which has ${available}`);
  return { dtype, shape, offset, length: end - offset };
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((entry) => Number.isSafeInteger(entry) && entry >= 0);
}

async function readAt(handle: FileHandle, into: Uint8Array, position: number, file: string): Promise<void> {
  let done = 0;
  while (done < into.byteLength) {
    const length = Math.min(into.byteLength - done, 2 ** 30);
    const { bytesRead } = await handle.read(into, done, length, position + done);
    if (bytesRead === 0) throw bad(file, 'ends too early');
    done += bytesRead;
  }
}

function bad(file: string, what: string): AutoparError {
  return new AutoparError('bad-weights', 'input', `the weights file ${file} ${what}`, { file }, COMPILE_AGAIN);
}
