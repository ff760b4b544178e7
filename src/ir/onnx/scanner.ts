/**
 * @file Reads the structure of a model file and leaves its weights where they are.
 *
 * A protobuf message is a sequence of fields, each with its length before it, so that one can walk over a file without
 * reading the contents of the fields:
 *
 *     ModelProto ─ ir_version, producer, opset_import, functions …     decoded by protobufjs
 *                └ graph ─ node, input, output, value_info …           decoded by protobufjs, some MiB at a time
 *                        └ initializer ─ name, dims, data_type …       decoded by protobufjs
 *                                      └ raw_data                      larger than 1 MiB: its place only (`TensorProto.span`)
 *
 * So a file of 2 GB is read as fast as one without weights, and in as little memory.
 */
import { AutoparError } from '../error.js';
import { FileWindow } from './file-window.js';
import { MOST_NODES } from './model.js';
import {
  decodeGraph,
  decodeModel,
  decodeTensor,
  type GraphProto,
  type ModelProto,
  type TensorProto,
} from './schema.js';

const GRAPH_OF_MODEL = 7;
const INITIALIZER_OF_GRAPH = 5;
/** Texts that nothing reads; a large one is skipped. */
const [NOTE_OF_MODEL, NOTE_OF_GRAPH] = [6, 10];

/** Lists of TensorProto that can be large. Raw bytes, packed floats and doubles are the tensor's own bytes. */
const LISTS = { floats: 4, int64s: 7, raw: 9, doubles: 10, uint64s: 11 } as const;
const LIST_NUMBERS: ReadonlySet<number> = new Set(Object.values(LISTS));
const UINT64 = 13;

/** Values above this many bytes stay in the file: whatever is folded, or compared by value, is smaller. */
const LARGE = 2 ** 20;
/** Fields are decoded by protobufjs in runs of about this many bytes. */
const RUN = 4 * 2 ** 20;

/** The error for a model that is too large to be planned in reasonable time. */
export function tooManyNodes(what: string, file: string): AutoparError {
  return new AutoparError(
    'too-many-nodes',
    'input',
    `the model has ${what}; autopar plans models of up to ${MOST_NODES}`,
    { file },
    'export a loop as one operator, or simplify the model with ONNX Runtime first',
  );
}

/** The bytes are not a protobuf. */
class WireError extends Error {}

/**
 * The model in the file `path`. Throws Node's own errors where it cannot be opened, RangeError where it ends in the middle
 * of a field, AutoparError `too-many-nodes`, other errors (of protobufjs) where it is not a protobuf.
 */
export function scanModel(path: string): ModelProto {
  const file = new FileWindow(path);
  try {
    const parts: ModelProto[] = [];
    const graphs: GraphProto[] = [];
    walk(file, 0, file.size, {
      run: (start, end) => parts.push(decodeModel(file.bytes(start, end - start))),
      apart: ({ number, wire }) => number === GRAPH_OF_MODEL && wire === LENGTH_DELIMITED,
      into: (field) => graphs.push(scanGraph(file, field)),
      note: NOTE_OF_MODEL,
    });
    const model = merged(parts);
    return graphs.length > 0 ? { ...model, graph: merged(graphs) } : model;
  } finally {
    file.close();
  }
}

function scanGraph(file: FileWindow, { content, end }: WireField): GraphProto {
  const parts: GraphProto[] = [];
  let nodes = 0;
  walk(file, content, end, {
    run: (from, to) => {
      const part = decodeGraph(file.bytes(from, to - from));
      nodes += part.node?.length ?? 0;
      if (nodes > MOST_NODES) throw tooManyNodes(`more than ${MOST_NODES} nodes`, file.path);
      parts.push(part);
    },
    apart: (field) => field.number === INITIALIZER_OF_GRAPH && isLarge(field),
    into: (field) => parts.push({ initializer: [scanTensor(file, field)] }),
    note: NOTE_OF_GRAPH,
  });
  return merged(parts);
}

/** A tensor whose values are large: where they are, or, for lists of integers, their bytes. */
function scanTensor(file: FileWindow, { content, end }: WireField): TensorProto {
  const rest: Uint8Array[] = [];
  const lists: WireField[] = [];
  walk(file, content, end, {
    run: (from, to) => rest.push(file.bytes(from, to - from)),
    apart: (field) => LIST_NUMBERS.has(field.number) && isLarge(field),
    into: (field) => lists.push(field),
    note: null,
  });
  const tensor = decodeTensor(Buffer.concat(rest));
  const [list, another] = lists;
  if (!list) return tensor;
  const length = list.end - list.content;
  const wide = list.number === LISTS.int64s || (list.number === LISTS.uint64s && tensor.data_type === UINT64);
  // A list in several parts is as legal as it is rare.
  if (another || (list.number === LISTS.uint64s && !wide)) return decodeTensor(file.bytes(content, end - content));
  if (wide) return { ...tensor, raw_data: wideIntegers(file.bytes(list.content, length)) };
  return { ...tensor, span: { offset: list.content, length } };
}

/** Packed varints as 64-bit little-endian integers. @throws WireError for one of more than ten bytes */
function wideIntegers(packed: Uint8Array): Uint8Array {
  let count = 0;
  for (const byte of packed) if (byte < 0x80) count += 1;
  const words = new DataView(new ArrayBuffer(count * 8));
  let at = 0;
  for (let index = 0; index < count; index++) {
    // Seven bits a byte: four bytes and four bits in the low word.
    let [low, high, shift] = [0, 0, 0];
    for (; ; shift += 7) {
      const byte = packed[at++] as number;
      if (shift < 28) low |= (byte & 0x7f) << shift;
      else if (shift === 28) {
        low |= (byte & 0x7f) << 28;
        high |= (byte & 0x7f) >>> 4;
      } else high |= (byte & 0x7f) << (shift - 32);
      if (byte < 0x80) break;
      if (shift >= 63) throw new WireError('an integer has more than 64 bits');
    }
    words.setInt32(index * 8, low, true);
    words.setInt32(index * 8 + 4, high, true);
  }
  return new Uint8Array(words.buffer);
}

const LENGTH_DELIMITED = 2;

interface WireField {
  readonly number: number;
  readonly wire: number;
  /** First byte of the content and the byte after the last. */
  readonly content: number;
  readonly end: number;
}

interface Visitor {
  /** Called with adjacent fields, to be decoded together. */
  readonly run: (start: number, end: number) => void;
  /** Whether a field is passed to `into` instead of being part of a run. */
  readonly apart: (field: WireField) => boolean;
  readonly into: (field: WireField) => void;
  /** Number of a field that is left out where it is large. */
  readonly note: number | null;
}

/** Walks over the fields of the message from `start` to `end`. */
function walk(file: FileWindow, start: number, end: number, { run, apart, into, note }: Visitor): void {
  let from = start;
  for (let at = start; at < end; ) {
    const field = fieldAt(file, at, end);
    const own = apart(field);
    if (own || (field.number === note && isLarge(field))) {
      if (at > from) run(from, at);
      if (own) into(field);
      from = field.end;
    } else if (at > from && field.end - from > RUN) {
      run(from, at);
      from = at;
    }
    at = field.end;
  }
  if (end > from) run(from, end);
}

/** The field that begins at `start`, within a message that ends at `end`. */
function fieldAt(file: FileWindow, start: number, end: number): WireField {
  const tag = varint(file, start);
  const [number, wire] = [Math.floor(tag.value / 8), tag.value % 8];
  const { content, after } = extent(file, tag.end, wire);
  if (number === 0) throw new WireError('a field has the number 0');
  if (after > file.size) throw new RangeError(`a field ends at byte ${after} of ${file.size}`);
  if (after > end) throw new WireError('a field is longer than the message that it is in');
  return { number, wire, content, end: after };
}

function extent(file: FileWindow, at: number, wire: number): { readonly content: number; readonly after: number } {
  if (wire === 0) return { content: at, after: varint(file, at).end };
  if (wire === 1) return { content: at, after: at + 8 };
  if (wire === 5) return { content: at, after: at + 4 };
  if (wire !== LENGTH_DELIMITED) throw new WireError(`there is no wire type ${wire}`);
  const length = varint(file, at);
  return { content: length.end, after: length.end + length.value };
}

/** A number of at most ten bytes; beyond 2^53 it is not exact, which no length needs. */
function varint(file: FileWindow, start: number): { readonly value: number; readonly end: number } {
  let value = 0;
  for (let at = start; at < start + 10; at++) {
    const byte = file.byte(at);
    value += (byte & 0x7f) * 2 ** (7 * (at - start));
    if (byte < 0x80) return { value, end: at + 1 };
  }
  throw new WireError('an integer has more than 64 bits');
}

function isLarge(field: WireField): boolean {
  return field.wire === LENGTH_DELIMITED && field.end - field.content > LARGE;
}

/** One message from several parts, as protobuf merges them: lists are joined, for other fields the last part counts. */
function merged<Message extends object>(parts: readonly Message[]): Message {
  const whole: Record<string, unknown> = {};
  for (const part of parts) {
    for (const [name, value] of Object.entries(part)) {
      const before = whole[name];
      if (Array.isArray(before) && Array.isArray(value)) for (const item of value) before.push(item);
      else whole[name] = Array.isArray(value) ? [...value] : value;
    }
  }
  return whole as Message;
}
