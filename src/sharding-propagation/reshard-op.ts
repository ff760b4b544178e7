/**
 * @file One op of a resharding, as data.
 */
import type { Layout } from './layout.js';
import type { SubAxis } from './mesh.js';

/**
 * `slice`: each rank keeps its shard (no communication). `all-gather`: shards of a piece are joined.
 * `all-to-all`: axes move from one piece to another. `permute`: same cut, shards change ranks.
 * `all-reduce`, `reduce-scatter`: partial values are combined. `to-partial`: the first rank keeps the value, others hold zero.
 * `repad`: a dimension that is not sharded is padded with zeros, or its padding is dropped.
 */
export type ReshardOpKind =
  | 'slice'
  | 'all-gather'
  | 'all-to-all'
  | 'permute'
  | 'all-reduce'
  | 'reduce-scatter'
  | 'to-partial'
  | 'repad';

/** One op; everything else about it (which pieces, which shards) follows from `from` and `to`: see `reshardDetail`. */
export interface ReshardOp {
  readonly kind: ReshardOpKind;
  /**
   * Axes that the op works over, in the order in which they shard (or sharded before, for a gather). Empty for a
   * `to-partial` of a maximum or minimum, where nobody has to give its value up.
   */
  readonly axes: readonly SubAxis[];
  readonly from: Layout;
  readonly to: Layout;
}

/**
 * Price of an op in integer nanoseconds for a tensor of `shape`; given by the cost model. The search for a route
 * assumes that it depends on the op's kind and axes, the size of a rank's shard and the element's width only; the cost of
 * the route found is the sum of its own ops' prices.
 */
export type ReshardPrice = (op: ReshardOp, shape: readonly number[], elementBits: number) => number;

/**
 * Lower bound in integer nanoseconds on every sequence of ops between two layouts of a tensor; given by the cost
 * model. The search for a route looks first where the bound is low, and nowhere where it is too high.
 */
export type LeastCost = (from: Layout, to: Layout, shape: readonly number[], elementBits: number) => number;
