/**
 * @file The gradient of QMoE, whose experts' weights are quantised, with respect to tokens, scores and biases. The
 * weights are unpacked in plain operators,
 *
 *     byte → numbers of 4 or 8 bits, lowest first → (number − zero point) · scale of the row, or of the block in it
 *
 * and are then those of a plain mixture of experts. Its scores are always normalised over the experts that are chosen.
 */
import { noGradientError, refuseQuantised, unpacked } from './block-quantised-gradient.js';
import { type Experts, expertsGradient, refuseExperts } from './experts-gradient.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

/** Indices of the first weights, of the second, and of the gates' operands. */
const [FIRST, SECOND, GATE] = [2, 5, 8];
const ZERO_POINTS = 11;
const ROUTER = 14;

export function quantisedExpertsGradient(write: OperatorGradient): void {
  refuseExperts(write, [GATE, ROUTER]);
  refuseQuantised(write, [FIRST + 1, SECOND + 1, GATE + 1, ZERO_POINTS, ZERO_POINTS + 1]);
  expertsGradient(write, quantisedExperts(write));
}

/** Its weights unpacked. */
export function quantisedExperts(write: OperatorGradient): Experts {
  return {
    first: plainWeights(write, FIRST, ZERO_POINTS),
    second: plainWeights(write, SECOND, ZERO_POINTS + 1),
    inner: columnsOf(write, SECOND),
    weights: null,
    biases: [FIRST + 2, SECOND + 2],
    isNormalised: true,
  };
}

function columnsOf({ operator }: OperatorGradient, index: number): number {
  return ((operand(operator, index).shape[2] ?? 1) * 8) / bitsOf(operator);
}

function bitsOf(operator: OperatorGradient['operator']): number {
  return numberOf(operator, 'expert_weight_bits', 4);
}

/** [expert, row, column] of operand `index`; its scales are the next operand. */
function plainWeights(write: OperatorGradient, index: number, zeroPoint: number): string {
  const { operator } = write;
  const type = write.sumType;
  const bits = bitsOf(operator);
  const [experts = 1, rows = 1] = operand(operator, index).shape;
  const scaleType = operand(operator, index + 1);
  const blocks = scaleType.shape[2] ?? 1;
  const count = columnsOf(write, index);
  const numbers = unpacked(write, `in${index}`, bits, 3);
  const plain = write.add('Reshape', [numbers], { shape: [experts, rows, blocks, count / blocks] });
  const at = write.on(type);
  const shape = [experts, rows, blocks, 1];
  const own = write.inType(`in${index + 1}`, scaleType.dtype, type);
  const scales = write.add('Reshape', [own], { shape });
  const given = operator.inputs[zeroPoint];
  if (given && blocks === 1 && scaleType.shape.length === 3)
    throw noGradientError(write, 'ONNX Runtime reads zero points of rows of a single block in another order');
  const zero = given ? write.cast(zeroPoints(write, zeroPoint, shape, bits), type) : 2 ** (bits - 1);
  const values = at.mul(at.sub(write.cast(plain, type), zero), scales);
  return write.add('Reshape', [values], { shape: [experts, rows, count] });
}

/** Zero points are packed along the rows' blocks, or along the rows where there is one for each. */
function zeroPoints(write: OperatorGradient, index: number, shape: readonly number[], bits: number): string {
  const { shape: held } = operand(write.operator, index);
  const axis = held.length - 1;
  const numbers = unpacked(write, `in${index}`, bits, held.length);
  const long = [...held.slice(0, -1), ((held[axis] ?? 1) * 8) / bits];
  const flat = write.add('Reshape', [numbers], { shape: long });
  const bounds = { starts: [0], ends: [shape[axis] ?? 1], axes: [axis], steps: [1] };
  const kept = long[axis] === shape[axis] ? flat : write.add('Slice', [flat], bounds);
  return write.add('Reshape', [kept], { shape });
}
