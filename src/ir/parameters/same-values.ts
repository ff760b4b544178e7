/**
 * @file Which weights hold the same values, as they are or transposed, and which hold one value throughout.
 *
 * Weights may be larger than memory, and most are compared to find that they differ. So a few dozen elements of each are
 * looked at first; only weights that agree there are read through, in chunks, to a digest that does not depend on the
 * order of reading: the sum over all elements of a mix of value and position. Read in its own order, with positions
 * counted along the other dimension, a matrix gives the digest of its transpose.
 */
import { dtypeBits, isFloating } from '../dtype.js';
import { elementCount, type Weight } from '../graph.js';
import { groupBy } from '../group-by.js';
import { WeightReader } from './weight-reader.js';

/** Two weights of one value; `transposed`: each is the other's transpose. */
export interface EqualPair {
  readonly left: string;
  readonly right: string;
  readonly transposed: boolean;
}

/** Equalities among the values of weights. Weights whose bytes are absent are in none of the lists. */
export interface SameValues {
  /** Matrices that are equal; every weight is paired with the first of its value. */
  readonly equal: readonly EqualPair[];
  /** Weights all of whose elements are one value: zeros, ones. */
  readonly uniform: ReadonlySet<string>;
}

const CHUNK_BYTES = 1 << 20;
const SAMPLES = 48;

/** Compares the floating-point matrices among `weights` with each other, and every weight with its own first element. */
export function sameValues(weights: ReadonlyMap<string, Weight>): SameValues {
  const reader = new WeightReader();
  try {
    const readable = [...weights].flatMap(([name, weight]) => (canBeRead(weight) ? [asStored(name, weight)] : []));
    const uniform = new Set(readable.filter(({ weight }) => isUniform(weight, reader)).map(({ name }) => name));
    const matrices = readable.filter(({ name, weight }) => weight.shape.length === 2 && !uniform.has(name));
    return { uniform, equal: equalPairs(matrices, reader) };
  } finally {
    reader.close();
  }
}

function canBeRead({ dtype, shape, source }: Weight): boolean {
  return source.kind !== 'absent' && isFloating(dtype) && elementCount(shape) > 0;
}

function isUniform({ dtype, shape, source }: Weight, reader: WeightReader): boolean {
  const width = dtypeBits(dtype) / 8;
  const length = elementCount(shape) * width;
  const first = Uint8Array.from(reader.read(source, 0, width) ?? []);
  // Most weights differ in their first elements: small chunks first.
  for (let offset = 0, size = 4096; offset < length; offset += size, size = CHUNK_BYTES) {
    const chunk = reader.read(source, offset, Math.min(size, length - offset));
    if (!chunk) return false;
    for (let at = 0; at < chunk.length; at++) if (chunk[at] !== first[at % width]) return false;
  }
  return true;
}

/** A weight as its bytes are in the file; `transposed`: the graph has its transpose. */
interface Stored {
  readonly name: string;
  readonly weight: Weight;
  readonly transposed: boolean;
}

/** A weight in the form of its file, which import may transpose when it is read. */
function asStored(name: string, weight: Weight): Stored {
  const { source } = weight;
  if (source.kind !== 'external' || !source.transposition) return { name, weight, transposed: false };
  const { transposition, ...straight } = source;
  return {
    name,
    weight: { ...weight, shape: transposition.shape, source: straight },
    transposed: transposition.order[0] !== 0,
  };
}

/** Pairs each matrix with the first one of the same value. */
function equalPairs(matrices: readonly Stored[], reader: WeightReader): readonly EqualPair[] {
  const pairs: EqualPair[] = [];
  for (const sizes of groups(matrices, ({ weight }) => sizesKey(weight))) {
    for (const alike of groups(sizes, ({ weight }) =>
      eitherWay(weight, (isTransposed) => sampleKey(weight, isTransposed, reader)),
    )) {
      const digests = alike.map((stored) => ({ ...stored, digest: digestsOf(stored.weight, reader) }));
      const leaders: (typeof digests)[number][] = [];
      for (const item of digests) {
        const straight = leaders.find(
          (leader) => sameShape(leader.weight, item.weight) && leader.digest.own === item.digest.own,
        );
        const transposedLeader = leaders.find(
          (leader) => isTransposedShape(leader.weight, item.weight) && leader.digest.own === item.digest.transposed,
        );
        const leader = straight ?? transposedLeader;
        const transposed = (leader !== straight) !== (leader?.transposed !== item.transposed);
        if (leader) pairs.push({ left: leader.name, right: item.name, transposed });
        else leaders.push(item);
      }
    }
  }
  return pairs;
}

function digestsOf(weight: Weight, reader: WeightReader): { readonly own: string; readonly transposed: string } {
  return { own: digest(weight, false, reader), transposed: digest(weight, true, reader) };
}

/** A digest of all elements with their positions, `isTransposed`: with the positions that they have in the transpose. */
function digest({ dtype, shape, source }: Weight, isTransposed: boolean, reader: WeightReader): string {
  const [rows = 1, columns = 1] = shape;
  const width = dtypeBits(dtype) / 8;
  const perChunk = Math.max(1, Math.floor(CHUNK_BYTES / (columns * width))) * columns;
  const [rowStep, columnStep] = isTransposed ? [1, rows] : [columns, 1];
  let [low, high] = [0, 0];
  for (let start = 0; start < rows * columns; start += perChunk) {
    const count = Math.min(perChunk, rows * columns - start);
    const chunk = reader.read(source, start * width, count * width);
    if (!chunk) return '';
    const words = wordsOf(chunk, width);
    const perElement = words.length / count;
    let [row, column] = [Math.floor(start / columns), 0];
    for (let at = 0; at < words.length; at += perElement) {
      const position = row * rowStep + column * columnStep;
      let mixed = Math.imul((position ^ Math.floor(position / 2 ** 32)) + 0x9e3779b9, 0x85ebca6b);
      for (let part = 0; part < perElement; part++)
        mixed = Math.imul(mixed ^ (mixed >>> 15) ^ (words[at + part] ?? 0), 0xc2b2ae35);
      mixed ^= mixed >>> 13;
      low = (low + mixed) | 0;
      high = (high + Math.imul(mixed ^ (mixed >>> 16), 0x27d4eb2f)) | 0;
      column++;
      if (column === columns) [row, column] = [row + 1, 0];
    }
  }
  return `${low >>> 0}:${high >>> 0}`;
}

/** The bytes as numbers of at most 32 bits, whatever their alignment. */
function wordsOf(chunk: Uint8Array, width: number): Uint8Array | Uint16Array | Uint32Array {
  if (width === 1) return chunk;
  const aligned = chunk.byteOffset % 4 === 0 ? chunk : Uint8Array.from(chunk);
  if (width === 2) return new Uint16Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 2);
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
}

/** Some elements as text: the same for equal matrices. */
function sampleKey({ dtype, shape, source }: Weight, isTransposed: boolean, reader: WeightReader): string {
  const [rows = 1, columns = 1] = isTransposed ? [...shape].reverse() : shape;
  const width = dtypeBits(dtype) / 8;
  const stored = shape[1] ?? 1;
  const samples = Array.from({ length: SAMPLES }, (_, index) => {
    // Two irrational steps reach all over a matrix of any size.
    const row = Math.floor(((index * 0.618033988749895) % 1) * rows);
    const column = Math.floor(((index * 0.754877666246693) % 1) * columns);
    const place = isTransposed ? column * stored + row : row * stored + column;
    return Buffer.from(reader.read(source, place * width, width) ?? []).toString('hex');
  });
  return samples.join();
}

/** One key for a matrix and its transpose. */
function eitherWay(weight: Weight, key: (isTransposed: boolean) => string): string {
  const [rows = 1, columns = 1] = weight.shape;
  if (rows !== columns) return key(rows > columns);
  return [key(false), key(true)].sort().join('|');
}

function sizesKey({ dtype, shape }: Weight): string {
  return `${dtype} ${[...shape].sort((left, right) => left - right).join()}`;
}

function sameShape(left: Weight, right: Weight): boolean {
  return left.shape.join() === right.shape.join();
}

function isTransposedShape(left: Weight, right: Weight): boolean {
  return left.shape.join() === [...right.shape].reverse().join();
}

/** Items of one key, where there are several. */
function groups<Item>(items: readonly Item[], key: (item: Item) => string): readonly (readonly Item[])[] {
  if (items.length < 2) return [];
  return [...groupBy(items, key).values()].filter((list) => list.length > 1);
}
