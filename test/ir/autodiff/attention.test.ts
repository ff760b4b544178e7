/**
 * @file Gradients of attention and rotary embeddings: against finite differences, and lowered under the forward's strategies.
 */
import test from 'ava';
import { CASES } from '../../ir/ops/cases.js';
import { b, type Case, c, f, h, i } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { gradientViewOf } from './sample-gradient.js';

const OPERATORS = ['Attention', 'RotaryEmbedding', 'MRotaryEmbedding', 'MultiHeadAttention'];

const OWN: readonly Case[] = [
  c('Attention', [f(2, 6, 16), f(2, 6, 16), f(2, 6, 16)], { q_num_heads: 4, kv_num_heads: 4, is_causal: 1 }),
  c('Attention', [f(1, 2, 6, 4), f(1, 2, 6, 4), f(1, 2, 6, 4), f(2, 6, 6)], { is_causal: 1 }),
  c('Attention', [f(2, 4, 2, 8), f(2, 2, 4, 8), f(2, 2, 4, 8), b(2, 1, 2, 4)]),
  c('Attention', [f(2, 4, 6, 8), f(2, 2, 4, 8), f(2, 2, 4, 6)], { softcap: 1.5 }),
  c(
    'Attention',
    [f(2, 4, 2, 8), f(2, 4, 4, 8), f(2, 4, 4, 8), null, f(2, 4, 2, 8), f(2, 4, 2, 8)],
    { is_causal: 1 },
    3,
  ),
  { ...c('Attention', [h(2, 4, 6, 8), h(2, 2, 4, 8), h(2, 2, 4, 8)]), tolerance: 1e-2 },
  c('RotaryEmbedding', [f(2, 4, 6, 8), f(2, 6, 2), f(2, 6, 2)], { rotary_embedding_dim: 4 }),
  c('RotaryEmbedding', [f(2, 6, 32), f(10, 4), f(10, 4), i(10, 2, 6)], { num_heads: 4, interleaved: 1 }),
];

const samples = [...CASES.filter(({ op }) => OPERATORS.includes(op)), ...OWN].filter(
  ({ op, domain }) => needEntry(op, domain).gradient !== undefined,
);
for (const [number, sample] of samples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    // Angles are trained seldom; where positions lie in sections they cannot be.
    const options = sample.op === 'MRotaryEmbedding' ? { wanted: [true] } : {};
    const { error, seed } = await firstWithoutEmptyRows(sample, options);
    t.log(error.toExponential(1));
    await checkShardedGradient(sample, { ...options, seed });
    t.true(error <= 2e-2);
  });
}

/** Random masks may leave a query without any key, which has no slope to compare with: other values are drawn then. */
async function firstWithoutEmptyRows(sample: Case, options: object): Promise<{ error: number; seed: number }> {
  for (let seed = 1; ; seed++) {
    try {
      return { error: await checkGradient(sample, { ...options, seed }), seed };
    } catch (error) {
      if (seed > 12 || !(error instanceof Error) || !error.message.includes('lies at kinks')) throw error;
    }
  }
}

test('angles whose positions lie in sections have no gradient, and it says so', (t) => {
  const sample = CASES.find(({ op }) => op === 'MRotaryEmbedding');
  const view = sample && gradientViewOf(sample, {});
  const { gradient } = needEntry('MRotaryEmbedding', 'com.microsoft');
  if (!view || typeof gradient !== 'function') return t.fail();
  return t.throws(() => gradient(view), { message: /its angles have no gradient/ });
});
