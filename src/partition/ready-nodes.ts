/**
 * @file Nodes of a list that may run now: which of them is next.
 */
import { passOf } from '../ir/graph.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import type { Prefetch } from './prefetch.js';
import { type CommunicationNode, type ComputeNode, resultsOf, type ShardedGraph } from './sharded-graph.js';

/**
 * Nodes whose operands are all available, taken smallest index first; compute nodes are separated by segment key. A bucket's
 * collectives come one after the other, once all of them may.
 */
export class ReadyNodes {
  /** Collectives that may start, those of a bucket as one. */
  private readonly communication: number[][] = [];
  /** The remaining collectives of a bucket that has begun to start. */
  private begun: number[] = [];
  private readonly compute = new Map<string, number[]>();
  private readonly buckets = new Map<number, { readonly size: number; readonly ready: number[] }>();

  constructor(
    private readonly graph: ShardedGraph,
    private readonly early: Prefetch,
  ) {
    for (const node of graph.nodes) {
      if (node.kind !== 'communicate' || !node.bucket) continue;
      const { id } = node.bucket;
      this.buckets.set(id, { size: (this.buckets.get(id)?.size ?? 0) + 1, ready: [] });
    }
  }

  add(index: number): void {
    const node = this.graph.nodes[index];
    if (node?.kind === 'compute') {
      const key = this.keyOf(node);
      const list = this.compute.get(key) ?? [];
      insert(list, index);
      this.compute.set(key, list);
      return;
    }
    const bucket = node?.kind === 'communicate' && node.bucket ? this.buckets.get(node.bucket.id) : undefined;
    if (!bucket) {
      insertGroup(this.communication, index);
      return;
    }
    bucket.ready.push(index);
    if (bucket.ready.length === bucket.size) this.communication.push(bucket.ready.sort(this.inBucket));
  }

  takeCommunication(): CommunicationNode | undefined {
    if (this.begun.length === 0) this.begun = this.communication.shift() ?? [];
    const index = this.begun.shift();
    return index === undefined ? undefined : (this.graph.nodes[index] as CommunicationNode);
  }

  /** The first ready operator that may join a segment begun with `first`; any, where it is undefined. */
  takeCompute(first: ComputeNode | undefined): ComputeNode | undefined {
    const key = first ? this.keyOf(first) : this.earliestKey();
    const list = key === undefined ? undefined : this.compute.get(key);
    const index = list?.shift();
    if (key !== undefined && list?.length === 0) this.compute.delete(key);
    return index === undefined ? undefined : (this.graph.nodes[index] as ComputeNode);
  }

  /** Accumulators first: they free their operands; then operators that early gathers wait for. */
  private earliestKey(): string | undefined {
    if (this.compute.has(ACCUMULATE)) return ACCUMULATE;
    let best: { key: string; index: number } | undefined;
    for (const [key, list] of this.compute) {
      const index = list[0];
      if (key.startsWith(EARLY)) return key;
      if (index !== undefined && (!best || index < best.index)) best = { key, index };
    }
    return best?.key;
  }

  private keyOf(node: ComputeNode): string {
    return `${this.early.has(node) ? EARLY : ''}${segmentKey(node, this.graph)}`;
  }

  /** The first member of a bucket is the one that carries its bytes. */
  private readonly inBucket = (a: number, b: number): number => {
    const bytes = (index: number) => (this.graph.nodes[index] as CommunicationNode).bucket?.bytes ?? 0;
    return bytes(b) - bytes(a) || a - b;
  };
}

const ACCUMULATE = 'accumulate';

/** Prefix of the key of operators that early gathers wait for. */
const EARLY = '\u0000';

/** Accumulators are not part of segments: they keep a sum from one micro-batch to the next. */
function segmentKey(node: ComputeNode, { tensors }: ShardedGraph): string {
  if (isAccumulator(node)) return ACCUMULATE;
  const [result] = resultsOf(node);
  const { place = '', first = [] } = tensors.get(result ?? '') ?? {};
  return [node.layer ?? '', passOf(node.phase), place, first.join()].join('\u0000');
}

/** Puts a collective of its own where it belongs by its index. */
function insertGroup(groups: number[][], value: number): void {
  let position = groups.length;
  while (position > 0 && (groups[position - 1]?.[0] as number) > value) position--;
  groups.splice(position, 0, [value]);
}

/** Keeps a list ascending; new entries are mostly larger than all others. */
function insert(list: number[], value: number): void {
  let position = list.length;
  while (position > 0 && (list[position - 1] as number) > value) position--;
  list.splice(position, 0, value);
}
