/**
 * @file The gradient of ONNX Runtime's Attention, which projects its input itself: the projection is made again, attention's
 * gradients become that of the projection, and this the gradients of input, weights and bias.
 */
import { AutoparError } from '../error.js';
import { cut } from './attention-gradient.js';
import { constant } from './constants.js';
import { maskingSteps } from './masking-steps.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';
import { type AttentionAxes, addAttentionSlopes } from './score-gradient.js';

/** Sizes as fused-attention.ts reads them off the operands. */
interface ProjectedSizes {
  readonly batch: number;
  readonly query: number;
  readonly heads: number;
  readonly head: number;
  readonly valueHead: number;
  readonly total: number;
}

/** Places of the operands. */
const [INPUT, WEIGHTS, BIAS, MASK, PAST, SCORES, PAST_LENGTH] = [0, 1, 2, 3, 4, 5, 6];

export function projectedGradient(write: OperatorGradient, sizes: ProjectedSizes): void {
  const { view } = write;
  refuse(write);
  const type = write.sumType;
  const axes = axesOf(sizes);
  const { b, h, s, t, e, f } = axes;
  const raised = (index: number) => write.inType(`in${index}`, operand(view, index).dtype, type);
  const product = write.add('MatMul', [raised(INPUT), raised(WEIGHTS)]);
  const joined = view.inputs[BIAS] ? write.add('Add', [product, raised(BIAS)]) : product;
  const parts = partsOf(write, axes, joined);
  const keys = (last: Axis): Axes => [[b], [h], [s], [last]];
  const all = (last: Axis): Axes => [[b], [h], [t], [last]];
  const past = view.inputs[PAST] ? halves(write, raised(PAST), 'past') : null;
  const before: Axis = { size: sizes.total - sizes.query };
  const withPast = (index: 1 | 2, last: Axis) => {
    const own = parts.names[index] ?? '';
    const held =
      past && write.rearrange(past[index - 1] ?? '', [[], [b], [h], [before], [last]], [[b], [h], [before], [last]]);
    const name = held ? write.add('Concat', [held, own], { axis: 2 }) : own;
    return write.rearrange(name, held ? all(last) : keys(last), [[b], [h], [], [t], [last]]);
  };
  const outputForm: Axes = [[b], [s], [h, f]];
  const grown = write.has(0) ? write.inType('grad0', operand(view, INPUT).dtype, type) : null;
  const slopes = addAttentionSlopes(write, {
    axes,
    scale: numberOf(view, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(parts.names[0] ?? '', keys(e), [[b], [h], [], [s], [e]]),
    key: withPast(1, e),
    value: withPast(2, f),
    output: grown && write.rearrange(grown, outputForm, [[b], [h], [], [s], [f]]),
    steps: maskingSteps(write, { ...sizes, keys: sizes.query, before: null }, axes, { mask: MASK, scores: SCORES }),
    probabilities: null,
  });
  const shown = write.has(1) ? halves(write, write.inType('grad1', operand(view, INPUT).dtype, type), 'shown') : null;
  const ofKeys = (index: 1 | 2, last: Axis, slope: (() => string) | null): string => {
    const made = slope?.() ?? null;
    const present = shown && write.rearrange(shown[index - 1] ?? '', [[], [b], [h], [t], [last]], all(last));
    if (made !== null && present !== null) return write.add('Add', [made, present]);
    return made ?? present ?? zeros(write, all(last));
  };
  const query = write.rearrange(slopes.query(), [[b], [h], [], [s], [e]], keys(e));
  const key = ofKeys(1, e, slopes.key);
  const value = ofKeys(2, f, slopes.value);
  const now = (name: string, last: Axis) => cut(write, name, all(last), s, before.size);
  if ([INPUT, WEIGHTS, BIAS].some((index) => write.wants(index))) {
    const slope = parts.join([query, now(key, e), now(value, f)]);
    if (write.wants(INPUT)) {
      const turned = write.add('Transpose', [raised(WEIGHTS)], { perm: [1, 0] });
      write.become(INPUT, write.add('MatMul', [slope, turned]), type);
    }
    if (write.wants(WEIGHTS)) {
      const equation = 'bsd,bsw->dw';
      const each = write.add('Einsum', [raised(INPUT), slope], { equation });
      write.become(WEIGHTS, each, type);
    }
    if (write.wants(BIAS)) write.become(BIAS, write.add('ReduceSum', [slope], { axes: [0, 1], keepdims: 0 }), type);
  }
  if (!write.wants(PAST)) return;
  const places: Axes = [[], [b], [h], [before], [e]];
  const both = [key, value].map((name) =>
    write.rearrange(cut(write, name, all(e), before, 0), [[b], [h], [before], [e]], places),
  );
  write.become(PAST, write.add('Concat', both, { axis: 0 }), type);
}

/** Refuses what ONNX Runtime has no kernel for on a CPU. */
function refuse({ view }: OperatorGradient): void {
  const isPlainMask = (view.inputs[MASK]?.shape.length ?? 0) < 4;
  const isLate = Boolean(view.inputs[PAST_LENGTH]) || numberOf(view, 'past_present_share_buffer', 0) !== 0;
  if (isPlainMask && !isLate && numberOf(view, 'do_rotary', 0) === 0) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (a mask of four dimensions, a rotation inside, or a ` +
      'buffer for the past)',
    { node: view.name },
    'Export the model before it is optimised for inference.',
  );
}

function axesOf(sizes: ProjectedSizes): AttentionAxes {
  const s: Axis = { size: sizes.query };
  const e: Axis = { size: sizes.head };
  return {
    b: { size: sizes.batch },
    h: { size: sizes.heads },
    g: { size: 1 },
    s,
    t: sizes.total === sizes.query ? s : { size: sizes.total },
    e,
    f: sizes.valueHead === sizes.head ? e : { size: sizes.valueHead },
  };
}

interface Parts {
  /** Queries, keys and values [b h s e]. */
  readonly names: readonly string[];
  /** Three such side by side again. */
  readonly join: (names: readonly string[]) => string;
}

/** The parts of a projection. Where they are equal, heads may be sharded inside of each. */
function partsOf(write: OperatorGradient, { b, h, s, e, f }: AttentionAxes, projected: string): Parts {
  const names = ['queries', 'keys', 'values'];
  const widths = [e, e, f];
  const apart = widths.map((last): Axes => [[b], [h], [s], [last]]);
  if (write.rule.factors.has('p')) {
    const three: Axis = { size: 3 };
    const flat: Axes = [[b], [s], [three, h, e]];
    const tall: Axes = [[three], [b], [h], [s], [e]];
    const single: Axes = [[], [b], [h], [s], [e]];
    write.addAll('Split', [write.rearrange(projected, flat, tall)], names, { axis: 0, split: [1, 1, 1] });
    return {
      names: names.map((name, index) => write.rearrange(name, single, apart[index] ?? [])),
      join: (list) => {
        const each = list.map((name, index) => write.rearrange(name, apart[index] ?? [], single));
        return write.rearrange(write.add('Concat', each, { axis: 0 }), tall, flat);
      },
    };
  }
  const flat = widths.map((last): Axes => [[b], [s], [h, last]]);
  const split = widths.map(({ size }) => h.size * size);
  write.addAll('Split', [projected], names, { axis: 2, split });
  return {
    names: names.map((name, index) => write.rearrange(name, flat[index] ?? [], apart[index] ?? [])),
    join: (list) => {
      const each = list.map((name, index) => write.rearrange(name, apart[index] ?? [], flat[index] ?? []));
      return write.add('Concat', each, { axis: 2 });
    },
  };
}

/** Keys and values of a cache that holds both. */
function halves(write: OperatorGradient, cache: string, name: string): readonly string[] {
  const names = [`${name}_keys`, `${name}_values`];
  write.addAll('Split', [cache], names, { axis: 0, split: [1, 1] });
  return names;
}

function zeros(write: OperatorGradient, form: Axes): string {
  const value = constant(write.sumType, [0], [1]);
  return write.add('ConstantOfShape', [], { shape: sizesOf(form), value });
}
