/**
 * @file Gradients of ONNX Runtime's additions to ONNX's operators: expanded dimensions, inverses, unfolding, distances.
 */
import { constant } from './constants.js';
import { axisOf, numberOf, operand, result, text } from './operands.js';
import { type GradientTable, INTEGER_RESULT, type OperatorGradient } from './operator-gradient.js';
import { plainMeans } from './plain-regions.js';
import { croppedAxis } from './region-samples.js';

export const MICROSOFT_CORE_GRADIENTS: GradientTable = {
  ExpandDims: (write) => {
    const { shape } = operand(write.operator, 0);
    write.add('Reshape', ['grad0'], { shape }, 'd0');
  },
  Inverse: (write) => inverseGradient(write),
  UnfoldTensor: (write) => unfoldGradient(write),
  CropAndResize: { plain: (write) => plainMeans(write, croppedAxis(write, 2), croppedAxis(write, 3)) },
  CDist: (write) => distancesGradient(write),
  NhwcMaxPool: INTEGER_RESULT,
};

/** −Yᵀ g Yᵀ. */
function inverseGradient(write: OperatorGradient): void {
  const { shape } = operand(write.operator, 0);
  const rank = shape.length;
  const perm = [...shape.keys()].map((axis) => (axis < rank - 2 ? axis : 2 * rank - 3 - axis));
  const transposed = write.add('Transpose', ['out0'], { perm });
  const left = write.add('MatMul', [transposed, 'grad0']);
  write.add('Neg', [write.add('MatMul', [left, transposed])], {}, 'd0');
}

/** Windows overlap: their gradients are summed at each position, with the unfolded dimension moved to the front meanwhile. */
function unfoldGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const axis = axisOf(operator, 'dim', shape.length, -1);
  const [size, step] = [numberOf(operator, 'size', 1), numberOf(operator, 'step', 1)];
  const steps = result(operator, 0).shape[axis] ?? 1;
  const others = shape.flatMap((_, other) => (other === axis ? [] : [other]));
  const front = [axis, shape.length, ...others];
  const transposed = write.add('Transpose', ['grad0'], { perm: front });
  const places = Array.from({ length: steps * size }, (_, at) => Math.floor(at / size) * step + (at % size));
  const index = write.tensor(constant('int64', places, [steps, size, 1]));
  const order = [axis, ...others];
  const zeros = write.add('ConstantOfShape', [], {
    shape: order.map((place) => shape[place] ?? 1),
    value: constant(dtype, [0], [1]),
  });
  const sum = write.add('ScatterND', [zeros, index, transposed], { reduction: 'add' });
  write.add('Transpose', [sum], { perm: shape.map((_, place) => order.indexOf(place)) }, 'd0');
}

/** d(a, b) = |a − b|, or its square: with w = g / d or 2 g, da = a Σ w − w b. At distance zero it is zero. */
function distancesGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype } = operand(operator, 0);
  const at = write.on(dtype);
  const isSquare = text(operator, 'metric', 'sqeuclidean') === 'sqeuclidean';
  const weights = isSquare ? at.mul('grad0', 2) : at.where(at.of('Equal', 'out0', 0), 0, at.div('grad0', 'out0'));
  const give = (own: 0 | 1, other: 0 | 1) => {
    if (!write.wants(own)) return;
    const transposed = own === 0 ? weights : write.add('Transpose', [weights], { perm: [1, 0] });
    const sum = write.add('ReduceSum', [transposed], { axes: [1], keepdims: 1 });
    const near = write.on(dtype);
    const far = write.add('MatMul', [transposed, `in${other}`]);
    write.become(own, near.sub(near.mul(`in${own}`, sum), far), dtype);
  };
  give(0, 1);
  give(1, 0);
}
