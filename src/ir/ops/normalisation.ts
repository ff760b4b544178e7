/**
 * @file Normalisations of each position over its last dimensions. They are expanded if one of those is sharded: ranks then
 * reduce sums. Statistics are always those of the whole tensor.
 */
import { dtypeOfOnnx } from '../dtype.js';
import type { TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { axisFromFront, entry, perInputElement } from './entry.js';
import { normalisationGradients } from './normalisation-gradient.js';
import { axisOf, dimensionNames, mismatch, numberOf, operand } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { type ExpansionStart, isResultUsed, meanOf, spread, start, stashType } from './statistics.js';

const ENTRIES: readonly OperatorEntry[] = [
  entry({
    op: 'LayerNormalization',
    family: 'normalisation',
    region: 'LayerNormalization',
    complete: axisFromFront(-1),
    infer: (operator) => {
      const type = operand(operator, 0);
      const from = axisOf(operator, 'axis', type.shape.length, -1);
      const statistics: TensorType = {
        dtype: dtypeOfOnnx(numberOf(operator, 'stash_type', 1)) ?? 'float32',
        shape: type.shape.map((size, axis) => (axis >= from ? 1 : size)),
      };
      return [checkScales(operator, from), statistics, statistics].slice(0, operator.outputCount);
    },
    rule: (operator) => trailingRule(operator, 3),
    expansion: layerExpansion,
    work: perInputElement(8),
    parameterInputs: [1, 2],
  }),
  entry({
    op: 'RMSNormalization',
    family: 'normalisation',
    region: 'RMSNormalization',
    complete: axisFromFront(-1),
    infer: (operator) => [checkScales(operator, axisOf(operator, 'axis', operand(operator, 0).shape.length, -1))],
    rule: (operator) => trailingRule(operator, 1),
    expansion: rmsExpansion,
    work: perInputElement(6),
    parameterInputs: [1],
  }),
  entry({
    op: 'SimplifiedLayerNormalization',
    family: 'normalisation',
    region: 'RMSNormalization',
    infer: (operator) => {
      const type = operand(operator, 0);
      const from = axisOf(operator, 'axis', type.shape.length, -1);
      const shape = type.shape.map((size, axis) => (axis >= from ? 1 : size));
      return [
        { ...checkScales(operator, from), dtype: operand(operator, 1).dtype },
        { dtype: stashType(operator), shape },
      ].slice(0, operator.outputCount);
    },
    rule: (operator) => trailingRule(operator, 2),
    expansion: rmsExpansion,
    work: perInputElement(6),
    parameterInputs: [1],
  }),
];

export const normalisationEntries: readonly OperatorEntry[] = withGradients(ENTRIES, normalisationGradients);

/** The operand's type, after checking that scale and bias broadcast to its normalised dimensions. */
function checkScales(operator: Operator, from: number): TensorType {
  const type = operand(operator, 0);
  const normalised = type.shape.slice(from);
  for (const scale of operator.inputs.slice(1)) {
    const offset = normalised.length - (scale?.shape.length ?? 0);
    if (scale?.shape.some((size, index) => size !== 1 && size !== normalised[index + offset]))
      throw mismatch(operator, 'scale and bias must fit the normalised dimensions');
  }
  return type;
}

/** Rule of a normalisation over the dimensions from `axis` on: scale and bias carry their factors too. */
function trailingRule(operator: Operator, results: number): string {
  const { shape } = operand(operator, 0);
  const from = axisOf(operator, 'axis', shape.length, -1);
  const names = dimensionNames(shape.length).map((name, axis) => (axis >= from ? `${name}%` : name));
  const statistics = names.map((name, axis) => (axis >= from ? '1' : name)).join(' ');
  const scales = operator.inputs
    .slice(1)
    .map((type) => (type ? names.slice(names.length - type.shape.length).join(' ') : '_'));
  return (
    `${[names.join(' '), ...scales].join(', ')} -> ` +
    `${[names.join(' '), statistics, statistics].slice(0, results).join(', ')}`
  );
}

function trailingStart(operator: Operator): ExpansionStart {
  const rank = operand(operator, 0).shape.length;
  const from = axisOf(operator, 'axis', rank, -1);
  const names = dimensionNames(rank);
  return start(
    operator,
    names,
    names.flatMap((_, axis) => (axis >= from ? [axis] : [])),
    stashType(operator),
  );
}

function layerExpansion(operator: Operator): Expansion {
  const at = trailingStart(operator);
  const { write, whole, reduced } = at;
  const { dtype } = operand(operator, 0);
  // The mean and inverse deviation are results in the stash type; a float64 operand needs them cast.
  const stash = dtypeOfOnnx(numberOf(operator, 'stash_type', 1)) ?? 'float32';
  const mean = meanOf(operator, at, at.input);
  const centred = write.add('Sub', [at.input, mean], whole);
  const deviation = spread(operator, at, centred);
  if (isResultUsed(operator, 1)) write.cast(mean, reduced, stash, 'out1');
  if (isResultUsed(operator, 2)) write.cast(write.add('Reciprocal', [deviation], reduced), reduced, stash, 'out2');
  const unit = write.add('Div', [centred, deviation], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  if (!operator.inputs[2]) {
    write.add('Mul', [normal, 'in1'], whole, {}, 'out0');
  } else {
    write.add('Add', [write.add('Mul', [normal, 'in1'], whole), 'in2'], whole, {}, 'out0');
  }
  return write.finish();
}

function rmsExpansion(operator: Operator): Expansion {
  const at = trailingStart(operator);
  const { write, whole } = at;
  const { dtype } = operand(operator, 1);
  const deviation = spread(operator, at, at.input);
  if (isResultUsed(operator, 1)) write.add('Reciprocal', [deviation], at.reduced, {}, 'out1');
  const unit = write.add('Div', [at.input, deviation], whole);
  const normal = at.type === dtype ? unit : write.cast(unit, whole, dtype);
  write.add('Mul', [normal, 'in1'], whole, {}, 'out0');
  return write.finish();
}
