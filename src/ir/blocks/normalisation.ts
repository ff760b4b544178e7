/**
 * @file Layer and RMS normalisation written out.
 *
 *     RMS     y = x / √(mean(x²) + ε) · scale
 *     layer   c = x − mean(x);  y = c / √(mean(c²) + ε) · scale + bias
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
  numberAttribute,
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
export const NORMALISATION_ANCHORS: readonly string[] = ['ReduceMean', 'GlobalAveragePool'];

/** The normalisation around the mean of squares. */
export function findNormalisation(index: GraphIndex, anchor: Node): DraftMatch | null {
  const square = makerOf(index, operandOf(anchor), 'Pow', 'Mul');
  if (!square || !soleReader(index, resultOf(square))) return null;
  const squared = operandOf(square);
  if (isOp(square, 'Pow') ? scalarOf(index, square.inputs[1]) !== 2 : square.inputs[1] !== squared) return null;
  const axes = meanAxes(index, anchor);
  const rank = shapeOf(index, squared).length;
  if (axes.length === 0 || axes.some((axis, position) => axis !== rank - axes.length + position)) return null;
  const root = rootOf(index, anchor, axes.length);
  if (!root) return null;
  const folded = foldedForm(index, { square, squared, anchor, axes, root });
  if (folded) return folded;
  const division = dividedBy(index, root);
  if (!division) return null;
  const source = commonSource(index, squared, division.divided, axes);
  if (!source) return null;
  const core = new Set([square, anchor, ...root.nodes, division.node, ...source.nodes]);
  const start = beforeCast(index, source.data, core);
  const scaled = scaleAndBias(index, resultOf(division.node), source.centred, {
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

interface Deviation {
  readonly epsilon: number;
  /** √(mean + ε), or one over it. */
  readonly tensor: string;
  readonly isReciprocal: boolean;
  readonly nodes: readonly Node[];
}

/** From the mean of squares forward to its root. */
function rootOf(index: GraphIndex, mean: Node, axes: number): Deviation | null {
  const nodes: Node[] = [];
  let tensor = resultOf(mean);
  const step = (...ops: readonly string[]): Node | null => {
    const reader = soleReader(index, tensor);
    if (!reader || !isOp(reader, ...ops)) return null;
    nodes.push(reader);
    tensor = resultOf(reader);
    return reader;
  };
  if (numberAttribute(mean, 'keepdims', 1) === 0) {
    const view = step('Reshape', 'Unsqueeze');
    if (!view || !keepsReduced(shapeOf(index, resultOf(view)), shapeOf(index, operandOf(mean)), axes)) return null;
  }
  const before = tensor;
  const sum = step('Add');
  const epsilon = sum && scalarOf(index, otherOperand(sum, before));
  const rooted = step('Sqrt', 'Pow');
  const power = rooted && (isOp(rooted, 'Sqrt') ? 0.5 : scalarOf(index, rooted.inputs[1]));
  if (epsilon === null || (power !== 0.5 && power !== -0.5)) return null;
  if (power < 0) return { epsilon, tensor, isReciprocal: true, nodes };
  const reader = soleReader(index, tensor);
  const reciprocal =
    reader !== null &&
    (isOp(reader, 'Reciprocal') || (isOp(reader, 'Div') && scalarOf(index, operandOf(reader)) === 1));
  return { epsilon, isReciprocal: reciprocal && step('Reciprocal', 'Div') !== null, tensor, nodes };
}

/** The division by the root, or the multiplication by its reciprocal, and the tensor that is divided. */
function dividedBy(index: GraphIndex, root: Deviation): { readonly node: Node; readonly divided: string } | null {
  const node = soleReader(index, root.tensor);
  if (!node || !isOp(node, root.isReciprocal ? 'Mul' : 'Div')) return null;
  if (!root.isReciprocal && operandOf(node, 1) !== root.tensor) return null;
  const divided = otherOperand(node, root.tensor);
  return divided && divided !== root.tensor ? { node, divided } : null;
}

/** y = x·s + (bias − mean·s), with s the root's inverse, times scale. */
function foldedForm(
  index: GraphIndex,
  found: {
    readonly square: Node;
    readonly squared: string;
    readonly anchor: Node;
    readonly axes: readonly number[];
    readonly root: Deviation;
  },
): DraftMatch | null {
  const { square, squared, anchor, axes, root } = found;
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
  const mean = makerOf(index, negation ? operandOf(negation) : shifted, ...NORMALISATION_ANCHORS);
  const shifting = soleReader(index, resultOf(shift));
  if (!mean || !source.nodes.includes(mean) || !shifting || !isOp(shifting, negation ? 'Add' : 'Sub')) return null;
  const sum = soleReader(index, resultOf(whole));
  const bias = otherOperand(shifting, resultOf(shift));
  if (!sum || !isOp(sum, 'Add') || otherOperand(sum, resultOf(whole)) !== resultOf(shifting)) return null;
  if (!bias || (!negation && operandOf(shifting) !== bias) || !isVector(index, bias, shape)) return null;
  const negations = negation ? [negation] : [];
  return {
    kind: 'LayerNormalization',
    nodes: [square, anchor, ...root.nodes, ...source.nodes, scaling, whole, ...negations, shift, shifting, sum],
    inputs: [data, scale, bias],
    output: resultOf(sum),
    attributes: { axis: shapeOf(index, data).length - axes.length, epsilon: root.epsilon },
  };
}

/** The dimensions that a mean is taken over. */
function meanAxes(index: GraphIndex, mean: Node): readonly number[] {
  if (isOp(mean, 'ReduceMean')) return numbersAttribute(mean, 'axes');
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
  const view = makerOf(index, operandOf(difference, 1), 'Reshape', 'Unsqueeze');
  const mean = makerOf(index, view ? operandOf(view) : operandOf(difference, 1), ...NORMALISATION_ANCHORS);
  if (!mean || operandOf(mean) !== data || meanAxes(index, mean).join() !== axes.join()) return null;
  const kept = shapeOf(index, operandOf(difference, 1));
  if (!keepsReduced(kept, shapeOf(index, data), axes.length)) return null;
  return { data, centred: true, nodes: [...cast.nodes, difference, mean, ...(view ? [view] : [])] };
}

function castOf(index: GraphIndex, tensor: string): { readonly data: string; readonly nodes: readonly Node[] } {
  const cast = makerOf(index, tensor, 'Cast');
  return cast && isFloatCast(index, cast) ? { data: operandOf(cast), nodes: [cast] } : { data: tensor, nodes: [] };
}

/** The operand before the cast to the precision of the statistics, if only the block reads the cast tensor. */
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
  normalised: string,
  biased: boolean,
  data: { readonly dtype: string; readonly shape: readonly number[] },
): ScaledResult {
  let taken: ScaledResult = { result: normalised, vectors: [], nodes: [] };
  let tensor = normalised;
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

/** The cast that brings a scale to the precision of the data, where it serves this block alone. */
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
