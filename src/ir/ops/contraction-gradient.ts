/**
 * @file Gradients of matmuls: dA = dC Bᵀ, dB = Aᵀ dC, summed over the dimensions that were broadcast. If the right operand is one
 * matrix, the rows of the left operand are flattened first, so that its gradient is one matmul too.
 */
import { addEinsumGradients } from './einsum-gradient.js';
import { dimensionNames, numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

export function matMulGradient(write: OperatorGradient): void {
  const [a, b] = [write.shapeOfOperand(0), write.shapeOfOperand(1)];
  const ranks = [a.length, b.length];
  // A vector, or one matrix against a stack on its right: the sum over the stack is part of the contraction.
  if (ranks.includes(1) || (a.length === 2 && b.length > 2)) {
    const batch = dimensionNames(Math.max(a.length, b.length, 2) - 2, 'b');
    const own = (rank: number) => batch.slice(batch.length - Math.max(0, rank - 2));
    const left = a.length > 1 ? [...own(a.length), 'm', 'k'] : ['k'];
    const right = b.length > 1 ? [...own(b.length), 'k', 'n'] : ['k'];
    const columns = b.length > 1 ? ['n'] : [];
    addEinsumGradients(write, [left, right], [...batch, ...(a.length > 1 ? ['m'] : []), ...columns]);
    return;
  }
  const { shape } = result(write.operator, 0);
  const { dtype } = operand(write.operator, 0);
  const sizes = shape.slice(0, -2);
  if (write.wants(0)) {
    const matmul = write.add('MatMul', ['grad0', transposed(write, 1)]);
    write.into(0, matmul, dtype, [...sizes, ...a.slice(-2)]);
  }
  if (!write.wants(1)) return;
  if (b.length === 2 && a.length > 2) {
    const [inner = 1, columns = 1] = b;
    const count = shape.slice(0, -1).reduce((matmul, size) => matmul * size, 1);
    const left = write.add('Reshape', ['in0'], { shape: [count, inner] });
    const right = write.add('Reshape', ['grad0'], { shape: [count, columns] });
    const transposedMatrix = write.add('Transpose', [left], { perm: [1, 0] });
    write.become(1, write.add('MatMul', [transposedMatrix, right]), dtype);
    return;
  }
  const matmul = write.add('MatMul', [transposed(write, 0), 'grad0']);
  write.into(1, matmul, dtype, [...sizes, ...b.slice(-2)]);
}

/**
 * C = α A′ B′ + β C₀, where A′ is A or Aᵀ: the gradients of A and B are Gemms too. `gradient`: the gradient of C.
 */
export function gemmGradient(write: OperatorGradient, gradient = 'grad0'): void {
  const flips = (name: string) => numberOf(write.operator, name, 0) !== 0;
  const [transA, transB] = [flips('transA'), flips('transB')];
  const { dtype } = operand(write.operator, 0);
  const alpha = numberOf(write.operator, 'alpha', 1);
  const matmul = (index: number, left: string, right: string, first: boolean, second: boolean) => {
    const attributes = { alpha, transA: Number(first), transB: Number(second) };
    write.become(index, write.add('Gemm', [left, right], attributes), dtype);
  };
  if (write.wants(0))
    if (transA) matmul(0, 'in1', gradient, transB, true);
    else matmul(0, gradient, 'in1', false, !transB);
  if (write.wants(1))
    if (transB) matmul(1, gradient, 'in0', true, transA);
    else matmul(1, 'in0', gradient, !transA, false);
  if (!write.wants(2)) return;
  const beta = numberOf(write.operator, 'beta', 1);
  const scaled = beta === 1 ? gradient : write.add('Mul', [gradient, write.scalarLike(0, beta)]);
  write.into(2, scaled, dtype, result(write.operator, 0).shape);
}

/** dA = dy · det A · A⁻ᵀ; a singular matrix has no gradient. */
export function determinantGradient(write: OperatorGradient): void {
  if (!write.wants(0)) return;
  const { dtype, shape } = operand(write.operator, 0);
  const inverse = write.addOf('com.microsoft', 'Inverse', ['in0']);
  const [last, scaled] = [shape.length - 1, write.add('Mul', ['grad0', 'out0'])];
  const perm = shape.map((_, axis) => (axis === last ? last - 1 : axis === last - 1 ? last : axis));
  const transposedMatrix = write.add('Transpose', [inverse], { perm });
  const axes = [last - 1, last];
  const tall = write.add('Unsqueeze', [scaled], { axes });
  write.become(0, write.add('Mul', [transposedMatrix, tall]), dtype);
}

/** An operand with its last two dimensions swapped. */
function transposed(write: OperatorGradient, index: number): string {
  const { shape } = operand(write.operator, index);
  const last = shape.length - 1;
  const perm = shape.map((_, axis) => (axis === last ? last - 1 : axis === last - 1 ? last : axis));
  return write.add('Transpose', [`in${index}`], { perm });
}
