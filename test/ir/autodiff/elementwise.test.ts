/**
 * @file Gradients of elementwise operators and activations: against finite differences and, at
 * kinks and ties by PyTorch's rules.
 */
import test from 'ava';
import type { Attributes } from '../../../src/ir/graph.js';
import { elementwiseEntries } from '../../../src/ir/ops/elementwise.js';
import { fusedElementwiseEntries } from '../../../src/ir/ops/fused-elementwise.js';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { floats, gradientAt, scalar } from './gradient-at.js';
import { elementwiseSamples } from './samples/elementwise.js';

const entries = [...elementwiseEntries, ...fusedElementwiseEntries];

for (const [number, [sample, options]] of selection(elementwiseSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error < 2e-2);
  });
}

test('each elementwise operator has a gradient, or a word why none passes', (t) => {
  const without = entries.filter(({ gradient }) => gradient === undefined).map(({ op }) => op);
  t.deepEqual(without, []);
});

/** The gradient at each x, of a function of one operand. */
async function slopes(op: string, at: readonly number[], attributes: Attributes = {}) {
  const ones = floats(at.map(() => 1));
  return (await gradientAt({ op, attributes, operands: [floats(at)], gradients: [ones] })).gradients[0];
}

test('at kinks functions of one operand have the slopes that PyTorch gives them', async (t) => {
  t.deepEqual(await slopes('Relu', [-1, 0, 1]), [0, 0, 1]);
  t.deepEqual(await slopes('Abs', [-2, 0, 2]), [-1, 0, 1]);
  t.deepEqual(await slopes('LeakyRelu', [-1, 0, 1], { alpha: 0.25 }), [0.25, 0.25, 1]);
  t.deepEqual(await slopes('HardSigmoid', [-2.5, 0, 2.5], { alpha: 0.2, beta: 0.5 }), [0, 0.2, 0]);
  t.deepEqual(await slopes('HardSwish', [-3, 0, 3]), [0, 0.5, 1]);
  t.deepEqual(await slopes('Elu', [0], { alpha: 0.5 }), [0.5]);
});

test('far out no function of one operand makes anything but a finite slope', async (t) => {
  for (const op of ['Sigmoid', 'Tanh', 'Softplus', 'Gelu', 'Mish', 'Swish', 'Elu', 'Selu', 'Celu', 'Erf', 'Softsign'])
    t.true((await slopes(op, [-1e4, -100, 100, 1e4]))?.every(Number.isFinite), op);
  t.deepEqual(await slopes('Softplus', [-1e4, 1e4]), [0, 1]);
  // α e^x keeps its digits where y + α has none left.
  t.deepEqual(await slopes('Elu', [-30]), [Number(Math.exp(-30).toPrecision(6))]);
});

test('operands that tie for the largest share the gradient evenly', async (t) => {
  const operands = [floats([1, 2, 3]), floats([1, 5, 3]), floats([0, 1, 3])];
  const { gradients } = await gradientAt({ op: 'Max', operands, gradients: [floats([2, 2, 3])] });
  t.deepEqual(gradients, [
    [1, 0, 1],
    [1, 2, 1],
    [0, 0, 1],
  ]);
});

test('a power of zero moves neither base nor exponent to where there is no number', async (t) => {
  const operands = [floats([0, 0, 0, 2]), floats([0, 1, 2, 0])];
  const { gradients } = await gradientAt({ op: 'Pow', operands, gradients: [floats([1, 1, 1, 1])] });
  t.deepEqual(gradients, [
    [0, 1, 0, 0],
    [0, 0, 0, Number(Math.log(2).toPrecision(6))],
  ]);
});

test('a square that is known as one moves its base as any power of two does', async (t) => {
  const operands = [floats([-2, 0, 0.5, 3]), scalar(2)];
  const given = { op: 'Pow', operands, gradients: [floats([1, 1, -3, 2])] };
  const { gradients } = await gradientAt({ ...given, known: [null, 2] });
  t.deepEqual(gradients[0], [-4, 0, -3, 12]);
  t.deepEqual(gradients, (await gradientAt(given)).gradients);
});

test('a clipped value moves within its bounds, both included; else the bound that holds does', async (t) => {
  const x = floats([-2, -1, 0, 1, 2]);
  const ones = floats([1, 1, 1, 1, 1]);
  const inside = await gradientAt({ op: 'Clip', operands: [x, scalar(-1), scalar(1)], gradients: [ones] });
  t.deepEqual(inside.gradients, [[0, 1, 1, 1, 0], [1], [1]]);
  const crossed = await gradientAt({ op: 'Clip', operands: [x, scalar(1), scalar(-1)], gradients: [ones] });
  t.deepEqual(crossed.gradients, [[0, 0, 0, 0, 0], [0], [5]]);
});

test('what a remainder leaves moves with the dividend, and against the divisor', async (t) => {
  const operands = [floats([7, -7, 2]), floats([2, 2, 5])];
  const ones = floats([1, 1, 1]);
  const { gradients } = await gradientAt({ op: 'Mod', attributes: { fmod: 1 }, operands, gradients: [ones] });
  t.deepEqual(gradients, [
    [1, 1, 1],
    [-3, 3, 0],
  ]);
});

test('in training a dropout hands back what it kept, scaled as it was', async (t) => {
  const ratio = 0.25;
  const x = floats(Array.from({ length: 64 }, (_, at) => at + 1));
  const g = floats(x.data.map((value) => value / 8));
  for (const given of [scalar(ratio), null]) {
    const operands = [x, given, { dtype: 'bool' as const, shape: [], data: [1] }];
    const { results, gradients } = await gradientAt({ op: 'Dropout', operands, gradients: [g, null] });
    const mask = results[1]?.data ?? [];
    t.true(mask.includes(0) && mask.includes(1));
    const scale = 1 / (1 - (given ? ratio : 0.5));
    t.deepEqual(
      gradients[0],
      mask.map((kept, at) => (kept ? Number(((g.data[at] ?? 0) * scale).toPrecision(6)) : 0)),
    );
  }
});
