/**
 * @file Gradients of element-wise operators and activations: against finite differences, under the forward's strategies, and at
 * kinks and ties by PyTorch's rules.
 */
import test from 'ava';
import type { Attributes } from '../../../src/ir/graph.js';
import { elementwiseEntries } from '../../../src/ir/ops/elementwise.js';
import { fusedElementwiseEntries } from '../../../src/ir/ops/fused-elementwise.js';
import { CASES } from '../ops/cases.js';
import { b, type Case, c, f, h, ms, of, positive, type Sample, wide } from '../ops/sample.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { floats, gradientAt, scalar } from './gradient-at.js';

const half = (op: string, ...inputs: readonly Sample[]): Case => c(op, inputs, {}, 1, 1e-2);
const constant = (value: number): Sample => ({ ...f(), low: value, high: value });
const truth = (value: number): Sample => ({ ...b(), low: value, high: value });

const OWN: readonly Case[] = [
  c('Add', [f(1), f(4, 6)]),
  c('Add', [f(1, 1, 1), f(4, 6)]),
  c('Sub', [f(), f(4, 6)]),
  c('Mul', [f(1, 6), f(4, 1)]),
  c('Mul', [f(2, 1, 6), f(4, 1)]),
  c('Div', [f(6), positive(4, 6)]),
  c('Div', [f(), positive(4, 6)]),
  c('Pow', [positive(4, 6), f(6)]),
  c('Pow', [positive(4, 1), positive(2, 1, 6)]),
  c('Pow', [positive(6), f(4, 6)]),
  c('Where', [b(4, 6), f(), f(4, 1)]),
  c('Where', [b(2, 4, 6), f(1), f(6)]),
  c('PRelu', [wide(4, 6), f(6)]),
  c('PRelu', [wide(4, 6), f(1)]),
  c('Clip', [wide(4, 6)]),
  c('Clip', [wide(4, 6), { ...f(), low: 2, high: 3 }, f()]),
  c('Max', [f(4, 6)]),
  c('Min', [f(4, 6), f()]),
  c('Sum', [f(4, 6)]),
  c('Elu', [wide(4, 6)], { alpha: 0.3 }),
  c('Celu', [wide(4, 6)], { alpha: 0.3 }),
  c('Selu', [wide(4, 6)], { alpha: 1.2, gamma: 2 }),
  c('LeakyRelu', [wide(4, 6)], { alpha: 0.3 }),
  c('ThresholdedRelu', [wide(4, 6)], { alpha: 2 }),
  c('Shrink', [wide(4, 6)], { lambd: 2, bias: 1 }),
  c('HardSigmoid', [wide(4, 6)], { alpha: 0.3, beta: 0.4 }),
  c('HardSwish', [wide(4, 6)]),
  c('Softplus', [wide(4, 6)]),
  c('Mish', [wide(4, 6)]),
  c('Swish', [wide(4, 6)], { alpha: 0.7 }),
  c('Gelu', [wide(4, 6)]),
  c('Gelu', [wide(4, 6)], { approximate: 'tanh' }),
  ms('QuickGelu', [wide(4, 6)]),
  ms('BiasGelu', [wide(4, 6), f(6)]),
  c('Cast', [h(4, 6)], { to: 1 }, 1, 1e-2),
  c('CastLike', [f(4, 6), of('float64', 1, 5)]),
  c('Dropout', [f(4, 6), constant(0.3), truth(0)], {}, 2),
  half('Gelu', h(4, 6)),
  half('Sigmoid', h(4, 6)),
  half('Mul', h(4, 6), h(6)),
  half('Max', h(4, 6), h(4, 6)),
];

const entries = [...elementwiseEntries, ...fusedElementwiseEntries];
const differentiable = new Set(
  entries.filter(({ gradient }) => typeof gradient === 'function').map(({ domain, op }) => `${domain}:${op}`),
);
/** Integers only, or a cast that leaves them: nothing has a gradient. */
const isWhole = ({ op, inputs, attributes }: Case): boolean =>
  inputs[0]?.dtype.startsWith('float') !== true ||
  (op === 'Cast' && attributes['to'] === 7) ||
  (op === 'CastLike' && inputs[1]?.dtype === 'int64');

const samples = [...CASES.filter(({ domain, op }) => differentiable.has(`${domain}:${op}`)), ...OWN].filter(
  (sample) => sample.op === 'Where' || !isWhole(sample),
);
for (const [number, sample] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    // ONNX Runtime's Shrink computes in float32 whatever its type is, which makes differences coarse.
    const error = await checkGradient(sample, sample.op === 'Shrink' ? { tolerance: 5e-3 } : {});
    t.log(error.toExponential(1));
    await checkShardedGradient(sample, { tolerance: sample.tolerance === 1e-2 ? 2e-2 : 2e-4 });
    t.true(error < 2e-2);
  });
}

test('each element-wise operator has a gradient, or a word why none passes', (t) => {
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
