/**
 * @file Sample matmuls and Einsums whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, ms } from '../../ops/sample.js';
import { crossesKinks } from '../kinks.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = ['MatMul', 'Gemm', 'Einsum', 'FusedMatMul', 'TransposeMatMul', 'FusedGemm', 'Det'];

const OWN: readonly Case[] = [
  c('MatMul', [f(2, 3, 4, 6), f(6, 8)]),
  c('MatMul', [f(4, 6), f(2, 6, 8)]),
  c('MatMul', [f(1, 4, 6), f(2, 6, 8)]),
  c('MatMul', [f(3, 1, 4, 6), f(2, 6, 8)]),
  c('MatMul', [f(6), f(6, 8)]),
  c('MatMul', [f(4, 6), f(6)]),
  c('MatMul', [f(2, 4, 1), f(1, 8)]),
  c('Gemm', [f(6, 4), f(8, 6), f(1, 8)], { transA: 1, transB: 1, alpha: 0.5, beta: 3 }),
  c('Einsum', [f(4, 6)], { equation: 'ij->ji' }),
  c('Einsum', [f(4, 6)], { equation: 'ij->i' }),
  c('Einsum', [f(4, 6)], { equation: 'ij->' }),
  c('Einsum', [f(4, 4)], { equation: 'ii->' }),
  c('Einsum', [f(4, 6, 4), f(4, 6)], { equation: 'iji,ij->j' }),
  c('Einsum', [f(4, 6), f(6)], { equation: 'ij,k->i' }),
  c('Einsum', [f(4, 1), f(6, 8)], { equation: 'ij,jk->ik' }),
  c('Einsum', [f(1, 4, 6), f(2, 6, 8)], { equation: '...ij,...jk->...ik' }),
  c('Einsum', [f(4, 6), f(6, 8), f(8, 2)], { equation: 'ij,jk,kl->il' }),
  c('Einsum', [f(6), f(6)], { equation: 'i,i->' }),
  c('Einsum', [f(6), f(4)], { equation: 'i,j->ij' }),
  c('Det', [f(2, 3, 3)]),
  c('Det', [f(4, 4)]),
  ...['Relu', 'Sigmoid', 'Tanh', 'Softplus', 'Softsign', 'Elu', 'HardSigmoid', 'LeakyRelu'].map((activation) =>
    ms('FusedGemm', [f(4, 6), f(6, 4), f(4)], { activation, activation_alpha: 0.25, activation_beta: 0.5 }),
  ),
  ms('FusedMatMul', [f(6), f(2, 6, 8)], { alpha: 2 }),
  ms('TransposeMatMul', [f(6, 4), f(6, 8)], { transA: 1, alpha: 0.5 }),
  ms('FusedMatMul', [f(2, 4, 6), f(8, 6)], { transB: 1 }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN];
export const contractionSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [
  sample,
  crossesKinks(sample) ? { tolerance: 5e-2 } : {},
]);
