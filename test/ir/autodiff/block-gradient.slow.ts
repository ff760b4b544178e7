/**
 * @file Gradients of recognised blocks under every strategy of one and of two axes.
 */
import test from 'ava';
import type { Graph } from '../../../src/ir/graph.js';
import type { BlockKind } from '../../../src/ir/operator.js';
import { crossEntropy, gelu, groupedAttention, layerNormalization, rotary, swiglu } from '../blocks/block-graphs.js';
import { provesRight } from '../blocks/every-strategy.js';
import { gradientAlone } from './scored-block.js';

const BLOCKS: readonly (readonly [BlockKind, () => Graph])[] = [
  ['Attention', groupedAttention],
  ['LayerNormalization', layerNormalization],
  ['CrossEntropy', crossEntropy],
  ['Gelu', gelu],
  ['SwiGLU', swiglu],
  ['RotaryEmbedding', rotary],
];

for (const [kind, make] of BLOCKS) {
  test(`the gradient of ${kind} is right under every strategy`, async (t) => {
    t.timeout(600_000);
    t.true((await provesRight(gradientAlone(make(), kind), 1)) > 10);
  });
}
