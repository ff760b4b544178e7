/**
 * @file Losses over classes. Samples, positions and classes may be sharded: the loss is then expanded. The label's score is
 * looked up in the shard that has its class, and a mean is the ratio of two sums over all samples.
 */
import type { DType } from '../dtype.js';
import type { DimensionFactors } from '../factor-rule.js';
import { elementCount, type TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { constant } from './constants.js';
import { entry, perInputElement } from './entry.js';
import { ExpansionWriter, reducedDimensions, summationType } from './expansion.js';
import { lossGradient } from './loss-gradient.js';
import { dimensionNames, mismatch, numberOf, ofRank, operand, text } from './operands.js';
import { differentiable } from './operator-gradient.js';

export const lossEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'SoftmaxCrossEntropyLoss',
      family: 'loss',
      region: 'CrossEntropy',
      infer: (operator) => [lossType(operator), operand(operator, 0)].slice(0, operator.outputCount),
      rule: lossRule,
      expansion: (operator) => lossExpansion(operator, true),
      ratio: lossRatio,
      work: perInputElement(12),
    }),
    lossGradient(true),
  ),
  differentiable(
    entry({
      op: 'NegativeLogLikelihoodLoss',
      family: 'loss',
      infer: (operator) => [lossType(operator)],
      rule: lossRule,
      expansion: (operator) => lossExpansion(operator, false),
      ratio: lossRatio,
      work: perInputElement(1),
    }),
    lossGradient(false),
  ),
];

function lossType(operator: Operator): TensorType {
  const scores = ofRank(operator, 0, 2, true);
  const labels = operand(operator, 1);
  const [n = 1, , ...positions] = scores.shape;
  if (labels.shape.join() !== [n, ...positions].join())
    throw mismatch(operator, `labels must have shape [${[n, ...positions].join(', ')}]`);
  return { dtype: scores.dtype, shape: text(operator, 'reduction', 'mean') === 'none' ? labels.shape : [] };
}

function lossRule(operator: Operator): string {
  const each = text(operator, 'reduction', 'mean') === 'none';
  const mark = each ? '' : '%';
  const positions = dimensionNames(operand(operator, 0).shape.length - 2, 's').map((name) => `${name}${mark}`);
  const labels = [`n${mark}`, ...positions].join(' ');
  const scores = [`n${mark}`, 'c%', ...positions].join(' ');
  return `${scores}, ${labels}, c% -> ${each ? labels : ''}, ${scores}`;
}

function lossExpansion(operator: Operator, fromScores: boolean): Expansion {
  const write = new ExpansionWriter();
  const { dtype } = operand(operator, 0);
  const labelType = operand(operator, 1);
  const { type, scores, perSample } = dimensionsOf(operator);
  const wide = reducedDimensions(scores, [1]);
  const input = type === dtype ? 'in0' : write.cast('in0', scores, type);
  const { labels, weight } = weigh(write, operator);
  const index = write.add('Unsqueeze', [labels], wide, { axes: [1] });
  const pick = (from: string) => write.add('GatherElements', [from, index], wide, { axis: 1 });

  let chosen: string;
  if (fromScores) {
    const axes = { axes: [1], keepdims: 1 };
    const peak = write.add('ReduceMax', [input], wide, axes);
    const shifted = write.add('Sub', [input, peak], scores);
    const sum = write.add('ReduceSum', [write.add('Exp', [shifted], scores)], wide, axes);
    const log = write.add('Log', [sum], wide);
    if (operator.outputs[1]) write.cast(write.add('Sub', [shifted, log], scores), scores, dtype, 'out1');
    chosen = write.add('Sub', [pick(shifted), log], wide);
  } else {
    chosen = pick(input);
  }
  let loss = write.add('Neg', [write.add('Squeeze', [chosen], perSample, { axes: [1] })], perSample);

  if (weight) loss = write.add('Mul', [loss, weight], perSample);

  const all = { axes: perSample.map((_, axis) => axis), keepdims: 0 };
  const reduction = text(operator, 'reduction', 'mean');
  if (reduction !== 'none') loss = write.add('ReduceSum', [loss], [], all);
  if (reduction === 'mean')
    loss = weight
      ? write.add('Div', [loss, write.add('ReduceSum', [weight], [], all)], [])
      : write.add('Mul', [loss, write.scalar(type, 1 / elementCount(labelType.shape))], []);
  write.cast(loss, reduction === 'none' ? perSample : [], dtype, 'out0');
  return write.finish();
}

interface LossDimensions {
  /** The type that sums are formed in. */
  readonly type: DType;
  readonly scores: readonly DimensionFactors[];
  readonly perSample: readonly DimensionFactors[];
}

function dimensionsOf(operator: Operator): LossDimensions {
  const { dtype, shape } = operand(operator, 0);
  const positions = dimensionNames(shape.length - 2, 's').map((name) => [name]);
  return { type: summationType(dtype), scores: [['n'], ['c'], ...positions], perSample: [['n'], ...positions] };
}

interface WeighedLabels {
  /** Labels that can be looked up: ignored ones look up class 0, and count nothing. */
  readonly labels: string;
  /** A sample's weight: its class's, and none where it is ignored; null where all count alike. */
  readonly weight: string | null;
}

function weigh(write: ExpansionWriter, operator: Operator): WeighedLabels {
  const labelType = operand(operator, 1);
  const { type, perSample } = dimensionsOf(operator);
  const ignores = operator.attributes['ignore_index'] !== undefined;
  const label = (value: number) => write.tensor(constant(labelType.dtype, [value]));
  const kept = ignores
    ? write.add(
        'Not',
        [write.add('Equal', ['in1', label(numberOf(operator, 'ignore_index', 0))], perSample)],
        perSample,
      )
    : null;
  const labels = kept ? write.add('Where', [kept, 'in1', label(0)], perSample) : 'in1';
  let weight: string | null = null;
  if (operator.inputs[2]) {
    const weights = type === operator.inputs[2].dtype ? 'in2' : write.cast('in2', [['c']], type);
    weight = write.add('Gather', [weights, labels], perSample, { axis: 0 });
  }
  if (kept) {
    const counted = write.cast(kept, perSample, type);
    weight = weight ? write.add('Mul', [weight, counted], perSample) : counted;
  }
  return { labels, weight };
}

/** A mean over labels that count, or by the weights of classes: the sum of the losses over the sum of the weights. */
function lossRatio(operator: Operator): Expansion | null {
  const counted = operator.attributes['ignore_index'] !== undefined || Boolean(operator.inputs[2]);
  if (text(operator, 'reduction', 'mean') !== 'mean' || !counted) return null;
  const write = new ExpansionWriter();
  const { dtype } = operand(operator, 0);
  const { type, scores, perSample } = dimensionsOf(operator);
  const inputs = type === dtype ? ['in0', 'in1'] : [write.cast('in0', scores, type), 'in1'];
  if (operator.inputs[2]) inputs.push(type === operator.inputs[2].dtype ? 'in2' : write.cast('in2', [['c']], type));
  const attributes = { ...operator.attributes, reduction: 'sum' };
  const logs = type === dtype ? 'out1' : 'logs';
  const outputs = ['numerator', ...(operator.outputs[1] ? [logs] : [])];
  write.addAll(operator.op, inputs, outputs, [[], scores].slice(0, outputs.length), attributes);
  if (operator.outputs[1] && type !== dtype) write.cast(logs, scores, dtype, 'out1');
  const { weight } = weigh(write, operator);
  const all = { axes: perSample.map((_, axis) => axis), keepdims: 0 };
  write.add('ReduceSum', [weight], [], all, 'denominator');
  return write.finish();
}
