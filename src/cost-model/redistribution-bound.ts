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
import { axesSize, deviceCount, subAxes } from '../sharding-propagation/mesh.js';
import type { LeastCost, StepPrice } from '../sharding-propagation/redistribution.js';
import type { Cluster } from './cluster.js';
import { fastestLink } from './collective-price.js';
import { profileOf } from './device.js';

/** The bound on a cluster; `price` prices the steps that it is made of. */
export function redistributionBound(cluster: Cluster, mesh: Mesh, price: StepPrice): LeastCost {
  const link = fastestLink(cluster);
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
    const [start, end] = [before, after].map((places) => elements / axesSize(mesh, [...places.keys()])) as [
      number,
      number,
    ];

    let collectives = 0;
    let rounds = 0;
    let growth = Math.max(1, end / start);
    let arriving = 0;
    if (fetched.length > 0) {
      collectives++;
      arriving = end * (1 - 1 / axesSize(mesh, fetched));
    }
    if (reduced.length > 0) {
      collectives++;
      const ranks = axesSize(mesh, reduced);
      growth *=
        ranks /
        axesSize(
          mesh,
          reduced.filter((axis) => after.has(axis)),
        );
      rounds = Math.ceil(Math.log2(ranks));
      const share = elements / deviceCount(mesh);
      arriving = Math.max(arriving, to.partial.length === 0 ? share * (ranks - 2) + end : share * (ranks - 1));
    }
    rounds += Math.max(fetched.length > 0 ? 1 : 0, Math.ceil(Math.log2(growth)));
    const seconds =
      collectives * collectiveSeconds +
      link.rounds(rounds) * link.latencySeconds +
      link.seconds((arriving * elementBits) / 8);
    // Every collective's price is rounded, so that two may cost a nanosecond less than their seconds.
    let nanoseconds = Math.max(0, Math.floor(seconds * 1e9) - (collectives > 1 ? 1 : 0));

    if (fetched.length === 0) {
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
