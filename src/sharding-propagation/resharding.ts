/**
 * @file Resharding: the cheapest sequence of reshard ops that turns one layout into another.
 *
 * A* over layouts (layout-space.ts) with the given prices and lower bound (without a bound, Dijkstra's algorithm); among
 * equally cheap sequences, the one with fewer ops. It runs twice. The first search moves only axes that differ, bundled,
 * straight to their places in the target; its answer bounds the second, which tries detours: over axes that neither layout uses,
 * and places that neither has.
 *
 * The extent of the second search depends on the mesh, as it runs thousands of times per plan. Up to two sub-axes it
 * tries everything and is exact (tests compare it with brute force). Up to three, idle axes take part but wait at one
 * place only. Beyond that, axes with the same place in both layouts stay there, and axes that are adjacent in
 * both move as one; with more than four such bundles there is no second search.
 *
 * Only prices limit intermediate layouts: a route through the whole tensor costs as much as receiving it, so it
 * happens only where nothing cheaper exists.
 */
import { madeOnce } from '../ir/remembered.js';
import { digitsOf, stridesOf } from './digits.js';
import { equalLayouts, extentsKey, type Layout, layoutKey, mergedLayout } from './layout.js';
import {
  type Atom,
  type EqualMoves,
  layoutOf,
  makeSpace,
  movesFrom,
  type Space,
  type SpaceState,
  spaceState,
  stateElements,
  stateKey,
} from './layout-space.js';
import { type Mesh, type SubAxis, subAxes } from './mesh.js';
import type { LeastCost, ReshardOp, ReshardOpKind, ReshardPrice } from './reshard-op.js';

export { reshardDetail } from './reshard-detail.js';
export type { LeastCost, ReshardOp, ReshardOpKind, ReshardPrice } from './reshard-op.js';

/** Reshardings on one mesh under one price, remembered. */
export interface Resharder {
  /**
   * The cheapest ops from one layout of a tensor of `shape` to another; none where they give every rank the same shard. Every
   * pair of layouts has an answer. The first op starts at `from` and the last ends at `to` as they were given; layouts between
   * are in merged form. Values partial over sum, maximum or minimum are combined before another reduction begins.
   */
  readonly ops: (from: Layout, to: Layout, shape: readonly number[], elementBits: number) => readonly ReshardOp[];
  /** The total cost of the ops, in integer nanoseconds. */
  readonly cost: (from: Layout, to: Layout, shape: readonly number[], elementBits: number) => number;
}

export interface ResharderOptions {
  /** Whether an op may be an all-to-all; every pair of layouts has a way without. */
  readonly allToAll?: boolean;
}

/** A resharder that remembers every pair it was asked for. With a bound, the same costs are found sooner. */
export function makeResharder(
  mesh: Mesh,
  price: ReshardPrice,
  bound: LeastCost = () => 0,
  { allToAll = true }: ResharderOptions = {},
): Resharder {
  const known = new Map<string, Route>();
  const prices: PriceTable = new Map();
  const route = (from: Layout, to: Layout, shape: readonly number[], elementBits: number): Route => {
    const key = `${layoutKey(from)}>${layoutKey(to)}#${elementBits}`;
    return madeOnce(known, key, () => cheapest({ from, to, shape, elementBits, mesh, price, prices, bound, allToAll }));
  };
  return {
    ops: (from, to, shape, elementBits) => route(from, to, shape, elementBits).ops,
    cost: (from, to, shape, elementBits) => route(from, to, shape, elementBits).cost,
  };
}

interface RouteRequest {
  readonly from: Layout;
  readonly to: Layout;
  readonly shape: readonly number[];
  readonly elementBits: number;
  readonly mesh: Mesh;
  readonly price: ReshardPrice;
  readonly prices: PriceTable;
  readonly bound: LeastCost;
  readonly allToAll: boolean;
}

/** Prices by kind, axes and shard size of an op, and by the size of its result where that does not follow from these. */
type PriceTable = Map<string, number>;

interface Route {
  readonly ops: readonly ReshardOp[];
  readonly cost: number;
}

/** Meshes of at most this many sub-axes are searched exactly. */
const EXACT_AXES = 2;

/** On meshes of at most this many sub-axes, those that neither layout uses take part too. */
const IDLE_AXES = 3;

/** With more bundles to move than this, each goes straight to its place. */
const DETOURING_BUNDLES = 4;

/**
 * States that a search settles before it takes the best route known so far, by its detours: exact ones may go on. On a thousand
 * devices, routes between layouts of a weight in padded heads settled 20,000, for seconds each, and no plan had such a route.
 */
const SETTLED_LIMITS: Readonly<Record<Space['detours'], number>> = { all: 20_000, one: 200, none: 200 };

function cheapest(request: RouteRequest): Route {
  const { mesh } = request;
  const from = mergedLayout(request.from, mesh);
  const to = mergedLayout(request.to, mesh);
  if (equalLayouts(from, to)) return { ops: [], cost: 0 };
  const bundles = bundlesOf(from, to, mesh);
  const direct = search(makeSpace(bundles, from, to, mesh, 'none'), from, to, request, null);
  if (!direct) throw new Error(`no resharding from ${layoutKey(from)} to ${layoutKey(to)}`);
  if (direct.cost <= request.bound(from, to, request.shape, request.elementBits) && direct.ops.length === 1)
    return withEnds(direct, request);
  const axes = subAxes(mesh);
  const single = axes.length <= IDLE_AXES;
  if (!single && bundles.filter((bundle) => bundle.movable).length > DETOURING_BUNDLES)
    return withEnds(direct, request);
  const atoms = single
    ? axes.map(({ name, size }) => ({ digits: [{ axis: name, size }], size, movable: true }))
    : bundles;
  const detours = axes.length <= EXACT_AXES ? 'all' : 'one';
  const better = search(makeSpace(atoms, from, to, mesh, detours), from, to, request, direct);
  return withEnds(better ?? direct, request);
}

/** The route with the caller's own layouts at both ends, at the price of its own ops. */
function withEnds(route: Route, { from, to, shape, elementBits, price }: RouteRequest): Route {
  const last = route.ops.length - 1;
  const ops = route.ops.map((op, index) => ({
    ...op,
    from: index === 0 ? from : op.from,
    to: index === last ? to : op.to,
  }));
  return { ops, cost: ops.reduce((sum, op) => sum + price(op, shape, elementBits), 0) };
}

/**
 * Sub-axes as atoms: those that are adjacent in both layouts (or are partial, or idle, in both alike) are one.
 * Atoms are movable where their places in the two layouts differ.
 */
function bundlesOf(from: Layout, to: Layout, mesh: Mesh): readonly Atom[] {
  const before = axisUses(from, mesh);
  const after = axisUses(to, mesh);
  const role = (roles: ReadonlyMap<SubAxis, AxisUseInLayout>, axis: SubAxis): AxisUseInLayout =>
    roles.get(axis) ?? IDLE;
  const isMovable = (axis: SubAxis) => role(before, axis).key !== role(after, axis).key;
  const follows = (axis: SubAxis, next: SubAxis) =>
    isMovable(axis) === isMovable(next) &&
    [before, after].every((roles) => {
      const [first, second] = [role(roles, axis), role(roles, next)];
      return first.next === null && second.next === null ? first.key === second.key : first.next === next;
    });
  const waiting = [...subAxes(mesh)];
  const atoms: Atom[] = [];
  for (let seed = takeFirst(waiting); seed; seed = takeFirst(waiting)) {
    const digits = [{ axis: seed.name, size: seed.size }];
    for (let grown = true; grown; ) {
      const index = waiting.findIndex(
        ({ name }) => follows(digits.at(-1)?.axis ?? '', name) || follows(name, digits[0]?.axis ?? ''),
      );
      const [next] = index < 0 ? [] : waiting.splice(index, 1);
      grown = next !== undefined;
      if (!next) continue;
      const digit = { axis: next.name, size: next.size };
      if (follows(digits.at(-1)?.axis ?? '', next.name)) digits.push(digit);
      else digits.unshift(digit);
    }
    const size = digits.reduce((product, digit) => product * digit.size, 1);
    atoms.push({ digits, size, movable: isMovable(digits[0]?.axis ?? '') });
  }
  return atoms;
}

/**
 * The use of a sub-axis in a layout. `next`: the axis that shards right behind it; '' where none does; null if it shards nothing.
 */
interface AxisUseInLayout {
  readonly key: string;
  readonly next: SubAxis | null;
}

const IDLE: AxisUseInLayout = { key: 'idle', next: null };

function axisUses(layout: Layout, mesh: Mesh): ReadonlyMap<SubAxis, AxisUseInLayout> {
  const roles = new Map<SubAxis, AxisUseInLayout>();
  for (const [dimension, pieces] of layout.dims.entries()) {
    const digits = digitsOf(pieces, mesh);
    const strides = stridesOf(digits);
    for (const [index, { axis }] of digits.entries()) {
      if (axis === null) continue;
      const padding = extentsKey(layout.extents?.[dimension]);
      roles.set(axis, { key: `${dimension}:${strides[index]}:${padding}`, next: digits[index + 1]?.axis ?? '' });
    }
  }
  for (const { axis, reduction } of layout.partial) roles.set(axis, { key: reduction, next: null });
  return roles;
}

function takeFirst<T>(items: T[]): T | undefined {
  return items.shift();
}

/** The cheapest way to a state that is known so far. */
interface Visit {
  readonly state: SpaceState;
  readonly key: string;
  readonly cost: number;
  readonly count: number;
  /** Cost plus the bound on the rest of the route. */
  readonly least: number;
  readonly previous: Visit | null;
  readonly kind: ReshardOpKind | null;
  readonly axes: readonly SubAxis[];
}

/**
 * The cheapest route through a space that beats `rival`; null if none. A state that is reached more cheaply
 * after it was expanded is expanded again, so the bound need only be a lower bound.
 */
function search(space: Space, from: Layout, to: Layout, request: RouteRequest, rival: Route | null): Route | null {
  const { mesh, shape, elementBits, bound, allToAll } = request;
  const state = spaceState(from, space.atoms, mesh, to);
  const goal = stateKey(space.target);
  const start: Visit = {
    state,
    key: stateKey(state),
    cost: 0,
    count: 0,
    least: 0,
    previous: null,
    kind: null,
    axes: [],
  };
  const best = new Map<string, Visit>([[start.key, start]]);
  const queue = new VisitQueue();
  queue.push(start);
  const rests = new Map<string, number>([[goal, 0]]);
  const restFrom = (state: SpaceState, key: string): number =>
    madeOnce(rests, key, () => bound(layoutOf(state, space), to, shape, elementBits));
  const limit = SETTLED_LIMITS[space.detours];
  let left = 0;
  for (let visit = queue.pop(); visit && left < limit; visit = queue.pop()) {
    const end = best.get(goal);
    if (end && !isBefore({ cost: visit.least, count: visit.count }, end)) break;
    if (best.get(visit.key) !== visit) continue;
    left++;
    for (const moves of movesFrom(visit.state, space)) {
      if (moves.kind === 'all-to-all' && !allToAll) continue;
      const cost = visit.cost + priceOf(moves, visit.state, space, request);
      const count = visit.count + 1;
      if (!mayStillWin({ cost, count }, best.get(goal) ?? null, rival)) continue;
      for (const state of moves.results()) {
        const key = stateKey(state);
        const known = best.get(key);
        if (known && !isBefore({ cost, count }, known)) continue;
        const least = cost + restFrom(state, key);
        if (key !== goal && !mayStillWin({ cost: least, count: count + 1 }, best.get(goal) ?? null, rival)) continue;
        const next: Visit = { state, key, cost, count, least, previous: visit, kind: moves.kind, axes: moves.axes };
        best.set(key, next);
        queue.push(next);
      }
    }
  }
  const end = best.get(goal);
  return end ? { ops: opsTo(end, space), cost: end.cost } : null;
}

/** The price of one of these ops, computed once per kind, axes and shard size; 0 where there is none. */
function priceOf({ kind, axes, results }: EqualMoves, state: SpaceState, space: Space, request: RouteRequest): number {
  const { shape, elementBits, price, prices } = request;
  // New padding makes shards of any size: those of other ops follow from their axes.
  const made = kind === 'repad' ? first(results()) : undefined;
  const key = `${kind} ${axes} ${stateElements(state)} ${made ? stateElements(made) : ''} ${elementBits}`;
  const known = prices.get(key);
  if (known !== undefined) return known;
  const result = made ?? first(results());
  if (!result) return 0;
  const op = { kind, axes, from: layoutOf(state, space), to: layoutOf(result, space) };
  const found = price(op, shape, elementBits);
  prices.set(key, found);
  return found;
}

function first<Item>(items: Iterable<Item>): Item | undefined {
  for (const item of items) return item;
  return undefined;
}

function isBefore(a: Pick<Visit, 'cost' | 'count'>, b: Pick<Visit, 'cost' | 'count'>): boolean {
  return a.cost < b.cost || (a.cost === b.cost && a.count < b.count);
}

/** Whether a route of this cost and so many ops would beat the best known ones. */
function mayStillWin(route: Pick<Visit, 'cost' | 'count'>, end: Visit | null, rival: Route | null): boolean {
  if (rival && !isBefore(route, { cost: rival.cost, count: rival.ops.length })) return false;
  return !end || isBefore(route, end);
}

function opsTo(end: Visit, space: Space): readonly ReshardOp[] {
  const ops: ReshardOp[] = [];
  for (let visit = end; visit.previous && visit.kind; visit = visit.previous) {
    const from = layoutOf(visit.previous.state, space);
    ops.unshift({ kind: visit.kind, axes: visit.axes, from, to: layoutOf(visit.state, space) });
  }
  return ops;
}

/** A binary heap of visits: those that may end cheapest first, then fewest ops, then first come. */
class VisitQueue {
  private readonly items: { readonly visit: Visit; readonly order: number }[] = [];
  private pushed = 0;

  push(visit: Visit): void {
    this.items.push({ visit, order: this.pushed++ });
    for (let index = this.items.length - 1; index > 0; ) {
      const parent = (index - 1) >> 1;
      if (!this.less(index, parent)) break;
      this.swap(index, parent);
      index = parent;
    }
  }

  pop(): Visit | undefined {
    const [top] = this.items;
    const last = this.items.pop();
    if (!top || !last || this.items.length === 0) return top?.visit;
    this.items[0] = last;
    for (let index = 0; ; ) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < this.items.length && this.less(child, least)) least = child;
      }
      if (least === index) return top.visit;
      this.swap(index, least);
      index = least;
    }
  }

  private less(one: number, other: number): boolean {
    const [first, second] = [this.items[one], this.items[other]];
    if (!first || !second) return false;
    const [a, b] = [first.visit, second.visit];
    if (a.least !== b.least) return a.least < b.least;
    return a.count === b.count ? first.order < second.order : a.count < b.count;
  }

  private swap(a: number, b: number): void {
    const [first, second] = [this.items[a], this.items[b]];
    if (!first || !second) return;
    this.items[a] = second;
    this.items[b] = first;
  }
}
