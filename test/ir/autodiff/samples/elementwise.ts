/**
 * @file Sample element-wise operators and activations whose gradients are checked.
 */
import { isDifferentiable } from '../../../../src/ir/operator.js';
import { elementwiseEntries } from '../../../../src/ir/ops/elementwise.js';
import { fusedElementwiseEntries } from '../../../../src/ir/ops/fused-elementwise.js';
import { CASES } from '../../ops/cases.js';
import { b, type Case, c, f, h, ms, of, positive, type Sample, wide } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

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
  c('Mod', [wide(2, 1, 6), positive(4, 1)], { fmod: 1 }),
  c('Sum', [f(4, 6)]),
  c('Mean', [f(4, 1), f(2, 1, 6)]),
  c('Mean', [f(4, 6)]),
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
  ms('GatedAdd', [f(4, 6), f(4, 6), f(4, 1)]),
  c('Cast', [h(4, 6)], { to: 1 }, 1, 1e-2),
  c('CastLike', [f(4, 6), of('float64', 1, 5)]),
  c('CastLike', [h(2, 3, 4), f(1)], {}, 1, 1e-2),
  c('Dropout', [f(4, 6), constant(0.3), truth(0)], {}, 2),
  half('Gelu', h(4, 6)),
  half('Sigmoid', h(4, 6)),
  half('Mul', h(4, 6), h(6)),
  half('Max', h(4, 6), h(4, 6)),
];

const entries = [...elementwiseEntries, ...fusedElementwiseEntries];
const differentiable = new Set(entries.filter(isDifferentiable).map(({ domain, op }) => `${domain}:${op}`));
/** Integers only, or a cast that leaves them: nothing has a gradient. */
const isWhole = ({ op, inputs, attributes }: Case): boolean =>
  inputs[0]?.dtype.startsWith('float') !== true ||
  (op === 'Cast' && attributes['to'] === 7) ||
  (op === 'CastLike' && inputs[1]?.dtype === 'int64');

const known = CASES.filter(({ domain, op }) => differentiable.has(`${domain}:${op}`));

/** Functions of one operand in another shape, too. */
const cubes = known.flatMap((sample): readonly Case[] => {
  const [only, ...others] = sample.inputs;
  return only && others.length === 0 ? [{ ...sample, inputs: [{ ...only, shape: [2, 3, 4] }] }] : [];
});

const samples = [...known, ...OWN, ...cubes].filter((sample) => sample.op === 'Where' || !isWhole(sample));

// ONNX Runtime's Shrink computes in float32 whatever its type is, which makes differences coarse.
export const elementwiseSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [
  sample,
  sample.op === 'Shrink' ? { tolerance: 5e-3 } : {},
]);
