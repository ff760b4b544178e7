/**
 * @file A key-value cache that an attention continues, in plain operators. A sequence's new keys are written after those in the
 * cache, whose number may differ between sequences:
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
  /** Returns zeros after a sequence's last token, instead of the values that the cache holds there. */
  readonly clearsRest?: boolean;
}

/** Writes the cache with the new keys or values added. */
export function continuedCache(
  write: OperatorWriter,
  { past, own, steps, total, before, clearsRest }: Continued,
): string {
  const type = write.sumType;
  const { dtype, shape } = operand(write.operator, past);
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
