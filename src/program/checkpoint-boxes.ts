/**
 * @file The boxes of a checkpoint in its files: a rank writes its own boxes, and assembles its shard from those that overlap
 * with it. Each is hashed as it is written, and compared as it is read.
 */
import { createHash } from 'node:crypto';
import { byteLength, type DType } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { elementCount } from '../ir/graph.js';
import { type Box, cutBox, type PlacedBox, placeBox, sharedBox } from './boxes.js';
import { badCheckpoint, boxKey, type StoredTensor } from './checkpoint.js';
import { ownFile } from './inside-folder.js';
import { openSafetensors, type SafetensorsFile, writeSafetensors } from './safetensors.js';
import { allocate } from './typed.js';

/** A tensor, of whose shard some boxes are written. */
export interface SavedShard {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly shardShape: readonly number[];
  readonly boxes: readonly PlacedBox[];
}

/**
 * Writes the boxes of `shards` to a new safetensors file.
 * @param shardOf the bytes of a tensor's shard, as they are at the time of the call
 * @param onProgress called before each piece; may throw to end it
 * @returns SHA-256 by key
 * @throws AutoparError (exit cannotWrite)
 */
export async function writeBoxes(
  file: string,
  shards: readonly SavedShard[],
  shardOf: (name: string) => Uint8Array,
  onProgress: () => void,
): Promise<Readonly<Record<string, string>>> {
  const digests: Record<string, string> = {};
  const entries = shards.flatMap(({ name, dtype, shape, shardShape, boxes }) =>
    boxes.map((box) => {
      const key = boxKey(name, shape, box);
      const pieces = function* () {
        const bytes = cutBox(shardOf(name), shardShape, box.inShard, box.size, dtype);
        const hash = createHash('sha256');
        for (let from = 0; from < bytes.byteLength; from += PIECE) {
          onProgress();
          const piece = bytes.subarray(from, from + PIECE);
          hash.update(piece);
          yield piece;
        }
        digests[key] = hash.digest('hex');
      };
      return { key, dtype, shape: box.size, pieces };
    }),
  );
  await writeSafetensors(file, entries);
  return digests;
}

/** Bytes that are hashed and written at once. */
const PIECE = 8 * 2 ** 20;

/** Reads boxes of the checkpoint in `folder`, each file opened once. */
export class BoxReader {
  private readonly files = new Map<string, { readonly path: string; readonly opened: SafetensorsFile }>();

  constructor(private readonly folder: string) {}

  /**
   * The shard that consists of `boxes`, zeros between them: only boxes that overlap with it are read.
   * @throws AutoparError (input) `bad-checkpoint`, naming the tensor whose bytes are not those that were written
   */
  async shard(
    name: string,
    stored: StoredTensor,
    shardShape: readonly number[],
    boxes: readonly PlacedBox[],
  ): Promise<Uint8Array> {
    const { dtype } = stored;
    const shard = allocate(byteLength(dtype, elementCount(shardShape)));
    const filled = boxes.reduce((sum, { size }) => sum + elementCount(size), 0);
    if (filled !== elementCount(shardShape)) shard.fill(0);
    for (const from of stored.boxes) {
      const shared = boxes.flatMap((to) => {
        const part = sharedBox(from, to);
        return part ? [{ part, to }] : [];
      });
      if (shared.length === 0) continue;
      const bytes = await this.read(name, stored, from);
      for (const { part, to } of shared) {
        const piece = cutBox(bytes, from.size, between(from.offset, part), part.size, dtype);
        const start = between(to.offset, part).map((steps, axis) => (to.inShard[axis] ?? 0) + steps);
        placeBox(piece, shard, shardShape, start, part.size, dtype);
      }
    }
    return shard;
  }

  /** The whole tensor. */
  whole(name: string, stored: StoredTensor): Promise<Uint8Array> {
    const origin = stored.shape.map(() => 0);
    return this.shard(name, stored, stored.shape, [{ offset: origin, size: stored.shape, inShard: origin }]);
  }

  async close(): Promise<void> {
    for (const { opened } of this.files.values()) await opened.close();
  }

  private async read(name: string, { dtype, shape }: StoredTensor, box: StoredTensor['boxes'][number]) {
    try {
      const { path, opened } = await this.open(box.file);
      const found = await opened.read(boxKey(name, shape, box));
      const isAsRecorded = found.dtype === dtype && found.shape.join() === box.size.join();
      if (isAsRecorded && createHash('sha256').update(found.data).digest('hex') === box.sha256) return found.data;
      const what = isAsRecorded ? 'its checksum differs' : 'its type or shape differs';
      throw badCheckpoint(path, `tensor ${name} in ${path} is damaged: ${what}`, name);
    } catch (error) {
      if (!(error instanceof AutoparError) || error.code === 'bad-checkpoint') throw error;
      throw badCheckpoint(error.where.file ?? box.file, `tensor ${name} cannot be read: ${error.message}`, name);
    }
  }

  private async open(name: string): Promise<{ readonly path: string; readonly opened: SafetensorsFile }> {
    const known = this.files.get(name);
    if (known) return known;
    const path = await ownFile(this.folder, name);
    const file = { path, opened: await openSafetensors(path) };
    this.files.set(name, file);
    return file;
  }
}

/** From a point to where a box begins. */
function between(origin: readonly number[], { offset }: Box): readonly number[] {
  return offset.map((from, axis) => from - (origin[axis] ?? 0));
}
