/**
 * @file Input of partition: a strategy per operator, and which readers of a tensor share one redistribution.
 * The search writes it, plan.json stores it, `partition` obeys it.
 */
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';

/** A reader of a tensor: an operator's operand, or a graph output (operand 0 of the output's name). */
export interface TensorReader {
  readonly kind: 'operator' | 'output';
  readonly name: string;
  readonly operand: number;
}

/**
 * Readers that are served by one redistribution of the tensor to `layout`, when the first of them runs; where the first is the
 * output, when the tensor is made.
 */
export interface SharedReshard {
  readonly tensor: string;
  readonly readers: readonly TensorReader[];
  readonly layout: Layout;
}

export interface Assignment {
  readonly mesh: Mesh;
  /** By operator (group) name. */
  readonly strategies: ReadonlyMap<string, Strategy>;
  /** Layout in which each data input is fed. */
  readonly inputs: ReadonlyMap<string, Layout>;
  /**
   * Every reader of every computed tensor or data input is in exactly one. Where the reshard's layout equals the
   * produced one, it costs nothing. A reader whose demand differs from its reshard's layout pays its own redistribution
   * from there. Weights have no reshards: each reader gets its block straight from the file.
   */
  readonly sharedReshards: readonly SharedReshard[];
  /**
   * The backward gathers again what the forward gathered of an activation, which keeps the block of each rank alone (Korthikanti
   * et al. 2022). Left out where both read one shared reshard.
   */
  readonly gathersAgain?: true;
}
