/**
 * @file Prefetch of weights: gathers in buckets begin before their layer, and overlap with the layers before it. Whole weights of
 * two layers at most are resident or in flight at a time, and no more bytes than twice those of the largest.
 *
 * A group is the gathers of a layer, or of an operator outside of layers, in one pass, with the operators on parts of weights
 * that only such gathers read. Groups begin in the order of their readers. The memory limit is not strict: where nothing else can
 * run, the next group begins, so that nothing ever waits for it.
 */
import { passOf } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { weightGathers } from './defer.js';
import { localBytes } from './partition.js';
import { type CommunicationNode, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/** Layers whose whole weights may be resident at a time. */
const LAYERS = 2;

interface Group {
  /** Bytes of whole weights. */
  bytes: number;
  readonly isLayer: boolean;
  /** Gathers that have not begun. */
  left: number;
  /** Positions in the list: of the other node that its first reader waits for, and of that reader. */
  at: number;
  first: number;
  /** Readers that have not run; Infinity where other lists read them. */
  unread: number;
}

/** The layer that a collective serves; an operator outside of layers is one of its own. */
export function servedLayer({ layer, origin }: Pick<CommunicationNode, 'layer' | 'origin'>): string {
  return layer ?? `\u0000${origin}`;
}

/** The gathers of a list of instructions that begin early, and when. `ran` reports every node that runs. */
export class Prefetch {
  private readonly groupOf = new Map<ShardedNode, Group>();
  private readonly outputs = new Map<string, Group>();
  private readonly waiting: Group[];
  private readonly begun = new Set<Group>();
  /** Begun and not all read. */
  private readonly open = new Set<Group>();
  private readonly held = new Map<Group, number[]>();
  private readonly largest: number;

  /**
   * @param nodes of the list, in topological order
   * @param deferred tensors that they also wait for where nothing begins early (defer.ts)
   * @param whole the graph that they are of
   */
  constructor(
    nodes: readonly ShardedNode[],
    deferred: ReadonlyMap<ShardedNode, readonly string[]>,
    whole: ShardedGraph,
  ) {
    const groups = new Map<string, Group>();
    const inBuckets = nodes.some((node) => node.kind === 'communicate' && node.bucket);
    const gathers = inBuckets ? weightGathers(whole) : new Set<ShardedNode>();
    const places = new Map(nodes.flatMap((node, index) => resultsOf(node).map((name) => [name, index] as const)));
    const place = (node: ShardedNode, group: Group) => {
      if (this.groupOf.has(node)) return;
      this.groupOf.set(node, group);
      for (const name of readsOf(node)) {
        const maker = nodes[places.get(name) ?? -1];
        if (maker) place(maker, group);
      }
    };
    for (const node of nodes) {
      if (node.kind !== 'communicate' || !node.bucket || node.phase === 'update' || !gathers.has(node)) continue;
      const key = JSON.stringify([servedLayer(node), passOf(node.phase)]);
      const group: Group = groups.get(key) ?? {
        ...{ bytes: 0, isLayer: node.layer !== null, left: 0, unread: 0, at: nodes.length, first: nodes.length },
      };
      groups.set(key, group);
      const tensor = whole.tensors.get(node.output);
      group.left++;
      group.bytes += tensor ? localBytes(tensor) : 0;
      group.at = Math.min(
        group.at,
        (deferred.get(node) ?? []).reduce((last, name) => Math.max(last, places.get(name) ?? -1), -1),
      );
      this.outputs.set(node.output, group);
      place(node, group);
    }
    const read = new Set<string>();
    for (const [index, node] of nodes.entries())
      for (const name of readsOf(node)) {
        const group = this.outputs.get(name);
        if (!group) continue;
        read.add(name);
        group.unread++;
        group.first = Math.min(group.first, index);
      }
    for (const [name, group] of this.outputs) if (!read.has(name)) group.unread = Number.POSITIVE_INFINITY;
    this.waiting = [...groups.values()].sort((a, b) => a.at - b.at || a.first - b.first);
    this.largest = Math.max(0, ...this.waiting.map(({ bytes }) => bytes));
  }

  /** Whether a node is of a group. */
  has(node: ShardedNode): boolean {
    return this.groupOf.has(node);
  }

  /** Whether two nodes are of one group. */
  joins(a: ShardedNode, b: ShardedNode): boolean {
    return this.groupOf.get(a) === this.groupOf.get(b);
  }

  /** Keeps a node that could run until its group begins; false where it may run. */
  keeps(node: ShardedNode, index: number): boolean {
    const group = this.groupOf.get(node);
    if (!group || this.begun.has(group)) return false;
    appendTo(this.held, group, index);
    return true;
  }

  /** Begins the next group, where there is room for it or it is forced to. Gives the nodes that may run now. */
  begin(isForced: boolean): readonly number[] {
    const [next] = this.waiting;
    if (!next || !(isForced || this.hasRoom(next))) return [];
    this.waiting.shift();
    this.begun.add(next);
    this.open.add(next);
    return this.held.get(next) ?? [];
  }

  /** Records that a node runs. */
  ran(node: ShardedNode): void {
    const own = this.groupOf.get(node);
    if (own && node.kind === 'communicate') own.left--;
    for (const name of readsOf(node)) {
      const group = this.outputs.get(name);
      if (group && --group.unread === 0) this.open.delete(group);
    }
  }

  private hasRoom(next: Group): boolean {
    // One group at a time is in flight.
    if ([...this.open].some(({ left }) => left > 0)) return false;
    const all = [...this.open, next];
    const bytes = all.reduce((sum, group) => sum + group.bytes, 0);
    return bytes <= LAYERS * this.largest && all.filter(({ isLayer }) => isLayer).length <= LAYERS;
  }
}
