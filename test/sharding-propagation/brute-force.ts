/**
 * @file The cheapest reshardings found the slow way: every layout of a tensor on a small mesh, every step between two,
 * Floyd's relaxation until nothing changes. Shares nothing with the search but the digits of a dimension.
 */
import { type Digit, joinWhole, piecesOf } from '../../src/sharding-propagation/digits.js';
import type { Layout } from '../../src/sharding-propagation/layout.js';
import { type Mesh, subAxes } from '../../src/sharding-propagation/mesh.js';
import type { ReshardOpKind } from '../../src/sharding-propagation/resharding.js';
import { cuts } from './random-layouts.js';

/** Price by kind, number of members and elements of the shard before the step. */
export type ShardPrice = (kind: ReshardOpKind, members: number, elements: number) => number;

interface Point {
  readonly dims: readonly (readonly Digit[])[];
  readonly partial: readonly string[];
}

export interface AllPairs {
  readonly layouts: readonly Layout[];
  /** costs[i][j]: cheapest cost from layout i to layout j. */
  readonly costs: readonly (readonly number[])[];
}

/** Cheapest costs between all layouts of a tensor, whichever digits they shard. */
export function allPairs(shape: readonly number[], mesh: Mesh, price: ShardPrice): AllPairs {
  const points = allPoints(shape, mesh);
  const edges = points.map((from) => points.map((to) => edge(from, to, mesh, price)));
  const costs = points.map((_, start) => cheapestFrom(start, edges));
  return {
    layouts: points.map(({ dims, partial }) => ({
      dims: dims.map(piecesOf),
      partial: partial.map((axis) => ({ axis, reduction: 'sum' as const })),
    })),
    costs,
  };
}

function allPoints(shape: readonly number[], mesh: Mesh): readonly Point[] {
  const whole = shape.map((size) => joinWhole([{ axis: null, size }]));
  const found = new Map<string, Point>();
  const add = (point: Point, left: readonly { readonly name: string; readonly size: number }[]): void => {
    found.set(keyOf(point), point);
    for (const axis of left) {
      const others = left.filter((other) => other !== axis);
      add({ ...point, partial: [...point.partial, axis.name].sort() }, others);
      for (const { dimension, digits } of cuts(point.dims, axis.name, axis.size)) {
        add({ ...point, dims: point.dims.map((old, index) => (index === dimension ? digits : old)) }, others);
      }
    }
  };
  add({ dims: whole, partial: [] }, subAxes(mesh));
  return [...found.values()];
}

function cheapestFrom(start: number, edges: readonly (readonly number[])[]): readonly number[] {
  const costs = edges.map((_, index) => (index === start ? 0 : Number.POSITIVE_INFINITY));
  const open = new Set(costs.keys());
  while (open.size > 0) {
    const next = [...open].reduce((best, index) => ((costs[index] ?? 0) < (costs[best] ?? 0) ? index : best));
    open.delete(next);
    for (const index of open) {
      costs[index] = Math.min(costs[index] ?? 0, (costs[next] ?? 0) + (edges[next]?.[index] ?? 0));
    }
  }
  return costs;
}

/** The price of going from one point to another in one step; infinite where no single step does. */
function edge(from: Point, to: Point, mesh: Mesh, price: ShardPrice): number {
  const changed = subAxes(mesh).filter(({ name }) => roleOf(from, name) !== roleOf(to, name));
  if (changed.length === 0) return Number.POSITIVE_INFINITY;
  const names = changed.map(({ name }) => name);
  const roles = (point: Point): string[] => [...new Set(names.map((name) => kindOf(point, name)))];
  const [before, after] = [roles(from), roles(to)];
  const members = changed.reduce((product, { size }) => product * size, 1);
  const elements = wholeOf(from.dims.flat());
  const cost = (kind: ReshardOpKind): number => price(kind, members, elements);
  const permuted = skeletonOf(from) === skeletonOf(to) && !before.includes('partial') && !after.includes('partial');
  if (permuted) return cost('permute');
  if (before.length > 1 || after.length > 1) return Number.POSITIVE_INFINITY;
  const steps: Readonly<Record<string, ReshardOpKind>> = {
    'idle>cut': 'slice',
    'idle>partial': 'to-partial',
    'cut>idle': 'all-gather',
    'cut>cut': 'all-to-all',
    'partial>idle': 'all-reduce',
    'partial>cut': 'reduce-scatter',
  };
  const kind = steps[`${before[0]}>${after[0]}`];
  if (!kind) return Number.POSITIVE_INFINITY;
  const order = [from, to].map((point) => standTogether(point, names));
  const apart =
    kind !== 'all-to-all' || (order[0] === order[1] && names.every((name) => isInsideDigit(from, to, name)));
  const both = order[0] !== null && order[1] !== null && apart;
  return both ? cost(kind) : Number.POSITIVE_INFINITY;
}

/** The axes in the order in which they shard one place; '' if none of them shards; null if they shard several. */
function standTogether(point: Point, names: readonly string[]): string | null {
  const places = point.dims.flatMap((digits, dimension) => {
    let run = 0;
    return digits.flatMap(({ axis }) => {
      if (axis === null) run += 1;
      return axis !== null && names.includes(axis) ? [{ axis, place: `${dimension}.${run}` }] : [];
    });
  });
  return new Set(places.map(({ place }) => place)).size > 1 ? null : places.map(({ axis }) => axis).join(',');
}

/** Whether the range that an axis shards in `to` is within one whole digit of `from`, so that equal slices can be sent. */
function isInsideDigit(from: Point, to: Point, name: string): boolean {
  const [dimension = '', stride = ''] = roleOf(to, name).split(':');
  const size = to.dims[Number(dimension)]?.find(({ axis }) => axis === name)?.size ?? 1;
  const digits = from.dims[Number(dimension)] ?? [];
  return digits.some((digit, index) => {
    const low = wholeOf(digits.slice(index + 1).map((minor) => ({ ...minor, axis: null })));
    const fits = low <= Number(stride) && Number(stride) * size <= low * digit.size;
    const divides = Number(stride) % low === 0 && (low * digit.size) % (Number(stride) * size) === 0;
    return digit.axis === null && fits && divides;
  });
}

function roleOf(point: Point, name: string): string {
  if (point.partial.includes(name)) return 'partial';
  for (const [dimension, digits] of point.dims.entries()) {
    const index = digits.findIndex(({ axis }) => axis === name);
    if (index >= 0) return `${dimension}:${digits.slice(index + 1).reduce((product, { size }) => product * size, 1)}`;
  }
  return 'idle';
}

function kindOf(point: Point, name: string): string {
  const role = roleOf(point, name);
  return role.includes(':') ? 'cut' : role;
}

function skeletonOf(point: Point): string {
  const dims = point.dims.map((digits) => {
    const parts: string[] = [];
    let run = 1;
    for (const { axis, size } of digits) {
      if (axis !== null) run *= size;
      else {
        parts.push(`${run}x${size}`);
        run = 1;
      }
    }
    return [...parts, run].join(' ');
  });
  return dims.join(',');
}

function wholeOf(digits: readonly Digit[]): number {
  return digits.reduce((product, { axis, size }) => (axis === null ? product * size : product), 1);
}

function keyOf(point: Point): string {
  const dims = point.dims.map((digits) => digits.map(({ axis, size }) => axis ?? size).join(' '));
  return `${dims.join(',')}+${point.partial.join(',')}`;
}
