/**
 * @file Gradients of LSTM, GRU and RNN: all directions, optional operands and activations that ONNX Runtime runs, against finite
 * differences, and with the batch sharded.
 */
import test from 'ava';
import type { Attributes } from '../../../src/ir/graph.js';
import { viewOfCase } from '../ops/cases.js';
import { makeRun } from '../ops/one-node.js';
import { type Case, c, f, type Sample } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { gradientOf, gradientViewOf, named, operandsOf, resultGradientsOf, runGradient } from './sample-gradient.js';

const run = makeRun();

const GATES = { RNN: 1, GRU: 3, LSTM: 4 } as const;

interface Parts {
  readonly bias?: boolean;
  readonly lengths?: readonly [number, number];
  readonly initial?: boolean;
  readonly peepholes?: boolean;
  readonly attributes?: Attributes;
  readonly outputs?: number;
}

/** Four steps, a batch of two, three features, two hidden units. */
function sampleOf(op: keyof typeof GATES, direction: string, parts: Parts = {}): Case {
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
      sampleOf(op, direction),
      sampleOf(op, direction, { bias: true, initial: true }),
      sampleOf(op, direction, { bias: true, lengths: [2, 2] }),
      sampleOf(op, direction, { bias: true, initial: true, lengths: [4, -3] }),
    ]),
  ),
  ...DIRECTIONS.map((direction) => sampleOf('LSTM', direction, { bias: true, initial: true, peepholes: true })),
  sampleOf('LSTM', 'forward', { peepholes: true, lengths: [2, 1] }),
  sampleOf('LSTM', 'forward', { bias: true, attributes: { input_forget: 1 } }),
  sampleOf('LSTM', 'reverse', { peepholes: true, attributes: { input_forget: 1 } }),
  sampleOf('LSTM', 'forward', { bias: true, attributes: { clip: 0.5 } }),
  sampleOf('GRU', 'forward', { bias: true, attributes: { clip: 0.5 } }),
  ...DIRECTIONS.map((direction) =>
    sampleOf('GRU', direction, { bias: true, initial: true, attributes: { linear_before_reset: 1 } }),
  ),
  sampleOf('GRU', 'bidirectional', { bias: true, lengths: [2, 1], attributes: { linear_before_reset: 1 } }),
  ...['Relu', 'Softsign', 'Softplus', 'Affine', 'LeakyRelu', 'ScaledTanh', 'HardSigmoid', 'Elu', 'ThresholdedRelu'].map(
    (name) =>
      sampleOf('RNN', 'forward', {
        bias: true,
        attributes: { activations: [name], activation_alpha: [0.3], activation_beta: [0.6] },
      }),
  ),
  sampleOf('LSTM', 'bidirectional', {
    bias: true,
    attributes: { activations: ['HardSigmoid', 'Tanh', 'Softsign', 'Sigmoid', 'Relu', 'Tanh'] },
  }),
];

for (const [number, sample] of SAMPLES.entries()) {
  const present = sample.inputs.map((input) => (input ? 'x' : '_')).join('');
  test(`${number} ${sample.op} ${present} ${JSON.stringify(sample.attributes)}`, async (t) => {
    // ONNX Runtime has these operators in single precision only: differences are no better than a hundredth or so.
    const error = await checkGradient(sample, { tolerance: 1e-2 });
    t.true(error < 1e-2);
    t.log(`worst ${error.toExponential(1)}`);
    if (number % 4 < 2) t.true((await checkShardedGradient(sample)) > 0);
  });
}

/** Σ grad · H of a plain LSTM or GRU with clipped gates, in double precision: operands as flat lists, a batch of two. */
function plainLoss(
  op: 'GRU' | 'LSTM',
  bound: number,
  operands: readonly (readonly number[])[],
  grad: readonly number[],
) {
  const [steps, batch, features, hidden, gates] = [4, 2, 3, 2, GATES[op]];
  const [x = [], w = [], r = [], b = []] = operands;
  const at = (list: readonly number[], index: number) => list[index] ?? Number.NaN;
  const units = Array.from({ length: hidden }, (_, unit) => unit);
  const sigmoid = (value: number) => 1 / (1 + Math.exp(-value));
  let total = 0;
  for (let row = 0; row < batch; row++) {
    let [state, cell] = [
      [0, 0],
      [0, 0],
    ];
    for (let step = 0; step < steps; step++) {
      const into = (gate: number, held: readonly number[]) => {
        let sum = at(b, gate) + at(b, gates * hidden + gate);
        for (let k = 0; k < features; k++)
          sum += at(w, gate * features + k) * at(x, (step * batch + row) * features + k);
        for (const k of units) sum += at(r, gate * hidden + k) * at(held, k);
        return Math.min(Math.max(sum, -bound), bound);
      };
      const before = state;
      const of = (gate: number, unit: number) => sigmoid(into(gate * hidden + unit, before));
      if (op === 'LSTM') {
        const candidate = (unit: number) => Math.tanh(into(3 * hidden + unit, before));
        cell = units.map((unit) => of(2, unit) * at(cell, unit) + of(0, unit) * candidate(unit));
        state = units.map((unit) => of(1, unit) * Math.tanh(at(cell, unit)));
      } else {
        const reset = units.map((unit) => of(1, unit) * at(before, unit));
        const candidate = (unit: number) => Math.tanh(into(2 * hidden + unit, reset));
        state = units.map((unit) => (1 - of(0, unit)) * candidate(unit) + of(0, unit) * at(before, unit));
      }
      for (const unit of units) total += at(state, unit) * at(grad, (step * batch + row) * hidden + unit);
    }
  }
  return total;
}

for (const op of ['GRU', 'LSTM'] as const)
  for (const bound of [0.3, 1, 9])
    test(`${op} clipped at ${bound}, against a plain one in double precision`, async (t) => {
      const sample = sampleOf(op, 'forward', { bias: true, outputs: 1, attributes: { clip: bound } });
      const view = gradientViewOf(sample, {});
      const operands = operandsOf(sample, 3);
      const grads = resultGradientsOf(view, 3);
      const results = await run(sample, operands, view.outputs);
      const made = await runGradient(view, gradientOf(view), named(operands, results, grads), run);
      const flat = operands.map((value) => [...(value?.data ?? [])]);
      const loss = (index: number, place: number, by: number) =>
        plainLoss(
          op,
          bound,
          flat.map((list, other) =>
            other === index ? list.map((value, i) => (i === place ? value + by : value)) : list,
          ),
          grads[0]?.data ?? [],
        );
      for (const [index, list] of flat.entries())
        for (const place of list.keys()) {
          const slope = (loss(index, place, 1e-6) - loss(index, place, -1e-6)) / 2e-6;
          t.true(
            Math.abs((made[index]?.data[place] ?? Number.NaN) - slope) < 2e-6,
            `operand ${index}, element ${place}`,
          );
        }
    });

test('only the last state is read', async (t) => {
  for (const op of ['RNN', 'GRU', 'LSTM'] as const) {
    const sample = sampleOf(op, 'bidirectional', { bias: true });
    t.true((await checkGradient(sample, { given: [false, true, false] })) < 2e-3);
    const view = viewOfCase(sample);
    const entry = needEntry(op);
    const { gradient } = entry;
    if (typeof gradient !== 'function') throw new Error(`${op} has a gradient`);
    const outputs = view.outputs.map((type, index) => (index === 0 ? null : type));
    const asked = { ...view, outputs, wanted: view.inputs.map(Boolean), given: outputs.map((type) => type !== null) };
    const { nodes } = gradient(asked);
    t.is(nodes.filter((node) => node.op === op).length, 1, 'the states are computed again where nobody has them');
    t.true(nodes.every((node) => !node.inputs.includes('out0')));
  }
});

test('a sequence that is too long to be unrolled is refused', (t) => {
  const sample = c('RNN', [f(1025, 1, 2), f(1, 2, 2), f(1, 2, 2)], { hidden_size: 2 });
  const view = viewOfCase(sample);
  const { gradient } = needEntry('RNN');
  if (typeof gradient !== 'function') throw new Error('RNN has a gradient');
  t.throws(() => gradient({ ...view, wanted: [true, true, true], given: [true] }), { message: /1025 time steps/ });
});
