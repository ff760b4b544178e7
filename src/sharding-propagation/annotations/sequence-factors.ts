/**
 * @file The factor of an operator that is the sequence: dimension 1 of the inputs, followed through the rules as the batch is.
 * Where a Reshape has joined it with the batch, [4, 12, 64] → [48, 64], it is a piece of a factor: 48 = (4 | 12).
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import { followDimensions } from '../../ir/follow-dimensions.js';
import { type Graph, type Node, typeOf } from '../../ir/graph.js';

/** A factor, or its piece: `before` is the size of the part before the sequence in it (1: none). */
export interface SequenceFactor {
  readonly factor: string;
  readonly before: number;
  readonly size: number;
}

/** Per node the factor that is the sequence; null where none is known. */
export function sequenceFactors(graph: Graph): (node: Node, rule: FactorRule) => SequenceFactor | null {
  const batch = graph.batch
    .filter(({ input, axis }) => axis === 0 && typeOf(graph, input).shape.length > 1)
    .map(({ input }) => ({ input, axis: 1 }));
  const marks = batch.length === 0 ? null : followDimensions(graph, batch);
  return (node, rule) => {
    for (const [factor, mark] of marks?.factorMarks(node) ?? []) {
      const size = rule.factors.get(factor)?.size ?? 1;
      if (mark.minor === 1 && mark.size > 1 && size % mark.size === 0)
        return { factor, before: size / mark.size, size: mark.size };
    }
    // No path leads here from an input (patches of an image): activations are batch, sequence, features.
    const [dims] = rule.outputs;
    const [factor, ...others] = dims?.[1] ?? [];
    if (dims?.length !== 3 || factor === undefined || others.length > 0) return null;
    return { factor, before: 1, size: rule.factors.get(factor)?.size ?? 1 };
  };
}
