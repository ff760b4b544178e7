/**
 * @file The activation functions that LSTM, GRU and RNN name: how each is recomputed, and its derivative.
 */
import { numberOf } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** An activation of a gate: its value from the gate's input, and its derivative from the input and the value. */
export interface Activation {
  readonly value: (on: Arithmetic, x: string) => string;
  readonly derivative: (on: Arithmetic, x: string, y: string) => string;
}

type ActivationMaker = (alpha: number, beta: number) => Activation;

const of =
  (op: string, derivative: Activation['derivative']): ActivationMaker =>
  () => ({ value: (on, x) => on.of(op, x), derivative });

/**
 * Per function: its usual alpha and beta, and what it computes. At kinks the derivative is that of the flat side, as in PyTorch.
 */
const ACTIVATIONS: Readonly<
  Record<string, { readonly alpha: number; readonly beta: number; readonly make: ActivationMaker } | undefined>
> = {
  sigmoid: { alpha: 0, beta: 0, make: of('Sigmoid', (on, _, y) => on.mul(y, on.sub(1, y))) },
  tanh: { alpha: 0, beta: 0, make: of('Tanh', (on, _, y) => on.sub(1, on.square(y))) },
  relu: { alpha: 0, beta: 0, make: of('Relu', (on, x) => on.count(on.of('Greater', x, 0))) },
  softsign: { alpha: 0, beta: 0, make: of('Softsign', (on, _, y) => on.square(on.sub(1, on.of('Abs', y)))) },
  softplus: { alpha: 0, beta: 0, make: of('Softplus', (on, x) => on.of('Sigmoid', x)) },
  affine: {
    alpha: 1,
    beta: 0,
    make: (alpha, beta) => ({
      value: (on, x) => on.add(on.mul(x, alpha), beta),
      derivative: (on, x) => on.where(on.of('Equal', x, x), alpha, alpha),
    }),
  },
  leakyrelu: {
    alpha: 0.01,
    beta: 0,
    make: (alpha) => ({
      value: (on, x) => on.where(on.of('Greater', x, 0), x, on.mul(x, alpha)),
      derivative: (on, x) => on.where(on.of('Greater', x, 0), 1, alpha),
    }),
  },
  thresholdedrelu: {
    alpha: 1,
    beta: 0,
    make: (alpha) => ({
      value: (on, x) => on.where(on.of('Greater', x, alpha), x, 0),
      derivative: (on, x) => on.count(on.of('Greater', x, alpha)),
    }),
  },
  scaledtanh: {
    alpha: 1,
    beta: 1,
    make: (alpha, beta) => ({
      value: (on, x) => on.mul(on.of('Tanh', on.mul(x, beta)), alpha),
      derivative: (on, x) => on.mul(on.sub(1, on.square(on.of('Tanh', on.mul(x, beta)))), alpha * beta),
    }),
  },
  hardsigmoid: {
    alpha: 0.2,
    beta: 0.5,
    make: (alpha, beta) => ({
      value: (on, x) => on.of('Min', on.of('Max', on.add(on.mul(x, alpha), beta), 0), 1),
      derivative: (on, _, y) => on.where(on.of('And', on.of('Greater', y, 0), on.of('Less', y, 1)), alpha, 0),
    }),
  },
  elu: {
    alpha: 1,
    beta: 0,
    make: (alpha) => ({
      value: (on, x) => on.where(on.of('Greater', x, 0), x, on.mul(on.sub(on.of('Exp', x), 1), alpha)),
      derivative: (on, x, y) => on.where(on.of('Greater', x, 0), 1, on.add(y, alpha)),
    }),
  },
};

/**
 * The activations of one direction. `usual` are those that the operator has unless its attributes name others. Alphas and betas
 * are listed for the functions that have one, in the functions' order.
 */
export function activationsOf(
  { operator }: OperatorGradient,
  usual: readonly string[],
  direction: number,
): readonly Activation[] {
  const listed = operator.attributes['activations'];
  const names = Array.isArray(listed) ? listed.map((name) => String(name).toLowerCase()) : [];
  const all = names.length > 0 ? names : Array.from({ length: direction + 1 }, () => usual).flat();
  const values = (attribute: string): readonly number[] => {
    const list = operator.attributes[attribute];
    if (Array.isArray(list)) return list.map(Number);
    return list === undefined ? [] : [numberOf(operator, attribute, 0)];
  };
  const [alphas, betas] = [values('activation_alpha'), values('activation_beta')];
  let [alpha, beta] = [0, 0];
  const made = all.map((name) => {
    const known = ACTIVATIONS[name];
    if (!known) throw new Error(`${operator.name}: unknown activation ${name}`);
    const [first, second] = [HAS_ALPHA.has(name), HAS_BETA.has(name)];
    return known.make(
      first ? (alphas[alpha++] ?? known.alpha) : known.alpha,
      second ? (betas[beta++] ?? known.beta) : known.beta,
    );
  });
  return made.slice(direction * usual.length, (direction + 1) * usual.length);
}

const HAS_ALPHA: ReadonlySet<string> = new Set([
  ...['affine', 'leakyrelu', 'thresholdedrelu', 'scaledtanh', 'hardsigmoid', 'elu'],
]);
const HAS_BETA: ReadonlySet<string> = new Set(['affine', 'scaledtanh', 'hardsigmoid']);
