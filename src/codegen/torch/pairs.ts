/**
 * @file Pairs of operators that torch has one operator for, where nothing else reads what is between them:
 *
 *     a product with a weight, and the addition of a bias     F.linear, which adds the bias where it writes the product
 *     a comparison with a number, and a choice by it          the gradient of a ReLU
 */
import type { TensorType } from '../../ir/graph.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import { isFloat, number, typeOf as operandType, type TorchOperator, torch, x } from './operators/operator.js';

/** A domain of operators that no graph has. */
const DOMAIN = 'torch';

/** Facts about tensors around a pair. */
interface PairTensors {
  readonly makers: ReadonlyMap<string | null | undefined, ComputeNode>;
  readonly typeOf: (name: string) => TensorType;
  /** The value of a constant of one element. */
  readonly numberOf: (name: string) => number | null;
}

/** The first operator of a pair, and the operator of torch in the place of both. */
interface Pair {
  readonly first: ComputeNode;
  readonly joined: Pick<ComputeNode, 'op' | 'attributes' | 'inputs'>;
}

/** By the second operator: pairs that it may be of. */
const PAIRS: Readonly<Record<string, (second: ComputeNode, tensors: PairTensors) => readonly Pair[]>> = {
  Add: linear,
  Where: gate,
};

/**
 * Nodes with one operator in the place of each pair.
 * @param isAlone whether a node may be written with another
 * @param isRead whether others than some nodes read a tensor
 */
export function withPairs(
  nodes: readonly ComputeNode[],
  isAlone: (node: ComputeNode) => boolean,
  tensors: Omit<PairTensors, 'makers'>,
  isRead: (name: string, but: ReadonlySet<ComputeNode>) => boolean,
): readonly ComputeNode[] {
  const makers = new Map(nodes.map((node) => [node.outputs[0], node]));
  const gone = new Set<ComputeNode>();
  const all = nodes.map((node) => {
    const pairs = (isAlone(node) && node.domain === '' && PAIRS[node.op]?.(node, { ...tensors, makers })) || [];
    const found = pairs.find(({ first }) => first.domain === '' && isAlone(first));
    if (!found || gone.has(found.first)) return node;
    if (found.first.outputs.some((name) => name !== null && isRead(name, new Set([node])))) return node;
    gone.add(found.first);
    return { ...node, domain: DOMAIN, ...found.joined };
  });
  return all.filter((node) => !gone.has(node));
}

function linear(
  { inputs: [left = null, right = null] }: ComputeNode,
  { makers, typeOf }: PairTensors,
): readonly Pair[] {
  const sides = [
    [left, right],
    [right, left],
  ] as const;
  return sides.flatMap(([made, bias]) => {
    const first = makers.get(made);
    const [operand, weight] = first?.inputs ?? [];
    if (first?.op !== 'MatMul' || !operand || !weight || bias === null) return [];
    const types = [operand, weight, bias].map(typeOf);
    const [rank = 0, weightRank, biasRank] = types.map(({ shape }) => shape.length);
    const isShape = rank > 1 && weightRank === 2 && biasRank === 1 && types[2]?.shape[0] === types[1]?.shape[1];
    const isLinear = isShape && types.every((type) => isFloat(type) && type.dtype === types[0]?.dtype);
    return isLinear ? [{ first, joined: { op: 'Linear', attributes: {}, inputs: [...first.inputs, bias] } }] : [];
  });
}

/** The operand where another one exceeds a number, else zero. */
function gate({ inputs: [condition, operand, other] }: ComputeNode, tensors: PairTensors): readonly Pair[] {
  const { makers, typeOf, numberOf } = tensors;
  const first = makers.get(condition);
  const [level, threshold] = first?.inputs ?? [];
  if (first?.op !== 'Greater' || !level || !threshold || !operand || !other || numberOf(other) !== 0) return [];
  const value = numberOf(threshold);
  const [own, by] = [typeOf(operand), typeOf(level)];
  const isAlike = isFloat(own) && own.dtype === by.dtype && String(own.shape) === String(by.shape);
  if (value === null || !isAlike || typeOf(other).shape.length > own.shape.length) return [];
  return [{ first, joined: { op: 'Gate', attributes: { threshold: value }, inputs: [operand, level] } }];
}

/** The operators in place of pairs. */
export const PAIR_OPERATORS: readonly TorchOperator[] = [
  { ...torch('Linear', (node) => `F.linear(${x(node)}, ${x(node, 1)}.T, ${x(node, 2)})`), domain: DOMAIN },
  {
    ...torch('Gate', (node) => {
      const threshold = number(Number(node.attributes['threshold']), operandType(node).dtype);
      return `torch.ops.aten.threshold_backward(${x(node)}, ${x(node, 1)}, ${threshold})`;
    }),
    domain: DOMAIN,
  },
];
