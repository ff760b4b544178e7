/**
 * @file The gradients of ONNX Runtime's MultiHeadAttention and of its form for decoders, over queries, keys and values that were
 * projected before and may get their biases inside.
 */
import { AutoparError } from '../error.js';
import { cut, give } from './attention-gradient.js';
import { constant } from './constants.js';
import { continuedCache } from './continued-cache.js';
import { maskingSteps } from './masking-steps.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';
import { type AttentionAxes, addAttentionSlopes } from './score-gradient.js';

/** Sizes as fused-attention.ts reads them off the operands. */
interface MultiHeadSizes {
  readonly batch: number;
  readonly heads: number;
  readonly query: number;
  readonly keys: number;
  readonly total: number;
  readonly head: number;
  readonly valueHead: number;
  readonly packing: 'all' | 'keys' | 'none';
}

/** Places of the operands of attention over queries, keys and values that were projected before. */
export interface SeparatePlaces {
  readonly bias: number;
  readonly mask: number;
  readonly scores: number;
  readonly past: number;
  /** Length of what is in a past buffer that is larger. */
  readonly pastLength: number;
  readonly indirection: number;
}

const [QUERY, KEY, VALUE] = [0, 1, 2];

export function multiHeadGradient(write: OperatorGradient, sizes: MultiHeadSizes, places: SeparatePlaces): void {
  const { view } = write;
  refuse(write, sizes, places);
  const { bias } = places;
  const axes = axesOf(sizes);
  const { b, h, s, t, e, f } = axes;
  const own: Axis = { size: sizes.keys };
  const type = write.sumType;
  const biases = biasesOf(write, axes, bias);
  const before = view.inputs[places.pastLength] ? tokensBefore(write, axes, places.pastLength) : null;
  const cacheOf = (features: Axis) =>
    before === null
      ? null
      : continuedCache(write, {
          own: [[b], [h], [own], [features]],
          joined: [[b], [h], [t], [features]],
          before,
          keepsRest: true,
        });
  const caches = [cacheOf(e), cacheOf(f)] as const;
  const flat = (rows: Axis, features: Axis): Axes => [[b], [rows], [h, features]];
  // Keys that come per head are an encoder's, which have their biases.
  const isPerHead = operand(view, KEY).shape.length === 4;
  const keyForm = (features: Axis): Axes => (isPerHead ? [[b], [h], [own], [features]] : flat(own, features));
  const biased = (index: number) => {
    const name = write.inType(`in${index}`, operand(view, index).dtype, type);
    const added = index === QUERY || !isPerHead ? biases[index] : undefined;
    return added === undefined ? name : write.add('Add', [name, added]);
  };
  const asKeys = (index: number, past: number, features: Axis) => {
    const form = keyForm(features);
    const cache = caches[index === KEY ? 0 : 1];
    const joined: Axes = [[b], [h], [t], [features]];
    let name = write.rearrange(biased(index), form, [[b], [h], [own], [features]]);
    const held = view.inputs[past];
    if (cache) name = cache.written(name, past);
    else if (held) {
      const raised = write.inType(`in${past}`, held.dtype, type);
      name = write.add('Concat', [raised, name], { axis: 2 });
    }
    return write.rearrange(name, joined, [[b], [h], [], [t], [features]]);
  };
  const queries = (features: Axis): Axes => [[b], [h], [], [s], [features]];
  const output = write.has(0)
    ? write.rearrange(write.inType('grad0', operand(view, QUERY).dtype, type), flat(s, f), queries(f))
    : null;
  const slopes = addAttentionSlopes(write, {
    axes,
    scale: numberOf(view, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(biased(QUERY), flat(s, e), queries(e)),
    key: asKeys(KEY, places.past, e),
    value: asKeys(VALUE, places.past + 1, f),
    output,
    steps: maskingSteps(write, { ...sizes, before }, axes, places),
    probabilities: null,
  });
  const summed: (string | null)[] = [];
  const giveWith = (index: number, name: string, from: Axes, form: Axes) => {
    give(write, index, name, from, form, type);
    if (!write.wants(bias) || (isPerHead && index !== QUERY)) return;
    const back = write.rearrange(name, from, form);
    summed[index] = write.add('ReduceSum', [back], { axes: [0, 1], keepdims: 0 });
  };
  if (write.wants(QUERY) || write.wants(bias)) giveWith(QUERY, slopes.query(), queries(e), flat(s, e));
  const giveKeys = (index: number, past: number, present: number, features: Axis, slope: (() => string) | null) => {
    if (![index, past, bias].some((place) => write.wants(place))) return;
    const joined: Axes = [[b], [h], [t], [features]];
    const shown = write.has(present) ? write.inType(`grad${present}`, operand(view, QUERY).dtype, type) : null;
    const made = slope?.() ?? null;
    const both = made !== null && shown !== null ? write.add('Add', [made, shown]) : (made ?? shown);
    if (both === null) {
      write.noneOf(index, past);
      return;
    }
    const now: Axes = [[b], [h], [own], [features]];
    const cache = caches[index === KEY ? 0 : 1];
    if (cache) {
      giveWith(index, cache.own(both), now, keyForm(features));
      if (write.wants(past)) cache.givePast(past, both);
      return;
    }
    const start = sizes.total - sizes.keys;
    giveWith(index, cut(write, both, joined, own, start), now, keyForm(features));
    if (!write.wants(past)) return;
    const rows: Axis = { size: start };
    const form: Axes = [[b], [h], [rows], [features]];
    give(write, past, cut(write, both, joined, rows, 0), form, form, type);
  };
  giveKeys(KEY, places.past, 1, e, slopes.key);
  giveKeys(VALUE, places.past + 1, 2, f, slopes.value);
  if (!write.wants(bias)) return;
  const parts = [QUERY, KEY, VALUE].map((index) => summed[index] ?? zeros(write, axes, index));
  const joined = write.add('Concat', parts, { axis: 0 });
  write.become(bias, joined, type);
}

/** Refuses forms that only other devices have kernels for, and those whose positions are known only when it runs. */
function refuse(write: OperatorGradient, { packing }: MultiHeadSizes, places: SeparatePlaces): void {
  const { view } = write;
  const isLate = Boolean(view.inputs[places.pastLength]);
  const isShared = numberOf(view, 'past_present_share_buffer', 0) !== 0;
  // ONNX Runtime's MultiHeadAttention on a CPU writes nothing into a buffer that is handed to it.
  const isHeld = isLate ? isShared && !write.has(3) : !isShared;
  if (packing === 'none' && isHeld && !view.inputs[places.indirection]) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (queries, keys and values in one tensor, beams, ` +
      'scores that are shown, or a buffer for the past that is not shared)',
    { node: view.name },
    'Export the model before it is optimised for inference.',
  );
}

/** int64 [batch]: tokens in the buffer for the past, as many for every sequence. */
function tokensBefore(write: OperatorGradient, { b }: AttentionAxes, index: number): string {
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

/** Biases of queries, keys and values, which lie in one tensor. */
function biasesOf(write: OperatorGradient, { h, e, f }: AttentionAxes, index: number): readonly string[] {
  const type = write.view.inputs[index];
  if (!type) return [];
  const raised = write.inType(`in${index}`, type.dtype, write.sumType);
  const names = ['query_bias', 'key_bias', 'value_bias'];
  write.addAll('Split', [raised], names, { axis: 0, split: [e, e, f].map(({ size }) => h.size * size) });
  return names;
}

function zeros(write: OperatorGradient, { h, e, f }: AttentionAxes, index: number): string {
  const form: Axes = [[h, index === VALUE ? f : e]];
  const value = constant(write.sumType, [0], [1]);
  return write.add('ConstantOfShape', [], { shape: sizesOf(form), value });
}
