/**
 * @file Which sample is read when: a pure function of seed, epoch and index, so that a resumed run reads the same samples as
 * without the interruption, and no order is stored.
 *
 * An epoch's order is a permutation of the samples: a Feistel network over the next power of four, walked until the number is
 * that of a sample (Black and Rogaway 2002).
 */

export interface SampleOrder {
  readonly samples: number;
  readonly seed: number;
  /** Samples are read as they stand in the files, in every epoch. */
  readonly inOrder: boolean;
}

const ROUNDS = 4;

/** The number of the sample that is the `index`-th of an epoch; each is one exactly once. 0 ≤ index < samples < 2^52 */
export function sampleAt({ samples, seed, inOrder }: SampleOrder, epoch: number, index: number): number {
  if (inOrder) return index;
  let bits = 1;
  while (4 ** bits < samples) bits++;
  const half = 2 ** bits;
  let number = index;
  do {
    let [left, right] = [Math.floor(number / half), number % half];
    for (let round = 0; round < ROUNDS; round++) {
      const mixed = mix(mix(mix(seed, epoch), round), right) % half;
      [left, right] = [right, (left ^ mixed) >>> 0];
    }
    number = left * half + right;
  } while (number >= samples);
  return number;
}

/** 32 well-mixed bits of two numbers (the finaliser of MurmurHash3). */
function mix(one: number, other: number): number {
  let bits = (Math.imul(one, 0x9e3779b1) ^ (other + 0x7f4a7c15)) >>> 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/** How samples at the end of an epoch that do not fill a batch are handled. */
export type LastBatch = 'drop' | 'pad';

/** Batches of an epoch. */
export function batchesPerEpoch(samples: number, batch: number, lastBatch: LastBatch): number {
  return lastBatch === 'pad' ? Math.ceil(samples / batch) : Math.floor(samples / batch);
}

/** The samples of the batch at a position, row by row; null in rows that pad the last one. */
export function batchRows(
  order: SampleOrder,
  { epoch, index }: SamplerPosition,
  batch: number,
): readonly (number | null)[] {
  return Array.from({ length: batch }, (_, row) =>
    index + row < order.samples ? sampleAt(order, epoch, index + row) : null,
  );
}

/** Where a run is: so many samples of an epoch (from 0) are read. */
export interface SamplerPosition {
  readonly epoch: number;
  readonly index: number;
}

/** Behind a batch. */
export function nextPosition(
  { epoch, index }: SamplerPosition,
  samples: number,
  batch: number,
  lastBatch: LastBatch,
): SamplerPosition {
  const end = index + batch;
  const isOver = lastBatch === 'pad' ? end >= samples : end + batch > samples;
  return isOver ? { epoch: epoch + 1, index: 0 } : { epoch, index: end };
}
