/**
 * @file The gradients of ONNX Runtime's mixtures of experts. Which experts a token goes to is a step function of its scores; how
 * much each of them counts is not:
 *
 *     h = x W1ᵀ + b1    a = f(h)    y = Σ over chosen experts of p · (a W2ᵀ + b2)        p: the scores' softmax
 *
 * Experts are written out for all tokens, and count zero where they are not chosen: how many tokens one gets is known only when
 * it runs. p is over all scores, or over those chosen where the operator normalises.
 */
import { AutoparError } from '../error.js';
import type { DimensionFactors } from '../factor-rule.js';
import type { OperatorView } from '../operator.js';
import { positionsAlong } from './expansion.js';
import { activated } from './experts-activation.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

const [INPUT, SCORES] = [0, 1];

/** Weights of all experts as plain matrices, and the operands that are trained. */
export interface Experts {
  /** [expert, hidden, feature], [expert, feature, hidden], in the type that sums are formed in. */
  readonly first: string;
  readonly second: string;
  /** What the first makes, with the gate where it has one; what the second reads. */
  readonly hidden: DimensionFactors;
  readonly inner: { readonly size: number; readonly dims: DimensionFactors };
  /** Places of the operands; null where weights are not trained. */
  readonly weights: readonly [number, number] | null;
  readonly biases: readonly [number, number];
  /** Whether what chosen experts count adds up to one. */
  readonly isNormalised: boolean;
}

/** y itself: every token through all experts. */
export function expertsForward(write: OperatorGradient, experts: Experts): void {
  const { view } = write;
  const { dtype, shape } = operand(view, INPUT);
  const { value, raised, turned, dims, routing } = hiddenOf(write, experts);
  const { t, x, d, inner } = dims;
  const second = experts.biases[1];
  const product = write.add('MatMul', [value, turned(experts.second, [x, inner, d])], [x, t, d]);
  const shift = view.inputs[second] ? write.add('Unsqueeze', [raised(second)], [x, [], d], { axes: [1] }) : null;
  const each = shift === null ? product : write.add('Add', [product, shift], [x, t, d]);
  const share = write.add('Unsqueeze', [turned(routing.chances, [x, t])], [x, t, []], { axes: [2] });
  const weighted = write.add('Mul', [each, share], [x, t, d]);
  const sum = write.add('ReduceSum', [weighted], [t, d], { axes: [0], keepdims: 0 });
  const own = write.dimsOfResult(0);
  write.add('Reshape', [write.inType(sum, write.sumType, dtype, [t, d])], own, { shape }, 'out0');
}

/** What both begin with: the experts' inner features, [expert, token, inner], and what each expert counts. */
function hiddenOf(write: OperatorGradient, experts: Experts) {
  const { view } = write;
  const type = write.sumType;
  const { hidden, inner, biases } = experts;
  const { dtype, shape } = operand(view, INPUT);
  const [count = 1, choices = 1] = operand(view, SCORES).shape;
  const [t = [], x = []] = write.dimsOfOperand(SCORES);
  const d = write.dimsOfOperand(INPUT).at(-1) ?? [];
  const features = shape.at(-1) ?? 1;
  const rows = (name: string) =>
    write.add('Reshape', [write.inType(name, dtype, type, write.dimsOfOperand(INPUT))], [t, d], {
      shape: [count, features],
    });
  const raised = (index: number) =>
    write.inType(`in${index}`, operand(view, index).dtype, type, write.dimsOfOperand(index));
  const turned = (name: string, dims: readonly DimensionFactors[]) =>
    write.add('Transpose', [name], dims, { perm: dims.length === 2 ? [1, 0] : [0, 2, 1] });
  const input = rows(`in${INPUT}`);
  const product = write.add('MatMul', [input, turned(experts.first, [x, d, hidden])], [x, t, hidden]);
  const [firstBias] = biases;
  const shift = view.inputs[firstBias]
    ? write.add('Unsqueeze', [raised(firstBias)], [x, [], hidden], { axes: [1] })
    : null;
  const sum = shift === null ? product : write.add('Add', [product, shift], [x, t, hidden]);
  const { value, back } = activated(write, sum, {
    shape: [choices, count, inner.size],
    lead: [x, t],
    hidden,
    inner: inner.dims,
  });
  const routing = routingOf(write, choices, experts.isNormalised);
  return { input, value, back, routing, rows, raised, turned, dims: { t, x, d, inner: inner.dims } };
}

export function expertsGradient(write: OperatorGradient, experts: Experts): void {
  const { view } = write;
  const type = write.sumType;
  const { hidden, inner, biases, weights } = experts;
  const { shape } = operand(view, INPUT);
  const { input, value, back, routing, rows, raised, turned, dims } = hiddenOf(write, experts);
  const { t, x, d } = dims;
  const [firstBias, secondBias] = biases;
  const slope = rows('grad0');
  const owed = write.add('MatMul', [slope, experts.second], [x, t, inner.dims]);
  const each = write.on([x, t, inner.dims], type);
  const chances = turned(routing.chances, [x, t]);
  const share = write.add('Unsqueeze', [chances], [x, t, []], { axes: [2] });
  if (write.wants(SCORES)) {
    const fit = write.add('ReduceSum', [each.mul(value, owed)], [x, t], { axes: [2], keepdims: 0 });
    const shifted = view.inputs[secondBias]
      ? write.add('Add', [fit, write.add('MatMul', [raised(secondBias), turned(slope, [d, t])], [x, t])], [x, t])
      : fit;
    write.become(SCORES, routing.back(turned(shifted, [t, x])), type);
  }
  if (weights !== null && write.wants(weights[1])) {
    const made = write.add('MatMul', [turned(slope, [d, t]), each.mul(share, value)], [x, d, inner.dims]);
    write.become(weights[1], made, type);
  }
  if (write.wants(secondBias)) write.become(secondBias, write.add('MatMul', [chances, slope], [x, d]), type);
  if (![INPUT, firstBias, weights?.[0] ?? INPUT].some((index) => write.wants(index))) return;
  const grown = back(each.mul(share, owed));
  if (weights !== null && write.wants(weights[0])) {
    const made = write.add('MatMul', [turned(grown, [x, hidden, t]), input], [x, hidden, d]);
    write.become(weights[0], made, type);
  }
  if (write.wants(firstBias))
    write.become(firstBias, write.add('ReduceSum', [grown], [x, hidden], { axes: [1], keepdims: 0 }), type);
  if (!write.wants(INPUT)) return;
  const made = write.add('Einsum', [grown, experts.first], [t, d], { equation: 'xth,xhd->td' });
  write.become(INPUT, write.add('Reshape', [made], write.dimsOfOperand(INPUT), { shape }), type);
}

/** What each expert counts for each token, [token, expert]; and what its gradient makes of that of the scores. */
function routingOf(write: OperatorGradient, choices: number, isNormalised: boolean) {
  const { view } = write;
  const type = write.sumType;
  const dims = write.dimsOfOperand(SCORES);
  const [t = [], x = []] = dims;
  const at = write.on(dims, type);
  const scores = write.inType(`in${SCORES}`, operand(view, SCORES).dtype, type, dims);
  const k = numberOf(view, 'k', 1);
  write.addAll('TopK', [scores], ['best', 'places'], [dims, dims], { k, axis: -1, largest: 1, sorted: 1 });
  const places = write.add('Unsqueeze', ['places'], [t, x, []], { axes: [2] });
  const isPlace = write.add('Equal', [places, positionsAlong(write, [1, 1, choices], 2, x)], [t, x, x]);
  const chosen = write.add('ReduceSum', [write.cast(isPlace, [t, x, x], type)], dims, { axes: [1], keepdims: 0 });
  const all = write.add('Softmax', [scores], dims, { axis: -1 });
  const counted = at.mul(all, chosen);
  const chances = isNormalised ? at.div(counted, at.sum(counted, [1])) : counted;
  const back = (slope: string) => {
    const weighted = at.mul(chances, slope);
    return at.sub(weighted, at.mul(isNormalised ? chances : all, at.sum(weighted, [1])));
  };
  return { chances, back };
}

/** Whether it has a form that ONNX Runtime has no kernel for on a CPU, or one of `operands`: nothing here proves them. */
export function isUnproven(view: OperatorView, operands: readonly number[]): boolean {
  const isOwnGate = operands.some((index) => view.inputs[index]);
  const isSparse = numberOf(view, 'use_sparse_mixer', 0) !== 0;
  const isSplit = view.attributes['activation_type'] === 'swiglu' && numberOf(view, 'swiglu_fusion', 0) !== 1;
  return isOwnGate || isSparse || isSplit;
}

export function refuseExperts({ view }: OperatorGradient, operands: readonly number[]): void {
  if (!isUnproven(view, operands)) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (gates with weights of their own or behind the ` +
      `other features, a router's weights beside its scores, or a sparse mixer)`,
    { node: view.name },
    'Export the experts as plain operators.',
  );
}
