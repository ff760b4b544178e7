/**
 * @file Sample mixtures of experts whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, f, ms, of, type Sample } from '../../ops/sample.js';
import { firstSeed } from '../first-seed.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS = ['MoE', 'QMoE'];

const scores = (...shape: number[]): Sample => ({ ...f(...shape), low: -2, high: 2 });

const OWN: readonly Case[] = [
  ms('MoE', [f(5, 6), scores(5, 4), f(4, 8, 6), null, f(4, 6, 8)], { k: 1, activation_type: 'identity' }),
  ms('MoE', [f(5, 6), scores(5, 3), f(3, 4, 6), f(3, 4), f(3, 6, 4), f(3, 6)], { k: 3, activation_type: 'gelu' }),
  ms('MoE', [f(2, 3, 4), scores(6, 4), f(4, 8, 4), f(4, 8), f(4, 4, 4), f(4, 4)], {
    k: 2,
    activation_type: 'swiglu',
    swiglu_fusion: 1,
    activation_alpha: 1.7,
    activation_beta: 1,
    swiglu_limit: 0.8,
    normalize_routing_weights: 1,
  }),
];

const bytes = (...shape: number[]) => of('uint8', 256, ...shape);
/** Such that numbers of 4 bits become weights of about ±0.4. */
const scales = (...shape: number[]): Sample => ({ ...f(...shape), low: 0.02, high: 0.05 });
const empty = (count: number): readonly null[] => Array.from({ length: count }, () => null);

const QUANTISED: readonly Case[] = [
  ms('QMoE', [f(3, 32), scores(3, 4), bytes(4, 16, 16), scales(4, 16), f(4, 16), bytes(4, 32, 8), scales(4, 32)], {
    k: 2,
    activation_type: 'gelu',
    expert_weight_bits: 4,
  }),
  ms(
    'QMoE',
    [
      ...[f(2, 2, 32), scores(4, 4), bytes(4, 64, 16), scales(4, 64, 2), null, bytes(4, 32, 16), scales(4, 32, 2)],
      ...[f(4, 32), ...empty(3), bytes(4, 64, 1), bytes(4, 32, 1)],
    ],
    { k: 2, activation_type: 'swiglu', swiglu_fusion: 1, expert_weight_bits: 4, block_size: 16 },
  ),
  ms(
    'QMoE',
    [
      ...[f(3, 32), scores(3, 4), bytes(4, 16, 16), scales(4, 16), null, bytes(4, 32, 8), scales(4, 32)],
      ...[...empty(4), bytes(4, 8), bytes(4, 16)],
    ],
    { k: 2, activation_type: 'silu', expert_weight_bits: 4 },
  ),
  ms(
    'QMoE',
    [
      ...[f(3, 32), scores(3, 4), bytes(4, 16, 32), { ...scales(4, 16), low: 0.001, high: 0.003 }, null],
      ...[bytes(4, 32, 16), { ...scales(4, 32), low: 0.001, high: 0.003 }],
    ],
    { k: 1, activation_type: 'silu', expert_weight_bits: 8 },
  ),
];

/** Differences must not cross from one choice of experts to another. */
const isClear = (shape: readonly number[], data: readonly number[]) => {
  const [, experts = 1] = shape;
  return data.every((value, at) =>
    data.every(
      (other, place) =>
        place <= at || Math.floor(at / experts) !== Math.floor(place / experts) || Math.abs(value - other) > 0.03,
    ),
  );
};

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN, ...QUANTISED];

/** Sums of so many features are near a kink for some expert and token, whatever the values are. */
const hasKinks = ({ attributes }: Case) => attributes['activation_type'] === 'relu' || 'swiglu_limit' in attributes;

export const expertSamples: readonly (readonly [Case, GradientOptions])[] = samples.map((sample) => [
  sample,
  {
    // Scales of quantised weights have no gradients.
    ...(sample.op === 'QMoE' ? { wanted: [true, true, false, false, true, false, false, true] } : {}),
    ...(hasKinks(sample) ? { tolerance: 0.1 } : {}),
    seed: firstSeed(sample, ([, routed]) => isClear(routed?.shape ?? [], routed?.data ?? [])),
  },
]);
