/**
 * @file Buckets: collectives on parameters and their gradients that start together, as one message. A network moves many small
 * tensors slower than one large; and what starts early is hidden behind the backward.
 *
 * Members of a bucket are of one kind, over the same axes, of one dtype; none needs another's result: as many collectives come
 * before each of them. A bucket takes them in the order in which the backward makes their operands, until the next would make it
 * larger than was asked for.
 */
import type { DType } from '../ir/dtype.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { addedIn, orderLists } from './order.js';
import { localBytes } from './partition.js';
import { type CommunicationNode, readsOf, resultsOf, type ShardedGraph } from './sharded-graph.js';

/** What a bucket may hold; nothing is joined where neither is said. */
export interface BucketLimit {
  readonly bucketBytes?: number;
  /** Collectives. */
  readonly bucketMembers?: number;
}

/**
 * The graph with its collectives on parameters and gradients in buckets within a limit; one of more bytes has a bucket alone.
 */
export function inBuckets(graph: ShardedGraph, { bucketBytes, bucketMembers }: BucketLimit): ShardedGraph {
  if (bucketBytes === undefined && bucketMembers === undefined) return graph;
  const isWithin = (bytes: number, members: number) =>
    bytes <= (bucketBytes ?? Number.POSITIVE_INFINITY) && members <= (bucketMembers ?? Number.POSITIVE_INFINITY);
  const buckets = new Map<CommunicationNode, CommunicationNode['bucket']>();
  let count = 0;
  const open = new Map<string, Bucket>();
  for (const { node, key } of candidates(graph)) {
    const bytes = arrayBytes(node, graph);
    const last = open.get(key);
    const joins = last !== undefined && isWithin(last.bytes + bytes, last.members + 1);
    const bucket: Bucket = joins
      ? { ...last, bytes: last.bytes + bytes, members: last.members + 1 }
      : { first: node, id: count++, bytes, members: 1 };
    open.set(key, bucket);
    if (joins) buckets.set(node, { id: bucket.id, bytes: 0 });
    buckets.set(bucket.first, { id: bucket.id, bytes: bucket.bytes });
  }
  const nodes = graph.nodes.map((node) => {
    const bucket = node.kind === 'communicate' ? buckets.get(node) : undefined;
    return bucket ? { ...node, bucket } : node;
  });
  return { ...graph, nodes };
}

interface Bucket {
  readonly first: CommunicationNode;
  readonly id: number;
  readonly bytes: number;
  readonly members: number;
}

/** Bytes of the whole array that a group holds together: of a gather's result, of anything else's operand. */
export function arrayBytes(
  { collective, input, output }: Pick<CommunicationNode, 'collective' | 'input' | 'output'>,
  { tensors }: Pick<ShardedGraph, 'tensors'>,
): number {
  const name = collective.kind === 'all-gather' ? output : input;
  const tensor = tensors.get(name);
  if (!tensor) throw new Error(`node reads or writes ${name}, which is not declared`);
  return localBytes(tensor);
}

/** A collective that may share a bucket with the others of its key. */
interface Candidate {
  readonly node: CommunicationNode;
  readonly key: string;
}

/** In the order in which their operands are made. */
function candidates(graph: ShardedGraph): readonly Candidate[] {
  const isOfParameters = parametersIn(graph);
  const added = addedIn(graph);
  /** By tensor: how many collectives, one after the other, come before it; and its place in the order. */
  const depth = new Map<string, number>();
  const place = new Map<string, number>();
  const found: (Candidate & { readonly at: number })[] = [];
  let at = 0;
  const depthOf = (names: readonly string[]) => Math.max(0, ...names.map((name) => depth.get(name) ?? 0));
  for (const { list, steps, deferred } of orderLists(graph)) {
    for (const step of steps) {
      at++;
      if (step.kind === 'segment' || step.kind === 'accumulate') {
        for (const node of step.kind === 'segment' ? step.nodes : [step.node])
          for (const name of resultsOf(node)) {
            depth.set(name, depthOf([...readsOf(node), ...(deferred.get(node) ?? [])]));
            // A sum is made when its summand is.
            place.set(name, isAccumulator(node) ? (place.get(readsOf(node)[0] ?? '') ?? at) : at);
          }
      } else if (step.kind === 'wait') {
        depth.set(step.node.output, 1 + depthOf([step.node.input, ...(deferred.get(step.node) ?? [])]));
        place.set(step.node.output, at);
      } else if (step.kind === 'start' && isOfParameters(step.node)) {
        const { collective, axes, input, phase } = step.node;
        const dtype: DType | undefined = graph.tensors.get(input)?.dtype;
        const reduction = 'reduction' in collective ? collective.reduction : '';
        const behind = depthOf([input, ...(deferred.get(step.node) ?? [])]);
        const key = JSON.stringify([
          list.phase,
          added.get(input),
          collective.kind,
          reduction,
          axes,
          dtype,
          phase,
          behind,
        ]);
        found.push({ node: step.node, key, at: place.get(input) ?? 0 });
      }
    }
  }
  return found.sort((a, b) => a.at - b.at);
}

/**
 * Tells collectives on parameters and gradients from those on activations: they run once a step, or they read a weight, or make
 * what micro-batches add up.
 */
function parametersIn(graph: ShardedGraph): (node: CommunicationNode) => boolean {
  const kinds = new Set(['all-reduce', 'reduce', 'reduce-scatter', 'all-gather', 'broadcast']);
  const stored = new Set([...graph.weights.map(({ tensor }) => tensor), ...graph.state.map(({ to }) => to)]);
  const summands = new Set(
    graph.nodes.flatMap((node) => (node.kind === 'compute' && isAccumulator(node) ? readsOf(node) : [])),
  );
  return ({ collective, phase, input, output }) =>
    kinds.has(collective.kind) && (phase === 'update' || stored.has(input) || summands.has(output));
}
