/**
 * @file Sample LSTMs, GRUs and RNNs whose gradients are checked.
 */
import type { Attributes } from '../../../../src/ir/graph.js';
import { type Case, c, f, type Sample } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

/** Stacked matrices of a step. */
export const GATES = { RNN: 1, GRU: 3, LSTM: 4 } as const;

interface Parts {
  readonly bias?: boolean;
  readonly lengths?: readonly [number, number];
  readonly initial?: boolean;
  readonly peepholes?: boolean;
  readonly attributes?: Attributes;
  readonly outputs?: number;
}

/** Four steps, a batch of two, three features, two hidden units. */
export function recurrentSample(op: keyof typeof GATES, direction: string, parts: Parts = {}): Case {
  const [steps, batch, features, hidden, gates] = [4, 2, 3, 2, GATES[op]];
  const count = direction === 'bidirectional' ? 2 : 1;
  const when = (wanted: boolean | undefined, ...shape: number[]) => (wanted ? f(...shape) : null);
  const lengths: Sample | null = parts.lengths
    ? { shape: [batch], dtype: 'int32', low: parts.lengths[0], high: parts.lengths[0], step: parts.lengths[1] }
    : null;
  const inputs = [
    f(steps, batch, features),
    f(count, gates * hidden, features),
    f(count, gates * hidden, hidden),
    when(parts.bias, count, 2 * gates * hidden),
    lengths,
    when(parts.initial, count, batch, hidden),
    ...(op === 'LSTM' ? [when(parts.initial, count, batch, hidden), when(parts.peepholes, count, 3 * hidden)] : []),
  ];
  const last = inputs.findLastIndex((input) => input !== null);
  const outputs = parts.outputs ?? (op === 'LSTM' ? 3 : 2);
  return c(op, inputs.slice(0, last + 1), { hidden_size: hidden, direction, ...parts.attributes }, outputs);
}

const DIRECTIONS = ['forward', 'reverse', 'bidirectional'];

const SAMPLES: readonly Case[] = [
  ...(['RNN', 'GRU', 'LSTM'] as const).flatMap((op) =>
    DIRECTIONS.flatMap((direction) => [
      recurrentSample(op, direction),
      recurrentSample(op, direction, { bias: true, initial: true }),
      recurrentSample(op, direction, { bias: true, lengths: [2, 2] }),
      recurrentSample(op, direction, { bias: true, initial: true, lengths: [4, -3] }),
    ]),
  ),
  ...DIRECTIONS.map((direction) => recurrentSample('LSTM', direction, { bias: true, initial: true, peepholes: true })),
  recurrentSample('LSTM', 'forward', { peepholes: true, lengths: [2, 1] }),
  recurrentSample('LSTM', 'forward', { bias: true, attributes: { input_forget: 1 } }),
  recurrentSample('LSTM', 'reverse', { peepholes: true, attributes: { input_forget: 1 } }),
  recurrentSample('LSTM', 'forward', { bias: true, attributes: { clip: 0.5 } }),
  recurrentSample('GRU', 'forward', { bias: true, attributes: { clip: 0.5 } }),
  ...DIRECTIONS.map((direction) =>
    recurrentSample('GRU', direction, { bias: true, initial: true, attributes: { linear_before_reset: 1 } }),
  ),
  recurrentSample('GRU', 'bidirectional', { bias: true, lengths: [2, 1], attributes: { linear_before_reset: 1 } }),
  ...['Relu', 'Softsign', 'Softplus', 'Affine', 'LeakyRelu', 'ScaledTanh', 'HardSigmoid', 'Elu', 'ThresholdedRelu'].map(
    (name) =>
      recurrentSample('RNN', 'forward', {
        bias: true,
        attributes: { activations: [name], activation_alpha: [0.3], activation_beta: [0.6] },
      }),
  ),
  recurrentSample('LSTM', 'bidirectional', {
    bias: true,
    attributes: { activations: ['HardSigmoid', 'Tanh', 'Softsign', 'Sigmoid', 'Relu', 'Tanh'] },
  }),
];

// ONNX Runtime has these operators in single precision only: differences are no better than a hundredth or so.
export const recurrentSamples: readonly (readonly [Case, GradientOptions])[] = SAMPLES.map((sample) => [
  sample,
  { tolerance: 1e-2 },
]);
