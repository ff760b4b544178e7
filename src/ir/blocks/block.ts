/**
 * @file Recognised blocks: subgraphs that compute one known function, such as attention, however their exporter wrote it.
 *
 * A block becomes one node of domain `autopar` whose body is the subgraph it replaces. It is planned as one operator: its
 * factor rule is composed of its body's (block-rule.ts), its lowering is its body's, and its cost is that of the single kernel
 * that devices have for it. Its semantics are those of its body: the computation does not change.
 */
import type { Attributes, Node } from '../graph.js';

export type BlockKind =
  | 'Attention'
  | 'LayerNormalization'
  | 'RMSNormalization'
  | 'BatchNormalization'
  | 'Gelu'
  | 'SwiGLU'
  | 'RotaryEmbedding'
  | 'CrossEntropy'
  /** Rounds a result to values that a narrower type can hold (autodiff/held-in-float32.ts). */
  | 'Rounding'
  /** An optimizer's update of a weight and its moments from the gradient (autodiff/append-optimizer.ts). */
  | 'OptimizerUpdate';

/**
 * The domain of block nodes; their operator is the kind, or the kind and `Gradient`: a block's gradient is a block as well,
 * whose body recomputes the tensors that the forward does not return (autodiff/block-gradient.ts).
 */
export const BLOCK_DOMAIN = 'autopar';

/** A block found in a graph. */
export interface BlockMatch {
  readonly kind: BlockKind;
  /** The nodes it replaces, in the graph's order. No tensor inside is read by other nodes or is a graph output. */
  readonly nodes: readonly Node[];
  /**
   * Tensors that the body reads and does not make, each once, in the kind's order: the ones that a fused kernel names first
   * (Attention: queries, keys, values, then mask; normalisations: data, scale, bias; SwiGLU: gate, up). Scalar constants
   * (weights of role `constant` with one element) are not among them: they move into the body.
   */
  readonly inputs: readonly string[];
  /** Tensors that the body makes and others read, main result first. */
  readonly outputs: readonly string[];
  /**
   * The attributes of a fused kernel, in ONNX's terms where they exist: Attention {scale, softcap?, mask_scale?} (the last
   * for a bias that is added before the scale, as in XLNet), normalisations {axis, epsilon}, Gelu {approximate: 'none' | 'tanh'
   * | 'quick'}, RotaryEmbedding {interleaved: 0 | 1}, CrossEntropy {reduction?, ignore_index?} if these describe it completely.
   * Describes the body, never changes it.
   */
  readonly attributes: Attributes;
}
