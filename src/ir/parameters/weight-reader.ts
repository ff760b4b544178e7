/**
 * @file Parts of a weight's bytes, wherever they are, without loading the whole weight: data files are opened once and
 * read in chunks.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { AutoparError } from '../error.js';
import type { WeightSource } from '../graph.js';
import { readWeight } from '../onnx/tensors.js';
import { madeOnce } from '../remembered.js';

/** Has the identity of its open files; `close` it when done. */
export class WeightReader {
  private readonly files = new Map<string, number>();
  private whole: { readonly source: WeightSource; readonly data: Uint8Array | null } | undefined;

  /**
   * `length` bytes from `offset` on (both counted within the weight); null where its bytes are absent. Valid until the
   * next call. @throws AutoparError `external-data-short` where the data file has become shorter.
   */
  read(source: WeightSource, offset: number, length: number): Uint8Array | null {
    if (source.kind === 'absent') return null;
    if (source.kind === 'inline') return source.data.subarray(offset, offset + length);
    if (source.kind === 'zero') return new Uint8Array(length);
    if (source.kind === 'stacked') return this.readParts(source, offset, length);
    if (source.kind === 'converted' || source.transposition)
      return this.wholeOf(source)?.subarray(offset, offset + length) ?? null;
    const data = new Uint8Array(length);
    const file = madeOnce(this.files, source.file, () => openSync(source.file, 'r'));
    const count = readSync(file, data, 0, length, source.offset + offset);
    if (count === length) return data;
    throw new AutoparError(
      'external-data-short',
      'input',
      `external data file ends after ${source.offset + offset + count} bytes, but a tensor reaches to byte ` +
        `${source.offset + source.length}`,
      { file: source.file },
      'the file changed after the model was read; copy it again',
    );
  }

  private readParts(
    { parts, length: all }: Extract<WeightSource, { readonly kind: 'stacked' }>,
    offset: number,
    length: number,
  ): Uint8Array | null {
    const size = all / parts.length;
    const data = new Uint8Array(length);
    for (let done = 0; done < length; ) {
      const index = Math.floor((offset + done) / size);
      const within = offset + done - index * size;
      const piece = this.read(parts[index] as WeightSource, within, Math.min(length - done, size - within));
      if (!piece) return null;
      data.set(piece, done);
      done += piece.length;
    }
    return data;
  }

  close(): void {
    for (const file of this.files.values()) closeSync(file);
    this.files.clear();
  }

  /** A weight that is transposed or converted when it is read is read whole; the last one is kept. */
  private wholeOf(source: WeightSource): Uint8Array | null {
    if (this.whole?.source !== source) this.whole = { source, data: readWeight(source) };
    return this.whole.data;
  }
}
