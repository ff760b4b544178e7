/**
 * @file The kind of block that an operator is: a recognised block's own kind, or the kind of a standard operator that is such
 * a block by itself.
 */
import type { Node } from '../graph.js';
import { BLOCK_DOMAIN, BLOCK_KINDS, type BlockKind } from './block.js';

const SINGLE: ReadonlyMap<string, BlockKind> = new Map(
  Object.entries(BLOCK_KINDS).flatMap(([kind, { operators = [] }]) => operators.map((op) => [op, kind as BlockKind])),
);

/** The kind of a node; null for plain operators and for gradients of blocks. */
export function blockKindOf(node: Node): BlockKind | null {
  if (node.domain === BLOCK_DOMAIN) return node.op.endsWith('Gradient') ? null : (node.op as BlockKind);
  return SINGLE.get(node.op) ?? null;
}
