/**
 * @file Gradients of elementwise operators of several operands: formulas over the broadcast shape, summed back to the shape of
 * each operand before the broadcast. Ties and kinks follow PyTorch.
 */
import { unaryGradients } from './activation-gradient.js';
import { presentOperands } from './entry.js';
import { operand, result } from './operands.js';
import { type GradientBody, type GradientTable, INTEGER_RESULT, type OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** Gradient of one operand, over the result's shape. */
type OperandGradient = (at: Arithmetic, write: OperatorGradient) => string;

/** Writes one gradient per operand; `parts` are in the operands' order, null for an operand whose gradient is zero. */
function shares(...parts: readonly (OperandGradient | null)[]): GradientBody {
  return (write) => {
    const { dtype, shape } = result(write.operator, 0);
    const at = write.on(dtype);
    for (const [index, share] of parts.entries()) {
      if (!write.wants(index)) continue;
      if (share) write.into(index, share(at, write), dtype, shape);
      else write.none(index);
    }
  };
}

const GRAD: OperandGradient = () => 'grad0';

/** Every operand gets the same share of the gradient. */
function toAll(share: (at: Arithmetic, count: number) => string): GradientBody {
  return (write) => {
    const { dtype, shape } = result(write.operator, 0);
    const made = share(write.on(dtype), presentOperands(write.operator).length);
    for (const index of presentOperands(write.operator)) if (write.wants(index)) write.into(index, made, dtype, shape);
  };
}

/** Largest and smallest: operands that tie share the gradient evenly, as torch.maximum has it for two. */
function chosen(write: OperatorGradient): void {
  const { dtype, shape } = result(write.operator, 0);
  const at = write.on(dtype);
  const all = presentOperands(write.operator);
  const hits = new Map(all.map((index) => [index, at.of('Equal', `in${index}`, 'out0')]));
  const count = [...hits.values()].map((hit) => at.count(hit)).reduce((sum, next) => at.add(sum, next));
  const share = at.div('grad0', count);
  for (const [index, hit] of hits) if (write.wants(index)) write.into(index, at.where(hit, share, 0), dtype, shape);
}

/** x^p: p x^(p−1), zero where p is, and y log x, zero where x = 0 and p ≥ 0. */
function power(write: OperatorGradient): void {
  const { dtype, shape } = result(write.operator, 0);
  const type = write.sumType;
  const at = write.on(type);
  const exponent = write.inType('in1', operand(write.operator, 1).dtype, type);
  const base = write.inType('in0', dtype, type);
  const gradient = write.inType('grad0', dtype, type);
  if (write.wants(0) && write.operator.known?.[1] === 2) {
    // Normalisations square their operand: a general power would take as long as the rest of their gradient.
    write.into(0, at.mul(at.mul(gradient, 2), base), type, shape);
  } else if (write.wants(0)) {
    const lower = at.sub(exponent, 1);
    const ownGradient = at.mul(at.mul(gradient, exponent), at.of('Pow', base, lower));
    const still = at.of('Equal', exponent, 0);
    write.into(0, at.where(still, 0, ownGradient), type, shape);
  }
  if (write.wants(1)) {
    const raised = write.inType('out0', dtype, type);
    const ownGradient = at.mul(gradient, at.mul(raised, at.of('Log', base)));
    const zero = at.of('Equal', base, 0);
    const still = at.of('And', zero, at.of('GreaterOrEqual', exponent, 0));
    write.into(1, at.where(still, 0, ownGradient), type, shape);
  }
}

/** max(min(x, high), low): the gradient goes to x within the bounds, both included, and outside to the bound that applies. */
function clip(write: OperatorGradient): void {
  const { dtype, shape } = operand(write.operator, 0);
  const at = write.on(dtype);
  const [low, high] = [1, 2].map((index) => (write.operator.inputs[index] ? `in${index}` : null));
  const tests = [low && at.of('GreaterOrEqual', 'in0', low), high && at.of('LessOrEqual', 'in0', high)];
  const [first, second] = tests.flatMap((test) => test ?? []);
  if (write.wants(0)) {
    const inside = first && second ? at.of('And', first, second) : first;
    write.become(0, inside ? at.where(inside, 'grad0', 0) : 'grad0', dtype);
  }
  // Where the bounds cross, the upper one holds everywhere.
  if (low && write.wants(1)) {
    const below = at.of('Less', 'in0', low);
    const holds = high ? at.of('And', below, at.of('Less', low, high)) : below;
    write.into(1, at.where(holds, 'grad0', 0), dtype, shape);
  }
  if (high && write.wants(2)) {
    const above = at.of('Greater', 'in0', high);
    const holds = low ? at.of('Or', above, at.of('Less', high, low)) : above;
    write.into(2, at.where(holds, 'grad0', 0), dtype, shape);
  }
}

/** Back to the type that was cast from. */
function cast(write: OperatorGradient): void {
  if (write.wants(0)) write.become(0, 'grad0', result(write.operator, 0).dtype);
  // An operand that only gives the type has a zero gradient.
  write.noneOf(1);
}

/** In training mode the kept elements were scaled up; the mask states which were kept. */
function dropout(write: OperatorGradient): void {
  const { dtype } = operand(write.operator, 0);
  if (write.wants(0)) write.become(0, write.operator.inputs[2] ? kept(write) : 'grad0', dtype);
  write.noneOf(1);

  function kept(into: OperatorGradient): string {
    const ratio = into.operator.inputs[1];
    const at = into.on(dtype);
    const dropped = ratio ? into.inType('in1', ratio.dtype, dtype) : 0.5;
    // Whether the node is in training mode may be known only at run time.
    const scale = at.where('in2', at.div(1, at.sub(1, dropped)), 1);
    return at.where('out1', at.mul('grad0', scale), 0);
  }
}

/** x − y · q with an integer q: the derivative is 1 with respect to x, and −q with respect to y. */
const remainder = shares(GRAD, (at) => {
  const whole = at.of('Round', at.div(at.sub('out0', 'in0'), 'in1'));
  return at.mul('grad0', whole);
});

const TESTS = ['Equal', 'Less', 'LessOrEqual', 'Greater', 'GreaterOrEqual'];
const BITS = ['BitShift', 'And', 'Or', 'Xor', 'BitwiseAnd', 'BitwiseOr', 'BitwiseXor'];

/** Gradients of ONNX's elementwise operators, by operator. */
export const elementwiseGradients: GradientTable = {
  ...unaryGradients,
  Add: toAll(() => 'grad0'),
  Sum: toAll(() => 'grad0'),
  Mean: toAll((at, count) => at.mul('grad0', 1 / count)),
  Sub: shares(GRAD, (at) => at.of('Neg', 'grad0')),
  Mul: shares(
    (at) => at.mul('grad0', 'in1'),
    (at) => at.mul('grad0', 'in0'),
  ),
  Div: shares(
    (at) => at.div('grad0', 'in1'),
    (at) => at.of('Neg', at.mul(at.div('grad0', 'in1'), 'out0')),
  ),
  Pow: power,
  Mod: remainder,
  PRelu: shares(
    (at) => at.where(at.of('Greater', 'in0', 0), 'grad0', at.mul('grad0', 'in1')),
    (at) => at.where(at.of('Greater', 'in0', 0), 0, at.mul('grad0', 'in0')),
  ),
  Max: chosen,
  Min: chosen,
  Where: shares(
    null,
    (at) => at.where('in0', 'grad0', 0),
    (at) => at.where('in0', 0, 'grad0'),
  ),
  Clip: clip,
  Cast: cast,
  CastLike: cast,
  BitCast: 'the bits are read as another type',
  Dropout: dropout,
  ...Object.fromEntries([...TESTS, ...BITS].map((op) => [op, INTEGER_RESULT])),
};

/** x + gate · y. */
export const gatedAdd = shares(
  GRAD,
  (at) => at.mul('grad0', 'in2'),
  (at) => at.mul('grad0', 'in1'),
);
