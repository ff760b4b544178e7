/**
 * @file Typing of one operator on the ranks' shards: over each mesh axis its results' types follow from its operands'.
 *
 *     all operands replicated                          → replicated
 *     some sharded or varying                          → sharded or varying; partial where the rule contracts over the axis, and
 *                                                        where a lowering masks by a value that varies over it
 *     all operands of a linear set partial (sum)       → partial (sum)
 *     results held by the first rank alone             ← it has the operands, and they are the same on all ranks or there alone
 *
 * Which dimension an axis shards follows from the factor rule; dtypes and local shapes follow from the registry's inference on
 * the local operands. Operators that a lowering made from coordinates (`ComputeNode.lowering`) follow the same rules over axes,
 * not over dimensions: their rules do not depend on ranks.
 */
import {
  type DimensionFactors,
  type FactorKind,
  type FactorRule,
  type Reduction,
  ruleSides,
} from '../ir/factor-rule.js';
import { appendTo } from '../ir/group-by.js';
import type { Operator, OperatorEntry } from '../ir/operator.js';
import { entryOf, operatorEntry } from '../ir/ops/index.js';
import { type Border, borderText } from '../sharding-propagation/collective-rule.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from './sharded-graph.js';

/** Takes a problem of the node that is checked. */
export type Report = (problem: string) => void;

/** A tensor that the node names. */
interface NamedTensor extends ShardedTensor {
  readonly name: string;
}

type Operands = readonly (NamedTensor | null)[];

/** Checks a node whose tensors all have types. */
export function checkOperator(
  { tensors, constants }: Pick<ShardedGraph, 'tensors' | 'constants'>,
  node: ComputeNode,
  report: Report,
): void {
  const tensor = (name: string | null) => (name === null ? null : { ...(tensors.get(name) as ShardedTensor), name });
  const [inputs, outputs] = [node.inputs.map(tensor), node.outputs.map(tensor)];
  const local = (type: ShardedTensor | null) => type && { dtype: type.dtype, shape: type.localShape };
  const bare: Operator = {
    name: node.name,
    op: node.op,
    domain: node.domain,
    attributes: node.attributes,
    inputs: inputs.map(local),
    outputs: [],
    outputCount: outputs.length,
  };
  checkFirstOnly(inputs, outputs, report);
  checkBorders(node, inputs, outputs, report);
  const entry = operatorEntry(node);
  if (entryOf(node.op, node.domain) && !checkTypes(entry, bare, outputs, report)) return;
  const whole = (type: ShardedTensor | null) => type && { dtype: type.dtype, shape: type.shape };
  const operator: Operator = { ...bare, inputs: inputs.map(whole), outputs: outputs.map(whole) };
  // Attributes that hold sizes hold local sizes here, and a lowering's values are not shards of one tensor: no rule for the
  // global shapes follows from them.
  const rule = entry.resize || node.lowering ? null : entry.rule(operator);
  if (rule) checkFactors(rule, inputs, outputs, report);
  const contracted = rule ? contractedAxes(rule, inputs) : null;
  checkAxes(node, entry, inputs, outputs, rule, contracted, report);
  if (node.lowering === 'to-partial' && node.op === 'Where') checkFirst(inputs, report);
  // A constant zero is whole and a partial sum at once.
  const isZero = (index: number) => constants.get(node.inputs[index] ?? '')?.data.every((byte) => byte === 0) === true;
  checkPartial(node, entry, entry.linear(operator), isZero, inputs, outputs, contracted, report);
}

/** Whether the registry infers from the local operands the dtypes and local shapes that the results have. */
function checkTypes(entry: OperatorEntry, operator: Operator, outputs: Operands, report: Report): boolean {
  try {
    entry.infer(operator).forEach((type, index) => {
      const output = outputs[index];
      if (!output) return;
      if (type.shape.join() !== output.localShape.join())
        report(`${operator.op} makes [${type.shape}] on a rank, its layout gives [${output.localShape}]`);
      if (type.dtype !== output.dtype)
        report(`${operator.op} makes ${type.dtype}, but ${output.name} is ${output.dtype}`);
    });
    return true;
  } catch (error) {
    report(`${operator.op} does not fit its operands on a rank: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

/**
 * Halo rows are sliced from neighbouring shards, masked, and concatenated with the shard that they border: rows before it, the
 * shard, rows behind it.
 */
function checkBorders(node: ComputeNode, inputs: Operands, [output]: Operands, report: Report): void {
  const made = output?.border;
  const read = inputs.flatMap((type) => type?.border ?? []);
  if (!made && read.length === 0) return;
  const sizeOf = (type: ShardedTensor | null | undefined, dimension: number) => type?.localShape[dimension] ?? 0;
  if (node.op === 'Slice' && made && read.length === 0) {
    const { starts, axes } = node.attributes;
    if (`${starts}` !== `${made.from}` || `${axes}` !== `${made.dimension}`)
      report(`${output.name} is ${borderText(made)}, and begins at ${starts} of dimension ${axes}`);
    if (sizeOf(inputs[0], made.dimension) !== made.block)
      report(`${output.name} is not a slice of a shard of ${made.block}`);
  } else if (node.op === 'Where' && made) {
    if (borderText(inputs[1]?.border) !== borderText(made))
      report(`masks ${borderText(inputs[1]?.border)} and makes ${borderText(made)}`);
  } else if (node.op === 'Concat' && !made) {
    const [first] = read;
    const { dimension, block: shardSize } = first as Border;
    const parts = inputs.map((type) => ({ from: type?.border?.from ?? 0, size: sizeOf(type, dimension) }));
    const own = inputs.findIndex((type) => !type?.border);
    const isJoined = parts.every(
      ({ from }, at) => at === 0 || from === (parts[at - 1]?.from ?? 0) + (parts[at - 1]?.size ?? 0),
    );
    const fits = read.every((border) => border.dimension === dimension && border.axes.join() === first?.axes.join());
    if (!isJoined || !fits || parts[own]?.size !== shardSize || `${node.attributes['axis']}` !== `${dimension}`)
      report(`joins ${inputs.map((type) => (type?.border ? borderText(type.border) : type?.name)).join(' and ')}`);
  } else report(`${node.op} reads or makes borders: ${borderText(made ?? read[0])}`);
}

/**
 * An operator runs on the ranks that hold its results: they hold its operands, and where they are the first ranks of an axis, no
 * operand or result is sharded, partial or varying over it.
 */
function checkFirstOnly(inputs: Operands, outputs: Operands, report: Report): void {
  const [made, ...others] = outputs.filter((type) => type !== null);
  const first = made?.first ?? [];
  for (const other of others)
    if ((other.first ?? []).join() !== first.join()) report(`${made?.name} and ${other.name} are on different ranks`);
  for (const type of [...inputs, ...outputs]) {
    if (!type) continue;
    for (const axis of type.first ?? [])
      if (!first.includes(axis)) report(`reads ${type.name}, which only the first rank of ${axis} holds`);
    const parts = [...distinctOver(type), ...type.layout.partial.map((entry) => entry.axis)];
    for (const axis of first)
      if (parts.includes(axis))
        report(`only the first rank of ${axis} runs it, and ${type.name} has shards on the others`);
  }
}

/** Axes over which operands' contracted dimensions are sharded, and how the partial results combine. */
function contractedAxes(rule: FactorRule, inputs: Operands): ReadonlyMap<SubAxis, Reduction> {
  const result = new Map<SubAxis, Reduction>();
  inputs.forEach((input, index) => {
    rule.inputs[index]?.forEach((factors, dimension) => {
      for (const name of factors) {
        const factor = rule.factors.get(name);
        if (!input || !factor || !['contracting', 'mask'].includes(factor.kind)) continue;
        for (const axis of axesCutting(input, dimension)) result.set(axis, factor.reduction);
      }
    });
  });
  return result;
}

/** Axes that a dimension is sharded over, major to minor. */
function axesCutting(type: ShardedTensor, dimension: number): readonly SubAxis[] {
  return (type.layout.dims[dimension] ?? []).flatMap((piece) => piece.axes);
}

/** Axes along which ranks hold different shards or unrelated values. */
function distinctOver(type: ShardedTensor): readonly SubAxis[] {
  return [...type.layout.dims.flatMap((_, dimension) => axesCutting(type, dimension)), ...(type.varying ?? [])];
}

/**
 * Kinds of factors that an operator needs unsharded. A lowering that shards them uses operators of another form; the form for
 * indexed factors runs the operator itself on a shard, and adds the offset to its result.
 */
const UNSHARDED_KINDS: ReadonlySet<FactorKind> = new Set(['whole', 'halo', 'expanded', 'mask']);

/** A factor is sharded equally in all tensors that have it, and is unsharded where it must be whole. */
function checkFactors(rule: FactorRule, inputs: Operands, outputs: Operands, report: Report): void {
  const seen = new Map<string, string>();
  const place = (type: NamedTensor, dims: readonly DimensionFactors[]) =>
    dims.forEach((factors, dimension) => {
      const key = axesCutting(type, dimension).join(',');
      const place = `${type.name} is sharded over ${key || 'none'} in dimension ${dimension}`;
      const kinds = factors.map((name) => rule.factors.get(name)?.kind ?? 'pass');
      if (key !== '' && kinds.every((kind) => UNSHARDED_KINDS.has(kind))) report(`${place}, which must not be sharded`);
      if (factors.length === 0) return;
      const signature = factors.join(' ');
      const before = seen.get(signature);
      if (before !== undefined && before !== key)
        report(`${place}, and factor ${signature} elsewhere over ${before || 'none'}`);
      seen.set(signature, key);
    });
  for (const { of: type, dims } of ruleSides(rule, { inputs, outputs })) place(type, dims);
}

/**
 * Ranks that hold different operands hold different results, and ranks that hold equal ones hold equal results: each axis of an
 * operand is one of every result that depends on it, which may be partial over it instead, and a result has no other.
 */
function checkAxes(
  node: ComputeNode,
  entry: OperatorEntry,
  inputs: Operands,
  outputs: Operands,
  rule: FactorRule | null,
  contracted: ReadonlyMap<SubAxis, Reduction> | null,
  report: Report,
): void {
  const before = new Set(inputs.flatMap((type) => (type ? distinctOver(type) : [])));
  const varying = new Set(inputs.flatMap((type) => type?.varying ?? []));
  const anywhere = new Set(outputs.flatMap((output) => (output ? distinctOver(output) : [])));
  const partial = new Set(outputs.flatMap((output) => output?.layout.partial.map(({ axis }) => axis) ?? []));
  for (const output of outputs) {
    if (!output) continue;
    for (const axis of distinctOver(output))
      if (!before.has(axis) && !isRepeated(node, entry, rule, output, axis))
        report(`${output.name} differs between the ranks of ${axis}, and all operands of ${node.op} are equal there`);
    // Not every result depends on every operand; where the rule is known, it says which do.
    for (const axis of rule ? varying : before) {
      if (anywhere.has(axis) || (partial.has(axis) && (contracted === null || contracted.has(axis)))) continue;
      report(
        `operands of ${node.op} differ between the ranks of ${axis}, but ${output.name} is neither sharded, partial ` +
          'nor varying over it',
      );
    }
    if (node.lowering) continue;
    for (const axis of varying)
      if (!(output.varying ?? []).includes(axis))
        report(`${output.name} is computed from values that vary over ${axis}`);
  }
}

/** Whether a result that repeats one value is sharded over an axis: every rank computes its shard from equal operands. */
function isRepeated(
  { lowering }: ComputeNode,
  entry: OperatorEntry,
  rule: FactorRule | null,
  output: ShardedTensor,
  axis: SubAxis,
): boolean {
  if ((lowering && lowering !== 'indexed') || (output.varying ?? []).includes(axis)) return false;
  return rule !== null || entry.repeats === true;
}

/** Partial operands enter linear operators only; results are partial over their axes and those of contracted factors only. */
function checkPartial(
  node: ComputeNode,
  { countedOnce = [] }: OperatorEntry,
  linear: readonly (readonly number[])[],
  isZero: (operand: number) => boolean,
  inputs: Operands,
  outputs: Operands,
  contracted: ReadonlyMap<SubAxis, Reduction> | null,
  report: Report,
): void {
  const partialOperands = new Map<SubAxis, number[]>();
  for (const [index, input] of inputs.entries())
    for (const { axis, reduction } of input?.layout.partial ?? []) {
      if (reduction !== 'sum')
        report(
          `operand ${index} is partial over ${axis} (${reduction}), and operators accept partial operands of sum only`,
        );
      appendTo(partialOperands, axis, index);
    }
  // Operands added to a sum count on one of the ranks that hold its partial sums.
  const isCountedOnce = (index: number) => node.lowering === 'to-partial' && countedOnce.includes(index);
  for (const [axis, operands] of partialOperands) if (operands.every(isCountedOnce)) partialOperands.delete(axis);
  for (const [axis, operands] of partialOperands) {
    const fits = linear.some(
      (set) =>
        operands.every((operand) => set.includes(operand)) &&
        set.every((member) => operands.includes(member) || isZero(member)),
    );
    if (!fits) report(`operands ${operands.join(', ')} are partial over ${axis}, in which the operator is not linear`);
  }
  const before = new Set(inputs.flatMap((type) => (type ? distinctOver(type) : [])));
  for (const output of outputs) {
    if (!output) continue;
    const partial = new Map(output.layout.partial.map(({ axis, reduction }) => [axis, reduction]));
    const wanted = new Map([
      ...[...partialOperands.keys()].map((axis) => [axis, 'sum'] as const),
      ...(contracted ?? []),
    ]);
    // A result that keeps the contracted factor is sharded over the axis instead.
    const after = new Set(distinctOver(output));
    for (const [axis, reduction] of wanted)
      if (partial.get(axis) !== reduction && !(after.has(axis) && !partialOperands.has(axis)))
        report(`${output.name} must be partial over ${axis} (${reduction})`);
    for (const [axis, reduction] of partial) {
      if (wanted.has(axis)) continue;
      if (contracted || !before.has(axis)) report(`${output.name} is partial over ${axis} without a cause`);
      else if (node.lowering && !mayMask(node, reduction))
        report(`${output.name} is partial over ${axis} (${reduction}), which ${node.lowering} does not produce`);
    }
  }
}

/** A value that only the first rank of an axis keeps must be replicated over that axis. */
function checkFirst([condition, ...values]: Operands, report: Report): void {
  for (const axis of condition?.varying ?? [])
    for (const value of values)
      if (value && [...distinctOver(value), ...value.layout.partial.map((entry) => entry.axis)].includes(axis))
        report(`the first rank of ${axis} stores ${value.name}, which is not replicated over it`);
}

/** Whether a lowering makes partial values of a kind: sums to which all ranks but one contribute zero. */
function mayMask({ lowering }: ComputeNode, reduction: Reduction): boolean {
  return lowering === 'indexed' || (lowering !== 'slice' && reduction === 'sum');
}
