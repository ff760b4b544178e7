/**
 * @file The gradients of ONNX Runtime's mixtures of experts. The choice of a token's experts is a step function of its scores;
 * their routing weights are not:
 *
 *     h = x W1ᵀ + b1    a = f(h)    y = Σ over chosen experts of p · (a W2ᵀ + b2)        p: the scores' softmax
 *
 * Every expert computes all tokens, with routing weight zero where it is not chosen: the number of tokens of an expert is known
 * only at run time. p is over all scores, or over those of the chosen experts if the operator normalises.
 */
import { AutoparError } from '../error.js';
import type { Operator } from '../operator.js';
import { activated } from './experts-activation.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

const [INPUT, SCORES] = [0, 1];

/** Weights of all experts as plain matrices, and the operands that are trained. */
export interface Experts {
  /** [expert, hidden, feature], [expert, feature, hidden], in the type that sums are formed in. */
  readonly first: string;
  readonly second: string;
  /** Inner features. */
  readonly inner: number;
  /** Indices of the operands that hold them; null if weights are not trained. */
  readonly weights: readonly [number, number] | null;
  readonly biases: readonly [number, number];
  /** Whether the routing weights of the chosen experts add up to one. */
  readonly isNormalised: boolean;
}

/** y itself: every token through all experts. */
export function expertsForward(write: OperatorGradient, experts: Experts): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, INPUT);
  const { value, raised, transposed, routing } = hiddenOf(write, experts);
  const second = experts.biases[1];
  const matmul = write.add('MatMul', [value, transposed(experts.second, 3)]);
  const shift = operator.inputs[second] ? write.add('Unsqueeze', [raised(second)], { axes: [1] }) : null;
  const each = shift === null ? matmul : write.add('Add', [matmul, shift]);
  const share = write.add('Unsqueeze', [transposed(routing.probabilities, 2)], { axes: [2] });
  const weighted = write.add('Mul', [each, share]);
  const sum = write.add('ReduceSum', [weighted], { axes: [0], keepdims: 0 });
  write.add('Reshape', [write.inType(sum, write.sumType, dtype)], { shape }, 'out0');
}

/** Shared start of forward and gradient: the experts' inner features, [expert, token, inner], and the routing weights. */
function hiddenOf(write: OperatorGradient, experts: Experts) {
  const { operator } = write;
  const type = write.sumType;
  const { inner, biases } = experts;
  const { dtype, shape } = operand(operator, INPUT);
  const [count = 1, choices = 1] = operand(operator, SCORES).shape;
  const features = shape.at(-1) ?? 1;
  const rows = (name: string) =>
    write.add('Reshape', [write.inType(name, dtype, type)], {
      shape: [count, features],
    });
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const transposed = (name: string, rank: 2 | 3) =>
    write.add('Transpose', [name], { perm: rank === 2 ? [1, 0] : [0, 2, 1] });
  const input = rows(`in${INPUT}`);
  const matmul = write.add('MatMul', [input, transposed(experts.first, 3)]);
  const [firstBias] = biases;
  const shift = operator.inputs[firstBias] ? write.add('Unsqueeze', [raised(firstBias)], { axes: [1] }) : null;
  const sum = shift === null ? matmul : write.add('Add', [matmul, shift]);
  const { value, back } = activated(write, sum, [choices, count, inner]);
  const routing = routingOf(write, choices, experts.isNormalised);
  return { input, value, back, routing, rows, raised, transposed };
}

export function expertsGradient(write: OperatorGradient, experts: Experts): void {
  const { operator } = write;
  const type = write.sumType;
  const { biases, weights } = experts;
  const { shape } = operand(operator, INPUT);
  const { input, value, back, routing, rows, raised, transposed } = hiddenOf(write, experts);
  const [firstBias, secondBias] = biases;
  const resultGradient = rows('grad0');
  const hiddenGradient = write.add('MatMul', [resultGradient, experts.second]);
  const each = write.on(type);
  const probabilities = transposed(routing.probabilities, 2);
  const share = write.add('Unsqueeze', [probabilities], { axes: [2] });
  if (write.wants(SCORES)) {
    const fit = write.add('ReduceSum', [each.mul(value, hiddenGradient)], { axes: [2], keepdims: 0 });
    const shifted = operator.inputs[secondBias]
      ? write.add('Add', [fit, write.add('MatMul', [raised(secondBias), transposed(resultGradient, 2)])])
      : fit;
    write.become(SCORES, routing.back(transposed(shifted, 2)), type);
  }
  if (weights !== null && write.wants(weights[1])) {
    const made = write.add('MatMul', [transposed(resultGradient, 2), each.mul(share, value)]);
    write.become(weights[1], made, type);
  }
  if (write.wants(secondBias)) write.become(secondBias, write.add('MatMul', [probabilities, resultGradient]), type);
  if (![INPUT, firstBias, weights?.[0] ?? INPUT].some((index) => write.wants(index))) return;
  const grown = back(each.mul(share, hiddenGradient));
  if (weights !== null && write.wants(weights[0])) {
    const made = write.add('MatMul', [transposed(grown, 3), input]);
    write.become(weights[0], made, type);
  }
  if (write.wants(firstBias))
    write.become(firstBias, write.add('ReduceSum', [grown], { axes: [1], keepdims: 0 }), type);
  if (!write.wants(INPUT)) return;
  const made = write.add('Einsum', [grown, experts.first], { equation: 'xth,xhd->td' });
  write.become(INPUT, write.add('Reshape', [made], { shape }), type);
}

/** The routing weight of each expert for each token, [token, expert], and the function from its gradient to the scores'. */
function routingOf(write: OperatorGradient, choices: number, isNormalised: boolean) {
  const { operator } = write;
  const type = write.sumType;
  const at = write.on(type);
  const scores = write.inType(`in${SCORES}`, operand(operator, SCORES).dtype, type);
  const k = numberOf(operator, 'k', 1);
  write.addAll('TopK', [scores], ['best', 'places'], { k, axis: -1, largest: 1, sorted: 1 });
  const places = write.add('Unsqueeze', ['places'], { axes: [2] });
  const isPlace = write.add('Equal', [places, write.positions([1, 1, choices], 2)]);
  const chosen = write.add('ReduceSum', [write.cast(isPlace, type)], { axes: [1], keepdims: 0 });
  const all = write.add('Softmax', [scores], { axis: -1 });
  const counted = at.mul(all, chosen);
  const probabilities = isNormalised ? at.div(counted, at.sum(counted, [1])) : counted;
  const back = (gradient: string) => {
    const weighted = at.mul(probabilities, gradient);
    return at.sub(weighted, at.mul(isNormalised ? probabilities : all, at.sum(weighted, [1])));
  };
  return { probabilities, back };
}

/** Whether it has one of `operands`, or a form for which ONNX Runtime has no kernel on a CPU: no test here checks these. */
export function isUnproven(operator: Operator, operands: readonly number[]): boolean {
  const isOwnGate = operands.some((index) => operator.inputs[index]);
  const isSparse = numberOf(operator, 'use_sparse_mixer', 0) !== 0;
  const isSplit = operator.attributes['activation_type'] === 'swiglu' && numberOf(operator, 'swiglu_fusion', 0) !== 1;
  return isOwnGate || isSparse || isSplit;
}

export function refuseExperts({ operator }: OperatorGradient, operands: readonly number[]): void {
  if (!isUnproven(operator, operands)) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (gates with separate weights or after the ` +
      `other features, router weights next to its scores, or a sparse mixer)`,
    { node: operator.name },
    'Export the experts as plain operators.',
  );
}
