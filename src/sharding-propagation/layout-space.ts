/**
 * @file The search space of resharding: layouts as digits over atoms, and the steps that lead from each.
 *
 * An atom is a list of sub-axes that move as one. A state gives each dimension's digits (whole, or an atom's) and the
 * atoms over which the value is partial. In this form the steps are short edits: a slice splits a whole digit and puts
 * atoms into it; a gather makes atoms' digits whole; an all-to-all does both; a permute swaps atoms between places.
 */
import type { Reduction } from '../ir/factor-rule.js';
import { type Digit, digitsOf, joinDigits, piecesOf, stridesOf } from './digits.js';
import { type Extents, extentsKey, type Layout } from './layout.js';
import type { Mesh, SubAxis } from './mesh.js';
import type { ReshardOpKind } from './reshard-op.js';

export interface Atom {
  readonly digits: readonly Digit[];
  readonly size: number;
  /** Whether steps may touch it. */
  readonly movable: boolean;
}

/** A digit of a state: of atom number `atom`, or whole where that is null. */
export interface AtomDigit {
  readonly atom: number | null;
  readonly size: number;
}

export interface SpaceState {
  readonly dims: readonly (readonly AtomDigit[])[];
  /** By atom: how its ranks' values combine, or null where the value is not partial over it. */
  readonly partial: readonly (Reduction | null)[];
  /** By dimension: whether it is padded as the target's is; always so where origin and target are padded alike. */
  readonly repadded: readonly boolean[];
}

/** Steps of one kind over the same axes: they differ in the places they lead to, not in their price. */
export interface EqualMoves {
  readonly kind: ReshardOpKind;
  readonly axes: readonly SubAxis[];
  readonly results: () => Iterable<SpaceState>;
}

export interface Space {
  readonly atoms: readonly Atom[];
  readonly target: SpaceState;
  /** By atom: its place in the target. */
  readonly targetPlaces: ReadonlyMap<number, PlacedDigit>;
  readonly detours: DetourLimit;
  /** Per dimension the strides at which origin or target shard. */
  readonly boundaries: readonly (readonly number[])[];
  /** How origin and target are padded. */
  readonly extents: { readonly from: Extents | undefined; readonly to: Extents | undefined };
}

/**
 * Places where atoms may be put besides their place in the target. `none`: nowhere. `one`: the first place that is
 * large enough, so that they can wait there while others move. `all`: before every whole digit, and wherever origin or
 * target shard anything.
 */
export type DetourLimit = 'none' | 'one' | 'all';

interface PlacedDigit {
  readonly dimension: number;
  readonly index: number;
  readonly stride: number;
}

export function makeSpace(atoms: readonly Atom[], from: Layout, to: Layout, mesh: Mesh, detours: DetourLimit): Space {
  const target = spaceState(to, atoms, mesh, to);
  const origin = spaceState(from, atoms, mesh, to);
  const boundaries = target.dims.map((digits, dimension) => [
    ...new Set([...boundariesOf(origin.dims[dimension] ?? []), ...boundariesOf(digits)]),
  ]);
  const extents = { from: from.extents, to: to.extents };
  return { atoms, target, targetPlaces: placesOf(target), detours, boundaries, extents };
}

/**
 * A layout in digits over atoms, on the way to `target`. Where an atom shards a tensor, all of its axes must be adjacent
 * in order.
 */
export function spaceState(layout: Layout, atoms: readonly Atom[], mesh: Mesh, target: Layout): SpaceState {
  const dims = layout.dims.map((pieces) => {
    const digits: AtomDigit[] = [];
    for (const { axis, size } of digitsOf(pieces, mesh)) {
      const atom = axis === null ? null : atoms.findIndex((candidate) => candidate.digits[0]?.axis === axis);
      // Axes after an atom's first one are found as -1: the first stands for all of them.
      if (atom !== -1) digits.push({ atom, size: atom === null ? size : (atoms[atom]?.size ?? size) });
    }
    return digits;
  });
  const partial = atoms.map(
    ({ digits }) => layout.partial.find((entry) => entry.axis === digits[0]?.axis)?.reduction ?? null,
  );
  const repadded = dims.map((_, axis) => extentsKey(layout.extents?.[axis]) === extentsKey(target.extents?.[axis]));
  return { dims, partial, repadded };
}

/** The state as a layout in merged form. */
export function layoutOf(state: SpaceState, { atoms, extents }: Space): Layout {
  const dims = state.dims.map((digits) =>
    piecesOf(
      digits.flatMap(({ atom, size }) => (atom === null ? [{ axis: null, size }] : (atoms[atom]?.digits ?? []))),
    ),
  );
  const partial = atoms.flatMap(({ digits }, atom) => {
    const reduction = state.partial[atom] ?? null;
    return reduction === null ? [] : digits.map(({ axis }) => ({ axis: axis ?? '', reduction }));
  });
  const padding = state.repadded.map((done, axis) => (done ? extents.to : extents.from)?.[axis] ?? null);
  return {
    dims,
    partial: partial.sort((a, b) => (a.axis < b.axis ? -1 : 1)),
    ...(padding.some((parts) => parts !== null) ? { extents: padding } : {}),
  };
}

/** Elements of one rank's shard. */
export function stateElements(state: SpaceState): number {
  let size = 1;
  for (const digits of state.dims) for (const digit of digits) if (digit.atom === null) size *= digit.size;
  return size;
}

export function stateKey(state: SpaceState): string {
  let key = '';
  for (const digits of state.dims) {
    for (const { atom, size } of digits) key += atom === null ? `${size} ` : `a${atom} `;
    key += ',';
  }
  key += '/';
  for (const reduction of state.partial) key += `${reduction ?? ''},`;
  for (const done of state.repadded) key += done ? ',' : '~';
  return key;
}

/** Every step from a state, by kind and axes. The order is fixed, so that equal prices are always decided alike. */
export function* movesFrom(state: SpaceState, space: Space): Generator<EqualMoves> {
  const idle = uncut(state, space);
  yield* repads(state, space);
  yield* toPartials(state, space, idle);
  yield* slices(state, space, idle);
  yield* reductions(state, space, idle);
  yield* gathersAndExchanges(state, space);
  yield* permutes(state, space);
}

/** A dimension that no atom shards takes the target's padding. */
function* repads(state: SpaceState, space: Space): Generator<EqualMoves> {
  for (const [dimension, digits] of state.dims.entries()) {
    if (state.repadded[dimension] || digits.some(({ atom }) => atom !== null)) continue;
    const size = productOf(space.target.dims[dimension] ?? []);
    const dims = state.dims.map((own, axis) =>
      axis === dimension ? joinDigits([{ atom: null, size }], isWhole) : own,
    );
    const repadded = state.repadded.map((done, axis) => done || axis === dimension);
    yield { kind: 'repad', axes: [], results: () => [{ dims, partial: state.partial, repadded }] };
  }
}

/** More atoms than this are not moved in every combination. */
const COMBINED = 4;

function* toPartials(state: SpaceState, space: Space, atoms: readonly number[]): Generator<EqualMoves> {
  const idle = atoms.filter((atom) => (state.partial[atom] ?? null) === null);
  for (const reduction of ['sum', 'max', 'min'] as const) {
    const wanted = idle.filter((atom) => space.target.partial[atom] === reduction);
    for (const list of wanted.length > 1 ? [wanted, ...wanted.map((atom) => [atom])] : wanted.map((atom) => [atom])) {
      const axes = reduction === 'sum' ? axesOf(list, space) : [];
      yield { kind: 'to-partial', axes, results: () => [withPartial(state, list, reduction)] };
    }
  }
}

function* slices(state: SpaceState, space: Space, atoms: readonly number[]): Generator<EqualMoves> {
  const idle = atoms.filter((atom) => (state.partial[atom] ?? null) === null);
  for (const list of [...idle.map((atom) => [atom]), ...targetRuns(idle, space)]) {
    yield { kind: 'slice', axes: axesOf(list, space), results: () => inserted(state, [], list, space) };
  }
}

function* reductions(state: SpaceState, space: Space, atoms: readonly number[]): Generator<EqualMoves> {
  for (const reduction of ['sum', 'max', 'min'] as const) {
    const held = atoms.filter((atom) => state.partial[atom] === reduction);
    for (const subset of subsets(held)) {
      const reduced = withPartial(state, subset, null);
      yield { kind: 'all-reduce', axes: axesOf(subset, space), results: () => [reduced] };
      for (const list of orders(subset, space)) {
        yield { kind: 'reduce-scatter', axes: axesOf(list, space), results: () => inserted(reduced, [], list, space) };
      }
    }
  }
}

function* gathersAndExchanges(state: SpaceState, space: Space): Generator<EqualMoves> {
  for (const [dimension, digits] of state.dims.entries()) {
    for (const run of runsOf(digits)) {
      const movable = run.filter((index) => isMovable(digits[index]?.atom ?? null, space));
      for (const indices of subsets(movable)) {
        const list = indices.flatMap((index) => digits[index]?.atom ?? []);
        const gathers = indices.map((index) => ({
          dimension,
          index,
          digits: [{ atom: null, size: digits[index]?.size ?? 1 }],
        }));
        const axes = axesOf(list, space);
        yield { kind: 'all-gather', axes, results: () => [apply(state, gathers)] };
        yield { kind: 'all-to-all', axes, results: () => inserted(state, gathers, list, space) };
      }
    }
  }
}

/** Atoms change places, the places stay: to the target's arrangement or, where detours are allowed, by swapping two. */
function* permutes(state: SpaceState, space: Space): Generator<EqualMoves> {
  if (!state.dims.some((digits) => digits.some((digit) => isMovable(digit.atom, space)))) return;
  const skeleton = skeletonKey(state);
  const places = placesOf(state);
  for (const dims of [space.target.dims, ...(space.detours === 'none' ? [] : swaps(state, space))]) {
    const to = { dims, partial: state.partial, repadded: state.repadded };
    if (skeletonKey(to) !== skeleton) continue;
    const after = placesOf(to);
    const moved = [...new Set([...places.keys(), ...after.keys()])].filter((atom) => {
      const [before, now] = [places.get(atom), after.get(atom)];
      return before?.dimension !== now?.dimension || before?.stride !== now?.stride;
    });
    const legal = moved.every((atom) => isMovable(atom, space) && (state.partial[atom] ?? null) === null);
    if (moved.length > 0 && legal) yield { kind: 'permute', axes: axesOf(moved, space), results: () => [to] };
  }
}

/** The dimensions with two atoms swapped; one of them may shard nothing so far. */
function swaps(state: SpaceState, space: Space): readonly SpaceState['dims'][] {
  const free = space.atoms.flatMap((entry, atom) =>
    entry.movable && (state.partial[atom] ?? null) === null ? [atom] : [],
  );
  return free.flatMap((first, index) =>
    free.slice(index + 1).map((second) => {
      const other = new Map([
        [first, second],
        [second, first],
      ]);
      return state.dims.map((digits) =>
        digits.map((digit) => {
          const atom = digit.atom === null ? undefined : other.get(digit.atom);
          return atom === undefined ? digit : { atom, size: space.atoms[atom]?.size ?? 1 };
        }),
      );
    }),
  );
}

/** The runs of a dimension and the whole digits between them. */
function partsOf(digits: readonly AtomDigit[]): readonly (readonly AtomDigit[])[] {
  const parts: AtomDigit[][] = [];
  for (const digit of digits) {
    const last = parts.at(-1);
    if (digit.atom !== null && last && last[0]?.atom !== null) last.push(digit);
    else parts.push([digit]);
  }
  return parts;
}

/** One place in a state's digits, and the digits that replace it. */
interface Edit {
  readonly dimension: number;
  readonly index: number;
  readonly digits: readonly AtomDigit[];
}

function apply(state: SpaceState, edits: readonly Edit[]): SpaceState {
  const dims = state.dims.map((digits, dimension) => {
    if (!edits.some((edit) => edit.dimension === dimension)) return digits;
    const edited: AtomDigit[] = [];
    for (const [index, digit] of digits.entries()) {
      const edit = edits.find((one) => one.dimension === dimension && one.index === index);
      if (edit) edited.push(...edit.digits);
      else edited.push(digit);
    }
    return joinDigits(edited, isWhole);
  });
  return { dims, partial: state.partial, repadded: state.repadded };
}

/** States with a list of atoms put at each place where that is possible, and with other edits. */
function* inserted(
  state: SpaceState,
  edits: readonly Edit[],
  list: readonly number[],
  space: Space,
): Generator<SpaceState> {
  for (const edit of insertions(state, list, space)) yield apply(state, [...edits, edit]);
}

/** The places where a list of atoms can be put, each splitting one whole digit. */
function* insertions(state: SpaceState, list: readonly number[], space: Space): Generator<Edit> {
  const cutting = list.map((atom) => ({ atom, size: space.atoms[atom]?.size ?? 1 }));
  const count = productOf(cutting);
  let mayWait = space.detours !== 'none';
  for (const [dimension, digits] of state.dims.entries()) {
    // Strides of the target mean nothing before the dimension has the target's size.
    const wanted = state.repadded[dimension] ? targetStride(list, dimension, space) : null;
    if (wanted === null && !mayWait) continue;
    const strides = stridesOf(digits);
    for (const [index, { atom, size }] of digits.entries()) {
      if (atom !== null || size % count !== 0) continue;
      if (size === 0) {
        yield { dimension, index, digits: [...cutting, { atom: null, size }] };
        continue;
      }
      const stride = strides[index] ?? 1;
      const minors = new Set<number>(wanted === null ? [] : [wanted / stride]);
      if (mayWait) minors.add(size / count);
      if (space.detours === 'all') {
        for (const bound of space.boundaries[dimension] ?? []) minors.add(bound / stride).add(bound / stride / count);
      } else mayWait = false;
      for (const minor of minors) {
        if (!Number.isInteger(minor) || size % (minor * count) !== 0) continue;
        const major = { atom: null, size: size / (minor * count) };
        yield { dimension, index, digits: [major, ...cutting, { atom: null, size: minor }] };
      }
    }
  }
}

/** The stride at which the target has the list in this dimension; null where it does not have it there. */
function targetStride(list: readonly number[], dimension: number, space: Space): number | null {
  const place = space.targetPlaces.get(list[0] ?? -1);
  if (place?.dimension !== dimension) return null;
  const digits = space.target.dims[dimension] ?? [];
  if (list.some((atom, offset) => digits[place.index + offset]?.atom !== atom)) return null;
  return space.targetPlaces.get(list.at(-1) ?? -1)?.stride ?? null;
}

/** Lists of two and more of the atoms that are adjacent in the target. */
function targetRuns(atoms: readonly number[], space: Space): readonly (readonly number[])[] {
  const lists: number[][] = [];
  for (const digits of space.target.dims) {
    for (let start = 0; start < digits.length; start++) {
      const list: number[] = [];
      for (const { atom } of digits.slice(start)) {
        if (atom === null || !atoms.includes(atom)) break;
        list.push(atom);
        if (list.length > 1) lists.push([...list]);
      }
    }
  }
  return lists;
}

/** Orders in which a scatter may put atoms: as given, as in the target, and all orders where there are detours. */
function orders(list: readonly number[], space: Space): readonly (readonly number[])[] {
  if (list.length <= 3 && space.detours !== 'none') return permutations(list);
  const wanted = targetRuns(list, space).filter((run) => run.length === list.length);
  return [list, ...wanted.filter((run) => run.some((atom, index) => atom !== list[index]))];
}

function permutations(list: readonly number[]): readonly (readonly number[])[] {
  if (list.length <= 1) return [list];
  return list.flatMap((first) => permutations(list.filter((other) => other !== first)).map((rest) => [first, ...rest]));
}

/** Non-empty subsets in order; for a long list, only the single ones and those from each place to the end. */
function subsets(list: readonly number[]): readonly (readonly number[])[] {
  if (list.length > COMBINED) {
    return [...list.map((item) => [item]), ...list.slice(0, -1).map((_, start) => list.slice(start))];
  }
  const found: number[][] = [];
  for (let mask = (1 << list.length) - 1; mask > 0; mask--) {
    found.push(list.filter((_, index) => (mask >> index) & 1));
  }
  return found;
}

/** Movable atoms that shard nothing. */
function uncut(state: SpaceState, space: Space): readonly number[] {
  const cutting = new Set<number | null>();
  for (const digits of state.dims) for (const { atom } of digits) cutting.add(atom);
  const found: number[] = [];
  for (const [atom, { movable }] of space.atoms.entries()) if (movable && !cutting.has(atom)) found.push(atom);
  return found;
}

function runsOf(digits: readonly AtomDigit[]): readonly (readonly number[])[] {
  const runs: number[][] = [];
  for (const [index, { atom }] of digits.entries()) {
    if (atom === null) continue;
    const last = runs.at(-1);
    if (last && last.at(-1) === index - 1) last.push(index);
    else runs.push([index]);
  }
  return runs;
}

/** The place of each atom that shards. */
function placesOf(state: SpaceState): ReadonlyMap<number, PlacedDigit> {
  const places = new Map<number, PlacedDigit>();
  for (const [dimension, digits] of state.dims.entries()) {
    const strides = stridesOf(digits);
    for (const [index, { atom }] of digits.entries()) {
      if (atom !== null) places.set(atom, { dimension, index, stride: strides[index] ?? 1 });
    }
  }
  return places;
}

/** The shards of a state without the ranks that hold them: runs by their product, and whole digits. */
function skeletonKey(state: SpaceState): string {
  return state.dims
    .map((digits) =>
      partsOf(digits)
        .map((part) => `${part[0]?.atom === null ? '' : 'x'}${productOf(part)}`)
        .join(' '),
    )
    .join(',');
}

function boundariesOf(digits: readonly AtomDigit[]): readonly number[] {
  const strides = stridesOf(digits);
  return digits.flatMap(({ atom, size }, index) => {
    const stride = strides[index] ?? 1;
    return atom === null ? [] : [stride, stride * size];
  });
}

function withPartial(state: SpaceState, list: readonly number[], reduction: Reduction | null): SpaceState {
  return {
    ...state,
    partial: state.partial.map((held, atom) => (list.includes(atom) ? reduction : held)),
  };
}

function isMovable(atom: number | null, space: Space): boolean {
  return atom !== null && (space.atoms[atom]?.movable ?? false);
}

function axesOf(list: readonly number[], space: Space): readonly SubAxis[] {
  return list.flatMap((atom) => (space.atoms[atom]?.digits ?? []).map(({ axis }) => axis ?? ''));
}

function productOf(digits: readonly AtomDigit[]): number {
  return digits.reduce((product, digit) => product * digit.size, 1);
}

function isWhole({ atom }: AtomDigit): boolean {
  return atom === null;
}
