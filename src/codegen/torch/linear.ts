/**
 * @file A product with a weight, and the bias that is added to it, as one operator of torch: it adds the bias where it writes the
 * product.
 */
import type { TensorType } from '../../ir/graph.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import { isFloat, type TorchOperator, torch, x } from './operators/operator.js';

/** A domain of operators that no graph has. */
const DOMAIN = 'torch';

/**
 * Nodes with `Linear` in the place of a product and the addition of a bias, where nothing else reads the product.
 * @param isAlone whether a node may be written with another
 * @param isRead whether others than some nodes read a tensor
 */
export function withLinear(
  nodes: readonly ComputeNode[],
  isAlone: (node: ComputeNode) => boolean,
  typeOf: (name: string) => TensorType,
  isRead: (name: string, but: ReadonlySet<ComputeNode>) => boolean,
): readonly ComputeNode[] {
  const makers = new Map(nodes.map((node) => [node.outputs[0], node]));
  const products = new Set<ComputeNode>();
  const joined = nodes.map((node) => {
    const [left = null, right = null] = node.inputs;
    const sides = [
      [left, right],
      [right, left],
    ] as const;
    const isAddition = node.op === 'Add' && node.domain === '' && isAlone(node);
    const found = isAddition ? sides.find(([made, bias]) => isLinear(made, bias)) : undefined;
    if (!found) return node;
    const [made, bias] = found;
    const product = makers.get(made) as ComputeNode;
    if (products.has(product) || isRead(made as string, new Set([node]))) return node;
    products.add(product);
    return { ...node, op: 'Linear', domain: DOMAIN, attributes: {}, inputs: [...product.inputs, bias] };
  });
  return joined.filter((node) => !products.has(node));

  function isLinear(made: string | null, bias: string | null): boolean {
    const product = makers.get(made);
    const [operand, weight] = product?.inputs ?? [];
    if (product?.op !== 'MatMul' || product.domain !== '' || !isAlone(product) || !operand || !weight || bias === null)
      return false;
    const types = [operand, weight, bias].map(typeOf);
    const [rank = 0, weightRank, biasRank] = types.map(({ shape }) => shape.length);
    const isShape = rank > 1 && weightRank === 2 && biasRank === 1 && types[2]?.shape[0] === types[1]?.shape[1];
    return isShape && types.every((type) => isFloat(type) && type.dtype === types[0]?.dtype);
  }
}

export const linearOperator: TorchOperator = {
  ...torch('Linear', (node) => `F.linear(${x(node)}, ${x(node, 1)}.T, ${x(node, 2)})`),
  domain: DOMAIN,
};
