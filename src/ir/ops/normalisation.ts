/**
 * @file Normalisations of each position over its last dimensions. They are expanded if one of those is sharded: ranks then
 * reduce sums. Statistics are always those of the whole tensor.
 */
import { dtypeOfOnnx } from '../dtype.js';
import type { TensorType } from '../graph.js';
import type { Expansion, OperatorEntry, OperatorView } from '../operator.js';
import { axisFromFront, entry, perInputElement } from './entry.js';
import { normalisationGradients } from './normalisation-gradient.js';
import { axisOf, dimensionNames, mismatch, numberOf, operand } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { type ExpansionStart, isResultUsed, meanOf, spread, start, stashType } from './statistics.js';

const ENTRIES: readonly OperatorEntry[] = [
  entry({
    op: 'LayerNormalization',
    family: 'normalisation',
    block: 'LayerNormalization',
    complete: axisFromFront(-1),
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
    block: 'RMSNormalization',
    complete: axisFromFront(-1),
    infer: (view) => [checkScales(view, axisOf(view, 'axis', operand(view, 0).shape.length, -1))],
    rule: (view) => trailingRule(view, 1),
    expansion: rmsExpansion,
    work: perInputElement(6),
    parameterInputs: [1],
  }),
  entry({
    op: 'SimplifiedLayerNormalization',
    family: 'normalisation',
    block: 'RMSNormalization',
    infer: (view) => {
      const type = operand(view, 0);
      const from = axisOf(view, 'axis', type.shape.length, -1);
      const shape = type.shape.map((size, axis) => (axis >= from ? 1 : size));
      return [
        { ...checkScales(view, from), dtype: operand(view, 1).dtype },
        { dtype: stashType(view), shape },
      ].slice(0, view.outputCount);
    },
    rule: (view) => trailingRule(view, 2),
    expansion: rmsExpansion,
    work: perInputElement(6),
    parameterInputs: [1],
  }),
];

export const normalisationEntries: readonly OperatorEntry[] = withGradients(ENTRIES, normalisationGradients);

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
  return (
    `${[names.join(' '), ...scales].join(', ')} -> ` +
    `${[names.join(' '), statistics, statistics].slice(0, results).join(', ')}`
  );
}

function trailingStart(view: OperatorView): ExpansionStart {
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
  const mean = meanOf(view, at, at.input);
  const centred = write.add('Sub', [at.input, mean], whole);
  const deviation = spread(view, at, centred);
  if (isResultUsed(view, 1)) write.cast(mean, reduced, stash, 'out1');
  if (isResultUsed(view, 2)) write.cast(write.add('Reciprocal', [deviation], reduced), reduced, stash, 'out2');
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
  const { dtype } = operand(view, 1);
  const deviation = spread(view, at, at.input);
  if (isResultUsed(view, 1)) write.add('Reciprocal', [deviation], at.reduced, {}, 'out1');
  const unit = write.add('Div', [at.input, deviation], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  write.add('Mul', [normal, 'in1'], whole, {}, 'out0');
  return write.finish();
}
