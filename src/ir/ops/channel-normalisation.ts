/**
 * @file Normalisations of images: over the batch, over positions, over groups of channels, over neighbouring channels. If
 * a dimension that is averaged over is sharded, they are expanded, so that ranks reduce sums.
 */
import type { TensorFactors } from '../factor-rule.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { channelNormalisationGradients } from './channel-normalisation-gradient.js';
import { entry, perInputElement } from './entry.js';
import type { ExpansionWriter } from './expansion.js';
import { axesFromFront, axisOf, dimensionNames, integers, mismatch, numberOf, ofRank, operand } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { isResultUsed, meanOf, spread, start } from './statistics.js';

const ENTRIES: readonly OperatorEntry[] = [
  entry({
    op: 'BatchNormalization',
    family: 'normalisation',
    region: 'BatchNormalization',
    precision: 'data',
    infer: (operator) => {
      const type = ofRank(operator, 0, 2, true);
      for (const index of [1, 2, 3, 4])
        if (ofRank(operator, index, 1).shape[0] !== type.shape[1])
          throw mismatch(operator, `operand ${index} is not per channel`);
      return [type, operand(operator, 3), operand(operator, 4)].slice(0, operator.outputCount);
    },
    rule: (operator) => {
      const mark = numberOf(operator, 'training_mode', 0) ? '%' : '';
      const spatial = dimensionNames(operand(operator, 0).shape.length - 2, 's').map((name) => `${name}${mark}`);
      const image = [`n${mark}`, 'c', ...spatial].join(' ');
      return `${image}, c, c, c, c -> ${image}, c, c`;
    },
    expansion: batchExpansion,
    work: perInputElement(2),
    parameterInputs: [1, 2, 3, 4],
    statisticsInputs: [3, 4],
    training: {
      kind: 'batch-statistics',
      mode: 'training_mode',
      running: [
        { name: 'running_mean', operand: 3, result: 1 },
        { name: 'running_var', operand: 4, result: 2 },
      ],
    },
  }),
  entry({
    op: 'InstanceNormalization',
    family: 'normalisation',
    infer: (operator) => [ofRank(operator, 0, 3, true)],
    rule: (operator) => {
      const image = ['n', 'c', ...dimensionNames(operand(operator, 0).shape.length - 2, 's').map((name) => `${name}%`)];
      return `${image.join(' ')}, c, c -> ${image.join(' ')}`;
    },
    expansion: instanceExpansion,
    work: perInputElement(8),
    parameterInputs: [1, 2],
  }),
  entry({
    op: 'GroupNormalization',
    family: 'normalisation',
    infer: (operator) => {
      const type = ofRank(operator, 0, 3, true);
      if ((type.shape[1] ?? 1) % numberOf(operator, 'num_groups', 1) !== 0)
        throw mismatch(operator, `its channels do not make ${numberOf(operator, 'num_groups', 1)} groups`);
      return [type];
    },
    rule: (operator) => {
      const spatial = dimensionNames(operand(operator, 0).shape.length - 2, 's').map((name) => `${name}%`);
      const image = ['n', '(g c%)', ...spatial].join(' ');
      return bindRule(`${image}, (g c%), (g c%) -> ${image}`, operator, { g: numberOf(operator, 'num_groups', 1) });
    },
    resize: (operator, _, size) => ({ ...operator.attributes, num_groups: size('g') }),
    expansion: groupExpansion,
    work: perInputElement(8),
    parameterInputs: [1, 2],
  }),
  entry({
    op: 'LpNormalization',
    family: 'normalisation',
    infer: (operator) => [operand(operator, 0)],
    rule: (operator) => {
      const axis = axisOf(operator, 'axis', operand(operator, 0).shape.length, -1);
      const names = dimensionNames(operand(operator, 0).shape.length);
      const side = names.map((name, index) => (index === axis ? `${name}%` : name)).join(' ');
      return `${side} -> ${side}`;
    },
    expansion: lpExpansion,
    work: perInputElement(4),
  }),
  entry({
    op: 'MeanVarianceNormalization',
    family: 'normalisation',
    infer: (operator) => [operand(operator, 0)],
    rule: (operator) => {
      const { shape } = operand(operator, 0);
      const axes = axesFromFront(operator, integers(operator, 'axes') ?? [0, 2, 3], shape.length);
      const side = dimensionNames(shape.length).map((name, axis) => (axes.includes(axis) ? `${name}%` : name));
      return `${side.join(' ')} -> ${side.join(' ')}`;
    },
    expansion: varianceExpansion,
    work: perInputElement(8),
  }),
  entry({
    op: 'LRN',
    family: 'normalisation',
    infer: (operator) => [ofRank(operator, 0, 3, true)],
    rule: 'n c! *s -> n c! *s',
    work: perInputElement(12),
    note: 'Channels are not sharded: neighbours are summed.',
  }),
];

export const channelNormalisationEntries: readonly OperatorEntry[] = withGradients(
  ENTRIES,
  channelNormalisationGradients,
);

/** Names of an image's dimensions from the third on. */
function spatialOf(operator: Operator): readonly string[] {
  return dimensionNames(operand(operator, 0).shape.length - 2, 's');
}

/** A vector with one value per channel, in a shape that broadcasts over positions. */
function perChannel(
  write: ExpansionWriter,
  operator: Operator,
  vector: string,
  channels: TensorFactors = [['c']],
): string {
  const spatial = spatialOf(operator);
  const axes = spatial.map((_, index) => index + channels.length);
  return write.add('Unsqueeze', [vector], [...channels, ...spatial.map(() => [])], { axes });
}

/** Training mode: statistics of the batch, and running ones moved towards them. */
function batchExpansion(operator: Operator): Expansion {
  const { dtype, shape } = operand(operator, 0);
  const axes = shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  const at = start(operator, ['n', 'c', ...spatialOf(operator)], axes);
  const { write, whole, reduced } = at;
  const mean = meanOf(operator, at, at.input);
  const centred = write.add('Sub', [at.input, mean], whole);
  const variance = meanOf(operator, at, write.add('Mul', [centred, centred], whole));
  const epsilon = write.scalar(at.type, numberOf(operator, 'epsilon', 1e-5));
  const deviation = write.add('Sqrt', [write.add('Add', [variance, epsilon], reduced)], reduced);
  const beside = (index: number) => {
    const { dtype: own } = operand(operator, index);
    return perChannel(write, operator, own === at.type ? `in${index}` : write.cast(`in${index}`, [['c']], at.type));
  };
  // The scale of a channel is divided, not each of its pixels.
  const scaled = write.add('Mul', [centred, write.add('Div', [beside(1), deviation], reduced)], whole);
  const moved = write.add('Add', [scaled, beside(2)], whole, {}, at.type === dtype ? 'out0' : undefined);
  if (at.type !== dtype) write.cast(moved, whole, dtype, 'out0');
  const momentum = numberOf(operator, 'momentum', 0.9);
  const move = (index: number, running: string, current: string): void => {
    if (!isResultUsed(operator, index)) return;
    const own = operand(operator, 3).dtype;
    const flat = write.add('Squeeze', [current], [['c']], { axes });
    const cast = own === at.type ? flat : write.cast(flat, [['c']], own);
    const kept = write.add('Mul', [running, write.scalar(own, momentum)], [['c']]);
    const added = write.add('Mul', [cast, write.scalar(own, 1 - momentum)], [['c']]);
    write.add('Add', [kept, added], [['c']], {}, `out${index}`);
  };
  move(1, 'in3', mean);
  move(2, 'in4', variance);
  return write.finish();
}

/** Groups as a dimension of their own while means are taken. */
function groupExpansion(operator: Operator): Expansion {
  const { dtype, shape } = operand(operator, 0);
  const spatial = spatialOf(operator);
  const groups = numberOf(operator, 'num_groups', 1);
  const [n = 1, channels = 1, ...sizes] = shape;
  const grouped = [n, groups, channels / groups, ...sizes];
  const names = ['n', 'g', 'c', ...spatial];
  const axes = names.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const dims = names.map((name) => [name]);
  const image = [['n'], ['g', 'c'], ...spatial.map((name) => [name])];
  const split = { ...operator, inputs: [{ dtype, shape: grouped }, ...operator.inputs.slice(1)] };
  const at = start(split, names, axes, undefined, (write) => write.add('Reshape', ['in0'], dims, { shape: grouped }));
  const { write, whole } = at;
  const centred = write.add('Sub', [at.input, meanOf(split, at, at.input)], whole);
  const unit = write.add('Div', [centred, spread(split, at, centred)], whole);
  const normal = write.add('Reshape', [at.type === dtype ? unit : write.cast(unit, whole, dtype)], image, { shape });
  const scale = perChannel(write, operator, 'in1', [['g', 'c']]);
  const bias = perChannel(write, operator, 'in2', [['g', 'c']]);
  write.add('Add', [write.add('Mul', [normal, scale], image), bias], image, {}, 'out0');
  return write.finish();
}

/** x / (Σ |x|^p)^(1/p) along the axis, p 1 or 2. */
function lpExpansion(operator: Operator): Expansion {
  const rank = operand(operator, 0).shape.length;
  const at = start(operator, dimensionNames(rank), [axisOf(operator, 'axis', rank, -1)]);
  const op = numberOf(operator, 'p', 2) === 1 ? 'ReduceL1' : 'ReduceL2';
  const norm = at.write.add(op, [at.input], at.reduced, { axes: at.axes, keepdims: 1 });
  // A vector of zeros stays one.
  const zero = at.write.scalar(at.type, 0);
  const isZero = at.write.add('Equal', [norm, zero], at.reduced);
  const divisor = at.write.add('Where', [isZero, at.write.scalar(at.type, 1), norm], at.reduced);
  at.write.cast(at.write.add('Div', [at.input, divisor], at.whole), at.whole, operand(operator, 0).dtype, 'out0');
  return at.write.finish();
}

/** (x − mean) / (sqrt(variance) + 1e-9), as ONNX defines it. */
function varianceExpansion(operator: Operator): Expansion {
  const { dtype, shape } = operand(operator, 0);
  const axes = axesFromFront(operator, integers(operator, 'axes') ?? [0, 2, 3], shape.length);
  const at = start(operator, dimensionNames(shape.length), axes);
  const { write, whole, reduced } = at;
  const centred = write.add('Sub', [at.input, meanOf(operator, at, at.input)], whole);
  const variance = meanOf(operator, at, write.add('Mul', [centred, centred], whole));
  const root = write.add('Sqrt', [variance], reduced);
  const deviation = write.add('Add', [root, write.scalar(at.type, 1e-9)], reduced);
  write.cast(write.add('Div', [centred, deviation], whole), whole, dtype, 'out0');
  return write.finish();
}

function instanceExpansion(operator: Operator): Expansion {
  const { dtype, shape } = operand(operator, 0);
  const spatial = dimensionNames(shape.length - 2, 's');
  const axes = spatial.map((_, index) => index + 2);
  const at = start(operator, ['n', 'c', ...spatial], axes);
  const { write, whole } = at;
  const centred = write.add('Sub', [at.input, meanOf(operator, at, at.input)], whole);
  const unit = write.add('Div', [centred, spread(operator, at, centred)], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  const perChannel: TensorFactors = [['c'], ...spatial.map(() => [])];
  const beside = spatial.map((_, index) => index + 1);
  const scale = write.add('Unsqueeze', ['in1'], perChannel, { axes: beside });
  const bias = write.add('Unsqueeze', ['in2'], perChannel, { axes: beside });
  write.add('Add', [write.add('Mul', [normal, scale], whole), bias], whole, {}, 'out0');
  return write.finish();
}
