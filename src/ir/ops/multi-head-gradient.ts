/**
 * @file The gradient of ONNX Runtime's MultiHeadAttention, over queries, keys and values that were projected before and may get
 * their biases inside.
 */
import { AutoparError } from '../error.js';
import { cut, give } from './attention-gradient.js';
import { constant } from './constants.js';
import { positionsAlong } from './expansion.js';
import { numberOf, operand } from './operands.js';
import type { Dimensions, OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, dimensionsOf, rearrange, sizesOf } from './rearrange.js';
import { type AttentionAxes, addAttentionSlopes, addMask, type ScoreStep } from './score-gradient.js';

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

/** Places of the operands. */
const [QUERY, KEY, VALUE, BIAS, MASK, SCORES, PAST_KEY, PAST_VALUE, PAST_LENGTH] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

export function multiHeadGradient(write: OperatorGradient, sizes: MultiHeadSizes): void {
  const { view } = write;
  refuse(write, sizes);
  const axes = axesOf(write, sizes);
  const { b, h, s, t, e, f } = axes;
  const own: Axis = { size: sizes.keys, dims: ['k'] };
  const type = write.sumType;
  const biases = biasesOf(write, axes);
  const flat = (rows: Axis, features: Axis): Axes => [[b], [rows], [h, features]];
  const isPerHead = operand(view, KEY).shape.length === 4;
  const keyForm = (features: Axis): Axes => (isPerHead ? [[b], [h], [own], [features]] : flat(own, features));
  const biased = (index: number, form: Axes) => {
    const dims = dimensionsOf(form);
    const name = write.inType(`in${index}`, operand(view, index).dtype, type, dims);
    const bias = biases[index];
    return bias === undefined ? name : write.add('Add', [name, bias], dims);
  };
  const asKeys = (index: number, past: number, features: Axis) => {
    const form = keyForm(features);
    const joined: Axes = [[b], [h], [t], [features]];
    let name = rearrange(write, biased(index, form), form, [[b], [h], [own], [features]]);
    const before = view.inputs[past];
    if (before) {
      const raised = write.inType(`in${past}`, before.dtype, type, write.dimsOfOperand(past));
      name = write.add('Concat', [raised, name], dimensionsOf(joined), { axis: 2 });
    }
    return rearrange(write, name, joined, [[b], [h], [], [t], [features]]);
  };
  const queries = (features: Axis): Axes => [[b], [h], [], [s], [features]];
  const output = write.has(0)
    ? rearrange(
        write,
        write.inType('grad0', operand(view, QUERY).dtype, type, write.dimsOfResult(0)),
        flat(s, f),
        queries(f),
      )
    : null;
  const slopes = addAttentionSlopes(write, {
    axes,
    scale: numberOf(view, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: rearrange(write, biased(QUERY, flat(s, e)), flat(s, e), queries(e)),
    key: asKeys(KEY, PAST_KEY, e),
    value: asKeys(VALUE, PAST_VALUE, f),
    output,
    steps: maskingSteps(write, sizes, axes, { mask: MASK, scores: SCORES }),
    probabilities: null,
  });
  const summed: (string | null)[] = [];
  const giveWith = (index: number, name: string, from: Axes, form: Axes) => {
    give(write, index, name, from, form, type);
    if (!write.wants(BIAS)) return;
    const back = rearrange(write, name, from, form);
    const [, , features = []] = dimensionsOf(form);
    summed[index] = write.add('ReduceSum', [back], [features], { axes: [0, 1], keepdims: 0 });
  };
  if (write.wants(QUERY) || write.wants(BIAS)) giveWith(QUERY, slopes.query(), queries(e), flat(s, e));
  const giveKeys = (index: number, past: number, present: number, features: Axis, slope: (() => string) | null) => {
    if (![index, past, BIAS].some((place) => write.wants(place))) return;
    const joined: Axes = [[b], [h], [t], [features]];
    const dims = dimensionsOf(joined);
    const shown = write.has(present) ? write.inType(`grad${present}`, operand(view, QUERY).dtype, type, dims) : null;
    const made = slope?.() ?? null;
    const both = made !== null && shown !== null ? write.add('Add', [made, shown], dims) : (made ?? shown);
    if (both === null) {
      write.noneOf(index, past);
      return;
    }
    const start = sizes.total - sizes.keys;
    giveWith(index, cut(write, both, joined, own, start), [[b], [h], [own], [features]], keyForm(features));
    if (!write.wants(past)) return;
    const before: Axis = { size: start, dims: ['u'] };
    const places: Axes = [[b], [h], [before], [features]];
    give(write, past, cut(write, both, joined, before, 0), places, places, type);
  };
  giveKeys(KEY, PAST_KEY, 1, e, slopes.key);
  giveKeys(VALUE, PAST_VALUE, 2, f, slopes.value);
  if (!write.wants(BIAS)) return;
  const parts = [QUERY, KEY, VALUE].map((index) => summed[index] ?? zeros(write, axes, index));
  const joined = write.add('Concat', parts, write.dimsOfOperand(BIAS), { axis: 0 });
  write.become(BIAS, joined, type);
}

/** Refuses forms that only other devices have kernels for, and those whose positions are known only when it runs. */
function refuse(write: OperatorGradient, { packing, batch, head, valueHead }: MultiHeadSizes): void {
  const { view } = write;
  const mask = view.inputs[MASK]?.shape;
  const isPlainMask = !mask || mask.length === 2 || mask.length === 3 || (mask.length === 1 && mask[0] === batch);
  const isLate = [PAST_LENGTH, PAST_LENGTH + 1].some((index) => view.inputs[index]);
  const isUneven = Boolean(view.inputs[BIAS]) && head !== valueHead;
  if (packing === 'none' && isPlainMask && !isLate && !isUneven) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (queries, keys and values in one tensor, a mask of starts and ends, or a buffer for the past)`,
    { node: view.name },
    'Export the model before it is optimised for inference.',
  );
}

function axesOf(write: OperatorGradient, sizes: MultiHeadSizes): AttentionAxes {
  const { batch, heads, query, total, head, valueHead } = sizes;
  // What names keys and values depends on the operands that are there.
  const named = (...names: readonly string[]) => names.filter((name) => write.rule.factors.has(name)).slice(0, 1);
  return {
    b: { size: batch, dims: ['b'] },
    h: { size: heads, dims: ['h'] },
    g: { size: 1, dims: [] },
    s: { size: query, dims: ['s'] },
    t: { size: total, dims: named('v', 't', 'k') },
    e: { size: head, dims: ['e'] },
    f: { size: valueHead, dims: named('f', 'e') },
  };
}

/** Biases of queries, keys and values, which lie in one tensor. */
function biasesOf(write: OperatorGradient, { h, e, f }: AttentionAxes): readonly string[] {
  const type = write.view.inputs[BIAS];
  if (!type) return [];
  const raised = write.inType(`in${BIAS}`, type.dtype, write.sumType, write.dimsOfOperand(BIAS));
  const names = ['query_bias', 'key_bias', 'value_bias'];
  const dims = [e, e, f].map((features) => dimensionsOf([[h, features]]));
  write.addAll('Split', [raised], names, dims, { axis: 0, split: [e, e, f].map(({ size }) => h.size * size) });
  return names;
}

function zeros(write: OperatorGradient, { h, e, f }: AttentionAxes, index: number): string {
  const form: Axes = [[h, index === VALUE ? f : e]];
  const value = constant(write.sumType, [0], [1]);
  return write.add('ConstantOfShape', [], dimensionsOf(form), { shape: sizesOf(form), value });
}

/** What comes between products and probabilities; `places` of the operands that say so. */
export function maskingSteps(
  write: OperatorGradient,
  { query, keys, total }: Pick<MultiHeadSizes, 'query' | 'keys' | 'total'>,
  axes: AttentionAxes,
  places: { readonly mask: number; readonly scores: number },
): readonly ScoreStep[] {
  const { view } = write;
  const { b, s, t } = axes;
  const steps: ScoreStep[] = [];
  if (write.has(3)) {
    const form: Axes = [[b], [axes.h], [s], [t]];
    const raised = write.inType('grad3', operand(view, QUERY).dtype, write.sumType, dimensionsOf(form));
    steps.push({ kind: 'given', name: rearrange(write, raised, form, [[b], [axes.h], [], [s], [t]]) });
  }
  const scores = view.inputs[places.scores];
  if (scores) {
    const added = addMask(write, places.scores, axes, 0);
    const name = write.inType(added.name, scores.dtype, write.sumType, dimensionsOf(added.axes));
    steps.push({ kind: 'add', name, axes: added.axes, operand: places.scores });
  }
  const positions = (axis: number) => positionsAlong(write, [query, t.size], axis, [s.dims, t.dims][axis] ?? []);
  const mask = view.inputs[places.mask]?.shape;
  if (mask?.length === 1) {
    const ends = write.add('Unsqueeze', [`in${places.mask}`], [b.dims, [], [], [], []], { axes: [1, 2, 3, 4] });
    const long = write.cast(ends, [b.dims, [], [], [], []], 'int64');
    const dims = [b.dims, [], [], [], t.dims];
    steps.push(lowered(write, places.mask, write.add('Less', [positions(1), long], dims), dims));
  } else if (mask) {
    const own = write.dimsOfOperand(places.mask);
    const chosen = write.cast(`in${places.mask}`, own, 'bool');
    const [first = [], second = [], third = []] = own;
    const isRows = mask.length === 3;
    const dims = isRows ? [first, [], [], second, third] : [first, [], [], [], second];
    const spread = write.add('Unsqueeze', [chosen], dims, { axes: isRows ? [1, 2] : [1, 2, 3] });
    steps.push(lowered(write, places.mask, spread, dims));
  }
  if (numberOf(view, 'unidirectional', 0) === 0) return steps;
  const past = write.scalar('int64', total - keys);
  const rows = write.add('Add', [positions(0), past], [s.dims, []]);
  const behind = write.add('GreaterOrEqual', [rows, positions(1)], [s.dims, t.dims]);
  return [...steps, { kind: 'keep', name: behind }];
}

/** Masked pairs are lowered by a finite amount, so that a query whose keys are all masked sees them as if none were. */
function lowered(write: OperatorGradient, operand: number, kept: string, dims: Dimensions): ScoreStep {
  const at = write.on(dims, write.sumType);
  return { kind: 'add', name: at.where(kept, 0, numberOf(write.view, 'mask_filter_value', -10000)), axes: [], operand };
}
