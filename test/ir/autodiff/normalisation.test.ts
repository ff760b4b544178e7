/**
 * @file Gradients of normalisations: against finite differences, under the forward's strategies, and where nothing varies.
 */
import test from 'ava';
import { channelNormalisationEntries } from '../../../src/ir/ops/channel-normalisation.js';
import { fusedNormalisationEntries } from '../../../src/ir/ops/fused-normalisation.js';
import { normalisationEntries } from '../../../src/ir/ops/normalisation.js';
import { softmaxEntries } from '../../../src/ir/ops/softmax.js';
import { CASES } from '../ops/cases.js';
import { type Case, c, f, h, ms, positive, wide } from '../ops/sample.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { floats, gradientAt } from './gradient-at.js';
import type { GradientOptions } from './sample-gradient.js';

const channels = [f(4), f(4), f(4), positive(4)];

/** Statistics in float64, so that differences are fine. */
const FINE = { stash_type: 11 };

const OWN: readonly Case[] = [
  c('LayerNormalization', [wide(4, 6), f(6)]),
  c('LayerNormalization', [wide(6), f(6), f(6)]),
  c('LayerNormalization', [wide(4, 2, 6), f(1, 6), f(2, 1)], { axis: 1 }),
  c('LayerNormalization', [h(4, 6), h(6), h(6)], { epsilon: 1e-2 }, 1, 1e-2),
  c('RMSNormalization', [wide(4, 6), f(1)], { epsilon: 1e-2 }),
  c('BatchNormalization', [f(4, 4), ...channels], { training_mode: 1 }, 3),
  c('BatchNormalization', [f(4, 4, 6, 2), ...channels], { training_mode: 1, epsilon: 1e-3 }, 3),
  c('BatchNormalization', [f(4, 4), ...channels], { epsilon: 1e-2 }),
  c('BatchNormalization', [f(2, 4, 6, 2), ...channels]),
  c('InstanceNormalization', [f(2, 4, 6), f(4), f(4)], { epsilon: 1e-2 }),
  c('GroupNormalization', [f(2, 8, 6), f(8), f(8)], { num_groups: 8, ...FINE }),
  c('GroupNormalization', [f(2, 8, 6), f(8), f(8)], { num_groups: 1, ...FINE }),
  c('GroupNormalization', [f(2, 8, 4, 2), f(8), f(8)], { num_groups: 4, epsilon: 1e-2, ...FINE }),
  c('LpNormalization', [f(4, 6)], { p: 1, axis: 0 }),
  c('LpNormalization', [f(2, 4, 6)], { axis: 1 }),
  c('MeanVarianceNormalization', [f(2, 4, 6)], { axes: [2] }),
  c('LRN', [f(2, 6, 4, 2)], { size: 5, alpha: 0.5, beta: 0.5, bias: 2 }),
  c('LRN', [f(2, 6, 4, 2)], { size: 1, alpha: 0.5 }),
  ms('GatedRMSNorm', [f(2, 4, 4), f(4), f(2, 4, 4)]),
];

/** Some results alone. */
const PARTLY: readonly (readonly [Case, GradientOptions])[] = [
  [c('LayerNormalization', [wide(4, 2, 6), f(2, 6)], { axis: 1 }, 3), { given: [true, false, false] }],
  [c('LayerNormalization', [wide(4, 2, 6), f(6)], { axis: 1 }, 3), { given: [false, true, false] }],
  [c('LayerNormalization', [wide(4, 2, 6), f(6)], { axis: 1 }, 3), { given: [false, false, true] }],
  [c('BatchNormalization', [f(4, 4, 6), ...channels], { training_mode: 1 }, 3), { given: [true, false, false] }],
  [c('BatchNormalization', [f(4, 4, 6), ...channels], { training_mode: 1 }, 3), { given: [false, true, true] }],
  [
    ms('SkipLayerNormalization', [wide(2, 4, 6), wide(4, 6), f(6), f(6), f(6)], {}, 4),
    { given: [true, false, false, true] },
  ],
  [
    ms('SkipLayerNormalization', [wide(2, 4, 6), wide(4, 6), f(6), f(6), f(6)], {}, 4),
    { given: [false, false, false, true] },
  ],
  [
    ms('SkipSimplifiedLayerNormalization', [wide(2, 4, 6), wide(1, 4, 6), f(6), f(6)], {}, 4),
    { given: [true, false, false, true] },
  ],
];

const OPERATORS = new Set([
  ...OWN.map(({ op }) => op),
  ...['SimplifiedLayerNormalization', 'SkipLayerNormalization', 'SkipSimplifiedLayerNormalization'],
  'EmbedLayerNormalization',
]);
/** GroupNormalization's forward is float32 in any type unless told otherwise. */
const fine = (sample: Case): Case =>
  sample.op === 'GroupNormalization' ? { ...sample, attributes: { ...sample.attributes, ...FINE } } : sample;
const whole = [...CASES.filter(({ op }) => OPERATORS.has(op)).map(fine), ...OWN];
const samples = [...whole.map((sample) => [sample, {} as GradientOptions] as const), ...PARTLY];

for (const [number, [sample, options]] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify([sample.attributes, options])}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    await checkShardedGradient(sample, { ...options, tolerance: sample.tolerance === 1e-2 ? 2e-2 : 5e-4 });
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
