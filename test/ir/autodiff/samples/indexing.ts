/**
 * @file Sample lookups, scatters and operators along an axis whose gradients are checked.
 */
import { constant } from '../../../../src/ir/ops/constants.js';
import { CASES } from '../../ops/cases.js';
import { type Case, c, f, h, i, ms, positive, signed } from '../../ops/sample.js';
import type { GradientOptions } from '../sample-gradient.js';

const OPERATORS: ReadonlySet<string> = new Set([
  ...['Gather', 'GatherElements', 'GatherND', 'ScatterElements', 'ScatterND', 'ReverseSequence'],
  ...['TopK', 'CumSum', 'CumProd', 'Trilu', 'OneHot', 'AffineGrid', 'DFT', 'STFT'],
]);

/** Operators that ONNX Runtime has under its own domain too. */
const DOUBLES: ReadonlySet<string> = new Set(['Trilu', 'GatherND']);

/** Places that differ: a scatter that replaces is defined for these only. */
const spread = (sample: Case): Case => ({
  ...sample,
  inputs: sample.inputs.map((input, at) => (at === 1 && input ? { ...input, low: 0, high: 0, step: 1 } : input)),
});

const OWN: readonly Case[] = [
  c('Gather', [f(6, 4), signed(6)], {}),
  c('Gather', [f(2, 3, 4), i(3, 2, 2)], { axis: 1 }),
  c('Gather', [f(8, 4), { ...i(8, 6), dtype: 'int32' }]),
  c('Gather', [h(8, 4), i(3, 12)]),
  c('GatherND', [f(2, 3, 4), signed(2, 5, 1)]),
  c('GatherND', [f(2, 3, 4, 2), i(3, 2, 5, 2)], { batch_dims: 1 }),
  c('GatherND', [f(2, 3, 4), i(3, 2, 2)], { batch_dims: 1 }),
  spread(c('ScatterND', [f(4, 6), i(4, 2, 1), f(2, 6)])),
  c('ScatterND', [f(4, 3, 2), signed(3, 5, 2), f(5, 2)], { reduction: 'add' }),
  ...['max', 'min', 'mul'].flatMap((reduction) => [
    c('ScatterND', [f(4, 6), i(4, 3, 1), f(3, 6)], { reduction }),
    c('ScatterElements', [f(4, 6), i(6, 4, 3), f(4, 3)], { axis: 1, reduction }),
  ]),
  c('ScatterElements', [f(4, 6), i(4, 5, 3), f(5, 3)], { axis: 0, reduction: 'add' }),
  ...[0, 1].flatMap((exclusive) =>
    [0, 1].flatMap((reverse) => [
      c('CumSum', [f(3, 5)], { axis: 1, exclusive, reverse }),
      c('CumProd', [positive(3, 5)], { axis: 1, exclusive, reverse }),
    ]),
  ),
  c('TopK', [f(4, 6)], { k: 3, axis: 0, largest: 0 }, 2),
  c('TopK', [f(2, 3, 8)], { k: 5, axis: 2 }, 2),
  c('Trilu', [f(2, 4, 6), { shape: [], dtype: 'int64', low: -1, high: 0 }], { upper: 1 }),
  ms('Trilu', [f(2, 4, 6), { shape: [], dtype: 'int64', low: -1, high: 0 }], { upper: 1 }),
  ms('GatherND', [f(2, 3, 4), i(2, 5, 1)]),
  c('OneHot', [i(6, 4, 2), null, f(2)], { depth: 6, axis: 0 }),
  c('DFT', [f(2, 8, 1)], { axis: 1, dft_length: 6 }),
  c('DFT', [f(2, 6, 2)], { axis: 1, dft_length: 8 }),
  c('DFT', [f(2, 6, 1)], { axis: 1, dft_length: 8, onesided: 1 }),
  c('STFT', [f(2, 19, 1), null, f(8)], { frame_step: constant('int64', [4]), onesided: 0 }),
  c('MaxUnpool', [f(4, 1, 1), { ...i(2, 4, 1, 1), step: 2 }], { kernel_shape: [2], strides: [2] }),
  c('MaxUnpool', [f(4, 1, 1, 1), { ...i(4, 4, 1, 1, 1), step: 4 }], { kernel_shape: [2, 2], strides: [2, 2] }),
  c('ReverseSequence', [f(2, 4, 3), { ...i(4, 2), low: 1 }], { time_axis: 1, batch_axis: 0 }),
];

export const indexingSamples: readonly (readonly [Case, GradientOptions])[] = [...CASES.filter(isIndexing), ...OWN].map(
  (sample) => [sample, {}],
);

function isIndexing({ op, domain, inputs }: Case): boolean {
  return (domain === '' || DOUBLES.has(op)) && OPERATORS.has(op) && inputs.some((input) => input?.dtype === 'float32');
}
