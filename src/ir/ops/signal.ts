/**
 * @file Signals: Fourier transforms, window functions, the mel scale. Transforms are linear and run along one axis, which
 * stays whole; window functions are constants as soon as their length is known.
 */
import { dtypeOfOnnx } from '../dtype.js';
import { elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { numbersOf } from './constants.js';
import { entry, perElement } from './entry.js';
import { dimensionNames, dtypeAttribute, mismatch, numberOf, ofRank, operand, tensor } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { SIGNAL_GRADIENTS } from './signal-gradient.js';
import { transform } from './signal-shapes.js';

const entries: readonly OperatorEntry[] = [
  entry({
    op: 'DFT',
    family: 'other',
    constantInputs: [
      { index: 1, attribute: 'dft_length', form: 'int' },
      { index: 2, attribute: 'axis', form: 'int' },
    ],
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 2, true);
      const { axis, length, real } = transform(operator);
      if (axis === shape.length - 1) throw mismatch(operator, 'the last dimension holds real and imaginary parts');
      const size =
        numberOf(operator, 'onesided', 0) && !numberOf(operator, 'inverse', 0) ? Math.floor(length / 2) + 1 : length;
      return [
        { dtype, shape: [...shape.map((old, index) => (index === axis ? size : old)).slice(0, -1), real ? 1 : 2] },
      ];
    },
    rule: (operator) => {
      const { axis } = transform(operator);
      const names = dimensionNames(operand(operator, 0).shape.length - 1);
      const side = (own: string) => names.map((name, index) => (index === axis ? own : name)).join(' ');
      return `${side('x!')} p! -> ${side('y!')} q!`;
    },
    linear: () => [[0]],
    work: (operator) => {
      const { length } = transform(operator);
      return { flops: 5 * elementCount(operand(operator, 0).shape) * Math.max(1, Math.log2(length)) };
    },
    note: 'The axis is not sharded: each frequency needs every sample.',
  }),
  entry({
    op: 'STFT',
    family: 'other',
    constantInputs: [
      { index: 1, attribute: 'frame_step', form: 'tensor' },
      { index: 3, attribute: 'frame_length', form: 'tensor' },
    ],
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 2, true);
      const [batch = 1, length = 1] = shape;
      const step = scalar(operator, 'frame_step');
      const frame = scalar(operator, 'frame_length') ?? operator.inputs[2]?.shape[0];
      if (step === undefined || frame === undefined)
        throw mismatch(operator, 'its frame_step and frame_length must be constants');
      const bins = numberOf(operator, 'onesided', 1) ? Math.floor(frame / 2) + 1 : frame;
      return [{ dtype, shape: [batch, Math.floor((length - frame) / step) + 1, bins, 2] }];
    },
    rule: (operator) => `b t! ${operand(operator, 0).shape.length === 3 ? 'p!' : ''}, _, w!, _ -> b f! k! q!`,
    linear: (operator) => (operator.inputs[2] ? [[0], [2]] : [[0]]),
    work: perElement(20),
    note: 'Samples are not sharded: frames overlap.',
  }),
  ...['BlackmanWindow', 'HammingWindow', 'HannWindow'].map((op) =>
    entry({
      op,
      family: 'generator',
      constantInputs: [{ index: 0, attribute: 'length', form: 'tensor' }],
      infer: (operator) => {
        const length = scalar(operator, 'length');
        if (length === undefined) throw mismatch(operator, 'its size must be a constant');
        return [{ dtype: dtypeOfOnnx(numberOf(operator, 'output_datatype', 1)) ?? 'float32', shape: [length] }];
      },
      rule: ' -> w!',
      work: perElement(10),
      note: 'Replicated: its period is the unsharded length.',
    }),
  ),
  entry({
    op: 'MelWeightMatrix',
    family: 'generator',
    constantInputs: ['num_mel_bins', 'dft_length', 'sample_rate', 'lower_edge_hertz', 'upper_edge_hertz'].map(
      (attribute, index) => ({ index, attribute, form: 'tensor' as const }),
    ),
    infer: (operator) => {
      const [bins, length] = [scalar(operator, 'num_mel_bins'), scalar(operator, 'dft_length')];
      if (bins === undefined || length === undefined) throw mismatch(operator, 'its sizes must be constants');
      return [
        { dtype: dtypeAttribute(operator, 'output_datatype', 'float32'), shape: [Math.floor(length / 2) + 1, bins] },
      ];
    },
    rule: ' -> f! m!',
    work: perElement(4),
    note: 'Replicated: its bands divide the full range of frequencies.',
  }),
];

export const signalEntries = withGradients(entries, SIGNAL_GRADIENTS);

/** The number that a constant input holds; undefined where it is left out. */
function scalar(operator: Operator, name: string): number | undefined {
  const held = tensor(operator, name);
  return held ? numbersOf(held)[0] : undefined;
}
