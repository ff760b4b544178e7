/**
 * @file A loss that is a mean over a count that data decide (labels not ignored, weights of classes), as a ratio of two sums.
 * Sums of micro-batches and of ranks add up, means over different counts do not: both sums are made per micro-batch, gradients
 * are those of the numerator, and the division is done once per step (Megatron-LM's per-token loss does the same).
 */
import { elementCount, type Graph, type TensorType, typeOf, type Weight } from '../graph.js';
import { inPlaceOf } from '../in-place-of.js';
import type { Expansion } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { operatorEntry } from '../ops/index.js';
import { operandNames } from '../written-names.js';

/** Scalars whose quotient is the loss. */
export interface LossRatio {
  readonly numerator: string;
  readonly denominator: string;
  /** The number of samples, ignored ones included: the denominator is of this magnitude. */
  readonly samples: number;
}

/**
 * The graph with the operator that makes the loss replaced by a numerator and a denominator, whose quotient is to become the
 * loss; null where that operator is not a mean over a count that data decide, or with `evenFixed` not a mean at all: the mean of
 * a micro-batch is not that of the whole batch, while its sum and its count add up.
 */
export function splitMean(
  graph: Graph,
  loss: string,
  { evenFixed = false }: { readonly evenFixed?: boolean } = {},
): { readonly graph: Graph; readonly ratio: LossRatio } | null {
  const maker = graph.nodes.find(({ outputs }) => outputs[0] === loss);
  const sums = maker && operatorEntry(maker).ratio;
  const expansion = maker && sums?.(operatorOf(graph, maker));
  // Other readers of the loss read it per micro-batch.
  if (expansion && !evenFixed && !isDecidedByData(expansion, operandNames(maker.inputs))) return null;
  if (!maker || !expansion || graph.nodes.some(({ inputs }) => inputs.includes(loss))) return null;
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const { nodes: made, names } = inPlaceOf(maker, expansion, { tensors, weights });
  const [numerator, denominator] = [names.get('numerator') ?? '', names.get('denominator') ?? ''];
  const split: Graph = { ...graph, tensors, weights };
  const ratio = {
    numerator,
    denominator,
    samples: elementCount(typeOf(graph, maker.inputs[1] ?? maker.inputs[0] ?? '').shape),
  };
  const nodes = graph.nodes.flatMap((node) => (node === maker ? made : [node]));
  return { graph: { ...split, nodes }, ratio };
}

/** Whether the denominator depends on an operand. */
function isDecidedByData({ nodes }: Expansion, operands: readonly string[]): boolean {
  const moved = (name: string): boolean =>
    operands.includes(name) ||
    nodes.some(
      ({ inputs, outputs }) => outputs.includes(name) && inputs.some((input) => input !== null && moved(input)),
    );
  return moved('denominator');
}
