/**
 * @file Gradients of matmuls with weights that are quantised in blocks, with respect to the operands that are not quantised:
 * adapters are trained before and after such weights (QLoRA, Dettmers et al. 2023). The weights are unpacked in plain operators,
 *
 *     byte → numbers of 2, 4 or 8 bits → (number − zero point) · scale of the block      W [N, K]
 *     dA = g · W
 */
import { AutoparError } from '../error.js';
import { constant } from './constants.js';
import { numberOf, operand, result } from './operands.js';
import type { GradientTable, OperatorGradient } from './operator-gradient.js';

export const BLOCK_QUANTISED_GRADIENTS: GradientTable = {
  MatMulNBits: (write) => {
    const { operator } = write;
    refuseQuantised(write, [2, 3]);
    if (write.wants(5)) biasGradient(write, 5);
    if (!write.wants(0)) return;
    if (operator.inputs[4]) throw noGradientError(write, 'its columns are in another order (g_idx)');
    toActivations(write, numbersInBlocks(write));
  },
  MatMulBnb4: (write) => {
    refuseQuantised(write, [2]);
    if (write.wants(0)) toActivations(write, tabledNumbers(write));
  },
  GatherBlockQuantized: 'its table is quantised',
};

/** dA = g · W, for the weights as one matrix of N rows. */
function toActivations(write: OperatorGradient, weights: string): void {
  write.add('MatMul', ['grad0', weights], {}, 'd0');
}

function biasGradient(write: OperatorGradient, index: number): void {
  const { shape, dtype } = result(write.operator, 0);
  write.into(index, 'grad0', dtype, shape);
}

/** The weights of MatMulNBits, [N, K]. */
function numbersInBlocks(write: OperatorGradient): string {
  const { operator } = write;
  const [k, n, bits, block] = [
    numberOf(operator, 'K', 0),
    numberOf(operator, 'N', 0),
    numberOf(operator, 'bits', 4),
    numberOf(operator, 'block_size', 0),
  ];
  const blocks = Math.ceil(k / block);
  const { dtype } = operand(operator, 0);
  const bytes = write.add('Reshape', ['in1'], {
    shape: [n, blocks, (block * bits) / 8],
  });
  const numbers = unpacked(write, bytes, bits, 3);
  const plain = write.add('Reshape', [numbers], { shape: [n, blocks, block] });
  const values = write.cast(plain, dtype);
  const shifted = write.add('Sub', [values, zeroPoints(write, n, blocks, bits)]);
  const scales = write.add('Reshape', ['in2'], { shape: [n, blocks, 1] });
  const { dtype: scaleType } = operand(operator, 2);
  const scaled = write.add('Mul', [shifted, write.inType(scales, scaleType, dtype)]);
  const wide = write.add('Reshape', [scaled], { shape: [n, blocks * block] });
  if (blocks * block === k) return wide;
  return write.add('Slice', [wide], { starts: [0], ends: [k], axes: [1], steps: [1] });
}

/** One zero point per block, in the weights' type: the middle of the range if none is given. */
function zeroPoints(write: OperatorGradient, n: number, blocks: number, bits: number): string {
  const { operator } = write;
  const { dtype } = operand(operator, 0);
  const given = operator.inputs[3];
  if (!given) return write.scalar(dtype, 2 ** (bits - 1));
  const shape = [n, blocks, 1];
  if (given.dtype !== 'uint8') return write.inType(write.add('Reshape', ['in3'], { shape }), given.dtype, dtype);
  const each = 8 / bits;
  const rows = Math.ceil(blocks / each);
  const bytes = write.add('Reshape', ['in3'], { shape: [n, rows] });
  const apart = unpacked(write, bytes, bits, 2);
  const flat = write.add('Reshape', [apart], { shape: [n, rows * each] });
  const kept =
    rows * each === blocks ? flat : write.add('Slice', [flat], { starts: [0], ends: [blocks], axes: [1], steps: [1] });
  return write.cast(write.add('Unsqueeze', [kept], { axes: [2] }), dtype);
}

/** The numbers packed in bytes, lowest bits first, along a new last dimension `axis`. */
export function unpacked(write: OperatorGradient, bytes: string, bits: number, axis: number): string {
  const each = 8 / bits;
  const parts = Array.from({ length: each }, (_, place) => {
    const low =
      place === 0 ? bytes : write.add('BitShift', [bytes, write.scalar('uint8', place * bits)], { direction: 'RIGHT' });
    const number = write.add('BitwiseAnd', [low, write.scalar('uint8', 2 ** bits - 1)]);
    return write.add('Unsqueeze', [number], { axes: [axis] });
  });
  return parts.length === 1 ? (parts[0] ?? bytes) : write.add('Concat', parts, { axis });
}

/** The values of 4-bit codes, by `quant_type`: 0 a float of 4 bits, 1 the quantiles of a normal distribution (NF4). */
const TABLES: readonly (readonly number[])[] = [
  [
    0, 5.208333333e-3, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25, 0, -5.208333333e-3, -0.66666667, -1,
    -0.33333333, -0.5, -0.16666667, -0.25,
  ],
  [
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
  ],
];

/** The weights of MatMulBnb4, [N, K]: pairs of numbers in a byte, the first in its high bits. */
function tabledNumbers(write: OperatorGradient): string {
  const { operator } = write;
  const [k, n, block] = [numberOf(operator, 'K', 0), numberOf(operator, 'N', 0), numberOf(operator, 'block_size', 1)];
  const { dtype } = operand(operator, 0);
  if ((k * n) % block !== 0) throw noGradientError(write, 'its last block is not full');
  const bytes = write.add('Reshape', ['in1'], { shape: [(k * n) / block, block / 2] });
  const high = write.add('BitShift', [bytes, write.scalar('uint8', 4)], { direction: 'RIGHT' });
  const low = write.add('BitwiseAnd', [bytes, write.scalar('uint8', 15)]);
  const pair = [high, low].map((part) => write.add('Unsqueeze', [part], { axes: [2] }));
  const joined = write.add('Concat', pair, { axis: 2 });
  const places = write.cast(write.add('Reshape', [joined], { shape: [(k * n) / block, block] }), 'int64');
  const table = write.tensor(constant(dtype, TABLES[numberOf(operator, 'quant_type', 1)] ?? [], [16]));
  const numbers = write.add('Gather', [table, places], { axis: 0 });
  const scales = write.add('Reshape', ['in2'], { shape: [(k * n) / block, 1] });
  const { dtype: scaleType } = operand(operator, 2);
  const scaled = write.add('Mul', [numbers, write.inType(scales, scaleType, dtype)]);
  return write.add('Reshape', [scaled], { shape: [n, k] });
}

/** Refuses to train the scales and zero points of quantised weights. */
export function refuseQuantised(write: OperatorGradient, operands: readonly number[]): void {
  if (operands.some((index) => write.wants(index)))
    throw noGradientError(write, 'scales and zero points of quantised weights are not trained');
}

/** The error for a form of an operator with quantised weights. */
export function noGradientError({ operator }: OperatorGradient, reason: string): AutoparError {
  return new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient: ${reason}`,
    { node: operator.name },
    'freeze the parameters before it (--frozen), or quantise the model after training',
  );
}
