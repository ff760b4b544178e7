/**
 * @file The kind of block that an operator is: a recognised block's own kind, or the kind of a standard operator that is such
 * a block by itself.
 */
import type { Node } from '../graph.js';
import { BLOCK_DOMAIN, type BlockKind } from './block.js';

/** Operators of ONNX and of com.microsoft that are such a block by themselves. */
const SINGLE: Readonly<Record<string, BlockKind>> = {
  Attention: 'Attention',
  MultiHeadAttention: 'Attention',
  GroupQueryAttention: 'Attention',
  LayerNormalization: 'LayerNormalization',
  SkipLayerNormalization: 'LayerNormalization',
  RMSNormalization: 'RMSNormalization',
  BatchNormalization: 'BatchNormalization',
  SimplifiedLayerNormalization: 'RMSNormalization',
  SkipSimplifiedLayerNormalization: 'RMSNormalization',
  Gelu: 'Gelu',
  FastGelu: 'Gelu',
  BiasGelu: 'Gelu',
  RotaryEmbedding: 'RotaryEmbedding',
  SoftmaxCrossEntropyLoss: 'CrossEntropy',
};

/** The kind of a node; null for plain operators and for gradients of blocks. */
export function blockKindOf(node: Node): BlockKind | null {
  if (node.domain === BLOCK_DOMAIN) return node.op.endsWith('Gradient') ? null : (node.op as BlockKind);
  return Object.hasOwn(SINGLE, node.op) ? (SINGLE[node.op] ?? null) : null;
}
