/**
 * @file The gradient of CausalConvWithState, the short convolution in front of linear attention: each channel by itself, over the
 * positions before it, those of the state first. Its few taps are written out:
 *
 *     e = state, x along time        z[t] = b + Σ over k of w[k] · e[t + k · dilation]        y = f(z)
 */
import { AutoparError } from '../error.js';
import { constant } from './constants.js';
import { numberOf, operand, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

const [INPUT, KERNEL, BIAS, STATE] = [0, 1, 2, 3];

/** Sizes, and where time and channels are. */
interface ConvolutionForm {
  readonly axis: number;
  readonly steps: number;
  readonly taps: number;
  readonly dilation: number;
  /** Positions of the state. */
  readonly reach: number;
  readonly channels: number;
  /** The shape of a per-channel tensor that broadcasts to the data. */
  readonly perChannel: readonly number[];
}

export function causalConvolutionGradient(write: OperatorGradient): void {
  const { operator } = write;
  refuse(write);
  const type = write.sumType;
  const form = formOf(write);
  const { axis, steps, taps, dilation, reach, channels, perChannel } = form;
  const at = write.on(type);
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const cut = (name: string, start: number, count: number) =>
    write.add('Slice', [name], { starts: [start], ends: [start + count], axes: [axis], steps: [1] });
  const joined = extended(write, form, operator.inputs[STATE] ? raised(STATE) : null, raised(INPUT));
  const weights = Array.from({ length: taps }, (_, tap) => {
    const single = { starts: [tap], ends: [tap + 1], axes: [2], steps: [1] };
    const one = write.add('Slice', [raised(KERNEL)], single);
    return write.add('Reshape', [one], { shape: perChannel });
  });
  const seen = weights.map((_, tap) => cut(joined, tap * dilation, steps));
  const sum = seen.map((part, tap) => at.mul(part, weights[tap] ?? '')).reduce((total, part) => at.add(total, part));
  const shift = operator.inputs[BIAS] ? write.add('Reshape', [raised(BIAS)], { shape: perChannel }) : null;
  const grown = write.has(0)
    ? write.inType('grad0', operand(operator, INPUT).dtype, type)
    : write.add('ConstantOfShape', [], { shape: operand(operator, INPUT).shape, value: constant(type, [0], [1]) });
  const sumGradient = throughActivation(write, at, shift === null ? sum : at.add(sum, shift), grown);
  const others = [0, 1, 2].filter((place) => place !== (axis === 1 ? 2 : 1));
  const total = (name: string) => write.add('ReduceSum', [name], { axes: others, keepdims: 0 });
  if (write.wants(KERNEL)) {
    const each = seen.map((part) =>
      write.add('Reshape', [total(at.mul(sumGradient, part))], { shape: [channels, 1, 1] }),
    );
    write.become(KERNEL, write.add('Concat', each, { axis: 2 }), type);
  }
  if (write.wants(BIAS)) write.become(BIAS, total(sumGradient), type);
  if (!write.wants(INPUT) && !write.wants(STATE)) return;
  const laid = (name: string, before: number, behind: number) => {
    const pads = [before, behind].flatMap((size) => [0, 1, 2].map((place) => (place === axis ? size : 0)));
    return write.add('Pad', [name], { pads, constant_value: constant(type, [0]) });
  };
  const all = write.on(type);
  const parts = weights.map((weight, tap) => laid(at.mul(sumGradient, weight), tap * dilation, reach - tap * dilation));
  if (write.has(1)) parts.push(laid(write.inType('grad1', operand(operator, INPUT).dtype, type), steps, 0));
  const inputGradient = parts.reduce((sumOf, part) => all.add(sumOf, part));
  if (write.wants(INPUT)) write.become(INPUT, cut(inputGradient, reach, steps), type);
  if (write.wants(STATE)) write.become(STATE, cut(inputGradient, 0, reach), type);
}

function refuse({ operator }: OperatorGradient): void {
  const isPlain = operand(operator, INPUT).shape.length === 3 && numberOf(operator, 'state_window', 0) === 0;
  if (isPlain) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (several dimensions of positions, or a window of states)`,
    { node: operator.name },
    'Export the model before it is optimised for inference.',
  );
}

function formOf(write: OperatorGradient): ConvolutionForm {
  const { operator } = write;
  const axis = numberOf(operator, 'channels_last', 0) !== 0 ? 1 : 2;
  const { shape } = operand(operator, INPUT);
  const [channels = 1, , taps = 1] = operand(operator, KERNEL).shape;
  const dilation = numberOf(operator, 'dilation', 1);
  return {
    axis,
    steps: shape[axis] ?? 1,
    taps,
    dilation,
    reach: (taps - 1) * dilation,
    channels,
    perChannel: axis === 1 ? [channels] : [channels, 1],
  };
}

/** The state (or zeros if there is none), followed by the input. */
function extended(
  write: OperatorGradient,
  { axis, reach }: ConvolutionForm,
  state: string | null,
  input: string,
): string {
  if (reach === 0) return input;
  if (state !== null) return write.add('Concat', [state, input], { axis });
  const pads = [0, 1, 2].map((place) => (place === axis ? reach : 0));
  const value = constant(write.sumType, [0]);
  return write.add('Pad', [input], { pads: [...pads, ...pads.map(() => 0)], constant_value: value });
}

/** The gradient through the activation: x σ(x), or none. */
function throughActivation(write: OperatorGradient, at: Arithmetic, sum: string, gradient: string): string {
  if (!['silu', 'swish'].includes(text(write.operator, 'activation', 'none'))) return gradient;
  const gate = at.of('Sigmoid', sum);
  return at.mul(gradient, at.mul(gate, at.add(at.mul(sum, at.sub(1, gate)), 1)));
}
