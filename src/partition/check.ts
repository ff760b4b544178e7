/**
 * @file The checker: types every node of a sharded graph by the types of its tensors over each mesh axis.
 *
 *     replicate  all ranks hold the same          shard    ranks hold shards
 *     partial    ranks hold summands              varying  ranks hold unrelated values
 *     first      the first rank alone holds it
 *
 * Independent of the lowering: it looks at local shapes, layouts and the registry's rules only, for operators in
 * check-operator.ts, for collectives in collective-rule.ts. Every node makes something that is read; state and outputs are whole
 * values, and a sent tensor has the type that the other stage receives.
 */
import type { Graph } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { madeOnce } from '../ir/remembered.js';
import { collectiveProblem, rankLayoutDifference } from '../sharding-propagation/collective-rule.js';
import { isReplicated, localShape } from '../sharding-propagation/layout.js';
import { subAxisSize } from '../sharding-propagation/mesh.js';
import { checkOperator, type Report } from './check-operator.js';
import type { LoweredStage } from './lower-stages.js';
import { kindsOf } from './operator-kinds.js';
import {
  type CommunicationNode,
  type MoveNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedTensor,
  type StageTransfer,
} from './sharded-graph.js';

/** A finding: a node and its problem. */
export interface Finding {
  readonly node: string;
  readonly problem: string;
}

/** All problems of a sharded graph; empty when it is valid. */
export function checkSharded(graph: ShardedGraph): readonly Finding[] {
  const findings: Finding[] = [];
  const known = new Set<string>([
    ...graph.inputs.map((input) => input.tensor),
    ...(graph.pipeline?.receives ?? []).map((transfer) => transfer.tensor),
    ...graph.weights.map((weight) => weight.tensor),
    ...graph.coordinates.map((coordinate) => coordinate.name),
    ...graph.constants.keys(),
  ]);
  const kinds = kindsOf(graph);
  const shapes = new Map<number, readonly number[]>();
  for (const [name, tensor] of graph.tensors) {
    const type = kinds.typeOf(tensor);
    const expected = madeOnce(shapes, type, () => localShape(tensor.shape, tensor.layout, graph.mesh));
    if (!sameShape(expected, tensor.localShape)) {
      findings.push({ node: name, problem: `local shape [${tensor.localShape}] is not [${expected}]` });
    }
  }
  // One of several operators that differ only in names is checked.
  const sound = new Set<string>();
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
    else if (node.kind === 'compute') {
      const kind = kinds.kindOf(node);
      const before = findings.length;
      if (!sound.has(kind)) checkOperator(graph, node, report);
      if (findings.length === before) sound.add(kind);
    } else if (node.kind === 'communicate') checkCommunication(graph, node, report);
    else checkMove(graph, node, report);
  }
  const leaves = [...graph.outputs, ...(graph.pipeline?.sends ?? [])].map(({ tensor }) => tensor);
  const read = new Set([...leaves, ...graph.nodes.flatMap(readsOf)]);
  for (const node of graph.nodes)
    if (!resultsOf(node).some((name) => read.has(name)))
      findings.push({ node: node.name, problem: `nothing reads a result of ${node.name}` });
  const left = new Set(graph.state.map(({ from }) => from));
  for (const { tensor, output } of graph.outputs) {
    const type = graph.tensors.get(tensor);
    if (!known.has(tensor) || !type)
      findings.push({ node: output, problem: `output reads ${tensor}, which nothing makes` });
    else if (type.layout.partial.length > 0 || (type.varying ?? []).length > 0) {
      findings.push({ node: output, problem: `output ${output} is partial or varying` });
    } else if (type.first && !left.has(tensor)) {
      findings.push({ node: output, problem: `output ${output} is on the first rank only` });
    }
  }
  return [...findings, ...checkInitialTensors(graph), ...checkState(graph)];
}

/**
 * All problems of a lowered graph, one stage or those of a pipeline: those of each stage by itself, dtypes that differ from the
 * unsharded graph's, and tensors that one stage sends and another receives.
 */
export function checkStages(stages: readonly LoweredStage[]): readonly Finding[] {
  const findings = stages.flatMap(({ graph, sharded }) => [...checkSharded(sharded), ...checkDtypes(graph, sharded)]);
  return [...findings, ...checkTransfers(stages)];
}

/** Every transfer has both ends, each once, and is the same at both. */
function checkTransfers(stages: readonly LoweredStage[]): readonly Finding[] {
  const [sends, receives] = [transfersIn(stages, 'sends'), transfersIn(stages, 'receives')];
  return [...new Set([...sends.keys(), ...receives.keys()])].flatMap((key) => {
    const [sent, received] = [sends.get(key) ?? [], receives.get(key) ?? []];
    const own = sent[0] ?? received[0];
    const difference = transferDifference(sent, received);
    if (difference === null || !own) return [];
    const problem = `sent from stage ${own.from} to stage ${own.to} and received differently: ${difference}`;
    return [{ node: own.name, problem }];
  });
}

/** An end of a transfer. */
interface StageTransferEnd extends Pick<StageTransfer, 'name' | 'tensor' | 'when'> {
  readonly from: number;
  readonly to: number;
  readonly graph: ShardedGraph;
}

/** The ends of one kind, by tensor, sending stage and receiving stage. */
function transfersIn(
  stages: readonly LoweredStage[],
  kind: 'sends' | 'receives',
): ReadonlyMap<string, readonly StageTransferEnd[]> {
  const found = new Map<string, StageTransferEnd[]>();
  for (const [index, { sharded: graph }] of stages.entries())
    for (const { name, tensor, when, stage } of graph.pipeline?.[kind] ?? []) {
      const [from, to] = kind === 'sends' ? [index, stage] : [stage, index];
      const key = JSON.stringify([name, from, to]);
      appendTo(found, key, { name, tensor, when, from, to, graph });
    }
  return found;
}

function transferDifference(sent: readonly StageTransferEnd[], received: readonly StageTransferEnd[]): string | null {
  const [one, other] = [sent[0], received[0]];
  if (!one || !other) return 'one end is missing';
  if (sent.length > 1 || received.length > 1) return 'it is sent or received twice';
  if (one.when !== other.when) return `${one.when} and ${other.when}`;
  const [from, to] = [one.graph.tensors.get(one.tensor), other.graph.tensors.get(other.tensor)];
  return from && to ? typeDifference(one.graph, from, to) : 'it has no type';
}

/** @throws Error (an internal error) with the first finding of `checkStages` */
export function assertSound(stages: readonly LoweredStage[]): void {
  const findings = checkStages(stages);
  if (findings.length === 0) return;
  const first = findings.slice(0, 5).map(({ node, problem }) => `${node}: ${problem}`);
  throw new Error(`the sharded graph is not valid (${findings.length} findings): ${first.join('; ')}`);
}

/** Tensors of the unsharded graph have its dtypes: stored weights, inputs, and results that kept their names. */
function checkDtypes({ tensors }: Graph, sharded: ShardedGraph): readonly Finding[] {
  const weightOf = new Map(sharded.weights.map(({ tensor, weight }) => [tensor, weight]));
  return [...sharded.tensors].flatMap(([name, { dtype }]) => {
    const expected = tensors.get(weightOf.get(name) ?? name)?.dtype;
    if (expected === undefined || expected === dtype) return [];
    return [{ node: name, problem: `${name} is ${dtype}, but ${expected} in the unsharded graph` }];
  });
}

/** Constants are equal on all ranks; coordinates vary over their axes; all ranks have them, and stored weights and inputs. */
function checkInitialTensors({
  tensors,
  constants,
  coordinates,
  inputs,
  weights,
  state,
}: ShardedGraph): readonly Finding[] {
  const findings: Finding[] = [];
  const kept = new Set(state.map(({ to }) => to));
  const given = [...inputs, ...weights].flatMap(({ tensor }) => (kept.has(tensor) ? [] : [tensor]));
  for (const name of [...given, ...constants.keys(), ...coordinates.map((own) => own.name)])
    if (tensors.get(name)?.first)
      findings.push({ node: name, problem: `${name} is on the first rank only, and all ranks need it` });
  for (const [name, { dtype, shape }] of constants) {
    const type = tensors.get(name);
    if (type && (type.dtype !== dtype || !isReplicated(type.layout) || type.varying || !sameShape(type.shape, shape)))
      findings.push({ node: name, problem: `constant ${name} is not the ${dtype} [${shape}] that all ranks hold` });
  }
  for (const { name, axes } of coordinates) {
    const type = tensors.get(name);
    if (type && (type.dtype !== 'int64' || !isReplicated(type.layout) || type.varying?.join() !== axes.join()))
      findings.push({ node: name, problem: `coordinate ${name} does not vary over exactly ${axes.join(', ')}` });
  }
  return findings;
}

/** State has the same type at the end of a step as at the beginning of the next. */
function checkState(graph: ShardedGraph): readonly Finding[] {
  return graph.state.flatMap(({ from, to }) => {
    const [left, kept] = [graph.tensors.get(from), graph.tensors.get(to)];
    const difference = left && kept ? typeDifference(graph, left, kept) : 'one has no type';
    return difference === null ? [] : [{ node: from, problem: `${to} begins the next step as ${from}: ${difference}` }];
  });
}

/** The difference between two tensors, one of which becomes the other unchanged, or null if none. */
function typeDifference({ mesh }: ShardedGraph, one: ShardedTensor, other: ShardedTensor): string | null {
  if (one.dtype !== other.dtype) return `${one.dtype} and ${other.dtype}`;
  if (!sameShape(one.shape, other.shape)) return `[${one.shape}] and [${other.shape}]`;
  return rankLayoutDifference(one, other, (axis) => subAxisSize(mesh, axis));
}

function checkCommunication({ tensors, mesh }: ShardedGraph, node: CommunicationNode, report: Report): void {
  const input = tensors.get(node.input) as ShardedTensor;
  const output = tensors.get(node.output) as ShardedTensor;
  const place = `${node.collective.kind} over ${node.axes.join(', ') || 'none'}`;
  if (!sameShape(input.shape, output.shape)) report(`${place} changes the unsharded shape`);
  if (input.dtype !== output.dtype) report(`${place} changes ${input.dtype} to ${output.dtype}`);
  const problem = collectiveProblem(node.collective, node.axes, input, output, (axis) => subAxisSize(mesh, axis));
  if (problem !== null) report(`${place}: ${problem}`);
}

/** A copy has the type of its source, in another memory; one of the two is the device's. */
function checkMove(graph: ShardedGraph, { input, output }: MoveNode, report: Report): void {
  const [from, to] = [graph.tensors.get(input), graph.tensors.get(output)] as [ShardedTensor, ShardedTensor];
  const difference = typeDifference(graph, from, to);
  if (difference !== null) report(`copies ${input} to another type: ${difference}`);
  if ((from.place === undefined) === (to.place === undefined))
    report(`copies ${input} from ${from.place ?? 'device'} to ${to.place ?? 'device'}`);
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, index) => size === b[index]);
}
