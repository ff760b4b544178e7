/**
 * @file The orders of the mesh's axes that are worth trying: one of several orders that place every group alike, and none that
 * another order beats in every group, whatever the group sends.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { CollectiveKind } from '../../cost-model/collective-price.js';
import { evenPlace, type GroupPlace, groupPlace } from '../../cost-model/group-place.js';
import { neverSlower } from '../../cost-model/place-dominance.js';
import type { Degrees, MeshOrder } from '../../cost-model/step/configuration.js';
import { groupRuns, hopOf } from '../../cost-model/step/mesh-order.js';
import { AXIS_ORDER, STAGE_AXIS } from '../../sharding-propagation/mesh.js';

/** The orders to try beside the usual one, in their written form. */
export function meshOrders(degrees: Degrees, cluster: Cluster): readonly MeshOrder[] {
  const known = new Map<string, PlacedGroups>();
  for (const order of ordersOf(degrees, cluster)) {
    const placed = placesOf(order, degrees, cluster);
    const key = Object.values(placed.places)
      .map((place) => place.key)
      .join(' ');
    if (!known.has(key)) known.set(key, placed);
  }
  const all = [...known.values()];
  return all
    .filter((one, index) => !all.some((other, at) => at !== index && beats(other, one, at < index, cluster)))
    .flatMap(({ order }) => (order === AXIS_ORDER ? [] : [order]));
}

/**
 * Orders of the axes that have ranks, the others outermost. Where nodes differ, stages must follow one another over the nodes:
 * pp stays outermost.
 */
function ordersOf(degrees: Degrees, cluster: Cluster): readonly MeshOrder[] {
  const used = AXIS_ORDER.filter((axis) => degrees[axis] > 1);
  const idle = AXIS_ORDER.filter((axis) => degrees[axis] === 1);
  const usual = [AXIS_ORDER, ...permutations(used).map((order) => [...idle, ...order])];
  return cluster.kinds && degrees.pp > 1
    ? usual.filter((order) => order.find((axis) => degrees[axis] > 1) === STAGE_AXIS)
    : usual;
}

function permutations(axes: MeshOrder): readonly MeshOrder[] {
  if (axes.length < 2) return [axes];
  return axes.flatMap((axis) => permutations(axes.filter((other) => other !== axis)).map((rest) => [axis, ...rest]));
}

type OrderedGroups = Readonly<Record<'tp' | 'sp' | 'ep' | 'dp' | 'replicas' | 'pp', GroupPlace>>;

interface PlacedGroups {
  readonly order: MeshOrder;
  readonly places: OrderedGroups;
}

function placesOf(order: MeshOrder, degrees: Degrees, cluster: Cluster): PlacedGroups {
  const runs = groupRuns(degrees, order);
  const at = (group: keyof OrderedGroups) => groupPlace(runs[group], cluster.levels);
  const places = { tp: at('tp'), sp: at('sp'), ep: at('ep'), dp: at('dp'), replicas: at('replicas') };
  return { order, places: { ...places, pp: degrees.pp === 1 ? at('pp') : hopOf(runs.pp, cluster) } };
}

/** The collectives of each group. */
const SENT: Readonly<Record<keyof OrderedGroups, readonly CollectiveKind[]>> = {
  tp: ['all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all'],
  sp: ['all-gather'],
  ep: [],
  dp: ['all-reduce', 'all-gather', 'reduce-scatter'],
  replicas: ['all-reduce', 'all-gather', 'reduce-scatter'],
  pp: ['permute'],
};

const GROUPS = Object.keys(SENT) as (keyof OrderedGroups)[];

/** Whether nothing takes longer under `one` than under `other`; of two that beat each other, only the earlier one does. */
function beats(one: PlacedGroups, other: PlacedGroups, isEarlier: boolean, cluster: Cluster): boolean {
  const isEverywhere = (a: PlacedGroups, b: PlacedGroups) =>
    GROUPS.every((group) => isAsFast(group, a.places, b.places, cluster)) &&
    tokensNeverSlower(a.places.ep, b.places.ep, cluster);
  return isEverywhere(one, other) && (isEarlier || !isEverywhere(other, one));
}

/** Whether nothing that a group sends takes longer in the first places than in the second. */
function isAsFast(group: keyof OrderedGroups, one: OrderedGroups, other: OrderedGroups, cluster: Cluster): boolean {
  return SENT[group].every((kind) => neverSlower(kind, one[group], other[group], cluster));
}

/** Tokens dispatched to experts: within nodes, and between nodes once for all experts of a node. */
function tokensNeverSlower(one: GroupPlace, other: GroupPlace, cluster: Cluster): boolean {
  const within = cluster.perNode === 1 ? 0 : 1;
  const nodes = ({ members: all }: GroupPlace) => all.slice(within).reduce((product, members) => product * members, 1);
  const part = ({ members: all }: GroupPlace, isInside: boolean) =>
    evenPlace(all.map((members, level) => (level < within === isInside ? members : 1)));
  return (
    nodes(one) <= nodes(other) &&
    [true, false].every((side) => neverSlower('all-to-all', part(one, side), part(other, side), cluster))
  );
}
