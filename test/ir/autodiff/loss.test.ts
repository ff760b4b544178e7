/**
 * @file Gradients of losses: against finite differences with every reduction, weights and ignored labels; under the forward's
 * strategies; and where no label counts.
 */
import test from 'ava';
import { CASES } from '../ops/cases.js';
import { type Case, c, f, h, i, of, positive, wide } from '../ops/sample.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { floats, gradientAt, scalar } from './gradient-at.js';
import type { GradientOptions } from './sample-gradient.js';

const REDUCTIONS = ['mean', 'sum', 'none'];
const IGNORED: readonly { readonly ignore_index?: number }[] = [{}, { ignore_index: 2 }, { ignore_index: -100 }];

const OWN: readonly (readonly [Case, GradientOptions])[] = REDUCTIONS.flatMap((reduction) =>
  IGNORED.flatMap((ignored) => {
    const attributes = { reduction, ...ignored };
    return [
      [c('SoftmaxCrossEntropyLoss', [wide(4, 6), i(6, 4)], attributes), {}],
      [c('SoftmaxCrossEntropyLoss', [wide(4, 6, 2), i(6, 4, 2), positive(6)], attributes, 2), {}],
      [c('NegativeLogLikelihoodLoss', [f(4, 6), i(6, 4)], attributes), {}],
      [c('NegativeLogLikelihoodLoss', [f(4, 6, 2), of('int32', 6, 4, 2), positive(6)], attributes), {}],
    ] as const;
  }),
);

const PARTLY: readonly (readonly [Case, GradientOptions])[] = [
  [c('SoftmaxCrossEntropyLoss', [wide(4, 6), i(6, 4)], {}, 2), { given: [false, true] }],
  [c('SoftmaxCrossEntropyLoss', [wide(4, 6), i(6, 4), positive(6)], {}, 2), { given: [true, false] }],
  [c('SoftmaxCrossEntropyLoss', [wide(4, 6, 2, 2), i(6, 4, 2, 2)], {}), {}],
  [c('SoftmaxCrossEntropyLoss', [h(4, 6), i(6, 4)], {}, 1, 1e-2), {}],
];

const known = CASES.filter(({ op }) => op.endsWith('Loss')).map((sample) => [sample, {} as GradientOptions] as const);
for (const [number, [sample, options]] of [...known, ...OWN, ...PARTLY].entries()) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify([sample.attributes, options])}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    await checkShardedGradient(sample, { ...options, tolerance: sample.tolerance === 1e-2 ? 2e-2 : 2e-4 });
    t.true(error < 2e-2);
  });
}

const labels = (...data: readonly number[]) => ({ dtype: 'int64' as const, shape: [data.length], data });

test('where no label counts the gradient is zero', async (t) => {
  const { gradients } = await gradientAt({
    op: 'SoftmaxCrossEntropyLoss',
    attributes: { ignore_index: 1 },
    operands: [floats([1, 2, 3, 4], [2, 2]), labels(1, 1)],
    gradients: [scalar(1)],
  });
  t.deepEqual(gradients[0]?.map(Math.abs), [0, 0, 0, 0]);
});

test('ignored labels get none, and the others share the mean among them', async (t) => {
  const { gradients } = await gradientAt({
    op: 'SoftmaxCrossEntropyLoss',
    attributes: { ignore_index: -100 },
    operands: [floats([0, 0, 0, 0, 0, 0], [3, 2]), labels(0, -100, 1)],
    gradients: [scalar(4)],
  });
  t.deepEqual(
    gradients[0]?.map((value) => value + 0),
    [-1, 1, 0, 0, 1, -1],
  );
});
