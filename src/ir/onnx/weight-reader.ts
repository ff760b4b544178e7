/**
 * @file The bytes of a weight by their place, so that a reader of parts holds no more than a window of the file. Import
 * transposes matrices (`Transposition`): a transposed weight is in memory as a whole.
 */
import { closeSync, openSync } from 'node:fs';
import { byteLength } from '../dtype.js';
import { AutoparError } from '../error.js';
import { elementCount, type Transposition, type WeightSource } from '../graph.js';
import { convertElements, convertedLength } from './converted-source.js';
import { readFully } from './file-window.js';

/** An open weight; `close` it when done. */
export interface OpenWeight {
  /** `length` bytes from `offset` on, at most `PIECE`; they hold until the next call. */
  readonly read: (offset: number, length: number) => Uint8Array;
  readonly close: () => void;
}

/** Bytes that are read at once: a multiple of every element's. */
export const PIECE = 16 * 2 ** 20;

type ExternalSource = Extract<WeightSource, { readonly kind: 'external' }>;
type ConvertedSource = Extract<WeightSource, { readonly kind: 'converted' }>;
type StackedSource = Extract<WeightSource, { readonly kind: 'stacked' }>;

/**
 * Memory of at least so many bytes; the same buffer each time, so that memory that is no longer needed does not wait for the
 * garbage collector.
 */
export type Room = (bytes: number) => Uint8Array;

/** Room for one weight at a time. */
export function room(): Room {
  let held = new Uint8Array(0);
  return (bytes) => {
    if (held.length < bytes) held = fresh(bytes);
    return held.subarray(0, bytes);
  };
}

/**
 * A weight to be read in parts; null where its value is absent. A weight that must be held whole is held in `whole`.
 * @throws AutoparError `external-data-missing`, and on reading `external-data-short`
 */
export function openWeight(source: WeightSource, whole: Room): OpenWeight | null {
  if (source.kind === 'absent') return null;
  if (source.kind === 'stacked') return openParts(source, whole);
  if (source.kind === 'converted') return openConverted(source, whole);
  if (source.kind !== 'external') return readerOf(source.kind === 'zero' ? new Uint8Array(source.length) : source.data);
  if (source.transposition) return readerOf(bytesOfFile(source, whole));
  const file = openData(source);
  let start = 0;
  let held = new Uint8Array(0);
  const window = fresh(Math.min(PIECE, source.length));
  const read = (offset: number, length: number) => {
    if (offset < start || offset + length > start + held.length) {
      held = window.subarray(0, Math.min(window.length, source.length - offset));
      start = offset;
      file.fill(held, offset);
    }
    return held.subarray(offset - start, offset - start + length);
  };
  return { read, close: file.close };
}

/** One part is open at a time. */
function openParts({ parts, length: all }: StackedSource, whole: Room): OpenWeight | null {
  if (parts.some(({ kind }) => kind === 'absent')) return null;
  const size = all / parts.length;
  let open: { readonly index: number; readonly reader: OpenWeight } | null = null;
  const close = () => {
    open?.reader.close();
    open = null;
  };
  const partAt = (index: number): OpenWeight => {
    if (open?.index === index) return open.reader;
    close();
    const reader = openWeight(parts[index] as WeightSource, whole);
    if (!reader) throw new Error('a part of a stacked weight has no value');
    open = { index, reader };
    return reader;
  };
  const read = (offset: number, length: number): Uint8Array => {
    const first = Math.floor(offset / size);
    if (length <= (first + 1) * size - offset) return partAt(first).read(offset - first * size, length);
    const data = fresh(length);
    for (let done = 0; done < length; ) {
      const index = Math.floor((offset + done) / size);
      const within = offset + done - index * size;
      const piece = Math.min(length - done, size - within);
      data.set(partAt(index).read(within, piece), done);
      done += piece;
    }
    return data;
  };
  return { read, close };
}

/** A piece is converted when it is read. */
function openConverted({ of, from, to, length: all }: ConvertedSource, whole: Room): OpenWeight | null {
  const reader = openWeight(of, whole);
  if (!reader) return null;
  // A piece of the wider type is at most `PIECE` bytes long.
  const most = Math.min(PIECE, (PIECE / byteLength(from, 1)) * byteLength(to, 1));
  const held = fresh(Math.min(PIECE, all));
  const read = (offset: number, length: number) => {
    for (let done = 0; done < length; done += most) {
      const into = held.subarray(done, Math.min(length, done + most));
      const piece = reader.read(convertedLength(offset + done, to, from), convertedLength(into.length, to, from));
      convertElements(piece, from, to, into);
    }
    return held.subarray(0, length);
  };
  return { read, close: reader.close };
}

/** All bytes of a weight that is read in parts; null where its value is absent. */
export function bytesInParts(source: ConvertedSource): Uint8Array | null {
  const reader = openWeight(source, fresh);
  if (!reader) return null;
  try {
    const data = fresh(source.length);
    for (let offset = 0; offset < data.length; offset += PIECE)
      data.set(reader.read(offset, Math.min(PIECE, data.length - offset)), offset);
    return data;
  } finally {
    reader.close();
  }
}

/** All bytes of a weight in a file, transposed as its graph has them. */
export function bytesOfFile(source: ExternalSource, whole: Room = fresh): Uint8Array {
  const file = openData(source);
  try {
    const data = whole(source.length);
    if (source.transposition) writeTransposed(file, source.length, source.transposition, data);
    else file.fill(data, 0);
    return data;
  } finally {
    file.close();
  }
}

function readerOf(data: Uint8Array): OpenWeight {
  return { read: (offset, length) => data.subarray(offset, offset + length), close: () => undefined };
}

interface DataBytes {
  /** Fills `into` with the bytes from `offset` of the weight on. */
  readonly fill: (into: Uint8Array, offset: number) => void;
  readonly close: () => void;
}

function openData({ file, offset: first, length }: ExternalSource): DataBytes {
  let handle: number;
  try {
    handle = openSync(file, 'r');
  } catch (error) {
    throw new AutoparError(
      'external-data-missing',
      'input',
      `the data file cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      { file },
      'it was moved after the model was read; restore it',
    );
  }
  const fill = (into: Uint8Array, offset: number) => {
    try {
      readFully(handle, into, first + offset);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new AutoparError(
        'external-data-short',
        'input',
        `the data file ends before byte ${first + length}, to which a tensor reaches`,
        { file },
        'the file changed since the model was read; copy it again',
      );
    }
  };
  return { fill, close: () => closeSync(handle) };
}

/** Writes a tensor's transpose into `into`: the file is read in its order, and each element goes to its place. */
function writeTransposed(file: DataBytes, length: number, { shape, order }: Transposition, into: Uint8Array): void {
  const width = length / elementCount(shape);
  const Words = width % 4 === 0 ? Uint32Array : width % 2 === 0 ? Uint16Array : Uint8Array;
  const words = width / Words.BYTES_PER_ELEMENT;
  const transposed = new Words(into.buffer as ArrayBuffer, into.byteOffset, length / Words.BYTES_PER_ELEMENT);
  const window = fresh(Math.min(PIECE, length));
  const steps = shape.map((_, axis) => {
    const behind = order.slice(order.indexOf(axis) + 1);
    return elementCount(behind.map((other) => shape[other] ?? 1)) * words;
  });
  const counter = shape.map(() => 0);
  let to = 0;
  for (let offset = 0; offset < length; offset += window.length) {
    const bytes = window.subarray(0, Math.min(window.length, length - offset));
    file.fill(bytes, offset);
    const source = new Words(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.length / Words.BYTES_PER_ELEMENT);
    for (let from = 0; from < source.length; from += words) {
      for (let word = 0; word < words; word++) transposed[to + word] = source[from + word] as number;
      for (let digit = shape.length - 1; digit >= 0; digit--) {
        const [count, size, step] = [(counter[digit] as number) + 1, shape[digit] as number, steps[digit] as number];
        counter[digit] = count < size ? count : 0;
        to += count < size ? step : -step * (size - 1);
        if (count < size) break;
      }
    }
  }
}

/** Not pooled, hence aligned; not cleared. */
function fresh(bytes: number): Uint8Array<ArrayBuffer> {
  const data = Buffer.allocUnsafeSlow(bytes);
  return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
}
