/**
 * @file Layer and RMS normalisation written out.
 *
 *     RMS     y = x / √(mean(x²) + ε) · scale
 *     layer   c = x − mean(x);  y = c / √(mean(c²) + ε) · scale + bias
 *
 * JAX writes a mean as a sum divided by the count, and Flax the variance as max(mean(x²) − mean(x)², 0).
 *
 * The search starts at the mean of squares and goes forward: + ε, the root, and its use as a divisor or, inverted, as a factor;
 * the dividend must be the tensor that was squared. Then scale and bias, if they are vectors over the normalised dimensions.
 * Casts may be anywhere: Llama computes in float32, casts back and scales in half precision, Gemma scales first.
 *
 * TensorFlow folds scale and bias into the mean: s = scale / √(var + ε);  y = x·s + (bias − mean·s), or x·s + (−mean·s + bias).
 * tf2onnx writes a mean over all dimensions but two as GlobalAveragePool.
 *
 * Gemma's factor 1 + w is an input, a vector that is computed outside, so `scale` means the same as in ONNX.
 */
import type { Node } from '../graph.js';
import { elementCount } from '../graph.js';
import {
  type DraftMatch,
  type GraphIndex,
  isFloatCast,
  isOp,
  isWidening,
  makerOf,
  numbersAttribute,
  operandOf,
  otherOperand,
  readOnlyBy,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
  typeIn,
} from './matching.js';

/** Operators at which a normalisation is found. */
export const NORMALISATION_ANCHORS: readonly string[] = [
  'ReduceMean',
  'GlobalAveragePool',
  'ReduceSum',
  'ReduceSumSquare',
];

/** The normalisation around the mean of squares. */
export function findNormalisation(index: GraphIndex, anchor: Node): DraftMatch | null {
  const square = squareBefore(index, anchor);
  if (!square) return null;
  const { squared } = square;
  const axes = meanAxes(index, anchor);
  const rank = shapeOf(index, squared).length;
  if (axes.length === 0 || axes.some((axis, position) => axis !== rank - axes.length + position)) return null;
  const root = rootOf(index, anchor, squared, axes);
  if (!root) return null;
  const folded = root.isOfMoments ? null : foldedForm(index, { ...square, anchor, axes, root });
  if (folded) return folded;
  const division = dividedBy(index, root, shapeOf(index, squared).slice(rank - axes.length));
  if (!division) return null;
  const source = root.isOfMoments
    ? centredOn(index, division.divided, axes)
    : commonSource(index, squared, division.divided, axes);
  if (!source || (root.isOfMoments && source.data !== squared)) return null;
  const core = new Set([...square.nodes, anchor, ...root.nodes, ...division.nodes, ...source.nodes]);
  const start = beforeCast(index, source.data, core);
  const divided = { result: division.result, vectors: division.vectors, nodes: [] };
  const scaled = scaleAndBias(index, divided, source.centred, {
    dtype: typeIn(index, start.data).dtype,
    shape: shapeOf(index, source.data).slice(rank - axes.length),
  });
  return {
    kind: source.centred ? 'LayerNormalization' : 'RMSNormalization',
    nodes: [...core, ...start.nodes, ...scaled.nodes],
    inputs: [start.data, ...scaled.vectors],
    output: scaled.result,
    attributes: { axis: rank - axes.length, epsilon: root.epsilon },
  };
}

interface Square {
  readonly squared: string;
  readonly nodes: readonly Node[];
}

/** The tensor whose squares `anchor` adds up. */
function squareBefore(index: GraphIndex, anchor: Node): Square | null {
  if (isOp(anchor, 'ReduceSumSquare')) return { squared: operandOf(anchor), nodes: [] };
  const square = squareOf(index, operandOf(anchor));
  return square && soleReader(index, operandOf(anchor)) ? square : null;
}

/** `tensor` as x², by Pow or Mul. */
function squareOf(index: GraphIndex, tensor: string): Square | null {
  const square = makerOf(index, tensor, 'Pow', 'Mul');
  if (!square) return null;
  const squared = operandOf(square);
  const isSquare = isOp(square, 'Pow') ? scalarOf(index, square.inputs[1]) === 2 : square.inputs[1] === squared;
  return isSquare ? { squared, nodes: [square] } : null;
}

interface Deviation {
  readonly epsilon: number;
  /** √(variance + ε), or one over it. */
  readonly tensor: string;
  readonly isReciprocal: boolean;
  /** Whether the variance is mean(x²) − mean(x)². */
  readonly isOfMoments: boolean;
  readonly nodes: readonly Node[];
}

/** From the sum or mean of squares forward to its root. */
function rootOf(index: GraphIndex, anchor: Node, squared: string, axes: readonly number[]): Deviation | null {
  const nodes: Node[] = [];
  let tensor = resultOf(anchor);
  const step = (reader: Node): void => {
    nodes.push(reader);
    tensor = resultOf(reader);
  };
  let isMean = !isSum(anchor);
  let isOfMoments = false;
  let epsilon: number | null = null;
  for (let steps = 0; epsilon === null; steps++) {
    const reader = soleReader(index, tensor);
    if (!reader || steps === MOST_STEPS) return null;
    const firstMoment = isMean && !isOfMoments ? squaredMean(index, reader, tensor, squared, axes) : null;
    if (firstMoment) {
      isOfMoments = true;
      nodes.push(...firstMoment);
    } else if (!isMean && isDivisionBy(index, reader, tensor, countOf(index, squared, axes))) isMean = true;
    else if (isMean && isOp(reader, 'Add')) {
      epsilon = scalarOf(index, otherOperand(reader, tensor));
      if (epsilon === null) return null;
    } else if (!isOp(reader, ...VIEWS) && !(isOfMoments && isAtLeastZero(index, reader, tensor))) return null;
    step(reader);
  }
  if (!keepsReduced(shapeOf(index, tensor), shapeOf(index, squared), axes.length)) return null;
  const rooted = soleReader(index, tensor);
  const power =
    rooted && isOp(rooted, 'Sqrt', 'Pow') && (isOp(rooted, 'Sqrt') ? 0.5 : scalarOf(index, rooted.inputs[1]));
  if (!rooted || (power !== 0.5 && power !== -0.5)) return null;
  step(rooted);
  if (power < 0) return { epsilon, tensor, isReciprocal: true, isOfMoments, nodes };
  const reader = soleReader(index, tensor);
  const isReciprocal =
    reader !== null &&
    (isOp(reader, 'Reciprocal') || (isOp(reader, 'Div') && scalarOf(index, operandOf(reader)) === 1));
  if (isReciprocal) step(reader);
  return { epsilon, tensor, isReciprocal, isOfMoments, nodes };
}

/** More operators than any exporter puts between a sum of squares and its root. */
const MOST_STEPS = 6;
const VIEWS: readonly string[] = ['Reshape', 'Unsqueeze'];

/** The operators of mean(x)², of the same x as `squared`, where `node` subtracts it from `tensor`; null if it does not. */
function squaredMean(
  index: GraphIndex,
  node: Node,
  tensor: string,
  squared: string,
  axes: readonly number[],
): readonly Node[] | null {
  if (!isOp(node, 'Sub') || operandOf(node) !== tensor) return null;
  const square = squareOf(index, operandOf(node, 1));
  const mean = square && meanBehind(index, square.squared);
  if (!square || mean?.data !== squared || mean.axes.join() !== axes.join()) return null;
  return [...square.nodes, ...mean.nodes];
}

/** max(tensor, 0): a variance that rounding made negative. */
function isAtLeastZero(index: GraphIndex, node: Node, tensor: string): boolean {
  return isOp(node, 'Relu') || (isOp(node, 'Max') && scalarOf(index, otherOperand(node, tensor)) === 0);
}

interface Mean {
  readonly data: string;
  readonly axes: readonly number[];
  readonly nodes: readonly Node[];
}

/** `tensor` as a mean, or a sum that is divided by the count, perhaps with its dimensions brought back. */
function meanBehind(index: GraphIndex, tensor: string): Mean | null {
  const nodes: Node[] = [];
  let from = tensor;
  let division: { readonly node: Node; readonly dividend: string } | null = null;
  for (let steps = 0; steps < MOST_STEPS; steps++) {
    const node = makerOf(index, from);
    if (!node) return null;
    nodes.push(node);
    const data = operandOf(node);
    if (isOp(node, 'ReduceMean', 'GlobalAveragePool', 'ReduceSum')) {
      const axes = meanAxes(index, node);
      const count = countOf(index, data, axes);
      const isMean = division ? isDivisionBy(index, division.node, division.dividend, count) : !isSum(node);
      return isMean && isSum(node) === (division !== null) ? { data, axes, nodes } : null;
    }
    if (isOp(node, 'Div', 'Mul') && !division) {
      from = scalarOf(index, data) === null ? data : operandOf(node, 1);
      division = { node, dividend: from };
    } else if (isOp(node, ...VIEWS)) from = data;
    else return null;
  }
  return null;
}

function isSum(node: Node): boolean {
  return isOp(node, 'ReduceSum', 'ReduceSumSquare');
}

/** Whether `node` divides `tensor` by `count`, or multiplies it by its inverse, which may be rounded. */
function isDivisionBy(index: GraphIndex, node: Node, tensor: string, count: number): boolean {
  if (isOp(node, 'Div')) return operandOf(node) === tensor && scalarOf(index, operandOf(node, 1)) === count;
  const factor = isOp(node, 'Mul') ? scalarOf(index, otherOperand(node, tensor)) : null;
  return factor !== null && Math.abs(factor * count - 1) < 1e-6;
}

/** The number of elements that a mean over `axes` is taken of. */
function countOf(index: GraphIndex, tensor: string, axes: readonly number[]): number {
  const shape = shapeOf(index, tensor);
  return elementCount(axes.map((axis) => shape[axis] ?? 1));
}

interface Division {
  readonly divided: string;
  readonly result: string;
  /** The scale, where the root's reciprocal is multiplied by it first. */
  readonly vectors: readonly string[];
  readonly nodes: readonly Node[];
}

/** The division by the root, or the multiplication by its reciprocal, and the tensor that is divided. */
function dividedBy(index: GraphIndex, root: Deviation, shape: readonly number[]): Division | null {
  const node = soleReader(index, root.tensor);
  if (!node || !isOp(node, root.isReciprocal ? 'Mul' : 'Div')) return null;
  if (!root.isReciprocal && operandOf(node, 1) !== root.tensor) return null;
  const divided = otherOperand(node, root.tensor);
  if (!divided || divided === root.tensor) return null;
  if (!root.isReciprocal || !isVector(index, divided, shape)) {
    return { divided, result: resultOf(node), vectors: [], nodes: [node] };
  }
  const product = soleReader(index, resultOf(node));
  const data = product && isOp(product, 'Mul') ? otherOperand(product, resultOf(node)) : null;
  if (!product || !data || data === resultOf(node)) return null;
  return { divided: data, result: resultOf(product), vectors: [divided], nodes: [node, product] };
}

/** y = x·s + (bias − mean·s), with s the root's inverse, times scale. */
function foldedForm(
  index: GraphIndex,
  found: Square & { readonly anchor: Node; readonly axes: readonly number[]; readonly root: Deviation },
): DraftMatch | null {
  const { squared, anchor, axes, root } = found;
  const source = centredOn(index, squared, axes);
  if (!source || !root.isReciprocal) return null;
  const { data } = source;
  const shape = shapeOf(index, data).slice(-axes.length);
  const scaling = soleReader(index, root.tensor);
  const scale = scaling && isOp(scaling, 'Mul') ? otherOperand(scaling, root.tensor) : null;
  if (!scaling || !scale || !isVector(index, scale, shape)) return null;
  const factor = resultOf(scaling);
  const products = (index.readers.get(factor) ?? []).filter((reader) => isOp(reader, 'Mul'));
  const whole = products.find((product) => otherOperand(product, factor) === data);
  const shift = products.find((product) => product !== whole);
  if (!whole || !shift) return null;
  const shifted = otherOperand(shift, factor);
  const negation = makerOf(index, shifted, 'Neg');
  const mean = shifted ? meanBehind(index, negation ? operandOf(negation) : shifted) : null;
  const shifting = soleReader(index, resultOf(shift));
  if (
    !mean?.nodes.every((node) => source.nodes.includes(node)) ||
    !shifting ||
    !isOp(shifting, negation ? 'Add' : 'Sub')
  )
    return null;
  const sum = soleReader(index, resultOf(whole));
  const bias = otherOperand(shifting, resultOf(shift));
  if (!sum || !isOp(sum, 'Add') || otherOperand(sum, resultOf(whole)) !== resultOf(shifting)) return null;
  if (!bias || (!negation && operandOf(shifting) !== bias) || !isVector(index, bias, shape)) return null;
  const negations = negation ? [negation] : [];
  return {
    kind: 'LayerNormalization',
    nodes: [...found.nodes, anchor, ...root.nodes, ...source.nodes, scaling, whole, ...negations, shift, shifting, sum],
    inputs: [data, scale, bias],
    output: resultOf(sum),
    attributes: { axis: shapeOf(index, data).length - axes.length, epsilon: root.epsilon },
  };
}

/** The dimensions that a mean is taken over. */
function meanAxes(index: GraphIndex, mean: Node): readonly number[] {
  if (!isOp(mean, 'GlobalAveragePool')) return numbersAttribute(mean, 'axes');
  return [...shapeOf(index, operandOf(mean)).keys()].slice(2);
}

/** Whether `shape` is `full` with its last `axes` dimensions reduced to one. */
function keepsReduced(shape: readonly number[], full: readonly number[], axes: number): boolean {
  return shape.join() === full.map((size, axis) => (axis < full.length - axes ? size : 1)).join();
}

interface CentredData {
  readonly data: string;
  readonly centred: boolean;
  readonly nodes: readonly Node[];
}

/** The tensor that both the squared and the divided one come from: itself, or less its mean. */
function commonSource(
  index: GraphIndex,
  squared: string,
  divided: string,
  axes: readonly number[],
): CentredData | null {
  const left = centredOn(index, squared, axes);
  const right = centredOn(index, divided, axes);
  if (left && right && left.data === right.data)
    return { data: left.data, centred: true, nodes: [...left.nodes, ...right.nodes] };
  if (squared === divided) return { data: squared, centred: false, nodes: [] };
  const [raised, plain] = [castOf(index, squared), castOf(index, divided)];
  if (raised.data !== plain.data) return null;
  return { data: raised.data, centred: false, nodes: [...raised.nodes, ...plain.nodes] };
}

/** `tensor` as x − mean(x) over `axes`, casts between them included; null where it is not. */
function centredOn(index: GraphIndex, tensor: string, axes: readonly number[]): CentredData | null {
  const cast = castOf(index, tensor);
  const difference = makerOf(index, cast.data, 'Sub');
  if (!difference) return null;
  const data = operandOf(difference);
  const mean = meanBehind(index, operandOf(difference, 1));
  if (mean?.data !== data || mean.axes.join() !== axes.join()) return null;
  const kept = shapeOf(index, operandOf(difference, 1));
  if (!keepsReduced(kept, shapeOf(index, data), axes.length)) return null;
  return { data, centred: true, nodes: [...cast.nodes, difference, ...mean.nodes] };
}

function castOf(index: GraphIndex, tensor: string): { readonly data: string; readonly nodes: readonly Node[] } {
  const cast = makerOf(index, tensor, 'Cast');
  return cast && isFloatCast(index, cast) ? { data: operandOf(cast), nodes: [cast] } : { data: tensor, nodes: [] };
}

/** The operand before the cast to the precision of the statistics, if only the region reads the cast tensor. */
function beforeCast(
  index: GraphIndex,
  data: string,
  core: ReadonlySet<Node>,
): { readonly data: string; readonly nodes: readonly Node[] } {
  const cast = makerOf(index, data, 'Cast');
  const widened = cast !== null && isWidening(index, cast) && readOnlyBy(index, data, core);
  return widened ? { data: operandOf(cast), nodes: [cast] } : { data, nodes: [] };
}

interface ScaledResult {
  readonly result: string;
  readonly vectors: readonly string[];
  readonly nodes: readonly Node[];
}

/** Scale, bias and casts that follow. A cast is taken if a scale or bias follows it, or if it ends in the data's type. */
function scaleAndBias(
  index: GraphIndex,
  normalised: ScaledResult,
  biased: boolean,
  data: { readonly dtype: string; readonly shape: readonly number[] },
): ScaledResult {
  let taken = normalised;
  let tensor = normalised.result;
  let pending: Node[] = [];
  for (;;) {
    const reader = soleReader(index, tensor);
    if (!reader) return taken;
    const vector = otherOperand(reader, tensor);
    const wanted = ['Mul', ...(biased ? ['Add'] : [])][taken.vectors.length];
    const cast = isFloatCast(index, reader);
    if (cast && pending.length > 0) return taken;
    if (!cast && !(wanted && vector && isOp(reader, wanted) && isVector(index, vector, data.shape))) return taken;
    tensor = resultOf(reader);
    pending = [...pending, reader];
    const ends = cast && typeIn(index, tensor).dtype === data.dtype && typeIn(index, taken.result).dtype !== data.dtype;
    if (cast && !ends) continue;
    const widened = vector && !cast ? parameterCast(index, vector) : null;
    taken = {
      result: tensor,
      vectors: vector && !cast ? [...taken.vectors, widened ? operandOf(widened) : vector] : taken.vectors,
      nodes: [...taken.nodes, ...pending, ...(widened ? [widened] : [])],
    };
    pending = [];
  }
}

/** The cast that brings a scale to the precision of the data, where it serves this region alone. */
function parameterCast(index: GraphIndex, vector: string): Node | null {
  const cast = makerOf(index, vector, 'Cast');
  return cast && isFloatCast(index, cast) && soleReader(index, vector) ? cast : null;
}

/** Whether a tensor has one number for each normalised position, and no other dimension. */
function isVector(index: GraphIndex, tensor: string, shape: readonly number[]): boolean {
  const own = shapeOf(index, tensor);
  const extra = own.length - shape.length;
  return (
    elementCount(shape) > 1 &&
    extra >= 0 &&
    own.slice(extra).join() === shape.join() &&
    elementCount(own.slice(0, extra)) === 1
  );
}
