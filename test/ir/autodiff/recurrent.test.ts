/**
 * @file Gradients of LSTM, GRU and RNN: all directions, optional operands and activations that ONNX Runtime runs, against finite
 * differences.
 */
import test from 'ava';
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { selection } from '../../selection.js';
import { operatorOfCase } from '../ops/cases.js';
import { makeRun } from '../ops/one-node.js';
import { c, f } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';
import { differentiatedOf, gradientOf, named, operandsOf, resultGradientsOf, runGradient } from './sample-gradient.js';
import { GATES, recurrentSample, recurrentSamples } from './samples/recurrent.js';

const run = makeRun();

for (const [number, [sample, options]] of selection(recurrentSamples, ([{ op }]) => op)) {
  const present = sample.inputs.map((input) => (input ? 'x' : '_')).join('');
  test(`${number} ${sample.op} ${present} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.true(error < 1e-2);
    t.log(`worst ${error.toExponential(1)}`);
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
      const sample = recurrentSample(op, 'forward', { bias: true, outputs: 1, attributes: { clip: bound } });
      const operator = differentiatedOf(sample, {});
      const operands = operandsOf(sample, 3);
      const grads = resultGradientsOf(operator, 3);
      const results = await run(sample, operands, operator.outputs);
      const made = await runGradient(operator, gradientOf(operator), named(operands, results, grads), run);
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
    const sample = recurrentSample(op, 'bidirectional', { bias: true });
    t.true((await checkGradient(sample, { given: [false, true, false] })) < 2e-3);
    const operator = operatorOfCase(sample);
    const entry = needEntry(op);
    const gradient = gradientOperators(entry);
    if (!gradient) throw new Error(`${op} has a gradient`);
    const outputs = operator.outputs.map((type, index) => (index === 0 ? null : type));
    const asked = {
      ...operator,
      outputs,
      wanted: operator.inputs.map(Boolean),
      given: outputs.map((type) => type !== null),
    };
    const { nodes } = gradient(asked);
    t.is(nodes.filter((node) => node.op === op).length, 1, 'the states are computed again where nobody has them');
    t.true(nodes.every((node) => !node.inputs.includes('out0')));
  }
});

test('a sequence that is too long to be unrolled is refused', (t) => {
  const sample = c('RNN', [f(1025, 1, 2), f(1, 2, 2), f(1, 2, 2)], { hidden_size: 2 });
  const operator = operatorOfCase(sample);
  const gradient = gradientOperators(needEntry('RNN'));
  if (!gradient) throw new Error('RNN has a gradient');
  t.throws(() => gradient({ ...operator, wanted: [true, true, true], given: [true] }), { message: /1025 time steps/ });
});
