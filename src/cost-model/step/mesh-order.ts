/**
 * @file Where the groups of each axis lie on a cluster, for any order of the mesh's axes. Ranks are numbered with the last axis
 * fastest, devices of a node consecutively: on nodes of eight, pp 4 · dp 2 · tp 2 has pairs of tp beside each other, dp over
 * ranks 2 apart, and pp over ranks 4 apart, of which every second step leaves the node.
 */
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import type { Cluster } from '../cluster.js';
import { type GroupPlace, placeRanks } from '../collective-price.js';
import type { Level } from '../levels.js';
import type { Degrees, MeshOrder } from './configuration.js';

/** What communicates: `dp` are the ranks that share a gradient (dp · sp), `replicas` those that share one of an expert. */
export type GroupName = 'tp' | 'sp' | 'ep' | 'dp' | 'replicas' | 'pp';

/** `ranks` members, each `stride` ranks from the next. */
export interface Run {
  readonly stride: number;
  readonly ranks: number;
}

/** A group as runs of runs, innermost first. */
export type GroupRuns = readonly Run[];

/** The groups of each kind; ep lies on the inner ranks of sp, then on those of dp. */
export function groupRuns(degrees: Degrees, order: MeshOrder = AXIS_ORDER): Groups {
  const known = KNOWN_RUNS.get(degrees) ?? new WeakMap<MeshOrder, Groups>();
  KNOWN_RUNS.set(degrees, known);
  const found = known.get(order) ?? runsOf(degrees, order);
  known.set(order, found);
  return found;
}

type Groups = Readonly<Record<GroupName, GroupRuns>>;

/** A search asks for the same few of the same records, for each of its configurations. */
const KNOWN_RUNS = new WeakMap<Degrees, WeakMap<MeshOrder, Groups>>();
const KNOWN_PLACES = new WeakMap<GroupRuns, WeakMap<readonly Level[], GroupPlace>>();

function runsOf(degrees: Degrees, order: MeshOrder): Groups {
  const { dp, sp, ep } = degrees;
  const strides = new Map<string, number>();
  let stride = 1;
  for (const axis of [...order].reverse()) {
    strides.set(axis, stride);
    stride *= degrees[axis];
  }
  const run = (axis: MeshOrder[number], ranks: number = degrees[axis], inner = 1): Run => ({
    stride: (strides.get(axis) ?? 1) * inner,
    ranks,
  });
  const onSp = greatestCommonDivisor(ep, sp);
  const onDp = greatestCommonDivisor(ep / onSp, dp);
  return {
    tp: joined([run('tp')]),
    sp: joined([run('sp')]),
    ep: joined([run('sp', onSp), run('dp', onDp)]),
    dp: joined([run('sp'), run('dp')]),
    replicas: joined([run('sp', sp / onSp, onSp), run('dp', dp / onDp, onDp)]),
    pp: joined([run('pp')]),
  };
}

/** Ranks from one stage to the next. */
export function stageStride(degrees: Degrees, order: MeshOrder = AXIS_ORDER): number {
  return order.slice(order.indexOf('pp') + 1).reduce((product, axis) => product * degrees[axis], 1);
}

/** What a pipeline's sends cross: the outermost level over which any stage's neighbour lies. */
export function hopOf(runs: GroupRuns, { levels }: Pick<Cluster, 'levels'>): GroupPlace {
  const outermost = membersAt(runs, levels).findLastIndex((members) => members > 1);
  return levels.map((_, index) => (index === Math.max(0, outermost) ? 2 : 1));
}

/** A group's members at each level of a cluster, innermost first. */
export function membersAt(runs: GroupRuns, levels: readonly Level[]): GroupPlace {
  const known = KNOWN_PLACES.get(runs) ?? new WeakMap<readonly Level[], GroupPlace>();
  KNOWN_PLACES.set(runs, known);
  const found = known.get(levels) ?? placeOf(runs, levels);
  known.set(levels, found);
  return found;
}

function placeOf(runs: GroupRuns, levels: readonly Level[]): GroupPlace {
  return runs
    .map(({ ranks, stride }) => placeRanks(ranks, stride, { levels }))
    .reduce<GroupPlace>(
      (all, next) => all.map((members, level) => members * (next[level] ?? 1)),
      levels.map(() => 1),
    );
}

/** Runs that follow on one another are one; runs of one rank are none. */
function joined(runs: readonly Run[]): GroupRuns {
  const result: Run[] = [];
  for (const run of runs.filter(({ ranks }) => ranks > 1).sort((a, b) => a.stride - b.stride)) {
    const before = result.at(-1);
    if (before && before.stride * before.ranks === run.stride)
      result[result.length - 1] = { stride: before.stride, ranks: before.ranks * run.ranks };
    else result.push(run);
  }
  return result;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
