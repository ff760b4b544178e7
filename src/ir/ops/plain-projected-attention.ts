/**
 * @file ONNX Runtime's Attention, which projects its input itself, in plain operators.
 */
import { AutoparError } from '../error.js';
import { maskingSteps } from './masking-steps.js';
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes, RearrangedAxis } from './rearrange.js';
import { type AttentionAxes, writeAttention } from './scores.js';

/** Sizes as fused-attention.ts reads them off the operands. */
interface ProjectedSizes {
  readonly batch: number;
  readonly query: number;
  readonly heads: number;
  readonly head: number;
  readonly valueHead: number;
  readonly total: number;
}

/** Indices of the operands. */
const [INPUT, WEIGHTS, BIAS, MASK, PAST, SCORES, PAST_LENGTH] = [0, 1, 2, 3, 4, 5, 6];

export function plainProjectedAttention(write: OperatorWriter, sizes: ProjectedSizes): void {
  const { operator } = write;
  refuse(write);
  const type = write.sumType;
  const axes = axesOf(sizes);
  const { b, h, s, t, e, f } = axes;
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const matmul = write.add('MatMul', [raised(INPUT), raised(WEIGHTS)]);
  const joined = operator.inputs[BIAS] ? write.add('Add', [matmul, raised(BIAS)]) : matmul;
  const [query = '', ...own] = partsOf(write, axes, joined);
  const past = operator.inputs[PAST] ? halves(write, raised(PAST)) : null;
  const before: RearrangedAxis = { size: sizes.total - sizes.query };
  /** Keys or values, past ones before those of this call. */
  const keys = [e, f].map((last, index) => {
    const name = own[index] ?? '';
    const held =
      past && write.rearrange(past[index] ?? '', [[], [b], [h], [before], [last]], [[b], [h], [before], [last]]);
    return { last, name: held ? write.add('Concat', [held, name], { axis: 2 }) : name };
  });
  const all = (last: RearrangedAxis): DimensionAxes => [[b], [h], [t], [last]];
  const [key, value] = keys.map(({ last, name }) => write.rearrange(name, all(last), [[b], [h], [], [t], [last]]));
  if (operator.outputs[1]) {
    const shown = keys.map(({ last, name }) => write.rearrange(name, all(last), [[], [b], [h], [t], [last]]));
    write.makes(1, write.add('Concat', shown, { axis: 0 }), type);
  }
  const result = writeAttention(write, {
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(query, [[b], [h], [s], [e]], [[b], [h], [], [s], [e]]),
    key: key ?? '',
    value: value ?? '',
    steps: maskingSteps(write, { ...sizes, keys: sizes.query, before: null }, axes, { mask: MASK, scores: SCORES }),
  });
  write.makes(0, write.rearrange(result, [[b], [h], [], [s], [f]], [[b], [s], [h, f]]), type);
}

/** Refuses what ONNX Runtime has no kernel for on a CPU. */
function refuse({ operator }: OperatorWriter): void {
  const isPlainMask = (operator.inputs[MASK]?.shape.length ?? 0) < 4;
  const isLate = Boolean(operator.inputs[PAST_LENGTH]) || numberOf(operator, 'past_present_share_buffer', 0) !== 0;
  if (isPlainMask && !isLate && numberOf(operator, 'do_rotary', 0) === 0) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (a mask of four dimensions, a rotation inside, or a ` +
      'buffer for the past)',
    { node: operator.name },
    'Export the model before it is optimised for inference.',
  );
}

function axesOf(sizes: ProjectedSizes): AttentionAxes {
  const e: RearrangedAxis = { size: sizes.head };
  return {
    b: { size: sizes.batch },
    h: { size: sizes.heads },
    g: { size: 1 },
    s: { size: sizes.query },
    t: { size: sizes.total },
    e,
    f: sizes.valueHead === sizes.head ? e : { size: sizes.valueHead },
  };
}

/** Queries, keys and values [b h s e] of a projection. Where they are equal, heads may be sharded inside of each. */
function partsOf(write: OperatorWriter, { b, h, s, e, f }: AttentionAxes, projected: string): readonly string[] {
  const names = ['queries', 'keys', 'values'];
  const widths = [e, e, f];
  const apart = widths.map((last): DimensionAxes => [[b], [h], [s], [last]]);
  const isOne = write.rule.factors.has('p');
  const three: RearrangedAxis = { size: 3 };
  const split = isOne ? [1, 1, 1] : widths.map(({ size }) => h.size * size);
  const whole = isOne
    ? write.rearrange(projected, [[b], [s], [three, h, e]], [[three], [b], [h], [s], [e]])
    : projected;
  write.addAll('Split', [whole], names, { axis: isOne ? 0 : 2, split });
  return names.map((name, index) => {
    const last = widths[index] ?? e;
    const from: DimensionAxes = isOne ? [[], [b], [h], [s], [last]] : [[b], [s], [h, last]];
    return write.rearrange(name, from, apart[index] ?? []);
  });
}

/** Keys and values of a cache that holds both. */
function halves(write: OperatorWriter, cache: string): readonly string[] {
  const names = ['past_keys', 'past_values'];
  write.addAll('Split', [cache], names, { axis: 0, split: [1, 1] });
  return names;
}
