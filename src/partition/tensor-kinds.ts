/**
 * @file Kinds of a sharded graph's tensors, for reports on the use of memory.
 */
import { isBackward, isOnceAStep } from '../ir/graph.js';
import { readersOf } from '../ir/makers-and-readers.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { copiedTensors, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

export type TensorKind =
  | 'weight'
  | 'gradient'
  | 'optimizer state'
  /** A stored activation; in inference, a tensor that one operator passes to the next. */
  | 'activation'
  | 'temporary'
  | 'input'
  | 'output'
  | 'constant';

/**
 * The kind of every tensor. Gradients are the tensors that the update reads, before and after their reduction; state that forward
 * reads is a weight, other state the optimizer's; new values of state have the kind of the values that they replace, and copies
 * in another memory that of their source.
 */
export function tensorKinds(graph: ShardedGraph): ReadonlyMap<string, TensorKind> {
  const copied = copiedTensors(graph);
  const sourceOf = (name: string) => copied.get(name) ?? name;
  const nodes = graph.nodes.filter(({ kind }) => kind !== 'move');
  const readers = readersOf(nodes, (node) => readsOf(node).map(sourceOf));
  const isRead = (name: string, by: (node: ShardedNode) => boolean) => (readers.get(name) ?? []).some(by);
  const trains = nodes.some(({ phase }) => isBackward(phase));
  const kinds = new Map<string, TensorKind>();
  // Backwards, so that the operand of a reduction has the kind of its result.
  for (const node of [...nodes].reverse()) {
    const isKept = node.phase === 'forward' && !trains;
    for (const name of resultsOf(node)) {
      const isGradient = isRead(
        name,
        (reader) =>
          (reader.phase === 'update' && node.phase !== 'update') ||
          (reader.kind === 'compute' && isAccumulator(reader)) ||
          (reader.kind === 'communicate' && kinds.get(reader.output) === 'gradient'),
      );
      const isActivation =
        isKept || (node.phase === 'forward' && isRead(name, ({ phase }) => isBackward(phase) || phase === 'recompute'));
      const isWeight = node.phase === 'begin';
      kinds.set(name, isWeight ? 'weight' : isGradient ? 'gradient' : isActivation ? 'activation' : 'temporary');
    }
  }
  for (const { tensor, constant } of graph.weights) kinds.set(tensor, constant ? 'constant' : 'weight');
  for (const name of [...graph.constants.keys(), ...graph.coordinates.map((own) => own.name)])
    kinds.set(name, 'constant');
  for (const { tensor } of graph.inputs) kinds.set(tensor, 'input');
  for (const { tensor } of graph.outputs) kinds.set(tensor, 'output');
  for (const { from, to } of graph.state) {
    const kind = isRead(to, ({ phase }) => !isOnceAStep(phase)) ? 'weight' : 'optimizer state';
    kinds.set(to, kind).set(sourceOf(from), kind);
  }
  for (const name of copied.keys()) kinds.set(name, kinds.get(sourceOf(name)) ?? 'temporary');
  return kinds;
}
