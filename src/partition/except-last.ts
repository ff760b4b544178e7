/**
 * @file The last micro-batch of a step where it stores the activations that the others recompute (torch's `except_last`). It runs
 * the same graph except clones: where one repeats an operator of the forward on equal operands, its readers read the forward's
 * result, which is stored until then; any other clone runs in the forward, as without recompute. Such a step has its lists twice:
 * for the micro-batches before, and for the last. Where micro-batches run in halves both of the last store their activations.
 */

import { runsPerStep } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { needed } from '../ir/needed.js';
import { remembered } from '../ir/remembered.js';
import { canonicalText } from './segments.js';
import { type GradientOperand, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/** The graph that the micro-batches before the last run. */
export function otherForm(graph: ShardedGraph): ShardedGraph {
  const { microBatches } = graph;
  if (!microBatches) return graph;
  const { exceptLast: _, ...rest } = microBatches;
  return { ...graph, microBatches: rest };
}

/** The graph that the last micro-batch runs; nodes whose operands do not change are the same objects. */
export const lastForm = remembered((graph: ShardedGraph): ShardedGraph => {
  const lasting = lastingTensors(graph);
  const kept = storedResults(graph, lasting);
  const nodes = graph.nodes
    .filter((node) => node.phase !== 'recompute' || !resultsOf(node).every((name) => kept.has(name)))
    .map((node) => withOperands(node, kept));
  return {
    ...otherForm(graph),
    nodes: inForward(withoutUnread(nodes, graph), lasting),
    ...(graph.gradients ? { gradients: gradientsOf(graph.gradients, kept) } : {}),
  };
});

/** How often a node runs in a step, for halves of micro-batches by themselves. */
export function runsInStep(graph: ShardedGraph): (node: ShardedNode) => number {
  const last = graph.microBatches?.exceptLast ? new Set(lastForm(graph).nodes.map(({ name }) => name)) : null;
  return (node) => runsPerStep(node.phase, graph) - (last && !last.has(node.name) ? (graph.interleave ?? 1) : 0);
}

/** Weights, state and constants, and tensors computed from them alone. */
function lastingTensors({ nodes, coordinates, constants, weights, state }: ShardedGraph): ReadonlySet<string> {
  const lasting = new Set([
    ...coordinates.map(({ name }) => name),
    ...constants.keys(),
    ...weights.map(({ tensor }) => tensor),
    ...state.map(({ to }) => to),
  ]);
  for (const node of nodes)
    if (readsOf(node).every((name) => lasting.has(name))) for (const name of resultsOf(node)) lasting.add(name);
  return lasting;
}

/**
 * By result of a clone: the equal result of the forward. A tensor computed from weights alone (a gathered weight) is computed
 * again, as it would be without recompute.
 */
function storedResults(
  { nodes, tensors, coordinates, constants }: ShardedGraph,
  lasting: ReadonlySet<string>,
): ReadonlyMap<string, string> {
  const values = new Map<string, string>([
    ...coordinates.map(({ name, ...own }) => [name, canonicalText(own)] as const),
    ...[...constants].map(([name, own]) => [name, canonicalText(own)] as const),
  ]);
  const sourceOf = (name: string) => values.get(name) ?? name;
  const made = new Map<string, readonly string[]>();
  const kept = new Map<string, string>();
  for (const node of nodes) {
    if (node.phase === 'update') continue;
    const results = resultsOf(node);
    if (node.kind === 'move') {
      values.set(node.output, sourceOf(node.input));
      continue;
    }
    if (node.phase !== 'forward' && node.phase !== 'recompute') continue;
    const key = canonicalText(
      node.kind === 'compute'
        ? [node.domain, node.op, node.attributes, node.inputs.map((name) => name && sourceOf(name))]
        : [node.collective, node.axes, sourceOf(node.input)],
    );
    const same = made.get(key);
    if (!same) made.set(key, results);
    for (const [index, name] of same ? results.entries() : []) {
      const original = same?.[index] as string;
      values.set(name, sourceOf(original));
      const isThere = tensors.get(name)?.place === tensors.get(original)?.place;
      if (node.phase === 'recompute' && !lasting.has(name) && isThere) kept.set(name, original);
    }
  }
  return kept;
}

function withOperands(node: ShardedNode, kept: ReadonlyMap<string, string>): ShardedNode {
  if (!readsOf(node).some((name) => kept.has(name))) return node;
  const operand = (name: string) => kept.get(name) ?? name;
  if (node.kind === 'compute')
    return { ...node, inputs: node.inputs.map((name) => (name === null ? null : operand(name))) };
  return { ...node, input: operand(node.input) };
}

function gradientsOf(
  gradients: NonNullable<ShardedGraph['gradients']>,
  kept: ReadonlyMap<string, string>,
): NonNullable<ShardedGraph['gradients']> {
  const operand = (one: GradientOperand) => ({ ...one, tensor: one.tensor && (kept.get(one.tensor) ?? one.tensor) });
  return new Map([...gradients].map(([region, own]) => [region, { ...own, operands: own.operands.map(operand) }]));
}

/** Without clones, and copies between memories, whose results nothing reads any more. */
function withoutUnread(
  nodes: readonly ShardedNode[],
  { outputs, state, pipeline }: ShardedGraph,
): readonly ShardedNode[] {
  const isLoose = (node: ShardedNode) =>
    node.phase === 'recompute' || (node.kind === 'move' && node.phase !== 'update');
  const ends = [
    ...nodes.filter((node) => !isLoose(node)).flatMap(readsOf),
    ...outputs.map(({ tensor }) => tensor),
    ...state.map(({ from }) => from),
    ...(pipeline?.sends ?? []).map(({ tensor }) => tensor),
  ];
  const read = new Set(needed(nodes.filter(isLoose), ends, readsOf, resultsOf));
  return nodes.filter((node) => !isLoose(node) || read.has(node));
}

/** With clones in the forward where its results are all that they read, each behind the last operator that it waits for. */
function inForward(nodes: readonly ShardedNode[], lasting: ReadonlySet<string>): readonly ShardedNode[] {
  // By result of the forward: the place of the operator behind which it is there. Inputs are there from the beginning.
  const places = new Map<string, number>();
  const late = new Set<string>();
  const behind = new Map<number, ShardedNode[]>();
  const moved = new Set<ShardedNode>();
  for (const [index, node] of nodes.entries()) {
    const reads = readsOf(node);
    const isForward = node.phase === 'forward';
    const isMoved =
      node.phase === 'recompute' &&
      node.kind === 'compute' &&
      !reads.some((name) => late.has(name)) &&
      !reads.every((name) => lasting.has(name));
    const place = isForward ? index : Math.max(START, ...reads.map((name) => places.get(name) ?? START));
    for (const name of resultsOf(node))
      if (isForward || isMoved) places.set(name, place);
      else late.add(name);
    if (!isMoved) continue;
    moved.add(node);
    appendTo(behind, place, { ...node, phase: 'forward' });
  }
  const own = nodes.flatMap((node, index) => [...(moved.has(node) ? [] : [node]), ...(behind.get(index) ?? [])]);
  return [...(behind.get(START) ?? []), ...own];
}

const START = -1;
