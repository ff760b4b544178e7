/**
 * @file Gradients of losses over classes. A sample's share of the loss's gradient is its weight (its class's; none where its
 * label is ignored), for a mean over the sum of all weights: that sum is one over all samples, like the forward's. The label's
 * place among the classes is found by comparing, so that classes may be sharded.
 */
import { elementCount } from '../graph.js';
import { constant } from './constants.js';
import { numberOf, operand, text } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** Gradient of SoftmaxCrossEntropyLoss (`fromScores`) or of NegativeLogLikelihoodLoss, which takes log-probabilities. */
export function lossGradient(fromScores: boolean): GradientBody {
  return (write) => {
    const at = write.on(write.sumType);
    if (!write.has(0)) {
      if (write.wants(0)) write.become(0, logarithms(write, at), at.type);
      write.noneOf(2);
      return;
    }
    const labels = labelsOf(write);
    const share = shareOf(write, labels);
    if (write.wants(0)) {
      const beside = share.isScalar ? share.each : write.add('Unsqueeze', [share.each], { axes: [1] });
      write.become(0, fromScores ? scores(beside) : at.where(labels.hit, negative(beside), 0), at.type);
    }
    if (write.wants(2)) classWeights(write, at, labels, share.unweighted, fromScores);

    /** (p − 1 at the label) · share, and the gradient of the log-probabilities where they are a result that is used. */
    function scores(beside: string): string {
      const own = at.mul(at.sub(probabilities(write, at), at.count(labels.hit)), beside);
      return write.has(1) ? at.add(own, logarithms(write, at)) : own;
    }

    function negative(beside: string): string {
      return at.of('Neg', beside);
    }
  };
}

interface Labels {
  /** True at each sample's label. */
  readonly hit: string;
  /** Per sample whether it counts; null where all do. */
  readonly counts: string | null;
  /** Labels that can be looked up: class 0 where ignored. */
  readonly known: string;
}

function labelsOf(write: OperatorGradient): Labels {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const { dtype } = operand(operator, 1);
  const long = write.inType('in1', dtype, 'int64');
  const index = write.add('Unsqueeze', [long], { axes: [1] });
  const hit = write.add('Equal', [write.positions(shape, 1), index]);
  if (operator.attributes['ignore_index'] === undefined) return { hit, counts: null, known: 'in1' };
  const label = (value: number) => write.tensor(constant(dtype, [value]));
  const ignored = write.add('Equal', ['in1', label(numberOf(operator, 'ignore_index', 0))]);
  const counts = write.add('Not', [ignored]);
  const known = operator.inputs[2] ? write.add('Where', [counts, 'in1', label(0)]) : 'in1';
  return { hit, counts, known };
}

interface LossShare {
  /** The share of the loss's gradient that each sample gets; a scalar if all get the same. */
  readonly each: string;
  readonly isScalar: boolean;
  /** The same but for the weight of its class. */
  readonly unweighted: string;
}

function shareOf(write: OperatorGradient, { counts, known }: Labels): LossShare {
  const { operator } = write;
  const type = write.sumType;
  const samples = operand(operator, 1).shape;
  const reduction = text(operator, 'reduction', 'mean');
  const each = reduction === 'none';
  const at = write.on(type);
  const counted = counts && at.count(counts);
  let weight = counted;
  const weights = operator.inputs[2];
  if (weights) {
    const row = write.inType('in2', weights.dtype, type);
    const own = write.add('Gather', [row, known], { axis: 0 });
    weight = counted ? at.mul(own, counted) : own;
  }
  let gradient = write.inType('grad0', operand(operator, 0).dtype, type);
  if (reduction === 'mean' && !weight) gradient = at.mul(gradient, 1 / elementCount(samples));
  if (reduction === 'mean' && weight) {
    const all = { axes: samples.map((_, axis) => axis), keepdims: 0 };
    const total = write.add('ReduceSum', [weight], all);
    // Where no label counts the loss is 0 / 0; its gradient is zero, as PyTorch has it.
    gradient = at.where(at.of('Equal', total, 0), 0, at.div(gradient, total));
  }
  return {
    each: weight ? at.mul(weight, gradient) : gradient,
    isScalar: !weight && !each,
    unweighted: counted ? at.mul(counted, gradient) : gradient,
  };
}

/** Gradient of the weights of classes: each sample's loss, for a mean as far as it exceeds the mean. */
function classWeights(
  write: OperatorGradient,
  at: Arithmetic,
  { hit }: Labels,
  unweighted: string,
  fromScores: boolean,
): void {
  const { operator } = write;
  const logs = fromScores ? logProbabilities(write, at) : write.inType('in0', operand(operator, 0).dtype, at.type);
  const chosen = write.add('Squeeze', [at.sum(at.where(hit, logs, 0), [1])], { axes: [1] });
  let loss = at.of('Neg', chosen);
  if (text(operator, 'reduction', 'mean') === 'mean')
    loss = at.sub(loss, write.inType('out0', operand(operator, 0).dtype, at.type));
  const share = write.add('Unsqueeze', [at.mul(loss, unweighted)], { axes: [1] });
  const axes = operand(operator, 0).shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  const row = write.add('ReduceSum', [at.where(hit, share, 0)], { axes, keepdims: 0 });
  write.become(2, row, at.type);
}

/** From the log-probabilities if the operator returns them. */
function probabilities(write: OperatorGradient, at: Arithmetic): string {
  if (write.operator.outputs[1]) return at.of('Exp', logProbabilities(write, at));
  return write.add('Softmax', [scoresOf(write, at)], { axis: 1 });
}

function logProbabilities(write: OperatorGradient, at: Arithmetic): string {
  const { dtype } = operand(write.operator, 0);
  if (write.operator.outputs[1]) return write.inType('out1', dtype, at.type);
  return write.add('LogSoftmax', [scoresOf(write, at)], { axis: 1 });
}

function scoresOf(write: OperatorGradient, at: Arithmetic): string {
  return write.inType('in0', operand(write.operator, 0).dtype, at.type);
}

/** The gradient of the scores from that of the log-probabilities: g − p Σ g. */
function logarithms(write: OperatorGradient, at: Arithmetic): string {
  const g = write.inType('grad1', operand(write.operator, 0).dtype, at.type);
  return at.sub(g, at.mul(probabilities(write, at), at.sum(g, [1])));
}
