/**
 * @file The accumulator of gradient accumulation: it adds the tensor of each micro-batch to its buffer, and the buffer after the
 * last micro-batch is its result. It is linear, so a pending reduction over ranks stays pending: ranks add up their own partial
 * sums in every micro-batch and reduce them once per training step.
 */
import type { Node } from '../graph.js';
import type { OperatorEntry } from '../operator.js';
import { plainNode } from '../plain-node.js';
import { bytesOf, elementsOf, entry, linearIn } from './entry.js';
import { dimensionNames, operand } from './operands.js';

const DOMAIN = 'autopar';
const OP = 'Accumulate';

export const accumulateEntry: OperatorEntry = entry({
  op: OP,
  domain: DOMAIN,
  family: 'other',
  infer: (operator) => [operand(operator, 0)],
  rule: (operator) => {
    const dimensions = dimensionNames(operand(operator, 0).shape.length).join(' ');
    return `${dimensions} -> ${dimensions}`;
  },
  linear: linearIn([0]),
  // Reads its operand and its buffer, and writes the sum.
  work: (operator) => ({ flops: elementsOf(operator.outputs), bytes: 3 * bytesOf(operator.outputs) }),
  note: 'Made by --micro-batches; it occurs in no file.',
});

/** An accumulator of `tensor` with result `result`. Runs per micro-batch; its result is complete once per training step. */
export function accumulator(
  tensor: string,
  result: string,
  near: Pick<Node, 'module' | 'layer' | 'phase' | 'forward'>,
): Node {
  const name = `${result}/accumulate`;
  const { module, layer, phase, forward } = near;
  return plainNode({
    ...{ name, op: OP, domain: DOMAIN, inputs: [tensor], outputs: [result] },
    ...{ module, layer, phase, forward },
  });
}

export function isAccumulator({ op, domain }: Pick<Node, 'op' | 'domain'>): boolean {
  return op === OP && domain === DOMAIN;
}
