/**
 * @file SwiGLU: gate · sigmoid(gate) · up, the middle of a gated feed-forward layer. The sigmoid may be written out (Sigmoid
 * and Mul) or be Swish. A GELU with such a gate stays a Gelu and a Mul.
 */
import type { Node } from '../graph.js';
import {
  type DraftMatch,
  type GraphIndex,
  isOp,
  numberAttribute,
  operandOf,
  otherOperand,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
  withCasts,
} from './matching.js';

/** Operators at which a SwiGLU is found. */
export const SWIGLU_ANCHORS: readonly string[] = ['Sigmoid', 'Swish'];

/** The SwiGLU around a Sigmoid or a Swish. */
export function findSwiGLU(index: GraphIndex, anchor: Node): DraftMatch | null {
  const gate = operandOf(anchor);
  const silu = isOp(anchor, 'Swish') ? swish(anchor) : sigmoidTimes(index, anchor, gate);
  if (!silu) return null;
  const product = soleReader(index, resultOf(silu));
  const up = product && isOp(product, 'Mul') ? otherOperand(product, resultOf(silu)) : null;
  if (!product || !up || up === gate || scalarOf(index, up) !== null) return null;
  // A factor that is broadcast is a scale or an excitation, not the other half of the layer.
  if (shapeOf(index, up).join() !== shapeOf(index, gate).join()) return null;
  return withCasts(index, {
    kind: 'SwiGLU',
    nodes: [anchor, silu, product],
    inputs: [gate, up],
    output: resultOf(product),
    attributes: {},
  });
}

function swish(anchor: Node): Node | null {
  return numberAttribute(anchor, 'alpha', 1) === 1 ? anchor : null;
}

function sigmoidTimes(index: GraphIndex, anchor: Node, gate: string): Node | null {
  const product = soleReader(index, resultOf(anchor));
  return product && isOp(product, 'Mul') && otherOperand(product, resultOf(anchor)) === gate ? product : null;
}
