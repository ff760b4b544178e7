/**
 * @file Sample losses whose gradients are checked.
 */
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, h, i, of, positive, wide } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

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
export const lossSamples: readonly (readonly [Case, GradientOptions])[] = [...known, ...OWN, ...PARTLY];
