/**
 * @file ONNX Runtime's MultiHeadAttention and its form for decoders in plain operators: over queries, keys and values that were
 * projected before and may get their biases inside.
 */
import { AutoparError } from '../error.js';
import { continuedCache } from './continued-cache.js';
import { maskingSteps } from './masking-steps.js';
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes, RearrangedAxis } from './rearrange.js';
import { type AttentionAxes, writeAttention } from './scores.js';

/** Sizes as fused-attention.ts reads them off the operands. */
export interface MultiHeadSizes {
  readonly batch: number;
  readonly heads: number;
  readonly query: number;
  readonly keys: number;
  /** Keys of the past and of this call. */
  readonly total: number;
  readonly head: number;
  readonly valueHead: number;
  /** How queries, keys and values are held: side by side in the first operand, keys with values, or each alone. */
  readonly packing: 'all' | 'keys' | 'none';
}

/** Indices of the operands of attention over queries, keys and values that were projected before. */
export interface SeparatePlaces {
  readonly bias: number;
  readonly mask: number;
  readonly scores: number;
  readonly past: number;
  /** The operand with the number of tokens in a larger buffer for the past. */
  readonly pastLength: number;
  readonly indirection: number;
}

const [QUERY, KEY, VALUE] = [0, 1, 2] as const;

export function plainMultiHead(write: OperatorWriter, sizes: MultiHeadSizes, places: SeparatePlaces): void {
  const { operator } = write;
  refuse(write, sizes, places);
  const axes = axesOf(sizes);
  const { b, h, s, t, e, f } = axes;
  const own: RearrangedAxis = { size: sizes.keys };
  const type = write.sumType;
  const biases = biasesOf(write, axes, places.bias);
  const before = operator.inputs[places.pastLength] ? tokensBefore(write, axes, places.pastLength) : null;
  const flat = (rows: RearrangedAxis, features: RearrangedAxis): DimensionAxes => [[b], [rows], [h, features]];
  const queries = (features: RearrangedAxis): DimensionAxes => [[b], [h], [], [s], [features]];
  // Keys per head come from an encoder and have their biases already.
  const isPerHead = operand(operator, KEY).shape.length === 4;
  const biased = (index: number) => {
    const name = write.inType(`in${index}`, operand(operator, index).dtype, type);
    const added = index === QUERY || !isPerHead ? biases[index] : undefined;
    return added === undefined ? name : write.add('Add', [name, added]);
  };
  /** Keys or values, past ones before those of this call; also writes the result that returns them. */
  const asKeys = (index: 1 | 2, features: RearrangedAxis) => {
    const now: DimensionAxes = [[b], [h], [own], [features]];
    const past = places.past + index - 1;
    const held = operator.inputs[past];
    let name = write.rearrange(biased(index), isPerHead ? now : flat(own, features), now);
    if (before !== null)
      name = continuedCache(write, { past, own: name, steps: sizes.keys, total: sizes.total, before });
    else if (held) name = write.add('Concat', [write.inType(`in${past}`, held.dtype, type), name], { axis: 2 });
    write.makes(index, name, type);
    return write.rearrange(name, [[b], [h], [t], [features]], [[b], [h], [], [t], [features]]);
  };
  const result = writeAttention(write, {
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(biased(QUERY), flat(s, e), queries(e)),
    key: asKeys(KEY, e),
    value: asKeys(VALUE, f),
    steps: maskingSteps(write, { ...sizes, before }, axes, places),
  });
  write.makes(0, write.rearrange(result, queries(f), flat(s, f)), type);
}

/** Refuses forms that only other devices have kernels for, and those whose positions are known only at run time. */
function refuse({ operator }: OperatorWriter, { packing }: MultiHeadSizes, places: SeparatePlaces): void {
  const isLate = Boolean(operator.inputs[places.pastLength]);
  const isShared = numberOf(operator, 'past_present_share_buffer', 0) !== 0;
  // ONNX Runtime's MultiHeadAttention on a CPU writes nothing into a buffer that is passed to it.
  const isHeld = isLate ? isShared && !operator.outputs[3] : !isShared;
  if (packing === 'none' && isHeld && !operator.inputs[places.indirection]) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (queries, keys and values in one tensor, beams, ` +
      'scores that are shown, or a buffer for the past that is not shared)',
    { node: operator.name },
    'Export the model before it is optimised for inference.',
  );
}

/** int64 [batch]: tokens in the buffer for the past, as many for every sequence. */
function tokensBefore(write: OperatorWriter, { b }: AttentionAxes, index: number): string {
  const own = write.cast(`in${index}`, 'int64');
  const single = write.add('Reshape', [own], { shape: [1] });
  return write.add('Expand', [single], { shape: [b.size] });
}

function axesOf(sizes: MultiHeadSizes): AttentionAxes {
  const { batch, heads, query, total, head, valueHead } = sizes;
  return {
    b: { size: batch },
    h: { size: heads },
    g: { size: 1 },
    s: { size: query },
    t: { size: total },
    e: { size: head },
    f: { size: valueHead },
  };
}

/** Biases of queries, keys and values, split from one tensor. */
function biasesOf(write: OperatorWriter, { h, e, f }: AttentionAxes, index: number): readonly string[] {
  const type = write.operator.inputs[index];
  if (!type) return [];
  const raised = write.inType(`in${index}`, type.dtype, write.sumType);
  const names = ['query_bias', 'key_bias', 'value_bias'];
  write.addAll('Split', [raised], names, { axis: 0, split: [e, e, f].map(({ size }) => h.size * size) });
  return names;
}
