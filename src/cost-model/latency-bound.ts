/**
 * @file Seconds of launches and rounds that no sequence of resharding steps undercuts, from the change of each axis.
 *
 * A collective takes rounds at each level that its axes span. Steps move shards between axes, never sums: an axis over which
 * the value is partial is reduced by an all-reduce or a reduce-scatter over that very axis. So at a level whose reduced axes have
 * m ranks together, the reductions take at least log2 m rounds, in however many collectives. Those of the axes that shall not
 * shard the result (k ranks) either take as many rounds again, in all-reduces, or shard it after a scatter, and another
 * collective makes it whole. That collective is a gather, in as many rounds as all-reduces would have taken again, or a
 * permutation, in one round, which leaves shards as small as they were: then the scatters have not divided the value more than
 * the result is divided more than the origin (`shrinks`). Or there are two more collectives.
 *
 *     all-reduce over 4 nodes     2 + 2 rounds, or 2 + 1 and two more launches
 *
 * Axes that must no longer shard the value (`fetched`) take an all-gather or all-to-all in log2 of their number of rounds at
 * their level, or a permutation in one.
 */
import type { Mesh } from '../sharding-propagation/mesh.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import { profileOf } from './device.js';
import { levelOfAxis } from './group-place.js';
import type { ClusterLevel } from './levels.js';

/** Changes of an axis; flags that are added up. */
export const FETCHED = 1;
export const REDUCED = 2;
/** Shards the result. */
export const CUTTING = 4;

/** Nanoseconds of slices: where no axis that shards already may replace them, and where one may by an all-to-all only. */
export interface Slices {
  readonly alone: number;
  readonly exchanged: number;
}

export interface LeastLatency {
  /** Seconds without the launches of one collective that fetches and one that reduces, where axes need them. */
  readonly seconds: number;
  /** Number of collectives besides these two. */
  readonly collectives: number;
  /** Nanoseconds of slices, which come on top. */
  readonly slices: number;
}

/**
 * @param changes by sub-axis
 * @param shrinks how many times more shards the result has than the origin
 */
export type LatencyBound = (changes: readonly number[], shrinks: number, slices: Slices) => LeastLatency;

export function latencyBound(cluster: Cluster, mesh: Mesh): LatencyBound {
  const { levels, device } = cluster;
  const launch = profileOf(device).collectiveSeconds;
  // Rounds of an axis that straddles units depend on the other axes of the group: there may be none at this level.
  const axes = subAxes(mesh).map(({ name, size }) => {
    const { level, isEven } = levelOfAxis(mesh, name, { levels });
    return { size: isEven ? size : 1, level };
  });
  const anyRound = Math.min(...levels.map(({ latencySeconds }) => latencySeconds));
  const [reduced, kept, fetched] = [levels.map(() => 1), levels.map(() => 1), levels.map(() => 1)];
  return (changes, shrinks, slices) => {
    for (const members of [reduced, kept, fetched]) members.fill(1);
    let [isFetched, isKept] = [false, false];
    for (let axis = 0; axis < axes.length; axis++) {
      const change = changes[axis] as number;
      const { size, level } = axes[axis] as (typeof axes)[number];
      if (change & FETCHED) {
        isFetched = true;
        fetched[level] = (fetched[level] as number) * size;
      }
      if (!(change & REDUCED)) continue;
      reduced[level] = (reduced[level] as number) * size;
      if (change & CUTTING) continue;
      isKept = true;
      kept[level] = (kept[level] as number) * size;
    }
    let [reducing, gathering, permuting, touching] = [0, 0, 0, 0];
    for (const [index, level] of levels.entries()) {
      const [again, apart] = [kept[index] as number, fetched[index] as number];
      const { latencySeconds } = level;
      reducing += latencySeconds * leastRounds(level, reduced[index] as number);
      gathering += latencySeconds * Math.max(leastRounds(level, again), leastRounds(level, apart));
      permuting += latencySeconds * permutedRounds(level, again, apart > 1, shrinks);
      if (again > 1 || apart > 1) touching += latencySeconds;
    }
    if (isFetched) {
      const gathered = { seconds: reducing + gathering, collectives: 0, slices: slices.exchanged };
      const permuted = { seconds: reducing + permuting, collectives: 0, slices: 0 };
      const oneMore = { seconds: reducing + launch + touching, collectives: 1, slices: 0 };
      return least(shrinks >= 1 ? least(gathered, permuted) : gathered, oneMore);
    }
    const direct = { seconds: reducing + gathering, collectives: 0, slices: slices.alone };
    if (!isKept) return least(direct, { seconds: reducing + launch + anyRound, collectives: 1, slices: 0 });
    const permuted = { seconds: reducing + launch + permuting, collectives: 1, slices: 0 };
    const twoMore = { seconds: reducing + 2 * launch + touching, collectives: 2, slices: 0 };
    return least(shrinks > 1 ? least(direct, permuted) : direct, twoMore);
  };
}

/** The cheaper of two ways, slices included. */
function least(one: LeastLatency, other: LeastLatency): LeastLatency {
  return nanosecondsOf(other) < nanosecondsOf(one) ? other : one;
}

export function nanosecondsOf({ seconds, slices }: LeastLatency): number {
  return seconds * 1e9 + slices;
}

/** Rounds over so many members of a level, in however many collectives: several take at least as many rounds as one. */
function leastRounds({ topology }: ClusterLevel, members: number): number {
  if (members === 1) return 0;
  return topology === 'mesh' ? 1 : Math.ceil(Math.log2(members));
}

/** Least rounds where a permutation serves some of `kept` ranks, and all-reduces the others. */
function permutedRounds(level: ClusterLevel, kept: number, isFetched: boolean, shrinks: number): number {
  const served = Math.max(1, Math.min(kept, shrinks));
  const others = level.topology === 'mesh' ? 0 : Math.max(0, Math.ceil(Math.log2(kept / served) - 1e-9));
  const shared = kept > 1 || isFetched ? 1 + others : 0;
  // Where nothing is fetched at this level, all-reduces may serve it alone.
  return isFetched ? shared : Math.min(leastRounds(level, kept), shared);
}
