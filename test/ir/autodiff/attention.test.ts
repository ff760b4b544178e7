/**
 * @file Gradients of attention and rotary embeddings: against finite differences.
 */
import test from 'ava';
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { CASES } from '../../ir/ops/cases.js';
import { selection } from '../../selection.js';
import { type Case, f, ms, of, type Sample } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';
import { differentiatedOf, type GradientOptions } from './sample-gradient.js';
import { attentionSamples } from './samples/attention.js';

for (const [number, [sample, options]] of selection(attentionSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await firstWithoutEmptyRows(sample, options);
    t.log(error.toExponential(1));
    t.true(error <= 2e-2);
  });
}

/** Random masks may leave a query without any key, which has no slope to compare with: other values are drawn then. */
async function firstWithoutEmptyRows(sample: Case, options: GradientOptions): Promise<number> {
  for (let seed = options.seed ?? 1; ; seed++) {
    try {
      return await checkGradient(sample, { ...options, seed });
    } catch (error) {
      if (seed > 12 || !(error instanceof Error) || !error.message.includes('lies at kinks')) throw error;
    }
  }
}

test('angles whose positions lie in sections have no gradient, and it says so', (t) => {
  const sample = CASES.find(({ op }) => op === 'MRotaryEmbedding');
  const operator = sample && differentiatedOf(sample, {});
  const gradient = gradientOperators(needEntry('MRotaryEmbedding', 'com.microsoft'));
  if (!operator || !gradient) return t.fail();
  return t.throws(() => gradient(operator), { message: /its angles have no gradient/ });
});

test('forms of attention that no kernel here proves have no gradient, and they say so', (t) => {
  const refused = (op: string, inputs: readonly (Sample | null)[], attributes: Case['attributes']) => {
    const operator = differentiatedOf(ms(op, inputs, attributes), { wanted: [true] });
    const gradient = gradientOperators(needEntry(op, 'com.microsoft'));
    return () => (gradient ? gradient(operator) : t.fail());
  };
  const heads = { num_heads: 2 };
  const whole = { ...heads, kv_num_heads: 2, total_sequence_length: constant('int32', [4]) };
  const parts = [f(2, 4, 16), f(2, 4, 16), f(2, 4, 16), null, null, of('int32', 4, 2)];
  const trained = { message: /normalises queries or shows its scores/ };
  t.throws(refused('GroupQueryAttention', [...parts, ...Array(6).fill(null), f(1)], whole), trained);
  const pairs = of('int32', 2, 2, 1, 4, 4);
  t.throws(refused('Attention', [f(2, 4, 6), f(6, 24), f(24), pairs], heads), { message: /a mask of four dimensions/ });
  const beside = { message: /queries, keys and values in one tensor/ };
  t.throws(refused('MultiHeadAttention', [f(2, 4, 48)], heads), beside);
  const past = [f(2, 2, 6, 8), f(2, 2, 6, 8), of('int32', 4, 1)];
  const single = [f(2, 1, 16), f(2, 1, 16), f(2, 1, 16)];
  t.throws(refused('MultiHeadAttention', [...single, null, null, null, ...past], heads), beside);
  const windows = { q_num_heads: 2, kv_num_heads: 2, state_window: 2 };
  const several = { message: /a window of states/ };
  t.throws(refused('LinearAttention', [...parts.slice(0, 3), f(2, 2, 2, 8, 8)], windows), several);
  t.throws(refused('CausalConvWithState', [f(2, 3, 4, 4), f(3, 1, 2, 2)], {}), several);
});
