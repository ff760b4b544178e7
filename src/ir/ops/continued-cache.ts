/**
 * @file A key-value cache that an attention continues, in its gradient. A sequence's new keys are written behind what the cache
 * holds of it, which may be another number of tokens for every sequence:
 *
 *     joined[t] = t < before ? past[t] : new[t − before]
 *
 * so new keys take back the rows that they were written to, and the cache those before them.
 */
import { constant } from './constants.js';
import { positionsAlong } from './expansion.js';
import { operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, dimensionsOf, sizesOf } from './rearrange.js';

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
  const [ownDims, joinedDims] = [dimensionsOf(own), dimensionsOf(joined)];
  const [[b = [], , s = []], [, , t = []]] = [ownDims, joinedDims];
  const [steps = 1, total = 1] = [own, joined].map((axes) => sizesOf(axes)[2]);
  const starts = write.add('Unsqueeze', [before], [b, [], [], []], { axes: [1, 2, 3] });
  return {
    written: (name, past) => {
      const { dtype, shape } = operand(write.view, past);
      const dims = write.dimsOfOperand(past);
      const held = write.inType(`in${past}`, dtype, type, dims);
      const room = total - (shape[2] ?? 0);
      const pads = { pads: [0, 0, 0, 0, 0, 0, room, 0], constant_value: constant(type, [0]) };
      const long = room === 0 ? held : write.add('Pad', [held], joinedDims, pads);
      return write.add('TensorScatter', [long, name, before], joinedDims, { axis: -2 });
    },
    own: (name) => {
      const row = positionsAlong(write, [1, 1, steps, 1], 2, s);
      const places = write.add('Add', [starts, row], [b, [], s, []]);
      const spread = write.add('Expand', [places], ownDims, { shape: sizesOf(own) });
      return write.add('GatherElements', [name, spread], ownDims, { axis: 2 });
    },
    givePast: (past, name) => {
      const column = positionsAlong(write, [1, 1, total, 1], 2, t);
      const at = write.on([b, [], t, []], 'int64');
      const earlier = at.of('Less', column, starts);
      const isHeld = keepsRest ? at.of('Or', earlier, at.of('GreaterOrEqual', column, at.add(starts, steps))) : earlier;
      const kept = write.on(joinedDims, type).where(isHeld, name, 0);
      const ends = [operand(write.view, past).shape[2] ?? 0];
      const dims = write.dimsOfOperand(past);
      write.become(past, write.add('Slice', [kept], dims, { starts: [0], ends, axes: [2], steps: [1] }), type);
    },
  };
}
