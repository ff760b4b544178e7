/**
 * @file One direction of an LSTM, GRU or RNN, from its last step back to its first.
 *
 * All hidden states are known, so the inputs of the gates are recomputed for all steps at once, and so are the factors by which
 * each gate multiplies a step's gradient. Only an LSTM's cell states (forwards) and the gradients of state and cell (backwards)
 * are computed step by step. The weights' gradients are again matmuls over all steps.
 */
import type { DType } from '../dtype.js';
import { constant } from './constants.js';
import { numberOf } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';
import type { Activation } from './recurrent-activations.js';

/** A direction, its time running forwards. Names of tensors; T steps, N sequences, X features, H hidden units, G = gates · H. */
export interface Direction {
  readonly write: OperatorGradient;
  readonly type: DType;
  readonly steps: number;
  readonly hidden: number;
  /** [T, N, X] */
  readonly x: string;
  /** [G, X] and [G, H] */
  readonly w: string;
  readonly r: string;
  /** Biases of inputs and of states, [G] each; null if none. */
  readonly biases: readonly [string, string] | null;
  /** The states before each step, [T, N, H]. */
  readonly before: string;
  /** The cell state before the first step, [1, N, H]. */
  readonly firstCell: string | null;
  /** Peephole weights of the input, output and forget gate, [H] each. */
  readonly peepholes: readonly [string, string, string] | null;
  readonly activations: readonly Activation[];
  /** Per step [1, N, 1]: 1 inside a sequence, 0 after its end; null if all sequences have all steps. */
  readonly inside: readonly string[] | null;
  /** Gradients of the step's result, [1, N, H]; null without. */
  readonly grads: readonly string[] | null;
  /** Gradients of the last state and cell, [1, N, H]. */
  readonly lastState: string | null;
  readonly lastCell: string | null;
}

/** Gradients of one direction. */
export interface DirectionGradients {
  /** Gradients of the terms that inputs and states, with weights and biases, add to the gates, [T, N, G]. */
  readonly forInputs: string;
  readonly forStates: string;
  /** Gradient of the states' weights, [G, H]. */
  readonly r: string;
  /** Gradient of the state before the first step, [1, N, H]. */
  readonly firstState: string;
  readonly firstCell: string | null;
  readonly peepholes: readonly [string, string, string] | null;
}

export type RecurrentCell = (at: Direction) => DirectionGradients;

/** H = f(X·Wᵀ + H·Rᵀ + b) */
export const rnnCell: RecurrentCell = (at) => {
  const { write, type, r, activations } = at;
  const all = write.on(type);
  const { derivative } = gate(all, at, activations[0], all.add(fromInputs(at), fromStates(at)));
  const derivatives = stepTensors(write, derivative, at.steps);
  const made: string[] = [];
  const first = backwards(at, (step, { state }) => {
    const one = write.on(type);
    const into = one.mul(state, derivatives[step] ?? '');
    made.unshift(into);
    return { state: write.add('MatMul', [into, r]), cell: null };
  });
  const gates = write.add('Concat', made, { axis: 0 });
  return { ...both(at, gates), ...first, peepholes: null };
};

/** Gates z (update), r (reset) and the candidate n: H = (1 − z)·n + z·H. */
export const gruCell: RecurrentCell = (at) => {
  const { write, type, before, activations } = at;
  const all = write.on(type);
  const one = write.on(type);
  const [inputZ = '', inputR = '', inputN = ''] = gatesOf(at, fromInputs(at), 3);
  const [stateZ = '', stateR = '', stateN = ''] = gatesOf(at, fromStates(at), 3);
  const parts = write.add('Transpose', [at.r], { perm: [1, 0] });
  const transposed = split(write, parts, 3, 1);
  const ownRows = split(write, at.r, 3, 0);
  const late = numberOf(write.operator, 'linear_before_reset', 0) !== 0;
  const update = gate(all, at, activations[0], all.add(inputZ, stateZ));
  const reset = gate(all, at, activations[0], all.add(inputR, stateR));
  const resetState = all.mul(reset.value, before);
  const bias = at.biases ? split(write, at.biases[1], 3, 0)[2] : undefined;
  const early = () => {
    const matmul = write.add('MatMul', [resetState, transposed[2] ?? '']);
    return bias === undefined ? matmul : all.add(matmul, bias);
  };
  const candidate = gate(all, at, activations[1], all.add(inputN, late ? all.mul(reset.value, stateN) : early()));
  const factors = {
    z: stepTensors(write, all.mul(all.sub(before, candidate.value), update.derivative), at.steps),
    n: stepTensors(write, all.mul(all.sub(1, update.value), candidate.derivative), at.steps),
    r: stepTensors(write, all.mul(late ? stateN : before, reset.derivative), at.steps),
    update: stepTensors(write, update.value, at.steps),
    reset: stepTensors(write, reset.value, at.steps),
  };
  const made: { z: string; r: string; n: string; q: string }[] = [];
  const times = (name: string, rows: string | undefined) => write.add('MatMul', [name, rows ?? '']);
  const first = backwards(at, (step, { state }) => {
    const of = (list: readonly string[]) => list[step] ?? '';
    const [z, n] = [one.mul(state, of(factors.z)), one.mul(state, of(factors.n))];
    const kept = one.mul(state, of(factors.update));
    if (late) {
      const [r, q] = [one.mul(n, of(factors.r)), one.mul(n, of(factors.reset))];
      made.unshift({ z, r, n, q });
      const gates = write.add('Concat', [z, r, q], { axis: 2 });
      return { state: one.add(kept, times(gates, at.r)), cell: null };
    }
    const through = times(n, ownRows[2]);
    const r = one.mul(through, of(factors.r));
    made.unshift({ z, r, n, q: n });
    const gates = one.add(times(z, ownRows[0]), times(r, ownRows[1]));
    return { state: one.add(one.add(kept, one.mul(through, of(factors.reset))), gates), cell: null };
  });
  const over = (key: 'z' | 'r' | 'n' | 'q') =>
    write.add(
      'Concat',
      made.map((step) => step[key]),
      { axis: 0 },
    );
  const [z, r, n] = [over('z'), over('r'), over('n')];
  const forInputs = write.add('Concat', [z, r, n], { axis: 2 });
  if (late) {
    const forStates = write.add('Concat', [z, r, over('q')], { axis: 2 });
    return { forInputs, forStates, r: outer(write, forStates, before), ...first, peepholes: null };
  }
  const rows = [outer(write, z, before), outer(write, r, before), outer(write, n, resetState)];
  return {
    forInputs,
    forStates: forInputs,
    r: write.add('Concat', rows, { axis: 0 }),
    ...first,
    peepholes: null,
  };
};

/** Gates i, o, f and the candidate c: C = f·C + i·c, H = o·h(C). */
export const lstmCell: RecurrentCell = (at) => {
  const { write, type, peepholes, activations } = at;
  const all = write.on(type);
  const one = write.on(type);
  const coupled = numberOf(write.operator, 'input_forget', 0) !== 0;
  const total = write.on(type).add(fromInputs(at), fromStates(at));
  const [intoI = '', intoO = '', intoF = '', intoC = ''] = gatesOf(at, total, 4);
  const candidate = gate(all, at, activations[1], intoC);
  const firstCell = at.firstCell ?? zeroStep(at);
  const cells: string[] = [];
  const cellBefore = (step: number) => cells[step - 1] ?? firstCell;
  const candidates = stepTensors(write, candidate.value, at.steps);
  // With peepholes the gates need the cell: their values are made step by step, and their inputs joined again.
  const peeping = peepholes && { i: stepTensors(write, intoI, at.steps), f: stepTensors(write, intoF, at.steps) };
  const plain = peepholes ? null : gatesAtOnce(all, at, coupled, intoI, intoF);
  const values = plain && {
    i: stepTensors(write, plain.i.value, at.steps),
    f: stepTensors(write, plain.f.value, at.steps),
  };
  const seen: { readonly i: string; readonly f: string }[] = [];
  for (let step = 0; step < at.steps; step++) {
    let [i, f] = [values?.i[step] ?? '', values?.f[step] ?? ''];
    if (peeping && peepholes) {
      const inputs = {
        i: one.add(peeping.i[step] ?? '', one.mul(cellBefore(step), peepholes[0])),
        f: one.add(peeping.f[step] ?? '', one.mul(cellBefore(step), peepholes[2])),
      };
      seen.push(inputs);
      i = gateValue(one, at, activations[0], inputs.i);
      f = coupled ? one.sub(1, i) : gateValue(one, at, activations[0], inputs.f);
    }
    cells.push(one.add(one.mul(f, cellBefore(step)), one.mul(i, candidates[step] ?? '')));
  }
  const over = (key: 'i' | 'f') =>
    write.add(
      'Concat',
      seen.map((step) => step[key]),
      { axis: 0 },
    );
  const { i, f } = plain ?? gatesAtOnce(all, at, coupled, over('i'), over('f'));
  const cell = write.add('Concat', cells, { axis: 0 });
  const earlier = write.add('Concat', [firstCell, ...cells.slice(0, -1)], { axis: 0 });
  const o = gate(all, at, activations[0], peepholes ? all.add(intoO, all.mul(cell, peepholes[1])) : intoO);
  const shownValue = activations[2]?.value(all, cell) ?? '';
  const shownDerivative = activations[2]?.derivative(all, cell, shownValue) ?? '';
  const per = (name: string) => stepTensors(write, name, at.steps);
  const factors = {
    o: per(all.mul(shownValue, o.derivative)),
    h: per(all.mul(o.value, shownDerivative)),
    i: per(all.mul(coupled ? all.sub(candidate.value, earlier) : candidate.value, i.derivative)),
    f: coupled ? null : per(all.mul(earlier, f.derivative)),
    c: per(all.mul(i.value, candidate.derivative)),
    kept: values?.f ?? per(f.value),
  };
  const made: string[] = [];
  const first = backwards(at, (step, grads) => {
    const of = (list: readonly string[] | null) => list?.[step] ?? '';
    const outgoing = one.mul(grads.state, of(factors.o));
    const shown = one.mul(grads.state, of(factors.h));
    let held = grads.cell === null ? shown : one.add(grads.cell, shown);
    if (peepholes) held = one.add(held, one.mul(outgoing, peepholes[1]));
    const incoming = one.mul(held, of(factors.i));
    const forgotten = factors.f ? one.mul(held, of(factors.f)) : one.mul(held, 0);
    const proposed = one.mul(held, of(factors.c));
    const gates = write.add('Concat', [incoming, outgoing, forgotten, proposed], { axis: 2 });
    made.unshift(gates);
    const kept = one.mul(held, of(factors.kept));
    const peeped = peepholes && one.add(one.mul(incoming, peepholes[0]), one.mul(forgotten, peepholes[2]));
    return { state: write.add('MatMul', [gates, at.r]), cell: peeped ? one.add(kept, peeped) : kept };
  });
  const gates = write.add('Concat', made, { axis: 0 });
  return { ...both(at, gates), ...first, peepholes: peepholes && peepholeGradients(at, gates, earlier, cell) };
};

interface CellGate {
  readonly value: string;
  readonly derivative: string;
}

/** Input and forget gate of all steps; if they are coupled, the forget gate is 1 − the input gate. */
function gatesAtOnce(
  all: Arithmetic,
  at: Direction,
  coupled: boolean,
  i: string,
  f: string,
): { i: CellGate; f: CellGate } {
  const input = gate(all, at, at.activations[0], i);
  if (coupled) return { i: input, f: { value: all.sub(1, input.value), derivative: '' } };
  return { i: input, f: gate(all, at, at.activations[0], f) };
}

function gate(on: Arithmetic, at: Direction, activation: Activation | undefined, into: string): CellGate {
  const clipped = clip(on, at, into);
  const value = activation?.value(on, clipped) ?? '';
  const derivative = activation?.derivative(on, clipped, value) ?? '';
  const bound = numberOf(at.write.operator, 'clip', 0);
  if (bound === 0) return { value, derivative };
  return { value, derivative: on.where(on.of('Less', on.of('Abs', into), bound), derivative, 0) };
}

function gateValue(on: Arithmetic, at: Direction, activation: Activation | undefined, into: string): string {
  return activation?.value(on, clip(on, at, into)) ?? '';
}

/** Clamps the input of a gate to ±clip, if that is given. */
function clip(on: Arithmetic, { write }: Direction, into: string): string {
  const bound = numberOf(write.operator, 'clip', 0);
  return bound === 0 ? into : on.of('Clip', into, -bound, bound);
}

/** X·Wᵀ + b for all gates and steps. */
function fromInputs(at: Direction): string {
  return linear(at, at.x, at.w, at.biases?.[0]);
}

/** H·Rᵀ + b for all gates and steps. */
function fromStates(at: Direction): string {
  return linear(at, at.before, at.r, at.biases?.[1]);
}

function linear({ write }: Direction, of: string, weights: string, bias: string | undefined): string {
  const transposed = write.add('Transpose', [weights], { perm: [1, 0] });
  const made = write.add('MatMul', [of, transposed]);
  return bias === undefined ? made : write.add('Add', [made, bias]);
}

function gatesOf({ write }: Direction, name: string, count: number): readonly string[] {
  return split(write, name, count, 2);
}

/** Equal parts of a tensor. */
export function split(write: OperatorGradient, name: string, count: number, axis: number): readonly string[] {
  const parts = Array.from({ length: count }, (_, index) => `${name}_${axis}_${index}`);
  write.addAll('Split', [name], parts, { axis, num_outputs: count });
  return parts;
}

/** The steps of a tensor of all steps, [1, N, H] each. */
export function stepTensors(write: OperatorGradient, name: string, steps: number): readonly string[] {
  return split(write, name, steps, 0);
}

/** Zeros for one step's state. */
export function zeroStep({ write, type, hidden }: Pick<Direction, 'write' | 'type' | 'hidden'>): string {
  const batch = write.rule.factors.get('n')?.size ?? 1;
  const attributes = { shape: [1, batch, hidden], value: constant(type, [0], [1]) };
  return write.add('ConstantOfShape', [], attributes);
}

interface StepGradients {
  readonly state: string;
  readonly cell: string | null;
}

/**
 * From the last step to the first: `through` takes the gradients of a step's results to those of the step before. After a
 * sequence's end its state passes unchanged.
 */
function backwards(
  at: Direction,
  through: (step: number, grads: StepGradients) => StepGradients,
): { readonly firstState: string; readonly firstCell: string | null } {
  const { write, type } = at;
  const one = write.on(type);
  let state = at.lastState;
  let cell = at.lastCell;
  for (let step = at.steps - 1; step >= 0; step--) {
    const given = at.grads?.[step];
    const total = sum(one, state, given ?? null) ?? zeroStep(at);
    const inside = at.inside?.[step];
    if (inside === undefined) {
      const next = through(step, { state: total, cell });
      [state, cell] = [next.state, next.cell];
      continue;
    }
    const outside = write.add('Sub', [write.scalar(type, 1), inside]);
    const next = through(step, { state: one.mul(total, inside), cell: cell && one.mul(cell, inside) });
    state = state === null ? next.state : one.add(next.state, one.mul(state, outside));
    cell = cell && next.cell ? one.add(next.cell, one.mul(cell, outside)) : next.cell;
  }
  return { firstState: state ?? zeroStep(at), firstCell: cell };
}

function sum(on: Arithmetic, a: string | null, b: string | null): string | null {
  return a !== null && b !== null ? on.add(a, b) : (a ?? b);
}

/** Where inputs and states add to the same gates. */
function both({ write, before }: Direction, gates: string): Pick<DirectionGradients, 'forInputs' | 'forStates' | 'r'> {
  return { forInputs: gates, forStates: gates, r: outer(write, gates, before) };
}

/** The gradient of weights: Σ over steps and sequences of the result's gradient times the operand. */
export function outer(write: OperatorGradient, out: string, into: string): string {
  return write.add('Einsum', [out, into], { equation: 'tng,tnx->gx' });
}

function peepholeGradients(
  at: Direction,
  gates: string,
  earlier: string,
  cell: string,
): readonly [string, string, string] {
  const { write, type } = at;
  const all = write.on(type);
  const [i = '', o = '', f = ''] = gatesOf(at, gates, 4);
  const over = (grad: string, held: string) =>
    write.add('ReduceSum', [all.mul(grad, held)], { axes: [0, 1], keepdims: 0 });
  return [over(i, earlier), over(o, cell), over(f, earlier)];
}
