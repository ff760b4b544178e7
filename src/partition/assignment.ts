/**
 * @file Input of partition: a strategy per operator, and which readers of a tensor share one reshard.
 * The search writes it, plan.json stores it, `partition` applies it.
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
 * Readers that share one reshard of the tensor to `layout`. It runs when the first of them runs, or when the tensor is computed
 * if the first is the output.
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
   * produced one, it costs nothing. A reader whose required layout differs from its reshard's layout has its own reshard
   * from there. Weights have no reshards: each reader loads its shard directly from the file.
   */
  readonly sharedReshards: readonly SharedReshard[];
  /**
   * The backward repeats the forward's all-gather of an activation, so that only each rank's shard is stored (Korthikanti
   * et al. 2022). Left out where both read one shared reshard.
   */
  readonly gathersAgain?: true;
}
