/**
 * @file Elementwise products that are added, in one pass over memory: torch's `add` with a factor, and `addcmul`. The cost of a
 * parameter's update is its passes over memory.
 *
 *     t = a * 0.1; y + t                 torch.add(y, a, alpha=0.1)
 *     t = a * b; u = t * 0.1; y - u      torch.addcmul(y, a, b, value=-0.1)
 */
import { type ComputeNode, readsOf } from '../../partition/sharded-graph.js';

/** A sum of a tensor and a product. */
export interface JoinedPass {
  readonly to: string;
  /** One or two tensors. */
  readonly factors: readonly string[];
  readonly value: number;
}

/**
 * By addition or subtraction: the pass that joins it with a product that nothing else reads. `joined` are those products.
 * @param results tensors that others than these nodes read
 * @param numberOf the value of a constant of one element
 * @param isLarge whether a tensor has the elements of the result
 */
export function joinedPasses(
  nodes: readonly ComputeNode[],
  results: ReadonlySet<string>,
  numberOf: (name: string) => number | null,
  isLarge: (name: string, result: string) => boolean,
): { readonly passes: ReadonlyMap<ComputeNode, JoinedPass>; readonly joined: ReadonlySet<ComputeNode> } {
  const makers = new Map(nodes.map((node) => [node.outputs[0], node] as const));
  const uses = new Map<string, number>();
  for (const name of nodes.flatMap(readsOf)) uses.set(name, (uses.get(name) ?? 0) + 1);
  const joined = new Set<ComputeNode>();
  const passes = new Map<ComputeNode, JoinedPass>();
  /** The product that computes a tensor, if the tensor has only one reader. */
  const productOf = (name: string) => {
    const maker = makers.get(name);
    const isOnce = uses.get(name) === 1 && !results.has(name);
    return isOnce && maker?.op === 'Mul' && !joined.has(maker) ? maker : undefined;
  };
  for (const node of nodes) {
    const [left, right] = node.inputs;
    const result = node.outputs[0];
    if ((node.op !== 'Add' && node.op !== 'Sub') || !left || !right || !result) continue;
    const sides =
      node.op === 'Add'
        ? ([
            [left, right],
            [right, left],
          ] as const)
        : ([[left, right]] as const);
    const side = sides.find(([to, part]) => productOf(part) && isLarge(to, result) && numberOf(to) === null);
    if (!side) continue;
    const [to, part] = side;
    const outer = productOf(part) as ComputeNode;
    const [tensors, numbers] = parted(outer, numberOf);
    const sign = node.op === 'Sub' ? -1 : 1;
    const inner = numbers.length === 1 && tensors[0] ? productOf(tensors[0]) : undefined;
    const factors = inner ? readsOf(inner) : tensors;
    if (factors.some((name) => numberOf(name) !== null) || !factors.some((name) => isLarge(name, result))) continue;
    for (const product of [outer, ...(inner ? [inner] : [])]) joined.add(product);
    passes.set(node, { to, factors, value: sign * (numbers[0] ?? 1) });
  }
  return { passes, joined };
}

/** A product's tensors and numbers. */
function parted(
  { inputs }: ComputeNode,
  numberOf: (name: string) => number | null,
): readonly [tensors: readonly string[], numbers: readonly number[]] {
  const names = inputs.filter((name) => name !== null);
  const numbers = names.flatMap((name) => numberOf(name) ?? []);
  return [names.filter((name) => numberOf(name) === null), numbers];
}
