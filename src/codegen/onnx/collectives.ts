/**
 * @file A collective of the sharded graph as ONNX operators.
 *
 * Operators work on the leading dimension, as NCCL's calls do: AllGather multiplies it by the size of the group, ReduceScatter
 * divides it, AllToAll sends one of its equal parts to each rank. Reshape and Transpose bring a shard's rows there and back.
 */
import type { DType } from '../../ir/dtype.js';
import { type Attributes, elementCount, type TensorType } from '../../ir/graph.js';
import type { CommunicationNode } from '../../partition/sharded-graph.js';

/** The domain of operators that name their groups. */
const DOMAIN = 'autopar';

/** An operator of the chain that a collective becomes, and the type of its result. */
export interface ChainLink {
  readonly op: string;
  readonly domain: string;
  readonly attributes: Attributes;
  readonly type: TensorType;
}

/** The group of a collective among a program's ranks. */
export interface RankGroups {
  /** Ranks of every group that runs it, by member. */
  readonly groups: readonly (readonly number[])[];
  /** Ranks of the program. */
  readonly ranks: number;
}

/** The operators, each of which reads the one before; null for a collective that only a parameter server has. */
export function linksOf(
  { collective }: CommunicationNode,
  { dtype, shape }: TensorType,
  result: readonly number[],
  { groups, ranks }: RankGroups,
): readonly ChainLink[] | null {
  const size = groups[0]?.length ?? 1;
  const made: ChainLink[] = [];
  let current = shape;
  const push = (op: string, domain: string, attributes: Attributes, to: readonly number[]): void => {
    made.push({ op, domain, attributes, type: { dtype, shape: to } });
    current = to;
  };
  const reshape = (to: readonly number[]): void => {
    if (to.join() !== current.join()) push('Reshape', '', { shape: to }, to);
  };
  /** [a, b, …] to [b, a, …]. */
  const swap = ([first = 1, second = 1, ...rest]: readonly number[]): void => {
    reshape([first, second, ...rest]);
    push('Transpose', '', { perm: [1, 0, ...rest.map((_, index) => index + 2)] }, [second, first, ...rest]);
  };
  const communicate = (op: string, own: Attributes, to: readonly number[]): void => {
    const everyone = groups.length === 1 && groups[0]?.every((rank, member) => rank === member) && size === ranks;
    const known = everyone && (own['reduction'] ?? 'sum') === 'sum' ? MICROSOFT[op] : undefined;
    if (known?.types.has(dtype)) push(op, 'com.microsoft', known.attributes(size), to);
    else push(op, DOMAIN, { groups: ints(groups.flat()), group_size: integer(size), ...own }, to);
  };
  switch (collective.kind) {
    case 'all-reduce':
      communicate('AllReduce', { reduction: collective.reduction }, current);
      break;
    case 'permute':
      communicate('Permute', { to: ints(collective.to) }, current);
      break;
    case 'all-gather': {
      const { outer, inner } = collective;
      const [rows = 1, ...rest] = outer === 1 && current.length > 0 ? current : [outer, inner];
      reshape([rows, ...rest]);
      communicate('AllGather', {}, [rows * size, ...rest]);
      if (outer > 1) swap([size, outer, inner]);
      break;
    }
    case 'reduce-scatter': {
      const { outer, inner } = collective;
      if (outer > 1) swap([outer, size, inner]);
      else if ((current[0] ?? 1) % size !== 0) reshape([size, inner]);
      const [rows = 1, ...rest] = current;
      communicate('ReduceScatter', { reduction: collective.reduction }, [rows / size, ...rest]);
      break;
    }
    case 'all-to-all': {
      const { split, concat } = collective;
      if (split.outer > 1) swap([split.outer, size, split.inner]);
      else if ((current[0] ?? 1) % size !== 0) reshape([size, split.inner]);
      communicate('AllToAll', {}, current);
      if (concat.outer > 1) swap([size, concat.outer, concat.inner]);
      break;
    }
    case 'reduce':
    case 'broadcast':
      return null;
  }
  if (elementCount(current) !== elementCount(result))
    throw new Error(`${collective.kind} makes ${current.join(' × ')}`);
  reshape(result);
  return made;
}

/** ONNX Runtime's own collectives, of builds with NCCL: among all ranks, of these types. */
const MICROSOFT: Readonly<
  Record<string, { readonly types: ReadonlySet<DType>; readonly attributes: (size: number) => Attributes }>
> = {
  AllReduce: { types: new Set(['float16', 'float32', 'float64']), attributes: () => ({}) },
  AllGather: {
    types: new Set(['float16', 'float32', 'float64', 'int64', 'bool']),
    attributes: (size) => ({ axis: integer(0), group_size: integer(size) }),
  },
  AllToAll: {
    types: new Set(['float16', 'float32', 'float64']),
    attributes: (size) => ({ group_size: integer(size) }),
  },
};

function integer(value: number): Attributes[string] {
  return { type: 'int', numbers: [value] };
}

function ints(numbers: readonly number[]): Attributes[string] {
  return { type: 'ints', numbers };
}
