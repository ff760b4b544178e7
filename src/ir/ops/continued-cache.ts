/**
 * @file A key-value cache that an attention continues, in its gradient. A sequence's new keys are written behind what the cache
 * holds of it, which may be another number of tokens for every sequence:
 *
 *     joined[t] = t < before ? past[t] : new[t − before]
 *
 * so new keys take back the rows that they were written to, and the cache those before them.
 */
import { constant } from './constants.js';
import { operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, sizesOf } from './rearrange.js';

/** Keys or values: batch, key heads, positions, features. */
export interface ContinuedCache {
  /** Those of this call, `name`, behind those of operand `past`. */
  readonly written: (name: string, past: number) => string;
  /** Of a gradient of both, the part of this call. */
  readonly own: (name: string) => string;
  /** Of a gradient of both, what becomes that of operand `past`. */
  readonly givePast: (past: number, name: string) => void;
}

interface Places {
  /** The form of keys of this call, and of all in the cache. */
  readonly own: Axes;
  readonly joined: Axes;
  /** int64 [batch]: tokens of each sequence before those of this call. */
  readonly before: string;
  /** Whether what the cache holds behind a sequence's last token is returned with it; else zeros are. */
  readonly keepsRest: boolean;
}

export function continuedCache(write: OperatorGradient, { own, joined, before, keepsRest }: Places): ContinuedCache {
  const type = write.sumType;
  const [steps = 1, total = 1] = [own, joined].map((axes) => sizesOf(axes)[2]);
  const starts = write.add('Unsqueeze', [before], { axes: [1, 2, 3] });
  return {
    written: (name, past) => {
      const { dtype, shape } = operand(write.view, past);
      const held = write.inType(`in${past}`, dtype, type);
      const room = total - (shape[2] ?? 0);
      const pads = { pads: [0, 0, 0, 0, 0, 0, room, 0], constant_value: constant(type, [0]) };
      const long = room === 0 ? held : write.add('Pad', [held], pads);
      return write.add('TensorScatter', [long, name, before], { axis: -2 });
    },
    own: (name) => {
      const row = write.positions([1, 1, steps, 1], 2);
      const places = write.add('Add', [starts, row]);
      const spread = write.add('Expand', [places], { shape: sizesOf(own) });
      return write.add('GatherElements', [name, spread], { axis: 2 });
    },
    givePast: (past, name) => {
      const column = write.positions([1, 1, total, 1], 2);
      const at = write.on('int64');
      const earlier = at.of('Less', column, starts);
      const isHeld = keepsRest ? at.of('Or', earlier, at.of('GreaterOrEqual', column, at.add(starts, steps))) : earlier;
      const kept = write.on(type).where(isHeld, name, 0);
      const ends = [operand(write.view, past).shape[2] ?? 0];
      write.become(past, write.add('Slice', [kept], { starts: [0], ends, axes: [2], steps: [1] }), type);
    },
  };
}
