/**
 * @file Reductions in torch functions.
 */
import {
  atom,
  dtypeText,
  fromFront,
  integersIn,
  numberIn,
  rankOf,
  resultOf,
  type TorchNode,
  type TorchOperator,
  torch,
  tuple,
  typeOf,
  x,
} from './operator.js';

/** The dimensions that are reduced; null where it reduces nothing. */
function axesOf(node: TorchNode): readonly number[] | null {
  const given = integersIn(node, 'axes');
  if (given?.length) return given.map((axis) => fromFront(axis, rankOf(node)));
  if (numberIn(node, 'noop_with_empty_axes', 0)) return null;
  return Array.from({ length: rankOf(node) }, (_, axis) => axis);
}

type TorchReduction = (operand: string, dims: string, node: TorchNode, axes: readonly number[]) => string;

/** A reduction, and its result for an operand without reduced dimensions. */
function reduction(
  op: string,
  body: TorchReduction,
  alone: (operand: string) => string = (operand) => operand,
): TorchOperator {
  return torch(op, (node) => {
    const axes = axesOf(node);
    if (axes === null || rankOf(node) === 0) return alone(x(node));
    const keep = numberIn(node, 'keepdims', 1) ? ', keepdim=True' : '';
    const text = body(x(node), `dim=${tuple(axes)}${keep}`, node, axes);
    return typeOf(node).dtype.includes('float') ? text : `${atom(text)}.to(${dtypeText(resultOf(node).dtype)})`;
  });
}

/** torch.prod takes one dimension at a time. */
const product: TorchReduction = (operand, _, node, axes) => {
  const keep = numberIn(node, 'keepdims', 1) ? ', keepdim=True' : '';
  return [...axes].sort((a, b) => b - a).reduce((text, axis) => `torch.prod(${text}, dim=${axis}${keep})`, operand);
};

const mean: TorchReduction = (operand, dims, node) =>
  typeOf(node).dtype.includes('float')
    ? `torch.mean(${operand}, ${dims})`
    : `torch.mean(${atom(operand)}.double(), ${dims}).trunc()`;

export const reductionOperators: readonly TorchOperator[] = [
  reduction('ReduceSum', (operand, dims) => `torch.sum(${operand}, ${dims})`),
  reduction('ReduceMax', (operand, dims) => `torch.amax(${operand}, ${dims})`),
  reduction('ReduceMin', (operand, dims) => `torch.amin(${operand}, ${dims})`),
  reduction('ReduceMean', mean),
  reduction('ReduceProd', product),
  reduction(
    'ReduceL1',
    (operand, dims) => `torch.sum(torch.abs(${operand}), ${dims})`,
    (operand) => `torch.abs(${operand})`,
  ),
  reduction(
    'ReduceL2',
    (operand, dims) => `torch.sqrt(torch.sum(torch.square(${operand}), ${dims}))`,
    (operand) => `torch.abs(${operand})`,
  ),
  reduction(
    'ReduceSumSquare',
    (operand, dims) => `torch.sum(torch.square(${operand}), ${dims})`,
    (operand) => `torch.square(${operand})`,
  ),
  reduction(
    'ReduceLogSum',
    (operand, dims) => `torch.log(torch.sum(${operand}, ${dims}))`,
    (operand) => `torch.log(${operand})`,
  ),
  reduction('ReduceLogSumExp', (operand, dims) => `torch.logsumexp(${operand}, ${dims})`),
];
