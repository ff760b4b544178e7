/**
 * @file What a rank's nodes compute together: the gradient of one operator, or an operator that lowering writes out in others. A
 * target that has such a function may call it in their place.
 *
 * The nodes of a gradient block (ir/autodiff/block-gradient.ts) that is lowered without communication and without coordinates are
 * the block's on smaller shapes, so that they compute the gradient of the operator on the rank's shards.
 */
import type { Attributes, Graph, Node, TensorType } from '../ir/graph.js';
import type { Operator } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Fragment } from './fragment.js';
import type { GradientOperand, LocalGradient, WrittenOut } from './sharded-graph.js';

/** A tensor of the sharded graph, with the shape of a rank's shard. */
export interface LocalTensor extends TensorType {
  readonly name: string;
}

/** A lowered operator: its fragment, and the sharded tensors by the names in it. */
interface LoweredBlock {
  readonly fragment: Fragment;
  readonly tensorOf: (name: string) => LocalTensor | undefined;
  readonly nodes: ReadonlySet<string>;
}

/**
 * The gradient that a lowered block is, from that of the first result; null for other blocks, for operands that are read twice,
 * and for a block that is more than the operator's on smaller shapes.
 * @param forward the operator, or its clone where the backward reads one
 */
export function localGradient(
  graph: Graph,
  block: Node,
  forward: Node,
  { fragment, tensorOf, nodes }: LoweredBlock,
): LocalGradient | null {
  const { differentiated } = block;
  if (!differentiated) return null;
  const read = forward.inputs.filter((input) => input !== null);
  const own = new Set([...read, ...forward.outputs]);
  const [resultGradient, ...others] = block.inputs.filter((input) => !own.has(input));
  if (!isAlone(fragment) || !resultGradient || others.length > 0) return null;
  if (new Set(read).size < read.length || !isOfFirst(graph, forward, resultGradient)) return null;
  const at = (names: Fragment['inputs'], index: number) => tensorOf(names[index] ?? '');
  const operandAt = (tensor: string | null) => at(fragment.inputs, tensor === null ? -1 : block.inputs.indexOf(tensor));
  const operator = operatorOf(graph, forward);
  const known = forward.inputs.map((input, index): GradientOperand => {
    const tensor = operandAt(input);
    const gradient = at(fragment.outputs, differentiated.indexOf(index));
    return { type: localType(tensor ?? gradient), tensor: tensor?.name ?? null, gradient: gradient?.name ?? null };
  });
  const sizes = localSizes(operator, known);
  const given = operandAt(resultGradient);
  const [whole] = operator.outputs;
  if (!sizes || !given || !whole) return null;
  const operands = known.map((operand, index) => ({
    ...operand,
    type: operand.type ?? typeBy(sizes, operator, index),
  }));
  if (operands.some(({ type }, index) => (type === null) !== (forward.inputs[index] === null))) return null;
  const attributes = localAttributes(operator, sizes);
  const result = { dtype: whole.dtype, shape: given.shape };
  const { op, domain } = forward;
  return { op, domain, attributes, result, operands, resultGradient: given.name, nodes };
}

/** Whether a tensor, the gradient of a result, can be that of the first one alone, by its type. */
function isOfFirst(graph: Graph, { outputs }: Node, gradient: string): boolean {
  const typeText = (name: string | null) => JSON.stringify(name === null ? null : (graph.tensors.get(name) ?? null));
  const [first, ...others] = outputs.map(typeText);
  return others.length === 0 || (first === typeText(gradient) && !others.includes(first));
}

/**
 * The operator that runtimes lack, or the block, that a lowered fragment writes out; null for other operators, for blocks of
 * several results, and where its nodes are more than the operator on smaller shapes.
 */
export function writtenOut(operator: Operator, { fragment, tensorOf, nodes }: LoweredBlock): WrittenOut | null {
  const isWritten = operatorEntry(operator).isWritten || operator.body !== undefined;
  if (!isWritten || operator.outputCount > 1 || !isAlone(fragment)) return null;
  const operands = fragment.inputs.map((name) => tensorOf(name ?? ''));
  const output = tensorOf(fragment.outputs[0] ?? '');
  const sizes = localSizes(
    operator,
    operands.map((tensor) => ({ type: localType(tensor) })),
  );
  const inputs = operands.flatMap((tensor) => tensor?.name ?? []);
  if (!sizes || !output || inputs.length < operands.length) return null;
  const { op, domain } = operator;
  return { op, domain, attributes: localAttributes(operator, sizes), inputs, output: output.name, nodes };
}

/** Whether a rank makes the results without others, and in the same way as they do. */
function isAlone({ nodes, coordinates }: Fragment): boolean {
  return coordinates.size === 0 && nodes.every((node) => node.kind === 'compute' && node.lowering === undefined);
}

function localType(tensor: LocalTensor | undefined): TensorType | null {
  return tensor ? { dtype: tensor.dtype, shape: tensor.shape } : null;
}

/** By factor of the operator's rule its size on shards of these shapes; null where they do not determine it. */
function localSizes(
  operator: Operator,
  operands: readonly Pick<GradientOperand, 'type'>[],
): ReadonlyMap<string, number> | null {
  const rule = operatorEntry(operator).rule(operator);
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
  return sizes;
}

/** The type of an operand on shards where its factors have these sizes; null where one of them is not known. */
function typeBy(sizes: ReadonlyMap<string, number>, operator: Operator, index: number): TensorType | null {
  const dims = operatorEntry(operator).rule(operator).inputs[index];
  const whole = operator.inputs[index];
  if (!whole || !dims?.flat().every((name) => sizes.has(name))) return null;
  const shape = dims.map((names) => names.reduce((product, name) => product * (sizes.get(name) ?? 1), 1));
  return { dtype: whole.dtype, shape };
}

/** Attributes of the operator on shards where its factors have these sizes. */
function localAttributes(operator: Operator, sizes: ReadonlyMap<string, number>): Attributes {
  const { resize, rule: ruleOf } = operatorEntry(operator);
  if (!resize) return operator.attributes;
  const rule = ruleOf(operator);
  return resize(operator, rule, (name) => sizes.get(name) ?? rule.factors.get(name)?.size ?? 1);
}
