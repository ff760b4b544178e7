/**
 * @file Gradients of fused regions under every strategy of one and of two axes.
 */
import test from 'ava';
import type { Graph } from '../../../src/ir/graph.js';
import type { RegionKind } from '../../../src/ir/operator.js';
import { provesRight } from '../fused-regions/every-strategy.js';
import {
  crossEntropy,
  gelu,
  groupedAttention,
  layerNormalization,
  rotary,
  swiglu,
} from '../fused-regions/region-graphs.js';
import { gradientAlone } from './scored-region.js';

const REGIONS: readonly (readonly [RegionKind, () => Graph])[] = [
  ['Attention', groupedAttention],
  ['LayerNormalization', layerNormalization],
  ['CrossEntropy', crossEntropy],
  ['Gelu', gelu],
  ['SwiGLU', swiglu],
  ['RotaryEmbedding', rotary],
];

for (const [kind, make] of REGIONS) {
  test(`the gradient of ${kind} is right under every strategy`, async (t) => {
    t.timeout(600_000);
    t.true((await provesRight(gradientAlone(make(), kind), 1)) > 10);
  });
}
