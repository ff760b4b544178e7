/**
 * @file Cross entropy from logits and labels to the loss, where it is written out:
 *
 *     logits → LogSoftmax → pick the label's ─ mask? ─ minus ─ mask? ─ mean | sum | sum / count → loss
 *                               ▲                 ▲                                   ▲
 *     labels ───────────────────┴─────────────────┴───────────────────────────────────┘
 *
 * Log-probabilities come from LogSoftmax, Log ∘ Softmax, or as logits less ReduceLogSumExp; the label's is picked by
 * GatherElements, GatherND, a Gather from the flattened rows, a product with one-hot labels, or by
 * NegativeLogLikelihoodLoss. The region begins at the logits (before a cast to float32 that only it reads) and at the
 * labels: operators that make indices, one-hot rows, masks and counts of them are inside if nothing else reads their results. It
 * ends with the last operator that belongs to the loss: weights between losses stay outside. Without the minus it is not a loss.
 */

import { isFloating } from '../dtype.js';
import type { Node } from '../graph.js';
import { lossAfter } from './loss-reduction.js';
import {
  type DraftMatch,
  type GraphIndex,
  isWidening,
  makerOf,
  operandOf,
  readOnlyBy,
  scalarOf,
  typeIn,
} from './matching.js';
import { pickedLabels } from './picked-labels.js';

/** Operators at which a cross entropy is found. */
export const CROSS_ENTROPY_ANCHORS: readonly string[] = ['LogSoftmax', 'Log', 'ReduceLogSumExp'];

/** The cross entropy around log-probabilities. */
export function findCrossEntropy(index: GraphIndex, anchor: Node): DraftMatch | null {
  const picked = pickedLabels(index, anchor);
  const loss = picked && lossAfter(index, picked);
  if (!picked || !loss) return null;
  const cast = makerOf(index, picked.logits, 'Cast');
  const core = new Set([...picked.nodes, ...loss.nodes]);
  const widened = cast !== null && isWidening(index, cast) && readOnlyBy(index, picked.logits, core);
  if (widened) core.add(cast);
  const logits = widened ? operandOf(cast) : picked.logits;
  const nodes = withLabels(index, core, logits);
  return {
    kind: 'CrossEntropy',
    nodes,
    inputs: [logits, ...labelsFirst(index, nodes)],
    output: loss.tensor,
    attributes: loss.attributes(nodes),
  };
}

/** Operators that make indices, one-hot rows, masks and counts of labels. */
const LABEL_OPERATORS: readonly string[] = [
  'Add',
  'And',
  'Cast',
  'Clip',
  'Concat',
  'Equal',
  'GreaterOrEqual',
  'Max',
  'Not',
  'OneHot',
  'ReduceSum',
  'Squeeze',
  'Unsqueeze',
  'Where',
];

/** More than any loss does with its labels. */
const MAX_LABEL_NODES = 24;
const MAX_DEPTH = 5;

/** The nodes of a loss, and those before them that process labels for it alone. */
function withLabels(index: GraphIndex, core: ReadonlySet<Node>, logits: string): ReadonlySet<Node> {
  const nodes = new Set(core);
  for (let grown = true; grown && nodes.size < core.size + MAX_LABEL_NODES; ) {
    grown = false;
    for (const input of [...nodes].flatMap((node) => node.inputs)) {
      const maker = input === logits ? null : makerOf(index, input, ...LABEL_OPERATORS);
      if (!maker || nodes.has(maker)) continue;
      const alone = maker.outputs.every((output) => output === null || readOnlyBy(index, output, nodes));
      if (!alone || !maker.inputs.every((operand) => operand === null || isOfLabels(index, operand))) continue;
      nodes.add(maker);
      grown = true;
    }
  }
  return nodes;
}

/** Whether a tensor is made of whole numbers and truth values alone: a mask of another origin stays outside. */
function isOfLabels(index: GraphIndex, tensor: string, depth = 0): boolean {
  if (!isFloating(typeIn(index, tensor).dtype) || scalarOf(index, tensor) !== null) return true;
  const maker = makerOf(index, tensor, ...LABEL_OPERATORS);
  if (!maker || depth === MAX_DEPTH) return false;
  return maker.inputs.every((operand) => operand === null || isOfLabels(index, operand, depth + 1));
}

/** The tensors that the nodes read from outside, labels first: integers before masks and weights. */
function labelsFirst(index: GraphIndex, nodes: ReadonlySet<Node>): readonly string[] {
  const made = new Set([...nodes].flatMap((node) => node.outputs));
  const read = [...nodes].flatMap((node) => node.inputs.filter((input) => input !== null && !made.has(input)));
  const outside = [...new Set(read)].filter((input) => input !== null);
  const isLabels = (tensor: string): boolean =>
    /^u?int/.test(typeIn(index, tensor).dtype) && !index.graph.weights.has(tensor);
  return [...outside.filter(isLabels), ...outside.filter((tensor) => !isLabels(tensor))];
}
