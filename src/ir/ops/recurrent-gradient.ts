/**
 * @file Gradients of LSTM, GRU and RNN, unrolled over their steps as plain operators: directions are split, reversed so that
 * time runs forwards (within each sequence's length), and joined again.
 */
import { AutoparError } from '../error.js';
import type { Operator } from '../operator.js';
import { constant } from './constants.js';
import { numberOf, operand, text } from './operands.js';
import type { GradientTable, OperatorGradient } from './operator-gradient.js';
import { activationsOf } from './recurrent-activations.js';
import {
  type Direction,
  type DirectionGradients,
  gruCell,
  lstmCell,
  outer,
  type RecurrentCell,
  rnnCell,
  split,
  stepTensors,
  zeroStep,
} from './recurrent-cells.js';

/** Each step is a dozen operators of the training graph: longer sequences belong into an attention or a scan. */
const MOST_STEPS = 1024;

export const RECURRENT_GRADIENTS: GradientTable = {
  RNN: (write) => recurrentGradient(write, rnnCell, ['tanh']),
  GRU: (write) => recurrentGradient(write, gruCell, ['sigmoid', 'tanh']),
  LSTM: (write) => recurrentGradient(write, lstmCell, ['sigmoid', 'tanh', 'tanh']),
  DynamicQuantizeLSTM: 'its weights are quantised for inference',
};

/** Sizes, and operands with time in front. */
interface Frame {
  readonly write: OperatorGradient;
  readonly steps: number;
  readonly hidden: number;
  readonly directions: number;
  readonly batchFirst: boolean;
  /** [T, N, X] */
  readonly x: string;
  /** Lengths of the sequences, int64 [N]; null if all have all steps. */
  readonly lengths: string | null;
  /** [T, N, 1] */
  readonly inside: readonly string[] | null;
}

function recurrentGradient(write: OperatorGradient, cell: RecurrentCell, usual: readonly string[]): void {
  const frame = frameOf(write);
  const { directions } = frame;
  const y = resultSteps(frame);
  const parts = {
    w: apart(frame, 'in1'),
    r: apart(frame, 'in2'),
    b: write.operator.inputs[3] ? apart(frame, 'in3') : null,
    p: write.operator.inputs[7] ? apart(frame, 'in7') : null,
    state: write.operator.inputs[5] ? states(frame, 'in5') : null,
    cell: write.operator.inputs[6] ? states(frame, 'in6') : null,
    grad: write.has(0) ? inDirections(frame, 'grad0') : null,
    lastState: write.has(1) ? states(frame, 'grad1') : null,
    lastCell: write.has(2) ? states(frame, 'grad2') : null,
  };
  const made = Array.from({ length: directions }, (_, number) => {
    const turns = isReverse(write.operator, number);
    const turn = (name: string) => (turns ? reversed(frame, name) : name);
    const of = (list: readonly string[] | null) => list?.[number] ?? null;
    const { hidden, steps } = frame;
    const bias = of(parts.b);
    const x = turn(frame.x);
    const [grad, peepholes] = [of(parts.grad), of(parts.p)];
    const type = operand(write.operator, 0).dtype;
    const first = of(parts.state) ?? zeroStep({ write, type, hidden });
    const shown = stepTensors(write, turn(y[number] ?? ''), steps);
    const at: Direction = {
      ...{ write, type, steps, hidden, x },
      w: of(parts.w) ?? '',
      r: of(parts.r) ?? '',
      biases: bias === null ? null : halves(frame, bias),
      before: write.add('Concat', [first, ...shown.slice(0, -1)], { axis: 0 }),
      firstCell: of(parts.cell),
      peepholes: peepholes === null ? null : (split(write, peepholes, 3, 0) as unknown as Direction['peepholes']),
      activations: activationsOf(write, usual, number),
      inside: frame.inside,
      grads: grad === null ? null : stepTensors(write, turn(grad), steps),
      lastState: of(parts.lastState),
      lastCell: of(parts.lastCell),
    };
    return { at, turns, grads: cell(at) };
  });
  finish(frame, made);
}

interface MadeDirection {
  readonly at: Direction;
  readonly turns: boolean;
  readonly grads: DirectionGradients;
}

/** Gradients of all directions put together, for the operands that want one. */
function finish(frame: Frame, made: readonly MadeDirection[]): void {
  const { write } = frame;
  const { dtype } = operand(write.operator, 0);
  const wants = (index: number, each: (item: MadeDirection) => string) => {
    if (write.wants(index)) together(frame, index, made.map(each));
  };
  if (write.wants(0)) {
    const parts = made.map(({ at, turns, grads }) => {
      const part = write.add('MatMul', [grads.forInputs, at.w]);
      return turns ? reversed(frame, part) : part;
    });
    const sum = parts.length === 1 ? (parts[0] ?? '') : write.add('Sum', parts);
    write.become(0, frame.batchFirst ? write.add('Transpose', [sum], { perm: [1, 0, 2] }) : sum, dtype);
  }
  wants(1, ({ at, grads }) => outer(write, grads.forInputs, at.x));
  wants(2, ({ grads }) => grads.r);
  wants(3, ({ grads }) => {
    const over = (name: string) => write.add('ReduceSum', [name], { axes: [0, 1], keepdims: 0 });
    const inputs = over(grads.forInputs);
    const states = grads.forStates === grads.forInputs ? inputs : over(grads.forStates);
    return write.add('Concat', [inputs, states], { axis: 0 });
  });
  wants(5, ({ grads }) => grads.firstState);
  wants(6, ({ at, grads }) => grads.firstCell ?? zeroStep(at));
  wants(7, ({ grads }) => write.add('Concat', [...(grads.peepholes ?? [])], { axis: 0 }));
}

/** An operand's gradients, a direction each, side by side. States have their direction's dimension already. */
function together(frame: Frame, index: number, parts: readonly string[]): void {
  const { write } = frame;
  const { dtype } = operand(write.operator, 0);
  const isState = index === 5 || index === 6;
  const tops = isState ? parts : parts.map((part) => write.add('Unsqueeze', [part], { axes: [0] }));
  const all = write.add('Concat', tops, { axis: 0 });
  const turns = isState && frame.batchFirst;
  write.become(index, turns ? write.add('Transpose', [all], { perm: [1, 0, 2] }) : all, dtype);
}

function frameOf(write: OperatorGradient): Frame {
  const { operator } = write;
  const batchFirst = numberOf(operator, 'layout', 0) === 1;
  const [first = 1, second = 1] = operand(operator, 0).shape;
  const steps = batchFirst ? second : first;
  if (steps > MOST_STEPS) throw tooLong(operator, steps);
  const x = batchFirst ? write.add('Transpose', ['in0'], { perm: [1, 0, 2] }) : 'in0';
  const [directions = 1, , hidden = 1] = operand(operator, 2).shape;
  const given = operator.inputs[4];
  const lengths = given ? write.inType('in4', given.dtype, 'int64') : null;
  const sizes = { write, steps, hidden, directions, batchFirst, x, lengths };
  return { ...sizes, inside: lengths === null ? null : insideSteps(write, lengths, steps) };
}

/** 1 for the steps inside each sequence, 0 after its end. */
function insideSteps(write: OperatorGradient, lengths: string, steps: number): readonly string[] {
  const numbers = Array.from({ length: steps }, (_, step) => step);
  const places = write.tensor(constant('int64', numbers, [steps, 1, 1]));
  const ends = write.add('Unsqueeze', [lengths], { axes: [0, 2] });
  const inside = write.cast(write.add('Less', [places, ends]), operand(write.operator, 0).dtype);
  return stepTensors(write, inside, steps);
}

/** All states, one tensor per direction, [T, N, H]; recomputed if the operator does not return them. */
function resultSteps(frame: Frame): readonly string[] {
  const { write } = frame;
  const { operator } = write;
  if (operator.outputs[0]) return inDirections(frame, 'out0');
  const operands = operator.inputs.map((type, index) => (type ? `in${index}` : null));
  return inDirections(frame, write.add(operator.op, operands, operator.attributes));
}

/** [T, D, N, H] as one [T, N, H] per direction. */
function inDirections(frame: Frame, name: string): readonly string[] {
  const { write, directions, batchFirst } = frame;
  const ordered = batchFirst ? write.add('Transpose', [name], { perm: [1, 2, 0, 3] }) : name;
  const parts = directions === 1 ? [ordered] : split(write, ordered, directions, 1);
  return parts.map((part) => write.add('Squeeze', [part], { axes: [1] }));
}

/** [D, N, H] as one [1, N, H] per direction. */
function states({ write, directions, batchFirst }: Frame, name: string): readonly string[] {
  const ordered = batchFirst ? write.add('Transpose', [name], { perm: [1, 0, 2] }) : name;
  return directions === 1 ? [ordered] : split(write, ordered, directions, 0);
}

/** Weights of all directions as one tensor each. */
function apart({ write, directions }: Frame, name: string): readonly string[] {
  const parts = directions === 1 ? [name] : split(write, name, directions, 0);
  return parts.map((part) => write.add('Squeeze', [part], { axes: [0] }));
}

/** Biases of inputs and of states. */
function halves({ write }: Frame, bias: string): readonly [string, string] {
  const [inputs = '', states = ''] = split(write, bias, 2, 0);
  return [inputs, states];
}

/** Reverses time, within each sequence's length. */
function reversed({ write, lengths }: Frame, name: string): string {
  if (lengths !== null) {
    return write.add('ReverseSequence', [name, lengths], { time_axis: 0, batch_axis: 1 });
  }
  const attributes = { starts: [-1], ends: [-Number.MAX_SAFE_INTEGER], axes: [0], steps: [-1] };
  return write.add('Slice', [name], attributes);
}

function isReverse(operator: Operator, direction: number): boolean {
  return direction === 1 || text(operator, 'direction', 'forward') === 'reverse';
}

function tooLong(operator: Operator, steps: number): AutoparError {
  return new AutoparError(
    'no-gradient',
    'input',
    `node '${operator.name}' (${operator.op}) has ${steps} time steps; its gradient is unrolled over ${MOST_STEPS} at most`,
    { node: operator.name },
    'bind its time dimension to fewer steps (--dim), or freeze the parameters before it (--frozen)',
  );
}
