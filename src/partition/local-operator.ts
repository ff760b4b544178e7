/**
 * @file What a rank's nodes compute together: the gradient of one operator, or an operator that lowering writes out in others. A
 * target that has such a function may call it in their place.
 *
 * The nodes of a gradient that is a region (ir/autodiff/region-gradient.ts), lowered without communication and coordinates, are
 * the region's on smaller shapes, so that they compute the gradient of the operator on the rank's shards.
 */
import type { ConstantTensor, Graph, Node, TensorType } from '../ir/graph.js';
import type { Formula, Operator } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Fragment } from './fragment.js';
import type { GradientOperand, LocalGradient, WrittenOut } from './sharded-graph.js';

/** A tensor of the sharded graph, with the shape of a rank's shard. */
export interface LocalTensor extends TensorType {
  readonly name: string;
}

/** A lowered operator: its fragment, and the sharded tensors by the names in it. */
interface LoweredRegion {
  readonly fragment: Fragment;
  readonly tensorOf: (name: string) => LocalTensor | undefined;
  readonly nodes: ReadonlySet<string>;
}

/**
 * The gradient that a lowered region is, from that of the first result; null for other regions, for operands that are read twice,
 * and for a region that is more than the operator's on smaller shapes.
 * @param forward the operator, or its clone where the backward reads one
 */
export function localGradient(
  graph: Graph,
  region: Node,
  forward: Node,
  { fragment, tensorOf, nodes }: LoweredRegion,
): LocalGradient | null {
  const { differentiated } = region;
  if (!differentiated) return null;
  const operandNames = forward.inputs.filter((input) => input !== null);
  const own = new Set([...operandNames, ...forward.outputs]);
  const read = region.inputs.filter((input) => !own.has(input));
  // A loss has a constant for its gradient; other constants are the operator's own.
  const varying = read.filter((input) => graph.weights.get(input ?? '')?.role !== 'constant');
  const [resultGradient, ...others] = varying.length > 0 ? varying : read;
  if (!isAlone(fragment) || !resultGradient || others.length > 0) return null;
  if (new Set(operandNames).size < operandNames.length || !isOfFirst(graph, forward, resultGradient)) return null;
  const at = (names: Fragment['inputs'], index: number) => tensorOf(names[index] ?? '');
  const operandAt = (tensor: string | null) =>
    at(fragment.inputs, tensor === null ? -1 : region.inputs.indexOf(tensor));
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
  const formula = localFormula(graph, forward, sizes);
  if (!formula) return null;
  const result = { dtype: whole.dtype, shape: given.shape };
  const { op, domain } = forward;
  const { attributes, operands: count } = formula;
  return { op, domain, attributes, result, operands: operands.slice(0, count), resultGradient: given.name, nodes };
}

/** Whether a tensor, the gradient of a result, can be that of the first one alone, by its type. */
function isOfFirst(graph: Graph, { outputs }: Node, gradient: string): boolean {
  const typeText = (name: string | null) => JSON.stringify(name === null ? null : (graph.tensors.get(name) ?? null));
  const [first, ...others] = outputs.map(typeText);
  return others.length === 0 || (first === typeText(gradient) && !others.includes(first));
}

/**
 * The operator that runtimes lack, or the region, that a lowered fragment writes out; null for other operators, and where its
 * nodes are more than the operator on smaller shapes. Of several results all but the first are its gradient's.
 */
export function writtenOut(graph: Graph, node: Node, { fragment, tensorOf, nodes }: LoweredRegion): WrittenOut | null {
  const operator = operatorOf(graph, node);
  const { isWritten, formula: hasFormula } = operatorEntry(operator);
  const isOne = operator.outputCount === 1 || hasFormula !== undefined;
  if (!(isWritten || operator.body) || !isOne || !isAlone(fragment)) return null;
  const tensors = fragment.inputs.map((name) => tensorOf(name ?? ''));
  const output = tensorOf(fragment.outputs[0] ?? '');
  const operands = tensors.map((tensor) => ({ type: localType(tensor) }));
  const sizes = localSizes(operator, operands);
  const formula = sizes && localFormula(graph, node, sizes);
  if (!formula || !output || tensors.includes(undefined)) return null;
  const inputs = tensors.flatMap((tensor) => tensor?.name ?? []).slice(0, formula.operands);
  const saved = fragment.outputs.slice(1).flatMap((name) => tensorOf(name ?? '')?.name ?? []);
  const { op, domain } = operator;
  return { op, domain, attributes: formula.attributes, inputs, output: output.name, saved, nodes };
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

/** An operator as a function of operands on shards where its factors have these sizes; null where no attributes say it. */
function localFormula(graph: Graph, node: Node, sizes: ReadonlyMap<string, number>): Formula | null {
  const operator = operatorOf(graph, node);
  const { resize, rule: ruleOf, formula } = operatorEntry(operator);
  const rule = ruleOf(operator);
  const wholeSize = (name: string) => rule.factors.get(name)?.size ?? 1;
  const sizeOf = (name: string) => sizes.get(name) ?? wholeSize(name);
  if (!formula) {
    const attributes = resize ? resize(operator, rule, sizeOf) : operator.attributes;
    return { attributes, operands: node.inputs.length, whole: [] };
  }
  const known = formula(operator, (operand) => valueOfConstant(graph, node.inputs[operand] ?? ''));
  const isWhole = known?.whole.every((name) => sizeOf(name) === wholeSize(name));
  return isWhole ? known : formula(operator, () => null);
}

function valueOfConstant({ weights }: Graph, name: string): ConstantTensor | null {
  const weight = weights.get(name);
  if (weight?.source.kind !== 'inline' || weight.role === 'parameter') return null;
  return { dtype: weight.dtype, shape: weight.shape, data: weight.source.data };
}
