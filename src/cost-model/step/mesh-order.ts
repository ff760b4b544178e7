/**
 * @file Placement of the groups of each axis on a cluster, for any order of the mesh's axes. Ranks are numbered with the last
 * axis fastest, devices of a node consecutively: on nodes of eight, pp 4 · dp 2 · tp 2 has pairs of tp beside each other, dp
 * over ranks 2 apart, and pp over ranks 4 apart, of which every second step leaves the node.
 */
import { madeOnce } from '../../ir/remembered.js';
import { AXIS_ORDER, STAGE_AXIS } from '../../sharding-propagation/mesh.js';
import type { Cluster } from '../cluster.js';
import {
  evenPlace,
  type GroupPlace,
  type GroupRuns,
  greatestCommonDivisor,
  groupPlace,
  joined,
  type RankRun,
} from '../group-place.js';
import type { Degrees, MeshOrder } from './configuration.js';

/** Groups that communicate: `dp` are the ranks that share a gradient (dp · sp), `replicas` those that share one of an expert. */
export type GroupName = 'tp' | 'sp' | 'ep' | 'dp' | 'replicas' | 'pp';

/** The groups of each kind; ep is on the inner ranks of sp, then on those of dp. */
export function groupRuns(degrees: Degrees, order: MeshOrder = AXIS_ORDER): GroupRunsByName {
  const known = madeOnce(KNOWN_RUNS, degrees, () => new WeakMap<MeshOrder, GroupRunsByName>());
  return madeOnce(known, order, () => runsOf(degrees, order));
}

type GroupRunsByName = Readonly<Record<GroupName, GroupRuns>>;

/** A search uses the same few of the same records, for each of its configurations. */
const KNOWN_RUNS = new WeakMap<Degrees, WeakMap<MeshOrder, GroupRunsByName>>();

function runsOf(degrees: Degrees, order: MeshOrder): GroupRunsByName {
  const { dp, sp, ep } = degrees;
  const strides = new Map<string, number>();
  let stride = 1;
  for (const axis of [...order].reverse()) {
    strides.set(axis, stride);
    stride *= degrees[axis];
  }
  const run = (axis: MeshOrder[number], ranks: number = degrees[axis], inner = 1): RankRun => ({
    stride: (strides.get(axis) ?? 1) * inner,
    ranks,
  });
  const onSp = greatestCommonDivisor(ep, sp);
  const onDp = greatestCommonDivisor(ep / onSp, dp);
  const group = (...runs: readonly RankRun[]): GroupRuns => ({ runs: joined(runs), devices: stride });
  return {
    tp: group(run('tp')),
    sp: group(run('sp')),
    ep: group(run('sp', onSp), run('dp', onDp)),
    dp: group(run('sp'), run('dp')),
    replicas: group(run('sp', sp / onSp, onSp), run('dp', dp / onDp, onDp)),
    pp: group(run('pp')),
  };
}

/** Ranks from one stage to the next. */
export function stageStride(degrees: Degrees, order: MeshOrder = AXIS_ORDER): number {
  return order.slice(order.indexOf(STAGE_AXIS) + 1).reduce((product, axis) => product * degrees[axis], 1);
}

/** The place of a pipeline's sends: the outermost level that the send between any two neighbouring stages crosses. */
export function hopOf(runs: GroupRuns, { levels }: Pick<Cluster, 'levels'>): GroupPlace {
  const outermost = groupPlace(runs, levels).members.findLastIndex((members) => members > 1);
  return evenPlace(levels.map((_, index) => (index === Math.max(0, outermost) ? 2 : 1)));
}
