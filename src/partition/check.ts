/**
 * @file The checker: types every node of a sharded graph by what its tensors are over each mesh axis.
 *
 *     replicate  all ranks hold the same          shard    ranks hold blocks
 *     partial    ranks hold summands              varying  ranks hold unrelated values
 *
 * Independent of the lowering: it looks at local shapes, layouts and the registry's rules only. For each compute node,
 * (1) the registry infers the local result shapes from the local operands, and they must be those that the layouts
 * say; (2) under the operator's rule a sharded factor is sharded alike in all operands and results that have it, never
 * whole, and partial over its axes in results that lack it; (3) partial operands enter only linear operators; (4) a
 * varying value leaves only through a lowering that accounts for it. For each collective the layouts must differ by
 * just what it does. Every node makes something that is read.
 */
import type { DimensionFactors, FactorRule } from '../ir/factor-rule.js';
import { elementCount } from '../ir/graph.js';
import type { OperatorEntry, OperatorView } from '../ir/operator.js';
import { entryOf, unknownEntry } from '../ir/ops/index.js';
import { localShape } from '../sharding-propagation/layout.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import {
  type CommunicationNode,
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedTensor,
} from './sharded-graph.js';

/** A finding: which node and what is wrong with it. */
export interface Finding {
  readonly node: string;
  readonly problem: string;
}

/** All that is wrong with a sharded graph; empty when it is sound. */
export function checkSharded(graph: ShardedGraph): readonly Finding[] {
  const findings: Finding[] = [];
  const known = new Set<string>([
    ...graph.inputs.map((input) => input.tensor),
    ...(graph.pipeline?.receives ?? []).map((transfer) => transfer.tensor),
    ...graph.weights.map((weight) => weight.tensor),
    ...graph.coordinates.map((coordinate) => coordinate.name),
    ...graph.constants.keys(),
  ]);
  for (const tensor of graph.tensors.values()) {
    const expected = localShape(tensor.shape, tensor.layout, graph.mesh);
    if (!sameShape(expected, tensor.localShape)) {
      findings.push({ node: tensor.name, problem: `local shape [${tensor.localShape}] is not [${expected}]` });
    }
  }
  for (const node of graph.nodes) {
    const report = (problem: string) => findings.push({ node: node.name, problem });
    const reads = readsOf(node);
    for (const name of reads) if (!known.has(name)) report(`reads ${name} before it is made`);
    const writes = resultsOf(node);
    for (const name of writes) {
      if (known.has(name)) report(`makes ${name} a second time`);
      known.add(name);
    }
    const missing = [...reads, ...writes].find((name) => !graph.tensors.has(name));
    if (missing !== undefined) report(`names tensor ${missing}, which has no type`);
    else if (node.kind === 'compute') checkCompute(graph, node, report);
    else checkCommunication(graph, node, report);
  }
  const leaves = [...graph.outputs, ...(graph.pipeline?.sends ?? [])].map(({ tensor }) => tensor);
  const read = new Set([...leaves, ...graph.nodes.flatMap(readsOf)]);
  for (const node of graph.nodes)
    if (!resultsOf(node).some((name) => read.has(name)))
      findings.push({ node: node.name, problem: `nothing reads a result of ${node.name}` });
  for (const { tensor, output } of graph.outputs) {
    const type = graph.tensors.get(tensor);
    if (!known.has(tensor) || !type)
      findings.push({ node: output, problem: `output reads ${tensor}, which nothing makes` });
    else if (type.layout.partial.length > 0 || (type.varying ?? []).length > 0) {
      findings.push({ node: output, problem: `output ${output} is partial or varying` });
    }
  }
  return findings;
}

type Report = (problem: string) => void;

function checkCompute(graph: ShardedGraph, node: ComputeNode, report: Report): void {
  const tensor = (name: string | null) => (name === null ? null : (graph.tensors.get(name) as ShardedTensor));
  const inputs = node.inputs.map(tensor);
  const outputs = node.outputs.map(tensor);
  const local = (type: ShardedTensor | null) => type && { dtype: type.dtype, shape: type.localShape };
  const bare: OperatorView = {
    name: node.name,
    op: node.op,
    domain: node.domain,
    attributes: node.attributes,
    inputs: inputs.map(local),
    outputs: [],
    outputCount: outputs.length,
  };
  const entry = entryOf(node.op, node.domain);
  if (entry && !checkShapes(entry, bare, outputs, report)) return;
  if (node.lowering) return;
  for (const [index, output] of outputs.entries()) {
    const varies = inputs.some((input) => (input?.varying ?? []).length > 0);
    if (output && varies && (output.varying ?? []).length === 0) {
      report(`result ${index} of ${node.op} is computed from values that vary between ranks`);
    }
  }
  const registered = entry ?? unknownEntry(node.op, node.domain);
  const whole = (type: ShardedTensor | null) => type && { dtype: type.dtype, shape: type.shape };
  const view: OperatorView = { ...bare, inputs: inputs.map(whole), outputs: outputs.map(whole) };
  // Attributes that hold sizes are those of a rank here, so no rule can be made for the whole shapes from them:
  // what such operators (Reshape, Split, …) make is checked by inference and by the axes that go in and come out.
  if (registered.resize) checkAxes(inputs, outputs, report);
  else checkFactors(registered.rule(view), inputs, outputs, report);
  checkPartial(registered.linear(view), inputs, outputs, contractedAxes(registered, view, inputs), report);
}

/** Whether the registry infers from the local operands the local shapes that the results' layouts say. */
function checkShapes(
  entry: OperatorEntry,
  view: OperatorView,
  outputs: readonly (ShardedTensor | null)[],
  report: Report,
): boolean {
  try {
    entry.infer(view).forEach((type, index) => {
      const output = outputs[index];
      if (output && !sameShape(type.shape, output.localShape)) {
        report(`${view.op} makes [${type.shape}] on a rank, its layout says [${output.localShape}]`);
      }
    });
    return true;
  } catch (error) {
    report(`${view.op} does not fit its operands on a rank: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

/** Axes that cut contracted dimensions of operands: the results must be partial over them. Null: not known. */
function contractedAxes(
  entry: OperatorEntry,
  view: OperatorView,
  inputs: readonly (ShardedTensor | null)[],
): ReadonlySet<SubAxis> | null {
  if (entry.resize) return null;
  const rule = entry.rule(view);
  const owed = new Set<SubAxis>();
  inputs.forEach((input, index) => {
    rule.inputs[index]?.forEach((factors, dimension) => {
      const contracted = factors.some((name) => ['contracting', 'mask'].includes(rule.factors.get(name)?.kind ?? ''));
      if (input && contracted) for (const axis of cutsOf(input, dimension)) owed.add(axis);
    });
  });
  return owed;
}

/**
 * For operators whose rule is not at hand: an axis that cuts a result cuts an operand that has elements to cut, or none at all.
 */
function checkAxes(
  inputs: readonly (ShardedTensor | null)[],
  outputs: readonly (ShardedTensor | null)[],
  report: Report,
): void {
  const axesOf = (types: readonly (ShardedTensor | null)[]) =>
    new Set(types.flatMap((type) => type?.layout.dims.flatMap((_, dimension) => cutsOf(type, dimension)) ?? []));
  const [before, after] = [axesOf(inputs), axesOf(outputs)];
  const partial = new Set(outputs.flatMap((type) => type?.layout.partial.map((entry) => entry.axis) ?? []));
  for (const axis of before) {
    if (!after.has(axis) && !partial.has(axis))
      report(`operands are cut over ${axis}, the results are neither cut nor partial`);
  }
}

/** Axes that cut a dimension, major to minor. */
function cutsOf(type: ShardedTensor, dimension: number): readonly SubAxis[] {
  return (type.layout.dims[dimension] ?? []).flatMap((piece) => piece.axes);
}

/** A factor is cut alike in all tensors that have it, and not at all where it must be whole. */
function checkFactors(
  rule: FactorRule,
  inputs: readonly (ShardedTensor | null)[],
  outputs: readonly (ShardedTensor | null)[],
  report: Report,
): void {
  const seen = new Map<string, string>();
  const place = (type: ShardedTensor, dims: readonly DimensionFactors[]) =>
    dims.forEach((factors, dimension) => {
      const key = cutsOf(type, dimension).join(',');
      const place = `${type.name} is cut over ${key} in dimension ${dimension}`;
      if (key !== '' && factors.every((name) => rule.factors.get(name)?.kind === 'whole'))
        report(`${place}, which must be whole`);
      if (factors.length === 0) return;
      const signature = factors.join(' ');
      const before = seen.get(signature);
      if (before !== undefined && before !== key)
        report(`${place}, factor ${signature} elsewhere over ${before || 'none'}`);
      seen.set(signature, key);
    });
  for (const [index, type] of inputs.entries()) if (type) place(type, rule.inputs[index] ?? []);
  for (const [index, type] of outputs.entries()) if (type) place(type, rule.outputs[index] ?? []);
}

/** Partial operands enter linear operators only; results are partial over what is carried or contracted, and no more. */
function checkPartial(
  linear: readonly (readonly number[])[],
  inputs: readonly (ShardedTensor | null)[],
  outputs: readonly (ShardedTensor | null)[],
  contracted: ReadonlySet<SubAxis> | null,
  report: Report,
): void {
  const carried = new Map<SubAxis, number[]>();
  inputs.forEach((input, index) => {
    for (const { axis } of input?.layout.partial ?? []) carried.set(axis, [...(carried.get(axis) ?? []), index]);
  });
  for (const [axis, operands] of carried) {
    const fits = linear.some(
      (set) => set.length === operands.length && set.every((member) => operands.includes(member)),
    );
    if (!fits) report(`operands ${operands.join(', ')} are partial over ${axis}, in which the operator is not linear`);
  }
  for (const output of outputs) {
    if (!output || (output.varying ?? []).length > 0) continue;
    const partial = new Set(output.layout.partial.map((entry) => entry.axis));
    for (const axis of [...carried.keys(), ...(contracted ?? [])]) {
      if (!partial.has(axis)) report(`${output.name} must be partial over ${axis}`);
    }
    for (const axis of contracted ? partial : []) {
      if (!carried.has(axis) && !contracted?.has(axis))
        report(`${output.name} is partial over ${axis} without a cause`);
    }
  }
}

function checkCommunication(graph: ShardedGraph, node: CommunicationNode, report: Report): void {
  const input = graph.tensors.get(node.input) as ShardedTensor;
  const output = graph.tensors.get(node.output) as ShardedTensor;
  const count = axesSize(graph.mesh, node.axes);
  const partialOf = (type: ShardedTensor) => new Set(type.layout.partial.map((entry) => entry.axis));
  const cutOf = (type: ShardedTensor) => new Set(type.layout.dims.flatMap((_, dimension) => cutsOf(type, dimension)));
  const [partialBefore, partialAfter] = [partialOf(input), partialOf(output)];
  const [cutBefore, cutAfter] = [cutOf(input), cutOf(output)];
  const all = (set: ReadonlySet<SubAxis>) => node.axes.every((axis) => set.has(axis));
  const none = (set: ReadonlySet<SubAxis>) => node.axes.every((axis) => !set.has(axis));
  const others = (type: ShardedTensor) =>
    type.layout.partial.filter((entry) => !node.axes.includes(entry.axis)).map((entry) => entry.axis + entry.reduction);
  if (!sameShape(input.shape, output.shape)) report('a collective does not change the whole shape');
  if (others(input).join() !== others(output).join()) report('a collective leaves other partial axes as they are');
  const expect = (condition: boolean, problem: string) => {
    if (!condition) report(`${node.collective.kind} over ${node.axes.join(',')}: ${problem}`);
  };
  const [before, after] = [elementCount(input.localShape), elementCount(output.localShape)];
  switch (node.collective.kind) {
    case 'all-reduce':
      expect(all(partialBefore) && none(partialAfter), 'the operand must be partial, the result not');
      expect(none(cutAfter) && before === after, 'shapes must be equal');
      break;
    case 'all-gather':
      expect(all(cutBefore) && none(cutAfter), 'the operand must be cut, the result not');
      expect(before * count === after && node.collective.outer * node.collective.inner === before, 'sizes');
      break;
    case 'reduce-scatter':
      expect(all(partialBefore) && all(cutAfter), 'the operand must be partial, the result cut');
      expect(before === after * count && node.collective.outer * node.collective.inner === after, 'sizes');
      break;
    case 'all-to-all':
      expect(all(cutBefore) && all(cutAfter) && before === after, 'operand and result must be cut');
      break;
    case 'permute':
      expect(before === after && new Set(node.collective.to).size === count, 'not a permutation');
      break;
    case 'broadcast':
      expect(before === after, 'shapes must be equal');
      break;
  }
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, index) => size === b[index]);
}
