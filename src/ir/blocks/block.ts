/**
 * @file Recognised blocks: pieces of graph that stand for one idea, such as attention, whatever their exporter wrote.
 *
 * A block becomes one node of domain `autopar` whose body is the subgraph it replaces. It is planned whole: its factor rule
 * is composed of its body's (block-rule.ts), its lowering is its body's, and it is priced as the one kernel that devices
 * have for it. Its meaning is its body's alone; nothing that is computed changes.
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
  /** Of a result to what a narrower type can hold (autodiff/held-in-float32.ts). */
  | 'Rounding'
  /** What an optimizer makes of a weight, its gradient and its moments (autodiff/append-optimizer.ts). */
  | 'OptimizerUpdate';

/**
 * The domain of block nodes; their operator is the kind, or the kind and `Gradient`: a block's gradient is a block as well,
 * whose body computes again what the forward did not leave (autodiff/block-gradient.ts).
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
   * What a fused kernel would be told, in ONNX's words where it has them: Attention {scale, softcap?, mask_scale?} (the last
   * for a bias that is added before the scale, as in XLNet), normalisations {axis, epsilon}, Gelu {approximate: 'none' | 'tanh'
   * | 'quick'}, RotaryEmbedding {interleaved: 0 | 1}, CrossEntropy {reduction?, ignore_index?} where they say everything.
   * Describes the body, never changes it.
   */
  readonly attributes: Attributes;
}
