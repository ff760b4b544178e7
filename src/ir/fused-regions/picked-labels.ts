/**
 * @file Part of cross entropy: from log-probabilities to those of the labels, in the ways that people pick them.
 *
 *     GatherElements        one element for each row, at the label
 *     GatherND              at (row, label)
 *     Reshape, Gather       from all rows as one list, at row · classes + label
 *     Mul, ReduceSum        with one-hot rows
 *     NegativeLogLikelihoodLoss, which negates and reduces as well
 *     ReduceLogSumExp, Sub  the logarithm of the sum less the label's logit, which is negated already
 */
import { elementCount, type Node } from '../graph.js';
import {
  type GraphIndex,
  isOp,
  makerOf,
  numberAttribute,
  numbersAttribute,
  operandOf,
  otherOperand,
  resultOf,
  shapeOf,
  soleReader,
  valuesOf,
} from './matching.js';

export interface PickedScores {
  readonly logits: string;
  /** One number per sample: the log-probability of its label. */
  readonly tensor: string;
  /** 1 where it is already negated. */
  readonly sign: 1 | -1;
  readonly nodes: readonly Node[];
  /** The reduction that is done already. */
  readonly reduction: string | null;
}

/** The labels' log-probabilities that are picked where `anchor` takes a logarithm; null if none are picked. */
export function pickedLabels(index: GraphIndex, anchor: Node): PickedScores | null {
  return isOp(anchor, 'ReduceLogSumExp') ? lessLogSum(index, anchor) : pickedFrom(index, anchor);
}

/** From LogSoftmax, or the logarithm of a Softmax, to the label's log-probability. */
function pickedFrom(index: GraphIndex, anchor: Node): PickedScores | null {
  const softmax = isOp(anchor, 'Log') ? makerOf(index, operandOf(anchor), 'Softmax') : anchor;
  if (!softmax || (softmax !== anchor && !soleReader(index, operandOf(anchor)))) return null;
  const logits = operandOf(softmax);
  const rank = shapeOf(index, logits).length;
  const given = numberAttribute(softmax, 'axis', -1);
  const axis = given < 0 ? given + rank : given;
  const reader = soleReader(index, resultOf(anchor));
  if (!reader) return null;
  const nodes = [softmax, anchor];
  if (isOp(reader, 'NegativeLogLikelihoodLoss') && axis === 1) {
    const reduction = reader.attributes['reduction'];
    return {
      logits,
      tensor: resultOf(reader),
      sign: 1,
      nodes: [...nodes, reader],
      reduction: typeof reduction === 'string' ? reduction : 'mean',
    };
  }
  const pick = pickBy(index, reader, resultOf(anchor), axis);
  return (
    pick && { logits, tensor: resultOf(pick.at(-1) ?? reader), sign: -1, nodes: [...nodes, ...pick], reduction: null }
  );
}

/** The nodes from log-probabilities to the label's, last one last; null where none is picked. */
function pickBy(index: GraphIndex, reader: Node, source: string, axis: number): readonly Node[] | null {
  const shape = shapeOf(index, source);
  const classes = shape[axis] ?? 1;
  if (isOp(reader, 'GatherElements')) return isPick(index, reader, source, axis) ? [reader] : null;
  if (isOp(reader, 'GatherND')) return rowsAndLabels(index, reader, shape) ? [reader] : null;
  if (isOp(reader, 'Mul')) {
    const target = otherOperand(reader, source);
    const sum = soleReader(index, resultOf(reader));
    const summed = sum && isOp(sum, 'ReduceSum') && numbersAttribute(sum, 'axes').join() === String(axis);
    return target && summed && isOneHot(index, target, classes) ? [reader, sum] : null;
  }
  // Rows flattened to one list, from which element row·classes + label is taken.
  if (!isOp(reader, 'Reshape') || axis !== shape.length - 1) return null;
  const gather = soleReader(index, resultOf(reader));
  if (!gather || !isOp(gather, 'Gather') || numberAttribute(gather, 'axis', 0) !== 0) return null;
  if (shapeOf(index, resultOf(reader))[0] !== elementCount(shape) || operandOf(gather) !== resultOf(reader))
    return null;
  const sum = makerOf(index, operandOf(gather, 1), 'Add');
  const rows = elementCount(shape) / classes;
  const offsets = sum?.inputs.some((input) => {
    const values = input === null ? null : valuesOf(index, input);
    return values?.length === rows && values.every((value, row) => value === row * classes);
  });
  return offsets ? [reader, gather] : null;
}

/** Whether a GatherElements takes one element along `axis` for every other position. */
function isPick(index: GraphIndex, gather: Node, source: string, axis: number): boolean {
  if (operandOf(gather) !== source || numberAttribute(gather, 'axis', 0) !== axis) return false;
  const wanted = shapeOf(index, source).map((size, position) => (position === axis ? 1 : size));
  return shapeOf(index, operandOf(gather, 1)).join() === wanted.join();
}

/** Whether a GatherND's indices are (0, label), (1, label), … over all rows of a matrix. */
function rowsAndLabels(index: GraphIndex, gather: Node, shape: readonly number[]): boolean {
  const concat = makerOf(index, operandOf(gather, 1), 'Concat');
  if (!concat || shape.length !== 2 || concat.inputs.length !== 2 || numberAttribute(gather, 'batch_dims', 0) !== 0)
    return false;
  const rows = valuesOf(index, operandOf(concat));
  return rows !== null && rows.length === shape[0] && rows.every((value, row) => value === row);
}

/** Whether a tensor is made of labels by OneHot or by comparing them with 0, 1, 2, …, however it is cast. */
function isOneHot(index: GraphIndex, tensor: string, classes: number): boolean {
  let maker = makerOf(index, tensor);
  for (let casts = 0; maker && isOp(maker, 'Cast') && casts < 3; casts++) maker = makerOf(index, operandOf(maker));
  if (!maker) return false;
  if (isOp(maker, 'OneHot')) return true;
  return (
    isOp(maker, 'Equal') &&
    maker.inputs.some((input) => {
      const values = input === null ? null : valuesOf(index, input);
      return values?.length === classes && values.every((value, position) => value === position);
    })
  );
}

/** log Σ exp(logits) − logits[label]. */
function lessLogSum(index: GraphIndex, anchor: Node): PickedScores | null {
  const logits = operandOf(anchor);
  const [axis, ...more] = numbersAttribute(anchor, 'axes');
  const views: Node[] = [];
  let sum = resultOf(anchor);
  let reader = soleReader(index, sum);
  if (reader && isOp(reader, 'Squeeze', 'Unsqueeze', 'Reshape')) {
    views.push(reader);
    sum = resultOf(reader);
    reader = soleReader(index, sum);
  }
  if (axis === undefined || more.length > 0 || !reader || !isOp(reader, 'Sub') || operandOf(reader) !== sum)
    return null;
  const view = makerOf(index, operandOf(reader, 1), 'Squeeze', 'Reshape');
  const gather = makerOf(index, view ? operandOf(view) : operandOf(reader, 1), 'GatherElements');
  if (!gather || !isPick(index, gather, logits, axis)) return null;
  const nodes = [anchor, ...views, gather, ...(view ? [view] : []), reader];
  return { logits, tensor: resultOf(reader), sign: 1, nodes, reduction: null };
}
