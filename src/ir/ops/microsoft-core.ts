/**
 * @file Operators of ONNX Runtime's domain that equal ONNX's own, with the same operands and attributes, and small ones without
 * an equivalent there.
 */
import { elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { numbersOf } from './constants.js';
import { bindChannels, resizeGroups, transposedGradient, transposedNames, transposedSizes } from './convolution.js';
import { entry, isFree, moves, perElement } from './entry.js';
import { generatorEntries } from './generator.js';
import { imageEntries } from './image.js';
import { indexingEntries } from './indexing.js';
import { MICROSOFT_CORE_GRADIENTS } from './microsoft-core-gradient.js';
import { movementEntries } from './movement.js';
import {
  axisOf,
  checkedAxis,
  dimensionNames,
  mismatch,
  neededIntegers,
  numberOf,
  ofRank,
  operand,
  result,
  tensor,
} from './operands.js';
import { differentiable, withGradients } from './operator-gradient.js';
import { quantisationEntries } from './quantisation.js';
import { spatialNames, windowsOf } from './windows.js';

const DOMAIN = 'com.microsoft';

/** ONNX Runtime had these before ONNX did. */
const SAME: ReadonlySet<string> = new Set([
  'DequantizeLinear',
  'GatherND',
  'GridSample',
  'Pad',
  'QLinearConv',
  'QuantizeLinear',
  'Range',
  'Trilu',
]);

const entries: readonly OperatorEntry[] = [
  ...[...generatorEntries, ...imageEntries, ...indexingEntries, ...movementEntries, ...quantisationEntries]
    .filter(({ op }) => SAME.has(op))
    .map((item) => ({ ...item, domain: DOMAIN })),
  entry({
    op: 'ExpandDims',
    domain: DOMAIN,
    family: 'view',
    constantInputs: [{ index: 1, attribute: 'axis', form: 'tensor' }],
    infer: (operator) => {
      const { dtype, shape } = operand(operator, 0);
      const axis = newAxis(operator);
      return [{ dtype, shape: [...shape.slice(0, axis), 1, ...shape.slice(axis)] }];
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length);
      const axis = newAxis(operator);
      return `${names.join(' ')} -> ${[...names.slice(0, axis), '1', ...names.slice(axis)].join(' ')}`;
    },
    linear: () => [[0]],
    work: isFree,
    isView: true,
  }),
  entry({
    op: 'Inverse',
    domain: DOMAIN,
    family: 'other',
    infer: (operator) => {
      const type = ofRank(operator, 0, 2, true);
      if (type.shape.at(-1) !== type.shape.at(-2)) throw mismatch(operator, 'its matrices are not square');
      return [type];
    },
    rule: '*b i! j! -> *b i! j!',
    work: (operator) => ({
      flops: 2 * elementCount(operand(operator, 0).shape) * (operand(operator, 0).shape.at(-1) ?? 1),
    }),
    note: 'Matrices are not sharded.',
  }),
  entry({
    op: 'UnfoldTensor',
    domain: DOMAIN,
    family: 'view',
    attributes: { step: 'count' },
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 1, true);
      const axis = axisOf(operator, 'dim', shape.length, -1);
      const size = numberOf(operator, 'size', 1);
      const steps = Math.floor(((shape[axis] ?? 1) - size) / numberOf(operator, 'step', 1)) + 1;
      return [{ dtype, shape: [...shape.map((old, index) => (index === axis ? steps : old)), size] }];
    },
    rule: (operator) => {
      const { shape } = operand(operator, 0);
      const axis = axisOf(operator, 'dim', shape.length, -1);
      const names = dimensionNames(shape.length);
      const side = (own: string) => names.map((name, index) => (index === axis ? own : name)).join(' ');
      return `${side('x!')} -> ${side('y!')} z!`;
    },
    linear: () => [[0]],
    work: moves,
    note: 'The unfolded dimension is not sharded.',
  }),
  entry({
    op: 'CDist',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => {
      const [a, b] = [ofRank(operator, 0, 2), ofRank(operator, 1, 2)];
      if (a.shape[1] !== b.shape[1]) throw mismatch(operator, 'the sizes of its vectors differ');
      return [{ dtype: a.dtype, shape: [a.shape[0] ?? 1, b.shape[0] ?? 1] }];
    },
    rule: 'm d!, n d! -> m n',
    work: (operator) => ({ flops: 3 * elementCount(result(operator, 0).shape) * (operand(operator, 0).shape[1] ?? 1) }),
    note: 'Vectors are not sharded: their root is taken last.',
  }),
  entry({
    op: 'CropAndResize',
    domain: DOMAIN,
    family: 'indexing',
    constantInputs: [{ index: 3, attribute: 'crop_size', form: 'tensor' }],
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 4);
      const held = tensor(operator, 'crop_size');
      if (!held) throw mismatch(operator, 'its crop_size must be a constant');
      return [{ dtype, shape: [ofRank(operator, 1, 2).shape[0] ?? 1, shape[1] ?? 1, ...numbersOf(held)] }];
    },
    rule: 'n! c h! w!, r q!, r -> r c y! x!',
    work: perElement(8),
    note: 'Images are not sharded: a region may be anywhere in any of them.',
  }),
  differentiable(
    entry({
      op: 'ConvTransposeWithDynamicPads',
      domain: DOMAIN,
      family: 'convolution',
      constantInputs: [{ index: 2, attribute: 'pads', form: 'ints' }],
      infer: (operator) => {
        const [x, w] = [ofRank(operator, 0, 3, true), operand(operator, 1)];
        if (w.shape.length !== x.shape.length || w.shape[0] !== x.shape[1])
          throw mismatch(operator, `the kernel does not fit ${x.shape[1]} channels`);
        const channels = (w.shape[1] ?? 1) * numberOf(operator, 'group', 1);
        return [{ dtype: x.dtype, shape: [x.shape[0] ?? 1, channels, ...transposedSizes(operator)] }];
      },
      rule: (operator) => {
        const names = transposedNames(operator, false);
        const groups = numberOf(operator, 'group', 1) > 1;
        const [ci, co] = groups ? ['(g ci!)', '(g co)'] : ['ci!', 'co'];
        const operands = [`n ${ci} ${names.input.join(' ')}`, `${ci} co ${names.kernel.join(' ')}`, '_', co];
        return bindChannels(`${operands.join(', ')} -> n ${co} ${names.output.join(' ')}`, operator);
      },
      resize: resizeGroups,
      work: (operator) => ({
        flops: 2 * elementCount(operand(operator, 0).shape) * elementCount(operand(operator, 1).shape.slice(1)),
      }),
      parameterInputs: [1, 3],
      note: 'Input channels and positions are not sharded: windows overlap.',
    }),
    (write) => transposedGradient(write, 3),
  ),
  entry({
    op: 'NhwcMaxPool',
    domain: DOMAIN,
    family: 'pooling',
    infer: (operator) => {
      const { dtype, shape } = ofRank(operator, 0, 3, true);
      return [{ dtype, shape: [shape[0] ?? 1, ...pooled(operator).map(({ output }) => output), shape.at(-1) ?? 1] }];
    },
    rule: (operator) => {
      const names = spatialNames(pooled(operator));
      return `n ${names.input.join(' ')} c -> n ${names.output.join(' ')} c`;
    },
    work: (operator) => ({
      flops: elementCount(result(operator, 0).shape) * elementCount(neededIntegers(operator, 'kernel_shape')),
    }),
    note: 'Positions are not sharded if windows overlap.',
  }),
];

export const microsoftCoreEntries = withGradients(entries, MICROSOFT_CORE_GRADIENTS);

function newAxis(operator: Operator): number {
  const held = tensor(operator, 'axis');
  if (!held) throw mismatch(operator, 'its axis must be a constant');
  return checkedAxis(operator, numbersOf(held)[0] ?? 0, operand(operator, 0).shape.length + 1);
}

/** Windows over an image whose channels come last. */
function pooled(operator: Operator) {
  const { shape } = operand(operator, 0);
  return windowsOf(
    operator,
    [shape[0] ?? 1, shape.at(-1) ?? 1, ...shape.slice(1, -1)],
    neededIntegers(operator, 'kernel_shape'),
  );
}
