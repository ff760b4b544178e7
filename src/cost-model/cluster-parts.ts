/**
 * @file Parts of a cluster that a user would rent, small ones first: devices of one node, nodes of the innermost network, then
 * whole groups of them, by powers of two and all. Where nodes differ, the nodes of each kind are parts too, and rows of nodes
 * that end where a kind does.
 */
import { type Cluster, clusterSize, parseCluster } from './cluster.js';
import { clusterOfDescription } from './cluster-file.js';
import type { ClusterDescription, LevelDescription, NodeDescription } from './cluster-schema.js';

export interface ClusterPart {
  readonly cluster: Cluster;
  /** The first of its nodes in the whole cluster, from 0 on. */
  readonly firstNode: number;
}

/** All parts, the whole cluster last; the first of several equal ones. */
export function clusterParts(whole: Cluster): readonly ClusterPart[] {
  const parts = whole.description ? partsOfFile(whole, whole.description) : partsOfName(whole);
  return parts
    .map((part, index) => ({ part, index }))
    .sort(bySize)
    .map(({ part }) => part);
}

interface IndexedPart {
  readonly part: ClusterPart;
  readonly index: number;
}

function bySize(a: IndexedPart, b: IndexedPart): number {
  return clusterSize(a.part.cluster) - clusterSize(b.part.cluster) || a.index - b.index;
}

function partsOfName({ nodes, perNode, device }: Cluster): readonly ClusterPart[] {
  const sizes = [
    ...powersTo(perNode)
      .filter((count) => count < perNode)
      .map((count) => [1, count] as const),
    ...powersTo(nodes).map((count) => [count, perNode] as const),
  ];
  return sizes.map(([count, each]) => ({
    cluster: parseCluster(`${count}x${each}:${device.id}`, undefined),
    firstNode: 0,
  }));
}

function partsOfFile(whole: Cluster, description: ClusterDescription): readonly ClusterPart[] {
  const { levels } = description;
  const { perNode } = whole;
  const found = new Map<string, ClusterPart>();
  let inside = 1;
  for (const [index, level] of levels.entries()) {
    for (const size of sizesOf(level)) {
      const kept = levels.map((own, at) => (at < index ? own : { ...own, size: at === index ? size : 1 }));
      const nodes = Math.max(1, (inside * size) / perNode);
      const unit = Math.max(1, (inside * level.size) / perNode);
      for (const firstNode of startsOf(whole, nodes, Math.max(1, inside / perNode), unit)) {
        const own = nodesBetween(description, firstNode, firstNode + nodes);
        const key = JSON.stringify([inside * size, own]);
        if (found.has(key)) continue;
        const cluster = clusterOfDescription({ ...description, levels: kept, ...(own ? { nodes: own } : {}) });
        found.set(key, { cluster, firstNode });
      }
    }
    inside *= level.size;
  }
  return [...found.values()];
}

/** Numbers of members of a level that a part may have: one or all in rings and tori, since a piece of one is not a ring. */
function sizesOf({ size, topology }: LevelDescription): readonly number[] {
  return topology === 'ring' || topology === 'torus' ? [...new Set([1, size])] : powersTo(size);
}

/** Where so many nodes may begin: at whole groups, inside one unit of the level, at the ends of a kind. */
function startsOf({ nodes, kinds = [] }: Cluster, count: number, group: number, unit: number): readonly number[] {
  const starts = [0];
  let end = 0;
  for (const kind of kinds) {
    const first = end;
    end += kind.nodes;
    starts.push(Math.ceil(first / group) * group, Math.floor((end - count) / group) * group);
  }
  return [...new Set(starts)].filter((start) => start >= 0 && start + count <= nodes && (start % unit) + count <= unit);
}

/** The description of some nodes, neighbours that are alike together; undefined where nodes do not differ. */
function nodesBetween({ nodes }: ClusterDescription, from: number, to: number): readonly NodeDescription[] | undefined {
  if (!nodes) return undefined;
  const own: NodeDescription[] = [];
  let first = 0;
  for (const node of nodes) {
    const count = Math.min(to, first + node.count) - Math.max(from, first);
    first += node.count;
    if (count > 0) own.push({ ...node, count });
  }
  return own;
}

/** The powers of two up to a number, and the number. */
export function powersTo(most: number): readonly number[] {
  const found: number[] = [];
  for (let power = 1; power < most; power *= 2) found.push(power);
  return [...found, most];
}
