/**
 * @file The gradient of one operator, where a rank's own nodes make it: a target that has such a gradient may call it in their
 * place.
 *
 * The nodes of a gradient block (ir/autodiff/block-gradient.ts) that is lowered without communication and without coordinates are
 * the block's on smaller shapes, so that they compute the gradient of the operator on the rank's shards.
 */
import type { Attributes, Graph, Node } from '../ir/graph.js';
import type { Operator } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Fragment } from './fragment.js';
import type { GradientOperand, LocalGradient, ShardedTensor } from './sharded-graph.js';

/** A lowered gradient block: its fragment, and the sharded tensors by the names in it. */
interface LoweredBlock {
  readonly fragment: Fragment;
  readonly tensorOf: (name: string) => ShardedTensor | undefined;
  readonly nodes: ReadonlySet<string>;
}

/**
 * The gradient that a lowered block is; null for a block of several results or operands that are read twice, and for one that is
 * more than the operator's on smaller shapes.
 * @param forward the operator, or its clone where the backward reads one
 */
export function localGradient(
  graph: Graph,
  block: Node,
  forward: Node,
  { fragment, tensorOf, nodes }: LoweredBlock,
): LocalGradient | null {
  const { differentiated } = block;
  if (!differentiated || forward.body !== null || forward.outputs.length !== 1) return null;
  const isPlain = fragment.nodes.every((node) => node.kind === 'compute' && node.lowering === undefined);
  const read = forward.inputs.filter((input) => input !== null);
  const [resultGradient, ...others] = block.inputs.filter(
    (input) => !read.includes(input ?? '') && input !== forward.outputs[0],
  );
  if (!isPlain || fragment.coordinates.size > 0 || !resultGradient || others.length > 0) return null;
  if (new Set(read).size < read.length) return null;
  const at = (names: Fragment['inputs'], index: number) => tensorOf(names[index] ?? '');
  const operandAt = (tensor: string | null) => at(fragment.inputs, tensor === null ? -1 : block.inputs.indexOf(tensor));
  const operator = operatorOf(graph, forward);
  const operands = forward.inputs.map((input, index): GradientOperand => {
    const tensor = operandAt(input);
    const gradient = at(fragment.outputs, differentiated.indexOf(index));
    const known = tensor ?? gradient;
    const type = known ? { dtype: known.dtype, shape: known.localShape } : null;
    return { type, tensor: tensor?.name ?? null, gradient: gradient?.name ?? null };
  });
  const isKnown = operands.every(({ type }, index) => (type === null) === (forward.inputs[index] === null));
  const given = operandAt(resultGradient);
  const attributes = localAttributes(operator, operands);
  const [whole] = operator.outputs;
  if (!isKnown || !given || !attributes || !whole) return null;
  const result = { dtype: whole.dtype, shape: given.localShape };
  const { op, domain } = forward;
  return { op, domain, attributes, result, operands, resultGradient: given.name, nodes };
}

/** Attributes of the operator on shards of these shapes; null where the shapes do not determine how its factors are sharded. */
function localAttributes(operator: Operator, operands: readonly GradientOperand[]): Attributes | null {
  const { resize, rule: ruleOf } = operatorEntry(operator);
  if (!resize) return operator.attributes;
  const rule = ruleOf(operator);
  const sizes = new Map<string, number>();
  for (const [index, { type }] of operands.entries())
    for (const [dim, names] of (type ? (rule.inputs[index] ?? []) : []).entries()) {
      const local = type?.shape[dim] ?? 1;
      const whole = names.map((name) => rule.factors.get(name)?.size ?? 1);
      const all = whole.reduce((product, size) => product * size, 1);
      // A shard is a part of the major factor.
      const major = whole.findIndex((size) => size > 1);
      for (const [place, name] of names.entries()) {
        const size = whole[place] as number;
        const own = place === major ? (size * local) / all : size;
        if (!Number.isInteger(own) || (sizes.get(name) ?? own) !== own) return null;
        sizes.set(name, own);
      }
    }
  return resize(operator, rule, (name) => sizes.get(name) ?? rule.factors.get(name)?.size ?? 1);
}
