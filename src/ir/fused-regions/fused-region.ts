/**
 * @file Fused regions: subgraphs that compute one known function, such as attention, however their exporter wrote it.
 *
 * A region becomes one node of domain `autopar` whose body is the subgraph it replaces. It is planned as one operator: its
 * factor rule is composed of its body's (region-rule.ts), its lowering is its body's, and its cost is that of the single kernel
 * that devices have for it. Its semantics are those of its body: the computation does not change.
 */
import type { Attributes, Node } from '../graph.js';
import type { OperatorFamily, RegionKind } from '../operator.js';

/** The facts of a kind of region, beside its body. */
interface RegionFacts {
  readonly family: OperatorFamily;
  /**
   * Names of its factors, by operand (results after operands, `-1` the first result): those of its dimensions, from the last one
   * back. Dimensions in front of those named are `b` and, further out, numbered. Kinds without names have a0, a1, … as
   * elementwise operators have.
   */
  readonly factors?: Readonly<Record<number, readonly string[]>>;
}

/** All that other files know of a kind. */
export const REGION_KINDS: Readonly<Record<RegionKind, RegionFacts>> = {
  Attention: {
    family: 'attention',
    factors: { [-1]: ['f', 's', 'h'], 0: ['e', 's', 'h'], 2: ['f', 't', 'h'] },
  },
  LayerNormalization: { family: 'normalisation', factors: { 0: ['d', 's'] } },
  RMSNormalization: { family: 'normalisation', factors: { 0: ['d', 's'] } },
  BatchNormalization: { family: 'normalisation' },
  Gelu: { family: 'elementwise', factors: { 0: ['n', 's'] } },
  SwiGLU: { family: 'elementwise', factors: { 0: ['n', 's'] } },
  RotaryEmbedding: { family: 'elementwise', factors: { 0: ['e'] } },
  CrossEntropy: { family: 'loss', factors: { 0: ['v', 's'] } },
  Rounding: { family: 'elementwise' },
  OptimizerUpdate: { family: 'elementwise' },
};

/**
 * The domain of region nodes; their operator is the kind, or the kind and `Gradient`: a region's gradient is a region as well,
 * whose body recomputes the tensors that the forward does not return (autodiff/region-gradient.ts).
 */
export const REGION_DOMAIN = 'autopar';

/** A fused region found in a graph. */
export interface RegionMatch {
  readonly kind: RegionKind;
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
