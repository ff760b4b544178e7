/**
 * @file Matmuls. A contracted factor leaves partial sums; a matmul is linear in each operand by itself.
 */
import type { DType } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry, Work } from '../operator.js';
import { determinantGradient, gemmGradient, matMulGradient } from './contraction-gradient.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { broadcast, mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { differentiable } from './operator-gradient.js';

export const contractionEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'MatMul',
      family: 'contraction',
      infer: (operator) => {
        const [a, b] = [ofRank(operator, 0, 1, true), ofRank(operator, 1, 1, true)];
        if (a.shape.at(-1) !== b.shape.at(b.shape.length === 1 ? -1 : -2))
          throw mismatch(operator, 'the contracted sizes differ');
        const rows = a.shape.length > 1 ? a.shape.slice(-2, -1) : [];
        const columns = b.shape.length > 1 ? b.shape.slice(-1) : [];
        return [
          {
            dtype: a.dtype,
            shape: [...broadcast(operator, [a.shape.slice(0, -2), b.shape.slice(0, -2)]), ...rows, ...columns],
          },
        ];
      },
      rule: (operator) => {
        const [a, b] = [operand(operator, 0).shape.length > 1, operand(operator, 1).shape.length > 1];
        const left = a ? '*b m k+' : 'k+';
        const right = b ? '*b k+ n' : 'k+';
        return `${left}, ${right} -> ${a || b ? '*b ' : ''}${a ? 'm ' : ''}${b ? 'n' : ''}`;
      },
      linear: () => [[0], [1]],
      work: matmulWork,
    }),
    matMulGradient,
  ),
  differentiable(
    entry({
      op: 'Gemm',
      family: 'contraction',
      infer: (operator) => [gemmType(operator)],
      rule: (operator) => gemmText(operator, operator.inputs[2] ? '%' : '+'),
      linear: (operator) => (operator.inputs[2] ? [] : [[0], [1]]),
      expansion: gemmExpansion,
      work: gemmWork,
      parameterInputs: [1, 2],
    }),
    gemmGradient,
  ),
  differentiable(
    entry({
      op: 'Det',
      family: 'contraction',
      precision: 'full',
      infer: (operator) => {
        const { dtype, shape } = ofRank(operator, 0, 2, true);
        if (shape.at(-1) !== shape.at(-2)) throw mismatch(operator, 'its matrices are not square');
        return [{ dtype, shape: shape.slice(0, -2) }];
      },
      rule: '*b i! j! -> *b',
      work: (operator) => ({
        flops: elementCount(operand(operator, 0).shape) * (operand(operator, 0).shape.at(-1) ?? 1),
      }),
      note: 'Matrices are not sharded.',
    }),
    determinantGradient,
  ),
];

/** Type of the product of the matrices of operand 0 and of operand `right`, whose batch dimensions broadcast. */
export function productType(operator: Operator, right: number, dtype: DType): TensorType {
  const [a, b] = [ofRank(operator, 0, 2, true), ofRank(operator, right, 2, true)];
  if (a.shape.at(-1) !== b.shape.at(-2)) throw mismatch(operator, 'the contracted sizes differ');
  const batch = broadcast(operator, [a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  return { dtype, shape: [...batch, a.shape.at(-2) ?? 1, b.shape.at(-1) ?? 1] };
}

/** Work of a matmul that contracts the last dimension of operand 0. */
export function matmulWork(operator: Operator): Work {
  return { flops: 2 * elementCount(result(operator, 0).shape) * (operand(operator, 0).shape.at(-1) ?? 1) };
}

/** Work of a matmul whose operand 0 may be transposed. */
export function gemmWork(operator: Operator): Work {
  const k = operand(operator, 0).shape[numberOf(operator, 'transA', 0) ? 0 : 1] ?? 1;
  return { flops: 2 * elementCount(result(operator, 0).shape) * k };
}

/** Type of a Gemm's result. */
export function gemmType(operator: Operator): TensorType {
  const [a, b] = [ofRank(operator, 0, 2), ofRank(operator, 1, 2)];
  const [m, k] = numberOf(operator, 'transA', 0) ? [...a.shape].reverse() : a.shape;
  const [l, n] = numberOf(operator, 'transB', 0) ? [...b.shape].reverse() : b.shape;
  if (k !== l) throw mismatch(operator, 'the contracted sizes differ');
  const shape = [m ?? 1, n ?? 1];
  const bias = operator.inputs[2]?.shape ?? [];
  if (broadcast(operator, [shape, bias]).join() !== shape.join())
    throw mismatch(operator, 'its bias does not fit its result');
  return { dtype: a.dtype, shape };
}

/** A Gemm's rule; `mark` is the kind of the contracted factor. */
export function gemmText(operator: Operator, mark: string): string {
  const a = numberOf(operator, 'transA', 0) ? `k${mark} m` : `m k${mark}`;
  const b = numberOf(operator, 'transB', 0) ? `n k${mark}` : `k${mark} n`;
  const bias = ['', 'n', 'm n'][operator.inputs[2]?.shape.length ?? 0] ?? '';
  return `${a}, ${b}, ${bias} -> m n`;
}

/** Transpose, MatMul, scale, Add: the bias is added after the contraction is summed. */
function gemmExpansion(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const { dtype } = operand(operator, 0);
  const flip = (input: string, dims: readonly string[], attribute: string) =>
    numberOf(operator, attribute, 0)
      ? write.add(
          'Transpose',
          [input],
          dims.map((name) => [name]),
          { perm: [1, 0] },
        )
      : input;
  const scale = (input: string, dims: readonly (readonly string[])[], by: number) =>
    by === 1 ? input : write.add('Mul', [input, write.scalar(dtype, by)], dims);
  const bias = operator.inputs[2];
  const whole = [['m'], ['n']];
  const product = [flip('in0', ['m', 'k'], 'transA'), flip('in1', ['k', 'n'], 'transB')];
  if (!bias) {
    const sum = write.add('MatMul', product, whole);
    write.add('Mul', [sum, write.scalar(dtype, numberOf(operator, 'alpha', 1))], whole, {}, 'out0');
    return write.finish();
  }
  const scaled = scale(write.add('MatMul', product, whole), whole, numberOf(operator, 'alpha', 1));
  const biasDims = whole
    .slice(2 - bias.shape.length)
    .map((names, index) =>
      bias.shape[index] === 1 && result(operator, 0).shape[index + 2 - bias.shape.length] !== 1 ? [] : names,
    );
  write.add('Add', [scaled, scale('in2', biasDims, numberOf(operator, 'beta', 1))], whole, {}, 'out0');
  return write.finish();
}
