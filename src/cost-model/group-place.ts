/**
 * @file Placement of the groups of a collective on a cluster. Ranks are numbered consecutively in a node, nodes in a rack. Where
 * a group's size divides the nodes, all groups of an axis are placed alike. Where it does not, some straddle nodes and some do
 * not, and the slowest counts, since the next operation waits for all of them:
 *
 *     tp 6 on nodes of 8     0–5 in one node, 6–11 two devices in one and four in the next
 */
import { madeOnce } from '../ir/remembered.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { deviceCount, rankStrides, subAxisSize } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import type { ClusterLevel } from './levels.js';

/** The placement of a group. Made by `evenPlace` and `groupPlace`. */
export interface GroupPlace {
  readonly ranks: number;
  /** At each level of the cluster, innermost first: the most members in one unit of it (a node, a rack). */
  readonly members: readonly number[];
  /** At each level: the fewest of its ranks inside one member, over whose cards it sends side by side. */
  readonly cards: readonly number[];
  /** Other placements of groups over the same axes; this one reaches furthest. */
  readonly others: readonly GroupPlace[];
  /** Equal for equal places. */
  readonly key: string;
}

/** `ranks` members, each `stride` ranks from the next. */
export interface RankRun {
  readonly stride: number;
  readonly ranks: number;
}

/** A group as runs of runs, innermost first, none of which continues another; the other groups of its kind are beside it. */
export interface GroupRuns {
  readonly runs: readonly RankRun[];
  /** Ranks of all groups together. */
  readonly devices: number;
}

/** The place of a group with so many members at each level, innermost first, in units that are all alike. */
export function evenPlace(members: readonly number[]): GroupPlace {
  let ranks = 1;
  const cards = members.map((count) => {
    const inside = ranks;
    ranks *= count;
    return inside;
  });
  return place(ranks, members, cards);
}

/** Where the groups over `axes` are. */
export function placeGroup(mesh: Mesh, axes: readonly SubAxis[], { levels }: Pick<Cluster, 'levels'>): GroupPlace {
  const runs = [...rankStrides(mesh)].flatMap(([name, stride]): readonly RankRun[] =>
    axes.includes(name) ? [{ stride, ranks: subAxisSize(mesh, name) }] : [],
  );
  return groupPlace({ runs: joined(runs), devices: deviceCount(mesh) }, levels);
}

/**
 * The innermost level whose units no group over a sub-axis straddles; `isEven` is false where that is the outermost level
 * because the sub-axis straddles units of all others.
 */
export function levelOfAxis(
  mesh: Mesh,
  axis: SubAxis,
  { levels }: Pick<Cluster, 'levels'>,
): { readonly level: number; readonly isEven: boolean } {
  const run: RankRun = { stride: rankStrides(mesh).get(axis) ?? 1, ranks: subAxisSize(mesh, axis) };
  const level = unitSizes(levels).findIndex((unit) => unit % (run.stride * run.ranks) === 0);
  return { level: level === -1 ? levels.length - 1 : level, isEven: isEven([run], levels) };
}

/** A search uses the same few places again and again. */
const KNOWN = new WeakMap<readonly ClusterLevel[], Map<string, GroupPlace>>();

/** The placement of groups whose members are so many ranks apart. */
export function groupPlace({ runs, devices }: GroupRuns, levels: readonly ClusterLevel[]): GroupPlace {
  const known = madeOnce(KNOWN, levels, () => new Map<string, GroupPlace>());
  const even = isEven(runs, levels);
  const key = runs.map(({ stride, ranks }) => `${stride} ${ranks}`).join() + (even ? '' : ` of ${devices}`);
  return madeOnce(known, key, () => (even ? evenRuns(runs, levels) : unevenRuns(runs, devices, levels)));
}

/** Runs that follow on one another are one; runs of one rank are none. */
export function joined(runs: readonly RankRun[]): readonly RankRun[] {
  const result: RankRun[] = [];
  for (const run of runs.filter(({ ranks }) => ranks > 1).sort((a, b) => a.stride - b.stride)) {
    const before = result.at(-1);
    if (before && before.stride * before.ranks === run.stride)
      result[result.length - 1] = { stride: before.stride, ranks: before.ranks * run.ranks };
    else result.push(run);
  }
  return result;
}

/** Devices in a unit of each level. */
function unitSizes(levels: readonly ClusterLevel[]): readonly number[] {
  let unit = 1;
  return levels.map(({ size }) => {
    unit *= size;
    return unit;
  });
}

/** Whether every unit holds as much of each run as any other that holds some of it: then all groups are placed alike. */
function isEven(runs: readonly RankRun[], levels: readonly ClusterLevel[]): boolean {
  return unitSizes(levels)
    .slice(0, -1)
    .every((unit) =>
      runs.every(({ stride, ranks }) => {
        const reach = stride * ranks;
        return unit % reach === 0 || stride % unit === 0 || (unit % stride === 0 && reach % unit === 0);
      }),
    );
}

function evenRuns(runs: readonly RankRun[], levels: readonly ClusterLevel[]): GroupPlace {
  let placed = 1;
  const units = unitSizes(levels);
  return evenPlace(
    units.map((unit, index) => {
      const inside = runs.reduce((product, { stride, ranks }) => {
        const room = index === units.length - 1 ? ranks : Math.max(1, Math.min(ranks, unit / stride));
        return product * room;
      }, 1);
      const members = inside / placed;
      placed = inside;
      return members;
    }),
  );
}

/** Every distinct group, written out: placements in units repeat where both a unit and a run of groups begin. */
function unevenRuns(runs: readonly RankRun[], devices: number, levels: readonly ClusterLevel[]): GroupPlace {
  const reach = Math.max(...runs.map(({ stride, ranks }) => stride * ranks));
  const unit = unitSizes(levels).at(-2) ?? 1;
  const bases = Math.min(devices, (reach / greatestCommonDivisor(reach, unit)) * unit);
  const places = new Map<string, GroupPlace>();
  for (let base = 0; base < bases; base++) {
    if (runs.some(({ stride, ranks }) => Math.floor(base / stride) % ranks !== 0)) continue;
    const own = writtenOut(runs, base, levels);
    places.set(own.key, own);
  }
  const [first, ...others] = [...places.values()].sort(furthestFirst);
  if (!first) throw new Error('a group without ranks');
  return { ...first, others, key: [...places.keys()].sort().join(';') };
}

function writtenOut(runs: readonly RankRun[], base: number, levels: readonly ClusterLevel[]): GroupPlace {
  const group = runs.reduce<readonly number[]>(
    (ranks, run) => ranks.flatMap((rank) => Array.from({ length: run.ranks }, (_, index) => rank + index * run.stride)),
    [base],
  );
  // Ranks of the group in each member of a level, by the member's number.
  let inside = new Map(group.map((rank) => [rank, 1]));
  const members: number[] = [];
  const cards: number[] = [];
  for (const { size } of levels) {
    const units = new Map<number, { members: number; ranks: number }>();
    for (const [member, ranks] of inside) {
      const unit = units.get(Math.floor(member / size)) ?? { members: 0, ranks: 0 };
      units.set(Math.floor(member / size), { members: unit.members + 1, ranks: unit.ranks + ranks });
    }
    members.push(Math.max(...[...units.values()].map((unit) => unit.members)));
    cards.push(Math.min(...inside.values()));
    inside = new Map([...units].map(([number, { ranks }]) => [number, ranks]));
  }
  return place(group.length, members, cards);
}

/** More units of the outermost level first; then fewer cards to reach them. */
function furthestFirst(one: GroupPlace, other: GroupPlace): number {
  for (let level = one.members.length - 1; level >= 0; level--) {
    const more = (other.members[level] ?? 1) - (one.members[level] ?? 1);
    const fewer = (one.cards[level] ?? 1) - (other.cards[level] ?? 1);
    if (more !== 0 || fewer !== 0) return more || fewer;
  }
  return 0;
}

function place(ranks: number, members: readonly number[], cards: readonly number[]): GroupPlace {
  return { ranks, members, cards, others: [], key: `${ranks}:${members}:${cards}` };
}

export function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
