/**
 * @file Sample normalisations whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, h, ms, positive, wide } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

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
  c('SimplifiedLayerNormalization', [wide(4, 6), f(6)], { epsilon: 1e-2 }),
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
/** GroupNormalization's forward is float32 in any type by default. */
const fine = (sample: Case): Case =>
  sample.op === 'GroupNormalization' ? { ...sample, attributes: { ...sample.attributes, ...FINE } } : sample;
const whole = [...CASES.filter(({ op }) => OPERATORS.has(op)).map(fine), ...OWN];
export const normalisationSamples: readonly (readonly [Case, GradientOptions])[] = [
  ...whole.map((sample) => [sample, {} as GradientOptions] as const),
  ...PARTLY,
];
