/**
 * @file Buckets: collectives on parameters and their gradients that start together, as one message. A network moves many small
 * tensors slower than one large; and collectives that start early overlap with the backward.
 *
 * Members of a bucket are of one kind, over the same axes, of one dtype; none needs another's result: as many collectives come
 * before each of them. A bucket takes them in the order in which the backward computes their operands, until the next would make
 * it larger than its limit.
 */
import type { DType } from '../ir/dtype.js';
import { isOnceAStep, passOf } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { ofWeightsAlone } from './defer.js';
import { addedIn, orderLists } from './order.js';
import { localBytes } from './partition.js';
import { servedLayer } from './prefetch.js';
import { type CommunicationNode, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/** Limits of a bucket; collectives are not joined where neither is given. */
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

/** Bytes of the whole array that a group holds together: a gather's result, or the operand of any other collective. */
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
interface BucketCandidate {
  readonly node: CommunicationNode;
  readonly key: string;
}

/** In the order in which their operands are made. */
function candidates(graph: ShardedGraph): readonly BucketCandidate[] {
  const ofWeights = ofWeightsAlone(graph);
  const isOfParameters = parametersIn(graph, ofWeights);
  const added = addedIn(graph);
  /** By tensor: how many collectives, one after the other, come before it; and its place in the order. */
  const depth = new Map<string, number>();
  const place = new Map<string, number>();
  const found: (BucketCandidate & { readonly at: number })[] = [];
  let at = 0;
  let deepest = 0;
  const depthOf = (names: readonly string[]) => Math.max(0, ...names.map((name) => depth.get(name) ?? 0));
  const early = beginningEarly(graph, ofWeights);
  for (const { list, instructions, deferred } of orderLists(graph)) {
    const awaitedBy = (node: ShardedNode) => [...readsOf(node), ...(early.has(node) ? [] : (deferred.get(node) ?? []))];
    for (const instruction of instructions) {
      at++;
      if (instruction.kind === 'segment' || instruction.kind === 'accumulate') {
        for (const node of instruction.kind === 'segment' ? instruction.nodes : [instruction.node])
          for (const name of resultsOf(node)) {
            depth.set(name, depthOf(awaitedBy(node)));
            // A sum is made when its summand is.
            place.set(name, isAccumulator(node) ? (place.get(readsOf(node)[0] ?? '') ?? at) : at);
          }
      } else if (instruction.kind === 'wait') {
        depth.set(instruction.node.output, 1 + depthOf(awaitedBy(instruction.node)));
        place.set(instruction.node.output, at);
      } else if (instruction.kind === 'recv') {
        // Another stage may wait for all earlier collectives: none of them joins a collective that depends on this tensor.
        depth.set(instruction.transfer.tensor, 1 + deepest);
      } else if (instruction.kind === 'start' && isOfParameters(instruction.node)) {
        const { collective, axes, input, phase } = instruction.node;
        const dtype: DType | undefined = graph.tensors.get(input)?.dtype;
        const reduction = 'reduction' in collective ? collective.reduction : '';
        const behind = depthOf(awaitedBy(instruction.node));
        deepest = Math.max(deepest, 1 + behind);
        const key = JSON.stringify([
          list.phase,
          added.get(input),
          collective.kind,
          reduction,
          axes,
          dtype,
          // All gathers of one layer in a pass are one message: with the next layer's, its weights would be resident too.
          early.has(instruction.node) ? [servedLayer(instruction.node), passOf(phase)] : phase,
          behind,
        ]);
        found.push({ node: instruction.node, key, at: place.get(input) ?? 0 });
      }
    }
  }
  return found.sort((a, b) => a.at - b.at);
}

/** Collectives that buckets hold. */
const KINDS: ReadonlySet<string> = new Set(['all-reduce', 'reduce', 'reduce-scatter', 'all-gather', 'broadcast']);

/** Gathers of weights, and the nodes that make their operands: in buckets they wait for nothing else (prefetch.ts). */
function beginningEarly({ nodes }: ShardedGraph, ofWeights: ReadonlySet<ShardedNode>): ReadonlySet<ShardedNode> {
  const early = new Set<ShardedNode>();
  const gathered = new Set<string>();
  for (const node of nodes.toReversed()) {
    const isGather = node.kind === 'communicate' && !isOnceAStep(node.phase) && KINDS.has(node.collective.kind);
    if (!ofWeights.has(node) || !(isGather || resultsOf(node).some((name) => gathered.has(name)))) continue;
    early.add(node);
    for (const name of readsOf(node)) gathered.add(name);
  }
  return early;
}

/**
 * Distinguishes collectives on parameters and gradients from those on activations: they run once a step, or they read a weight or
 * a tensor computed from weights alone, or make a summand of a sum over micro-batches.
 */
function parametersIn(graph: ShardedGraph, ofWeights: ReadonlySet<ShardedNode>): (node: CommunicationNode) => boolean {
  const summands = new Set(
    graph.nodes.flatMap((node) => (node.kind === 'compute' && isAccumulator(node) ? readsOf(node) : [])),
  );
  return (node) =>
    KINDS.has(node.collective.kind) && (isOnceAStep(node.phase) || ofWeights.has(node) || summands.has(node.output));
}
