/**
 * @file Elementwise products that are added, in one pass over memory: torch's `add` with a factor, `lerp`, `addcmul` and
 * `addcdiv`. The cost of a parameter's update is its passes over memory.
 *
 *     t = a * 0.1; y + t                 torch.add(y, a, alpha=0.1)
 *     t = a * 0.1; y * 0.9 + t           torch.lerp(y, a, 0.1)
 *     t = a * b; u = t * 0.1; y - u      torch.addcmul(y, a, b, value=-0.1)
 *     t = a / b; u = t * s; y - u        u = b / s; torch.addcdiv(y, a, u, value=-1.0)     s is one number
 */
import { type ComputeNode, readsOf } from '../../partition/sharded-graph.js';

/** A sum of a tensor and a product. */
export interface JoinedPass {
  /** torch's function. */
  readonly name: 'add' | 'addcdiv' | 'addcmul' | 'lerp';
  readonly to: string;
  /** One or two tensors. */
  readonly factors: readonly string[];
  readonly value: number;
}

/** An operator, or a pass that stands for several. */
export type Pass = { readonly node: ComputeNode; readonly pass: JoinedPass | null };

/** Factors that differ by less from adding up to one are rounded numbers that do. */
const ROUNDING = 1e-6;

/**
 * Operators in order, with a pass in the place of an addition or subtraction and of the products that it joins, which nothing
 * else reads.
 * @param results tensors that others than these nodes read
 * @param numberOf the value of a constant of one element
 * @param isLarge whether a tensor has the elements of the result
 */
export function joinedPasses(
  nodes: readonly ComputeNode[],
  results: ReadonlySet<string>,
  numberOf: (name: string) => number | null,
  isLarge: (name: string, result: string) => boolean,
): readonly Pass[] {
  const makers = new Map(nodes.map((node) => [node.outputs[0], node] as const));
  const uses = new Map<string, number>();
  for (const name of nodes.flatMap(readsOf)) uses.set(name, (uses.get(name) ?? 0) + 1);
  const joined = new Set<ComputeNode>();
  const passes = new Map<ComputeNode, JoinedPass>();
  const replaced = new Map<ComputeNode, ComputeNode>();
  /** The operator of this kind that computes a tensor, if the tensor has only one reader. */
  const onlyRead = (name: string | undefined, op: string) => {
    const maker = name === undefined ? undefined : makers.get(name);
    const isOnce = name !== undefined && uses.get(name) === 1 && !results.has(name);
    return isOnce && maker?.op === op && !joined.has(maker) ? maker : undefined;
  };
  for (const node of nodes) {
    const [left, right] = node.inputs;
    const result = node.outputs[0];
    if ((node.op !== 'Add' && node.op !== 'Sub') || !left || !right || !result) continue;
    const isWhole = (name: string | undefined) =>
      name !== undefined && numberOf(name) === null && isLarge(name, result);
    const sides =
      node.op === 'Add'
        ? ([
            [left, right],
            [right, left],
          ] as const)
        : ([[left, right]] as const);
    const side = sides.find(([to, part]) => onlyRead(part, 'Mul') && isWhole(to));
    if (!side) continue;
    const [to, part] = side;
    const outer = onlyRead(part, 'Mul') as ComputeNode;
    const [tensors, numbers] = parted(outer, numberOf);
    const sign = node.op === 'Sub' ? -1 : 1;
    const [first, second] = tensors;
    const quotient = onlyRead(first, 'Div') ?? onlyRead(second, 'Div');
    if (quotient && second !== undefined && readsOf(quotient).every(isWhole)) {
      const scale = quotient.outputs[0] === first ? second : (first as string);
      if (isWhole(scale)) continue;
      const [above = '', below = ''] = readsOf(quotient);
      joined.add(quotient);
      replaced.set(outer, { ...outer, op: 'Div', inputs: [below, scale] });
      passes.set(node, { name: 'addcdiv', to, factors: [above, part], value: sign });
      continue;
    }
    const inner = numbers.length === 1 ? onlyRead(first, 'Mul') : undefined;
    const factors = inner ? readsOf(inner) : tensors;
    if (!factors.every(isWhole)) continue;
    for (const product of [outer, ...(inner ? [inner] : [])]) joined.add(product);
    const value = sign * (numbers[0] ?? 1);
    const scaled = factors.length === 1 ? onlyRead(to, 'Mul') : undefined;
    const [[kept], [other = Number.NaN]] = scaled ? parted(scaled, numberOf) : [[], []];
    if (scaled && kept !== undefined && isWhole(kept) && Math.abs(other + value - 1) < ROUNDING) {
      joined.add(scaled);
      passes.set(node, { name: 'lerp', to: kept, factors, value });
    } else passes.set(node, { name: factors.length === 1 ? 'add' : 'addcmul', to, factors, value });
  }
  return nodes.flatMap((node): readonly Pass[] => {
    const pass = passes.get(node) ?? null;
    if (joined.has(node)) return [];
    // A pass may write over the tensor that it adds to, as a subtraction over its first operand.
    return [
      { pass, node: pass ? { ...node, op: 'Sub', inputs: [pass.to, ...pass.factors] } : (replaced.get(node) ?? node) },
    ];
  });
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
