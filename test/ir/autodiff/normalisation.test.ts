/**
 * @file Gradients of normalisations: against finite differences and where nothing varies.
 */
import test from 'ava';
import { channelNormalisationEntries } from '../../../src/ir/ops/channel-normalisation.js';
import { fusedNormalisationEntries } from '../../../src/ir/ops/fused-normalisation.js';
import { normalisationEntries } from '../../../src/ir/ops/normalisation.js';
import { softmaxEntries } from '../../../src/ir/ops/softmax.js';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { floats, gradientAt } from './gradient-at.js';
import { normalisationSamples } from './samples/normalisation.js';

for (const [number, [sample, options]] of selection(normalisationSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify([sample.attributes, options])}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error < 2e-2);
  });
}

test('each normalisation has a gradient, or a word why none passes', (t) => {
  const entries = [
    ...normalisationEntries,
    ...channelNormalisationEntries,
    ...fusedNormalisationEntries,
    ...softmaxEntries,
  ];
  const without = entries.filter(({ gradient }) => gradient === undefined).map(({ op }) => op);
  t.deepEqual(without, []);
});

test('rows that do not vary have no gradient that is no number', async (t) => {
  const ones = floats([1, 2, 3, 4], [2, 2]);
  const zeros = floats([0, 0, 3, 4], [2, 2]);
  const lp = await gradientAt({ op: 'LpNormalization', operands: [zeros], gradients: [ones] });
  t.deepEqual(lp.gradients[0], [0, 0, 0, 0]);
  const scale = floats([1, 1]);
  const layer = await gradientAt({
    op: 'LayerNormalization',
    operands: [floats([5, 5, 0, 1], [2, 2]), scale, scale],
    gradients: [ones],
  });
  t.true(layer.gradients.flatMap((values) => values ?? []).every(Number.isFinite));
});

test('what comes back through a normalisation has no part along what it takes out', async (t) => {
  const x = floats([0.3, -1.2, 2.5, 0.7], [1, 4]);
  const g = floats([0.9, -0.4, 0.1, 1.3], [1, 4]);
  const { gradients } = await gradientAt({
    op: 'LayerNormalization',
    attributes: { epsilon: 0 },
    operands: [x, floats([1, 1, 1, 1])],
    gradients: [g],
  });
  const back = gradients[0] ?? [];
  t.true(Math.abs(back.reduce((sum, value) => sum + value, 0)) < 1e-5);
  t.true(Math.abs(back.reduce((sum, value, at) => sum + value * (x.data[at] ?? 0), 0)) < 1e-5);
});
