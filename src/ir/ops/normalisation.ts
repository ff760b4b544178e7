/**
 * @file Normalisations. Layer and RMS normalisation are expanded when a normalised dimension is sharded: then sums
 * travel. Statistics are always those of the whole.
 */
import { type DType, dtypeOfOnnx } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { entry, perInputElement } from './entry.js';
import { ExpansionWriter, keptDimensions, summationType } from './expansion.js';
import { axesOf, axisOf, dimensionNames, integers, mismatch, numberOf, ofRank, operand } from './operands.js';

type Dimensions = readonly (readonly string[])[];

export const normalisationEntries: readonly OperatorEntry[] = [
  entry({
    op: 'LayerNormalization',
    family: 'normalisation',
    infer: (view) => {
      const type = operand(view, 0);
      const from = axisOf(view, 'axis', type.shape.length, -1);
      const statistics: TensorType = {
        dtype: dtypeOfOnnx(numberOf(view, 'stash_type', 1)) ?? 'float32',
        shape: type.shape.map((size, axis) => (axis >= from ? 1 : size)),
      };
      return [checkScales(view, from), statistics, statistics].slice(0, view.outputCount);
    },
    rule: (view) => trailingRule(view, 3),
    expansion: layerExpansion,
    work: perInputElement(8),
    parameterInputs: [1, 2],
  }),
  entry({
    op: 'RMSNormalization',
    family: 'normalisation',
    infer: (view) => [checkScales(view, axisOf(view, 'axis', operand(view, 0).shape.length, -1))],
    rule: (view) => trailingRule(view, 1),
    expansion: rmsExpansion,
    work: perInputElement(6),
    parameterInputs: [1],
  }),
  entry({
    op: 'BatchNormalization',
    family: 'normalisation',
    infer: (view) => {
      const type = ofRank(view, 0, 2, true);
      for (const index of [1, 2, 3, 4])
        if (ofRank(view, index, 1).shape[0] !== type.shape[1])
          throw mismatch(view, `operand ${index} is not per channel`);
      return [type, operand(view, 3), operand(view, 4)].slice(0, view.outputCount);
    },
    rule: (view) => {
      const mark = numberOf(view, 'training_mode', 0) ? '!' : '';
      const spatial = dimensionNames(operand(view, 0).shape.length - 2, 's').map((name) => `${name}${mark}`);
      const image = [`n${mark}`, 'c', ...spatial].join(' ');
      return `${image}, c, c, c, c -> ${image}, c, c`;
    },
    work: perInputElement(2),
    parameterInputs: [1, 2, 3, 4],
    note: 'In training mode samples and positions stay whole: statistics are those of the whole batch.',
  }),
  entry({
    op: 'InstanceNormalization',
    family: 'normalisation',
    infer: (view) => [ofRank(view, 0, 3, true)],
    rule: (view) => {
      const image = ['n', 'c', ...dimensionNames(operand(view, 0).shape.length - 2, 's').map((name) => `${name}%`)];
      return `${image.join(' ')}, c, c -> ${image.join(' ')}`;
    },
    expansion: instanceExpansion,
    work: perInputElement(8),
    parameterInputs: [1, 2],
  }),
  entry({
    op: 'GroupNormalization',
    family: 'normalisation',
    infer: (view) => {
      const type = ofRank(view, 0, 3, true);
      if ((type.shape[1] ?? 1) % numberOf(view, 'num_groups', 1) !== 0)
        throw mismatch(view, `its channels do not make ${numberOf(view, 'num_groups', 1)} groups`);
      return [type];
    },
    rule: (view) => {
      const image = [
        'n',
        '(g c!)',
        ...dimensionNames(operand(view, 0).shape.length - 2, 's').map((name) => `${name}!`),
      ];
      const groups = { g: numberOf(view, 'num_groups', 1) };
      return bindRule(`${image.join(' ')}, (g c), (g c) -> ${image.join(' ')}`, view, groups);
    },
    resize: (view, _, size) => ({ ...view.attributes, num_groups: size('g') }),
    work: perInputElement(8),
    parameterInputs: [1, 2],
    note: 'Groups are sharded; channels inside a group and positions stay whole.',
  }),
  entry({
    op: 'LpNormalization',
    family: 'normalisation',
    infer: (view) => [operand(view, 0)],
    rule: (view) => {
      const axis = axisOf(view, 'axis', operand(view, 0).shape.length, -1);
      const names = dimensionNames(operand(view, 0).shape.length);
      const side = names.map((name, index) => (index === axis ? `${name}!` : name)).join(' ');
      return `${side} -> ${side}`;
    },
    work: perInputElement(4),
    note: 'The axis stays whole.',
  }),
  entry({
    op: 'MeanVarianceNormalization',
    family: 'normalisation',
    infer: (view) => [operand(view, 0)],
    rule: (view) => {
      const { shape } = operand(view, 0);
      const axes = axesOf(view, integers(view, 'axes') ?? [0, 2, 3], shape.length);
      const side = dimensionNames(shape.length).map((name, axis) => (axes.includes(axis) ? `${name}!` : name));
      return `${side.join(' ')} -> ${side.join(' ')}`;
    },
    work: perInputElement(8),
    note: 'Normalised dimensions stay whole.',
  }),
  entry({
    op: 'LRN',
    family: 'normalisation',
    infer: (view) => [ofRank(view, 0, 3, true)],
    rule: 'n c! *s -> n c! *s',
    work: perInputElement(12),
    note: 'Channels stay whole: neighbours are summed.',
  }),
];

/** The operand's type, after checking that scale and bias broadcast to its normalised dimensions. */
function checkScales(view: OperatorView, from: number): TensorType {
  const type = operand(view, 0);
  const normalised = type.shape.slice(from);
  for (const scale of view.inputs.slice(1)) {
    const offset = normalised.length - (scale?.shape.length ?? 0);
    if (scale?.shape.some((size, index) => size !== 1 && size !== normalised[index + offset]))
      throw mismatch(view, 'scale and bias must fit the normalised dimensions');
  }
  return type;
}

/** Rule of a normalisation over the dimensions from `axis` on: scale and bias carry their factors too. */
function trailingRule(view: OperatorView, results: number): string {
  const { shape } = operand(view, 0);
  const from = axisOf(view, 'axis', shape.length, -1);
  const names = dimensionNames(shape.length).map((name, axis) => (axis >= from ? `${name}%` : name));
  const statistics = names.map((name, axis) => (axis >= from ? '1' : name)).join(' ');
  const scales = view.inputs
    .slice(1)
    .map((type) => (type ? names.slice(names.length - type.shape.length).join(' ') : '_'));
  return `${[names.join(' '), ...scales].join(', ')} -> ${[names.join(' '), statistics, statistics].slice(0, results).join(', ')}`;
}

/** What every expansion here starts from. */
interface Start {
  readonly write: ExpansionWriter;
  readonly type: DType;
  readonly whole: Dimensions;
  readonly reduced: Dimensions;
  readonly axes: readonly number[];
  readonly input: string;
}

function start(view: OperatorView, names: readonly string[], axes: readonly number[], sumIn?: DType): Start {
  const write = new ExpansionWriter();
  const { dtype } = operand(view, 0);
  const type = sumIn ?? summationType(dtype);
  const whole = names.map((name) => [name]);
  const input = type === dtype ? 'in0' : write.cast('in0', whole, type);
  return { write, type, whole, reduced: keptDimensions(whole, axes), axes, input };
}

/** Mean over the axes: the sum, then a scale by the whole count. */
function meanOf(view: OperatorView, at: Start, input: string, output?: string): string {
  const { shape } = operand(view, 0);
  const count = elementCount(at.axes.map((axis) => shape[axis] ?? 1));
  const sum = at.write.add('ReduceSum', [input], at.reduced, { axes: at.axes, keepdims: 1 });
  return at.write.add('Mul', [sum, at.write.scalar(at.type, 1 / count)], at.reduced, {}, output);
}

/** sqrt(mean(x²) + epsilon). */
function spread(view: OperatorView, at: Start, centred: string): string {
  const variance = meanOf(view, at, at.write.add('Mul', [centred, centred], at.whole));
  const epsilon = at.write.scalar(at.type, numberOf(view, 'epsilon', 1e-5));
  return at.write.add('Sqrt', [at.write.add('Add', [variance, epsilon], at.reduced)], at.reduced);
}

function stashType(view: OperatorView): DType {
  const stash = dtypeOfOnnx(numberOf(view, 'stash_type', 1)) ?? 'float32';
  return operand(view, 0).dtype === 'float64' ? 'float64' : stash;
}

function trailingStart(view: OperatorView): Start {
  const rank = operand(view, 0).shape.length;
  const from = axisOf(view, 'axis', rank, -1);
  const names = dimensionNames(rank);
  return start(
    view,
    names,
    names.flatMap((_, axis) => (axis >= from ? [axis] : [])),
    stashType(view),
  );
}

function layerExpansion(view: OperatorView): Expansion {
  const at = trailingStart(view);
  const { write, whole, reduced } = at;
  const { dtype } = operand(view, 0);
  // The mean and inverse deviation are results in the stash type; a float64 operand needs them cast.
  const stash = dtypeOfOnnx(numberOf(view, 'stash_type', 1)) ?? 'float32';
  const asked = (index: number) =>
    index < view.outputCount && (view.outputs.length === 0 || view.outputs[index] !== null);
  const mean = meanOf(view, at, at.input);
  const centred = write.add('Sub', [at.input, mean], whole);
  const deviation = spread(view, at, centred);
  if (asked(1)) write.cast(mean, reduced, stash, 'out1');
  if (asked(2)) write.cast(write.add('Reciprocal', [deviation], reduced), reduced, stash, 'out2');
  const unit = write.add('Div', [centred, deviation], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  if (!view.inputs[2]) {
    write.add('Mul', [normal, 'in1'], whole, {}, 'out0');
  } else {
    write.add('Add', [write.add('Mul', [normal, 'in1'], whole), 'in2'], whole, {}, 'out0');
  }
  return write.finish();
}

function rmsExpansion(view: OperatorView): Expansion {
  const at = trailingStart(view);
  const { write, whole } = at;
  const { dtype } = operand(view, 0);
  const unit = write.add('Div', [at.input, spread(view, at, at.input)], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  write.add('Mul', [normal, 'in1'], whole, {}, 'out0');
  return write.finish();
}

function instanceExpansion(view: OperatorView): Expansion {
  const { dtype, shape } = operand(view, 0);
  const spatial = dimensionNames(shape.length - 2, 's');
  const axes = spatial.map((_, index) => index + 2);
  const at = start(view, ['n', 'c', ...spatial], axes);
  const { write, whole } = at;
  const centred = write.add('Sub', [at.input, meanOf(view, at, at.input)], whole);
  const unit = write.add('Div', [centred, spread(view, at, centred)], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  const perChannel: Dimensions = [['c'], ...spatial.map(() => [])];
  const beside = spatial.map((_, index) => index + 1);
  const scale = write.add('Unsqueeze', ['in1'], perChannel, { axes: beside });
  const bias = write.add('Unsqueeze', ['in2'], perChannel, { axes: beside });
  write.add('Add', [write.add('Mul', [normal, scale], whole), bias], whole, {}, 'out0');
  return write.finish();
}
