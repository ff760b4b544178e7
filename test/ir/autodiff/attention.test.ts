/**
 * @file Gradients of attention and rotary embeddings: against finite differences, and lowered under the forward's strategies.
 */
import test from 'ava';
import { CASES } from '../../ir/ops/cases.js';
import type { Case } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { gradientViewOf } from './sample-gradient.js';
import { attentionSamples } from './samples/attention.js';

for (const [number, [sample, options]] of attentionSamples.entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
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

test('forms of attention for decoding, and masks that are not undone, have no gradient, and they say so', (t) => {
  const refused = (op: string, operand: number, axis: number, size: number) => {
    const sample = CASES.find(
      (item) => item.op === op && item.domain !== '' && item.inputs[operand]?.shape[axis] === size,
    );
    const view = sample && gradientViewOf(sample, { wanted: [true] });
    const { gradient } = needEntry(op, 'com.microsoft');
    return () => (view && typeof gradient === 'function' ? gradient(view) : t.fail());
  };
  t.throws(refused('GroupQueryAttention', 3, 2, 6), { message: /it continues a cache/ });
  t.throws(refused('Attention', 3, 0, 4), { message: /a mask of starts and ends/ });
});
