/**
 * @file Gradients of normalisations of images: with statistics of the batch, of positions, of groups of channels, of neighbours.
 */
import { means, type Normalised, type NormalisedTensor, normalised, throughUnit } from './normalisation-gradient.js';
import { axesFromFront, axisOf, integers, numberOf, operand } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** The operand in the type that sums are formed in, with statistics over `axes`. */
function fieldOf(write: OperatorGradient, axes: readonly number[]): NormalisedTensor {
  const { dtype, shape } = operand(write.operator, 0);
  const type = write.sumType;
  return { x: write.inType('in0', dtype, type), type, shape, axes };
}

/** The gradient of the result, in the type that sums are formed in. */
function arriving(write: OperatorGradient): string {
  return write.inType('grad0', operand(write.operator, 0).dtype, write.sumType);
}

/** A vector with one value per channel, in a shape that broadcasts over positions and in the type of sums. */
function beside(write: OperatorGradient, index: number): string {
  const { dtype } = operand(write.operator, index);
  const spatial = operand(write.operator, 0).shape.length - 2;
  const own = write.inType(`in${index}`, dtype, write.sumType);
  if (spatial === 0) return own;
  return write.add('Unsqueeze', [own], { axes: Array.from({ length: spatial }, (_, axis) => axis + 1) });
}

/** Sums a tensor over the image: the gradient of a vector with one value per channel. */
function perChannel(write: OperatorGradient, index: number, name: string): void {
  if (!write.wants(index)) return;
  const axes = operand(write.operator, 0).shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  write.become(index, write.add('ReduceSum', [name], { axes, keepdims: 0 }), write.sumType);
}

/** Writes the gradients of scale and bias per channel; returns the gradient of the unit form. */
function scaleAndBias(write: OperatorGradient, at: Arithmetic, unit: () => string): string {
  const g = arriving(write);
  if (write.wants(1)) perChannel(write, 1, at.mul(g, unit()));
  perChannel(write, 2, g);
  return write.wants(0) ? at.mul(g, beside(write, 1)) : g;
}

function batch(write: OperatorGradient): void {
  if (numberOf(write.operator, 'training_mode', 0)) batchStatistics(write);
  else runningStatistics(write);
}

/** Statistics of the batch; the running ones move towards them. */
function batchStatistics(write: OperatorGradient): void {
  const { operator } = write;
  const axes = operand(operator, 0).shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  const normal = normalised(write, fieldOf(write, axes), {
    epsilon: numberOf(operator, 'epsilon', 1e-5),
    isCentred: true,
  });
  const momentum = numberOf(operator, 'momentum', 0.9);
  const moved = (index: number) => {
    if (!write.has(index)) return null;
    const own = write.inType(`grad${index}`, operand(operator, index + 2).dtype, write.sumType);
    return normal.at.mul(write.add('Unsqueeze', [own], { axes }), 1 - momentum);
  };
  const image = write.has(0) ? throughScale(write, normal, axes) : null;
  if (!write.has(0)) write.noneOf(1, 2);
  if (write.wants(0)) {
    const [mean, variance] = [moved(1), moved(2)];
    write.become(0, throughUnit(normal, { unit: null, mean, variance, field: image }), write.sumType);
  }
  for (const index of [3, 4]) {
    if (!write.wants(index)) continue;
    const { dtype } = operand(operator, index);
    if (!write.has(index - 2)) write.none(index);
    else write.become(index, write.on(dtype).mul(`grad${index - 2}`, momentum), dtype);
  }
}

/**
 * Writes the gradients of scale and bias per channel; returns that of the image, null where it is not wanted. Its means over the
 * batch are those two gradients, so that ranks that share a batch add up each once (as PyTorch's SyncBatchNorm does):
 *
 *     dx = inverse · scale · (g − Σ g / n − x̂ · Σ g x̂ / n)
 */
function throughScale(write: OperatorGradient, normal: Normalised, axes: readonly number[]): string | null {
  const { at, unit, inverse, count } = normal;
  const g = arriving(write);
  const [scaled, shifted] = [at.sum(at.mul(g, unit), axes), at.sum(g, axes)];
  for (const [index, sum] of [scaled, shifted].entries())
    if (write.wants(index + 1)) write.become(index + 1, write.add('Squeeze', [sum], { axes }), write.sumType);
  if (!write.wants(0)) return null;
  const across = at.sub(at.sub(g, at.mul(shifted, 1 / count)), at.mul(unit, at.mul(scaled, 1 / count)));
  return at.mul(across, at.mul(beside(write, 1), inverse));
}

/** Evaluation form: (x − mean) · inverse · scale + bias with statistics that are operands. */
function runningStatistics(write: OperatorGradient): void {
  const { operator } = write;
  const field = fieldOf(write, []);
  const at = write.on(field.type);
  const variance = at.add(beside(write, 4), numberOf(operator, 'epsilon', 1e-5));
  const inverse = at.of('Reciprocal', at.of('Sqrt', variance));
  const needsUnit = write.wants(1) || write.wants(4);
  const unit = needsUnit ? at.mul(at.sub(field.x, beside(write, 3)), inverse) : '';
  const g = arriving(write);
  if (write.wants(1)) perChannel(write, 1, at.mul(g, unit));
  perChannel(write, 2, g);
  if (!(write.wants(0) || write.wants(3) || write.wants(4))) return;
  const derivative = at.mul(beside(write, 1), inverse);
  const dx = at.mul(g, derivative);
  if (write.wants(0)) write.become(0, dx, field.type);
  if (write.wants(3)) perChannel(write, 3, at.of('Neg', dx));
  if (write.wants(4)) perChannel(write, 4, at.mul(at.mul(at.mul(dx, unit), inverse), -0.5));
}

function instance(write: OperatorGradient): void {
  const axes = operand(write.operator, 0).shape.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const way = { epsilon: numberOf(write.operator, 'epsilon', 1e-5), isCentred: true };
  const normal = normalised(write, fieldOf(write, axes), way);
  const unit = scaleAndBias(write, normal.at, () => normal.unit);
  if (write.wants(0)) write.become(0, throughUnit(normal, { unit }), write.sumType);
}

/** Groups are a dimension of their own while means are taken. */
function group(write: OperatorGradient): void {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const image = fieldOf(write, []);
  const [samples = 1, size = 1, ...sizes] = shape;
  const groups = numberOf(operator, 'num_groups', 1);
  const grouped = [samples, groups, size / groups, ...sizes];
  const split = (name: string) => write.add('Reshape', [name], { shape: grouped });
  const joined = (name: string) => write.add('Reshape', [name], { shape });
  const axes = grouped.flatMap((_, axis) => (axis < 2 ? [] : [axis]));
  const field = { ...image, x: split(image.x), shape: grouped, axes };
  const normal: Normalised = normalised(write, field, {
    epsilon: numberOf(operator, 'epsilon', 1e-5),
    isCentred: true,
  });
  const unit = scaleAndBias(write, write.on(image.type), () => joined(normal.unit));
  if (write.wants(0)) write.become(0, joined(throughUnit(normal, { unit: split(unit) })), image.type);
}

/** x / |x|: the component along y does not change it. Zero where the norm is zero, since y is constant there. */
function lp(write: OperatorGradient): void {
  const { shape } = operand(write.operator, 0);
  const axes = [axisOf(write.operator, 'axis', shape.length, -1)];
  const field = fieldOf(write, axes);
  const { x, type } = field;
  const { at } = means(write, field);
  const first = numberOf(write.operator, 'p', 2) === 1;
  const norm = write.add(first ? 'ReduceL1' : 'ReduceL2', [x], { axes, keepdims: 1 });
  const y = write.inType('out0', operand(write.operator, 0).dtype, type);
  const g = arriving(write);
  const along = at.sum(at.mul(g, y), axes);
  const across = at.sub(g, at.mul(first ? at.of('Sign', x) : y, along));
  const scale = at.where(at.of('Equal', norm, 0), 0, at.of('Reciprocal', norm));
  write.become(0, at.mul(across, scale), type);
}

/** (x − mean) / (σ + 10⁻⁹): the small number is added to σ itself, which may be zero. */
function meanVariance(write: OperatorGradient): void {
  const { shape, dtype } = operand(write.operator, 0);
  const field = fieldOf(
    write,
    axesFromFront(write.operator, integers(write.operator, 'axes') ?? [0, 2, 3], shape.length),
  );
  const { at, mean } = means(write, field);
  const root = at.of('Sqrt', mean(at.square(at.sub(field.x, mean(field.x)))));
  const y = write.inType('out0', dtype, field.type);
  const g = arriving(write);
  const level = at.div(at.sub(g, mean(g)), at.add(root, 1e-9));
  const safe = at.where(at.of('Equal', root, 0), 1, root);
  write.become(0, at.sub(level, at.mul(y, at.div(mean(at.mul(g, y)), safe))), field.type);
}

/**
 * y = x s^(−β) with s = bias + α · mean of x² over the neighbouring channels:
 * dx = g s^(−β) − 2αβ x · mean over those whose neighbour it is of g y / s. The means are poolings over channels.
 */
function localResponse(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const { x, type } = fieldOf(write, []);
  const at = write.on(type);
  const size = numberOf(operator, 'size', 1);
  const [alpha, beta] = [numberOf(operator, 'alpha', 1e-4), numberOf(operator, 'beta', 0.75)];
  const ones = shape.slice(2).map(() => 1);
  const still = ones.map(() => 0);
  const neighbours = (name: string, before: number, after: number) => {
    const lone = write.add('Unsqueeze', [name], { axes: [1] });
    const window = { kernel_shape: [size, ...ones], pads: [before, ...still, after, ...still], count_include_pad: 1 };
    return write.add('Squeeze', [write.add('AveragePool', [lone], window)], { axes: [1] });
  };
  const [before, after] = [Math.floor((size - 1) / 2), Math.ceil((size - 1) / 2)];
  const mean = neighbours(at.square(x), before, after);
  const s = at.add(at.mul(mean, alpha), numberOf(operator, 'bias', 1));
  const g = arriving(write);
  const direct = at.mul(g, at.of('Pow', s, -beta));
  const y = write.inType('out0', dtype, type);
  const back = neighbours(at.div(at.mul(g, y), s), after, before);
  write.become(0, at.sub(direct, at.mul(at.mul(x, back), 2 * alpha * beta)), type);
}

/** Gradients of normalisations of images, by operator. */
export const channelNormalisationGradients: Readonly<Record<string, GradientBody>> = {
  BatchNormalization: batch,
  InstanceNormalization: instance,
  GroupNormalization: group,
  LpNormalization: lp,
  MeanVarianceNormalization: meanVariance,
  LRN: localResponse,
};
