/**
 * @file A price that no redistribution between two layouts can undercut, from the layouts alone.
 *
 * What must happen, whatever the route:
 * - an axis that cuts the first layout and not, at the same place, the second: its blocks must be fetched. A rank needs
 *   t elements and holds at most t / |C| of them, C being those axes: t (1 − 1/|C|) arrive, in at least one collective;
 * - an axis over which the value is partial and shall no longer be: sums of R ranks. Each of the E elements costs R − 1
 *   transfers to where it is summed first and one to every other rank that wants it, P t / E of the mesh's P ranks in
 *   all: E (R − 2) / P + t elements arrive per rank. Where the result is partial over other axes, ranks may want nothing
 *   but zeros, and only the sums count: E (R − 1) / P. At least one more collective;
 * - an axis that cuts only the second layout: one slice per dimension, if nothing else brings it (a reduction may, by a
 *   scatter, each of its axes for one dimension);
 * - an axis over which the value becomes partial: one masking.
 *
 * For a single all-gather, reduce-scatter, all-reduce or slice by ranks that hold nothing twice the bound is the price. The
 * search prices a pair exactly only where the bound leaves it in the running.
 */

import { digitsOf, stridesOf } from '../sharding-propagation/digits.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize, subAxes } from '../sharding-propagation/mesh.js';
import type { LeastCost, StepPrice } from '../sharding-propagation/redistribution.js';
import type { Cluster } from './cluster.js';
import { profileOf } from './device.js';
import { type Arrivals, linkBound, type UnitBound } from './link-bound.js';

/** The bound on a cluster; `price` prices the steps that it is made of. */
export function redistributionBound(cluster: Cluster, mesh: Mesh, price: StepPrice): LeastCost {
  const { units, rounds } = linkBound(cluster, mesh);
  const sizes = new Map(subAxes(mesh).map(({ name, size }) => [name, size]));
  const sizesIn = new Map(units.map((unit) => [unit, new Map(unit.axes.map((axis) => [axis, sizes.get(axis) ?? 1]))]));
  const { collectiveSeconds } = profileOf(cluster.device);
  const [anyAxis] = subAxes(mesh);
  const known = new WeakMap<Layout, Places>();
  const places = (layout: Layout): Places => {
    const found = known.get(layout) ?? placesOf(layout, mesh);
    known.set(layout, found);
    return found;
  };
  return (from, to, shape, elementBits) => {
    if (!anyAxis || shape.includes(0)) return 0;
    const before = places(from);
    const after = places(to);
    const fetched = [...before].filter(([axis, place]) => after.get(axis) !== place).map(([axis]) => axis);
    const held = new Map(from.partial.map(({ axis, reduction }) => [axis, reduction]));
    const wanted = new Map(to.partial.map(({ axis, reduction }) => [axis, reduction]));
    const reduced = [...held].filter(([axis, reduction]) => wanted.get(axis) !== reduction).map(([axis]) => axis);
    const masked = [...wanted].filter(([axis, reduction]) => reduction === 'sum' && held.get(axis) !== reduction);
    const elements = shape.reduce((product, size) => product * size, 1);
    const change = { before, after, fetched, reduced, isPartial: to.partial.length > 0 };
    const bytes = (elements * elementBits) / 8;

    const crossings = units.map((unit) => ({ unit, ...crossingOf(change, sizesIn.get(unit) ?? sizes, bytes) }));
    const collectives = (fetched.length > 0 ? 1 : 0) + (reduced.length > 0 ? 1 : 0);
    const onWire = crossings.map(({ unit, arrivals }) => Math.max(0, ...arrivals.map(unit.seconds)));
    // A permutation takes one round, however many nodes it joins. It makes no rank's block larger, nor sums: another follows.
    const grows = axesSize(mesh, [...after.keys()]) < axesSize(mesh, [...before.keys()]);
    const another = collectives === 1 && (grows || reduced.length > 0) ? collectiveSeconds : 0;
    const latency = Math.min(
      latencyOf(crossings, rounds),
      another +
        latencyOf(
          crossings.map((crossing, level) => ({
            ...crossing,
            doublings: level === 0 ? crossing.doublings : Math.min(1, crossing.doublings),
          })),
          rounds,
        ),
    );
    const seconds = collectives * collectiveSeconds + latency + Math.max(...onWire);
    // Every collective's price is rounded, so that two may cost a nanosecond less than their seconds.
    let nanoseconds = Math.max(0, Math.floor(seconds * 1e9) - (collectives > 1 ? 1 : 0));

    if (fetched.length === 0) {
      const end = elements / axesSize(mesh, [...after.keys()]);
      const sliced = [...after].filter(([axis]) => !before.has(axis) && !held.has(axis));
      const dimensions = new Set(sliced.map(([, place]) => place.split(':')[0]));
      // A scatter over an axis that is reduced may cut a dimension too: a permutation then gives its blocks another name.
      const slices = Math.max(0, dimensions.size - reduced.length);
      if (slices > 0)
        nanoseconds += slices * localStep('slice', Math.max(1, Math.floor(end)), anyAxis, price, elementBits);
    }
    if (masked.length > 0) {
      // It may be masked while it is cut over all other axes, and fetched from there.
      const cut = axesSize(
        mesh,
        subAxes(mesh).flatMap(({ name }) => (masked.some(([axis]) => axis === name) ? [] : [name])),
      );
      nanoseconds += localStep('to-partial', Math.max(1, Math.ceil(elements / cut)), anyAxis, price, elementBits);
    }
    return nanoseconds;
  };
}

/** What becomes of each axis between two layouts. */
interface Change {
  readonly before: Places;
  readonly after: Places;
  /** Axes whose cuts must go, and whose sums must be made. */
  readonly fetched: readonly SubAxis[];
  readonly reduced: readonly SubAxis[];
  /** Whether the second layout is partial over any axis: then ranks may want nothing but zeros. */
  readonly isPartial: boolean;
}

/**
 * What must reach the units that `axes` (with their sizes) tell apart: as above, of layouts without the other axes, since together the ranks of
 * a unit hold what their union holds. Where there is both to fetch and to reduce, either alone is a bound.
 */
function crossingOf(
  { before, after, fetched, reduced, isPartial }: Change,
  axes: ReadonlyMap<SubAxis, number>,
  bytes: number,
): { readonly arrivals: readonly Arrivals[]; readonly doublings: number } {
  const size = (some: Iterable<SubAxis>) => {
    let product = 1;
    for (const axis of some) product *= axes.get(axis) ?? 1;
    return product;
  };
  const [start, end] = [bytes / size(before.keys()), bytes / size(after.keys())];
  const [fetchedOver, reducedOver] = [size(fetched), size(reduced)];
  const grows = Math.max(1, end / start);
  const gathers = grows * (reducedOver / size(reduced.filter((axis) => after.has(axis))));
  const arrivals: Arrivals[] = [];
  if (fetchedOver > 1) {
    arrivals.push({
      fetched: end * (1 - 1 / fetchedOver),
      grown: Math.max(0, end - start),
      growthDoublings: Math.floor(Math.log2(grows)),
      reduced: 0,
      reduceDoublings: 0,
    });
  }
  if (reducedOver > 1) {
    const share = bytes / size(axes.keys());
    const whole = isPartial ? 0 : end - share;
    arrivals.push({
      fetched: whole,
      grown: end * (1 - 1 / gathers),
      growthDoublings: Math.floor(Math.log2(gathers)),
      reduced: share * (reducedOver - 1),
      reduceDoublings: Math.floor(Math.log2(reducedOver)),
    });
  }
  const rounds = reducedOver > 1 ? Math.ceil(Math.log2(reducedOver)) : 0;
  return { arrivals, doublings: rounds + Math.max(fetchedOver > 1 ? 1 : 0, Math.ceil(Math.log2(gathers))) };
}

/** Least seconds of latency: rounds over a level serve those inside it, too. Devices first. */
function latencyOf(
  crossings: readonly { readonly unit: UnitBound; readonly doublings: number }[],
  rounds: (doublings: number) => number,
): number {
  let [seconds, counted] = [0, 0];
  for (const { unit, doublings } of [...crossings].reverse()) {
    const more = Math.max(0, rounds(doublings) - counted);
    seconds += more * unit.latencySeconds;
    counted += more;
  }
  return seconds;
}

/** Where each axis cuts: dimension and stride. */
type Places = ReadonlyMap<SubAxis, string>;

function placesOf(layout: Layout, mesh: Mesh): Places {
  const places = new Map<SubAxis, string>();
  layout.dims.forEach((pieces, dimension) => {
    const digits = digitsOf(pieces, mesh);
    const strides = stridesOf(digits);
    digits.forEach(({ axis }, index) => {
      if (axis !== null) places.set(axis, `${dimension}:${strides[index]}`);
    });
  });
  return places;
}

/** Price of a slice to, or a masking of, so many elements on one rank. */
function localStep(
  kind: 'slice' | 'to-partial',
  elements: number,
  axis: { readonly name: SubAxis; readonly size: number },
  price: StepPrice,
  elementBits: number,
): number {
  const whole: Layout = {
    dims: [[{ size: kind === 'slice' ? elements * axis.size : elements, axes: [] }]],
    partial: [],
  };
  const size = whole.dims[0]?.[0]?.size ?? 1;
  const to: Layout =
    kind === 'slice'
      ? { dims: [[{ size, axes: [axis.name] }]], partial: [] }
      : { dims: whole.dims, partial: [{ axis: axis.name, reduction: 'sum' }] };
  return price({ kind, axes: [axis.name], from: whole, to }, [size], elementBits);
}
