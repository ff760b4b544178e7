/**
 * @file A key-value cache that an attention continues, in plain operators. A sequence's new keys are written behind what the
 * cache holds of it, which may be another number of tokens for every sequence:
 *
 *     joined[t] = t < before ? past[t] : new[t − before]
 */
import { constant } from './constants.js';
import { operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';

interface Continued {
  /** The operand that holds the cache: batch, key heads, positions, features. */
  readonly past: number;
  /** Keys or values of this call. */
  readonly own: string;
  /** Positions of this call, and of all in the cache. */
  readonly steps: number;
  readonly total: number;
  /** int64 [batch]: tokens of each sequence before those of this call. */
  readonly before: string;
  /** Zeros are returned behind a sequence's last token, not what the cache holds there. */
  readonly clearsRest?: boolean;
}

/** Writes the cache with what is new. */
export function continuedCache(
  write: OperatorWriter,
  { past, own, steps, total, before, clearsRest }: Continued,
): string {
  const type = write.sumType;
  const { dtype, shape } = operand(write.view, past);
  const held = write.inType(`in${past}`, dtype, type);
  const room = total - (shape[2] ?? 0);
  const pads = { pads: [0, 0, 0, 0, 0, 0, room, 0], constant_value: constant(type, [0]) };
  const long = room === 0 ? held : write.add('Pad', [held], pads);
  const joined = write.add('TensorScatter', [long, own, before], { axis: -2 });
  if (!clearsRest) return joined;
  const end = write.add('Add', [write.add('Unsqueeze', [before], { axes: [1, 2, 3] }), write.scalar('int64', steps)]);
  const isHeld = write.add('Less', [write.positions([1, 1, total, 1], 2), end]);
  return write.on(type).where(isHeld, joined, 0);
}
