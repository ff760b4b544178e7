/**
 * @file A price that no resharding between two layouts can undercut, from the layouts alone.
 *
 * Every route must do the following:
 * - an axis that shards the first layout and not, at the same place, the second: its shards must be fetched. A rank needs
 *   t elements and holds at most t / |C| of them, C being those axes: t (1 − 1/|C|) arrive, in at least one collective;
 * - an axis over which the value is partial and shall no longer be: sums of R ranks. Each of the E elements costs R − 1
 *   transfers to where it is summed first and one to every other rank that wants it, P t / E of the mesh's P ranks in
 *   all: E (R − 2) / P + t elements arrive per rank. Where the result is partial over other axes, ranks may want nothing
 *   but zeros, and only the sums count: E (R − 1) / P. At least one more collective;
 * - an axis that shards only the second layout: one slice per dimension, if nothing else brings it (a reduction may, by a
 *   scatter, each of its axes for one dimension);
 * - an axis over which the value becomes partial: one masking.
 *
 * For a single all-gather, reduce-scatter, all-reduce or slice by ranks that hold nothing twice the bound is the price. The
 * search prices a pair exactly only where the bound leaves it in the running.
 */

import { madeOnce, remembered } from '../ir/remembered.js';
import { type Cuts, cutsOf, dimensionOf, NOWHERE } from '../sharding-propagation/cuts.js';
import { type Layout, replicated } from '../sharding-propagation/layout.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { subAxes } from '../sharding-propagation/mesh.js';
import type { LeastCost, ReshardOp, ReshardPrice } from '../sharding-propagation/resharding.js';
import type { Cluster } from './cluster.js';
import { profileOf } from './device.js';
import { CUTTING, FETCHED, type LeastLatency, latencyBound, nanosecondsOf, REDUCED } from './latency-bound.js';
import { type Arrivals, linkBound, type UnitBound } from './link-bound.js';

/** The bound on a cluster; `price` prices the steps that it is made of. */
export function reshardBound(cluster: Cluster, mesh: Mesh, price: ReshardPrice): LeastCost {
  const bound = new ReshardBound(cluster, mesh, price);
  const cuts = remembered((layout: Layout) => cutsOf(layout, mesh));
  return (from, to, shape, elementBits) => {
    const elements = shape.reduce((product, size) => product * size, 1);
    return bound.nanoseconds(cuts(from), cuts(to), elements, elementBits);
  };
}

/** A unit of the cluster, and the sub-axes that distinguish such units. */
interface ClusterUnit extends UnitBound {
  readonly distinguishes: readonly boolean[];
}

class ReshardBound {
  private readonly axes: ReturnType<typeof subAxes>;
  private readonly ranks: number;
  private readonly units: readonly ClusterUnit[];
  private readonly rounds: (doublings: number) => number;
  private readonly latency: ReturnType<typeof latencyBound>;
  private readonly collectiveSeconds: number;
  private readonly localSteps = new Map<string, number>();
  /** The change of each sub-axis, for the pair of layouts that is priced. */
  private readonly changes: number[];
  private readonly doublings: number[];

  constructor(
    cluster: Cluster,
    mesh: Mesh,
    private readonly price: ReshardPrice,
  ) {
    const { units, rounds } = linkBound(cluster, mesh);
    this.axes = subAxes(mesh);
    this.ranks = this.axes.reduce((product, { size }) => product * size, 1);
    this.units = units.map((unit) => ({
      ...unit,
      distinguishes: this.axes.map(({ name }) => unit.axes.includes(name)),
    }));
    this.rounds = rounds;
    this.latency = latencyBound(cluster, mesh);
    this.collectiveSeconds = profileOf(cluster.device).collectiveSeconds;
    this.changes = this.axes.map(() => 0);
    this.doublings = this.units.map(() => 0);
  }

  nanoseconds(from: Cuts, to: Cuts, elements: number, elementBits: number): number {
    const { axes, changes, collectiveSeconds } = this;
    if (axes.length === 0 || elements === 0) return 0;
    let [flags, reduced, cutBefore, cutAfter, unmasked] = [0, 0, 1, 1, 1];
    // Where the result is partial over any axis, ranks may want nothing but zeros.
    let [isMasked, isPartial] = [false, false];
    const slicedDimensions: number[] = [];
    for (let axis = 0; axis < axes.length; axis++) {
      const { size } = axes[axis] as (typeof axes)[number];
      const [before, after] = [from.places[axis] as number, to.places[axis] as number];
      const [held, wanted] = [from.partial[axis] as string | null, to.partial[axis] as string | null];
      let change = 0;
      if (before !== NOWHERE) {
        cutBefore *= size;
        if (after !== before) change |= FETCHED;
      }
      if (held !== null && wanted !== held) {
        change |= REDUCED;
        reduced += 1;
      }
      if (after !== NOWHERE) {
        cutAfter *= size;
        change |= CUTTING;
        if (before === NOWHERE && held === null && !slicedDimensions.includes(dimensionOf(after)))
          slicedDimensions.push(dimensionOf(after));
      }
      if (wanted !== null) isPartial = true;
      if (wanted === 'sum' && held !== wanted) isMasked = true;
      else unmasked *= size;
      flags |= change;
      changes[axis] = change;
    }
    const bytes = (elements * elementBits) / 8;
    const isFetched = (flags & FETCHED) !== 0;
    const collectives = (isFetched ? 1 : 0) + (reduced > 0 ? 1 : 0);
    const onWire = collectives > 0 ? this.crossings(from, to, bytes, isPartial) : 0;

    const slice =
      slicedDimensions.length === 0
        ? 0
        : this.localStep('slice', Math.max(1, Math.floor(elements / (isFetched ? this.ranks : cutAfter))), elementBits);
    // A scatter over an axis that is reduced may shard a dimension too: a permutation then gives its shards another axis.
    const slices = isFetched ? 0 : Math.max(0, slicedDimensions.length - reduced) * slice;
    // A permutation takes one round, however many nodes it joins. It neither enlarges a rank's shard nor sums: another follows.
    const another = collectives === 1 && (cutAfter < cutBefore || reduced > 0) ? collectiveSeconds : 0;
    const rounds = collectives === 0 ? 0 : Math.min(this.latencySeconds(Infinity), another + this.latencySeconds(1));
    const reached: LeastLatency = { seconds: rounds, collectives: 0, slices };
    const stepped = this.latency(changes, cutAfter / cutBefore, {
      alone: slicedDimensions.length * slice,
      exchanged: slice,
    });
    const latency = nanosecondsOf(stepped) > nanosecondsOf(reached) ? stepped : reached;
    const seconds = collectives * collectiveSeconds + latency.seconds + onWire;
    // Every collective's price is rounded, so that two may cost a nanosecond less than their seconds.
    const rounded = Math.floor((collectives + latency.collectives) / 2);
    let nanoseconds = Math.max(0, Math.floor(seconds * 1e9) - rounded) + latency.slices;
    for (let dimension = 0; dimension < to.padding.length; dimension++)
      if (from.padding[dimension] !== to.padding[dimension]) nanoseconds += this.localStep('repad', 1, elementBits);
    // It may be masked while it is sharded over all other axes, and fetched from there.
    if (isMasked) nanoseconds += this.localStep('to-partial', Math.max(1, Math.ceil(elements / unmasked)), elementBits);
    return nanoseconds;
  }

  /**
   * Least seconds on the wire: bytes that must reach the units that some axes distinguish, as above, for layouts without the
   * other axes, since together the ranks of a unit hold the union of their shards. Where there is both to fetch and to reduce,
   * either alone is a bound. Notes how often the data of each unit doubles.
   */
  private crossings(from: Cuts, to: Cuts, bytes: number, isPartial: boolean): number {
    const { axes, changes } = this;
    let seconds = 0;
    for (const [number, unit] of this.units.entries()) {
      let [before, after, fetched, reduced, scattered, all] = [1, 1, 1, 1, 1, 1];
      for (let axis = 0; axis < axes.length; axis++) {
        if (!unit.distinguishes[axis]) continue;
        const { size } = axes[axis] as (typeof axes)[number];
        const change = changes[axis] as number;
        all *= size;
        if (from.places[axis] !== NOWHERE) before *= size;
        if (to.places[axis] !== NOWHERE) after *= size;
        if (change & FETCHED) fetched *= size;
        if (change & REDUCED) {
          reduced *= size;
          if (change & CUTTING) scattered *= size;
        }
      }
      const [start, end] = [bytes / before, bytes / after];
      const grows = Math.max(1, end / start);
      const gathers = grows * (reduced / scattered);
      if (fetched > 1) {
        const arrivals: Arrivals = {
          fetched: end * (1 - 1 / fetched),
          grown: Math.max(0, end - start),
          growthDoublings: Math.floor(Math.log2(grows)),
          reduced: 0,
          reduceDoublings: 0,
        };
        seconds = Math.max(seconds, unit.seconds(arrivals));
      }
      if (reduced > 1) {
        const share = bytes / all;
        const arrivals: Arrivals = {
          fetched: isPartial ? 0 : end - share,
          grown: end * (1 - 1 / gathers),
          growthDoublings: Math.floor(Math.log2(gathers)),
          reduced: share * (reduced - 1),
          reduceDoublings: Math.floor(Math.log2(reduced)),
        };
        seconds = Math.max(seconds, unit.seconds(arrivals));
      }
      const rounds = reduced > 1 ? Math.ceil(Math.log2(reduced)) : 0;
      this.doublings[number] = rounds + Math.max(fetched > 1 ? 1 : 0, Math.ceil(Math.log2(gathers)));
    }
    return seconds;
  }

  /**
   * Least seconds of latency where levels beyond a device take so many rounds at most: rounds over a level serve those inside
   * it, too.
   */
  private latencySeconds(mostOutside: number): number {
    let [seconds, counted] = [0, 0];
    for (let level = this.units.length - 1; level >= 0; level--) {
      const doublings = this.doublings[level] as number;
      const more = Math.max(0, this.rounds(level === 0 ? doublings : Math.min(mostOutside, doublings)) - counted);
      seconds += more * (this.units[level] as ClusterUnit).latencySeconds;
      counted += more;
    }
    return seconds;
  }

  /** Price of a step of one rank that leaves so many elements. */
  private localStep(kind: 'slice' | 'to-partial' | 'repad', elements: number, elementBits: number): number {
    const key = `${kind} ${elements} ${elementBits}`;
    const [axis] = this.axes as readonly [{ readonly name: SubAxis; readonly size: number }];
    return madeOnce(this.localSteps, key, () =>
      Math.min(
        ...LOCAL_STEPS[kind](elements, axis).map(({ shape, ...step }) =>
          this.price({ kind, axes: kind === 'repad' ? [] : [axis.name], ...step }, shape, elementBits),
        ),
      ),
    );
  }
}

/** Steps of one rank that leave so many elements. For repad: a step that drops an element, and a step that adds one. */
const LOCAL_STEPS: Readonly<
  Record<
    'slice' | 'to-partial' | 'repad',
    (
      elements: number,
      axis: { readonly name: SubAxis; readonly size: number },
    ) => readonly (Pick<ReshardOp, 'from' | 'to'> & { readonly shape: readonly number[] })[]
  >
> = {
  slice: (elements, { name, size }) => {
    const shape = [elements * size];
    return [{ from: replicated(shape), to: { dims: [[{ size: elements * size, axes: [name] }]], partial: [] }, shape }];
  },
  'to-partial': (elements, { name }) => {
    const from = replicated([elements]);
    return [{ from, to: { ...from, partial: [{ axis: name, reduction: 'sum' }] }, shape: [elements] }];
  },
  repad: (elements) => {
    const bare = replicated([elements]);
    const padded = { ...replicated([elements + 1]), extents: [[{ size: elements + 1, valid: elements }]] };
    return [
      { from: padded, to: bare, shape: [elements] },
      { from: bare, to: padded, shape: [elements] },
    ];
  },
};
