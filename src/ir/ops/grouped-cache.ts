/**
 * @file The key-value cache that GroupQueryAttention continues, in its gradient. A sequence's new keys are written behind what the
 * cache holds of it, which is another number of tokens for every sequence:
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

/** The place of each sequence's last token. */
const LAST = 5;

/** Keys or values: batch, key heads, positions, features. */
export interface GroupedCache {
  /** int64 [batch, 1]: tokens of each sequence before those of this call. */
  readonly before: string;
  /** Those of this call, `name`, behind those of operand `past`. */
  readonly written: (name: string, past: number) => string;
  /** Of a gradient of both, the part of this call. */
  readonly own: (name: string) => string;
  /** Of a gradient of both, what becomes that of operand `past`. */
  readonly givePast: (past: number, name: string) => void;
}

/** `own`: the form of keys of this call; `joined`: of all in the cache. */
export function groupedCache(write: OperatorGradient, own: Axes, joined: Axes): GroupedCache {
  const type = write.sumType;
  const [ownDims, joinedDims] = [dimensionsOf(own), dimensionsOf(joined)];
  const [[b = [], , s = []], [, , t = []]] = [ownDims, joinedDims];
  const [steps = 1, total = 1] = [own, joined].map((axes) => sizesOf(axes)[2]);
  const each = write.on([b], 'int64');
  const first = each.sub(each.add(write.cast(`in${LAST}`, [b], 'int64'), 1), steps);
  const before = write.add('Unsqueeze', [first], [b, []], { axes: [1] });
  const starts = write.add('Unsqueeze', [first], [b, [], [], []], { axes: [1, 2, 3] });
  return {
    before,
    written: (name, past) => {
      const { dtype, shape } = operand(write.view, past);
      const dims = write.dimsOfOperand(past);
      const held = write.inType(`in${past}`, dtype, type, dims);
      const room = total - (shape[2] ?? 0);
      const pads = { pads: [0, 0, 0, 0, 0, 0, room, 0], constant_value: constant(type, [0]) };
      const long = room === 0 ? held : write.add('Pad', [held], joinedDims, pads);
      return write.add('TensorScatter', [long, name, first], joinedDims, { axis: -2 });
    },
    own: (name) => {
      const row = positionsAlong(write, [1, 1, steps, 1], 2, s);
      const places = write.add('Add', [starts, row], [b, [], s, []]);
      const spread = write.add('Expand', [places], ownDims, { shape: sizesOf(own) });
      return write.add('GatherElements', [name, spread], ownDims, { axis: 2 });
    },
    givePast: (past, name) => {
      const column = positionsAlong(write, [1, 1, total, 1], 2, t);
      const held = write.add('Less', [column, starts], [b, [], t, []]);
      const kept = write.on(joinedDims, type).where(held, name, 0);
      const ends = [operand(write.view, past).shape[2] ?? 0];
      const dims = write.dimsOfOperand(past);
      write.become(past, write.add('Slice', [kept], dims, { starts: [0], ends, axes: [2], steps: [1] }), type);
    },
  };
}
