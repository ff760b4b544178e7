/**
 * @file Gradients held against PyTorch's, which computes them in float64 from the same numbers.
 */
import { constant } from '../../../src/ir/ops/constants.js';
import { relativeError } from '../../reference/norms.js';
import { operatorModel } from '../../reference/one-operator.js';
import type { Arrays, Torch } from '../../reference/torch.js';
import { makeRun, type Values } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import {
  differentiatedOf,
  type GradientOptions,
  gradientOf,
  named,
  operandsOf,
  resultGradientsOf,
  runGradient,
} from './sample-gradient.js';

const run = makeRun();

/**
 * Runs the sample's gradient in its own dtype, compares it with PyTorch's, and returns the worst relative error (norm-wise).
 * @throws TorchLacks where the reference does not know the operator; Error where a gradient is off.
 */
export async function checkGradientInTorch(torch: Torch, sample: Case, options: GradientOptions = {}): Promise<number> {
  const { seed = 1, gradient } = options;
  const operator = differentiatedOf(sample, options);
  const operands = operandsOf(sample, seed);
  const given = resultGradientsOf(operator, seed);
  const results = await run(sample, operands, operator.outputs);
  const made = await runGradient(operator, gradientOf(operator, gradient), named(operands, results, given), run);
  const expected = await torch.evaluate({
    model: operatorModel(operator),
    dtype: 'float64',
    arrays: { ...arrays('x', operands), ...arrays('g', given) },
    parameters: operator.wanted.flatMap((wanted, index) => (wanted ? [`x${index}`] : [])),
    loss: {
      kind: 'weighted',
      weights: Object.fromEntries(given.flatMap((value, index) => (value ? [[`y${index}`, `g${index}`]] : []))),
    },
  });
  const half = operator.inputs.some((type, index) => operator.wanted[index] && type?.dtype.endsWith('float16'));
  const tolerance = options.tolerance ?? (half ? 2e-2 : 1e-4);
  let worst = 0;
  for (const [index, value] of made.entries()) {
    const wanted = expected.gradients[`x${index}`];
    if (!value || !wanted) continue;
    const error = relativeError(constant('float64', value.data, value.shape), wanted);
    if (!(error <= tolerance))
      throw new Error(`gradient of ${sample.op}, d${index}: off by ${error.toExponential(2)} from PyTorch's`);
    worst = Math.max(worst, error);
  }
  return worst;
}

function arrays(prefix: string, values: readonly (Values | null)[]): Arrays {
  return Object.fromEntries(
    values.flatMap((value, index) =>
      value ? [[`${prefix}${index}`, constant(value.dtype, value.data, value.shape)] as const] : [],
    ),
  );
}
