/**
 * @file Gradients of mixtures of experts: against finite differences.
 */
import test from 'ava';
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { selection } from '../../selection.js';
import { f, ms, of } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';
import { differentiatedOf } from './sample-gradient.js';
import { expertSamples } from './samples/experts.js';

for (const [number, [sample, options]] of selection(expertSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error <= (options.tolerance ?? 2e-3));
  });
}

test('forms that no kernel here proves are refused', (t) => {
  const gradient = gradientOperators(needEntry('MoE', 'com.microsoft'));
  const refused = (more: object, ...rest: null[]) => {
    const inputs = [f(4, 6), f(4, 4), f(4, 8, 6), null, f(4, 6, 8), ...rest, ...(rest.length > 0 ? [f(4, 8, 6)] : [])];
    const operator = differentiatedOf(ms('MoE', inputs, { k: 2, activation_type: 'silu', ...more }), {});
    return () => (gradient ? gradient(operator) : t.fail());
  };
  const message =
    /gates with separate weights or after the other features, router weights next to its scores, or a sparse/;
  t.throws(refused({}, null), { message });
  t.throws(refused({ use_sparse_mixer: 1 }), { message });
  t.notThrows(refused({}));
});

test('scales of quantised experts are not trained', (t) => {
  const [sample] = expertSamples.find(([{ op }]) => op === 'QMoE') ?? [];
  const gradient = gradientOperators(needEntry('QMoE', 'com.microsoft'));
  if (!sample || !gradient) return t.fail();
  t.throws(() => gradient(differentiatedOf(sample, {})), { message: /scales and zero points .* are not trained/ });
  const [tokens, scores, first, , , second] = sample.inputs;
  const inputs = [tokens, scores, first, f(4, 16, 2), null, second, f(4, 32, 1), ...Array(5).fill(null)];
  const operands = [...inputs, of('uint8', 9, 4, 32, 1)].map((input) => input ?? null);
  const blocks = ms('QMoE', operands, { ...sample.attributes, block_size: 16 });
  t.throws(() => gradient(differentiatedOf(blocks, { wanted: [true] })), { message: /rows of a single block/ });
});
