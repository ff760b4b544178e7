/**
 * @file A bound that no sequence of collectives undercuts, given the bytes that must arrive at each place.
 *
 * At each level of a cluster, a *unit* is one member of it: a device, a node, a rack. Data that a unit needs and none of its
 * ranks holds must come over that level or one further out, whatever else happens inside. So every level gives a bound on the
 * seconds on the wire, and as the levels of a collective work at once, the greatest of them holds.
 *
 *     fetched    bytes that are somewhere: an all-gather brings them at its rate, an all-reduce at half of its own
 *     reduced    bytes of partial sums: a reduce-scatter's, likewise; an all-reduce does as much of both at once
 *
 * A link's seconds for y = bytes / bandwidth are y + y^(1 − p) (fill · steps)^p, a concave function: in parts they take longer.
 * Where data is relayed, a collective over m members takes log2 m steps. In several collectives each has fewer steps and
 * fewer bytes; the least that any division leaves is worked out once per growth (`relayed`).
 */
import { madeOnce } from '../ir/remembered.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize, subAxes } from '../sharding-propagation/mesh.js';
import type { Cluster } from './cluster.js';
import { levelOfAxis } from './group-place.js';
import { busBandwidth, type ClusterLevel, COLLECTIVE_KINDS, type Fill } from './levels.js';

/** Bytes that must reach each unit of a level. */
export interface Arrivals {
  /** Bytes that other units hold. */
  readonly fetched: number;
  /** Bytes of `fetched` by which the data of a unit grows. */
  readonly grown: number;
  /** How often that doubles. */
  readonly growthDoublings: number;
  /** Bytes of partial sums. */
  readonly reduced: number;
  /** How often the addends that are summed double. */
  readonly reduceDoublings: number;
}

/** One level's view of a mesh: the axes at this level or further out distinguish its units. */
export interface UnitBound {
  readonly axes: readonly SubAxis[];
  /** Least seconds on the wire. */
  readonly seconds: (arrivals: Arrivals) => number;
  /** Seconds of one round over this level or one further out. */
  readonly latencySeconds: number;
}

export interface LinkBound {
  /** Devices first. */
  readonly units: readonly UnitBound[];
  /** Least rounds of collectives whose groups are doubled so many times. */
  readonly rounds: (doublings: number) => number;
}

interface LevelRate {
  readonly level: ClusterLevel;
  /** Bytes per second at which collectives other than all-reduces bring data; and at which all-reduces do. */
  readonly rate: number;
  readonly reducingRate: number;
}

export function linkBound({ levels }: Pick<Cluster, 'levels'>, mesh: Mesh): LinkBound {
  const links = levels.map((level): LevelRate => {
    const rates = COLLECTIVE_KINDS.map((kind) => (kind === 'all-reduce' ? 0 : busBandwidth(kind, level, level.size)));
    return { level, rate: Math.max(...rates), reducingRate: busBandwidth('all-reduce', level, level.size) };
  });
  const isDirect = levels.some(({ topology }) => topology === 'mesh');
  const all = subAxes(mesh);
  const placed = all.map(({ name }) => ({ name, level: levelOfAxis(mesh, name, { levels }).level }));
  const units = levels.flatMap((_, number): readonly UnitBound[] => {
    const axes = placed.filter(({ level }) => level >= number).map(({ name }) => name);
    const inside = placed.filter(({ level }) => level < number).map(({ name }) => name);
    const ranks = levels.slice(0, number).reduce((product, { size }) => product * size, 1);
    // Where axes straddle units, the data in a unit has no layout.
    if (number > 0 && (axes.length === 0 || axesSize(mesh, inside) !== ranks)) return [];
    const outer = links.slice(number);
    const isBinary =
      all.every(({ size }) => size === 2) && levels.every(({ size }) => Number.isInteger(Math.log2(size)));
    return [
      {
        axes,
        seconds: unitSeconds(ranks, outer, isBinary),
        latencySeconds: Math.min(...outer.map(({ level }) => level.latencySeconds)),
      },
    ];
  });
  return { units, rounds: (doublings) => (isDirect ? Math.min(1, doublings) : doublings) };
}

/** Seconds for bytes that arrive at units of so many ranks over the links around them. */
function unitSeconds(ranks: number, links: readonly LevelRate[], isBinary: boolean): UnitBound['seconds'] {
  const [only] = links.length === 1 ? links : [];
  // Over several levels a collective's steps may be another level's.
  const relays = only?.level.relayed === true && isBinary;
  const steps = new Map<number, number>();
  const relayed = (doublings: number, power: number): number =>
    madeOnce(steps, doublings, () => relayedSteps(doublings, power));
  return ({ fetched, grown, growthDoublings, reduced, reduceDoublings }) => {
    let least = Infinity;
    let inside = ranks;
    for (const { level, rate, reducingRate } of links) {
      const paired = Math.min(fetched, reduced);
      const seconds =
        ((2 * paired) / Math.max(reducingRate, rate) +
          (Math.max(fetched, reduced) - paired) / Math.max(rate, reducingRate / 2)) /
        inside;
      const { power } = level.fill;
      const growth = Math.min(grown, fetched);
      const factor = relays
        ? (growth * relayed(growthDoublings, power) + (fetched - growth) + reduced * relayed(reduceDoublings, power)) /
          (fetched + reduced)
        : 1;
      least = Math.min(least, filled(seconds, level.fill, factor));
      inside *= level.size;
    }
    return least;
  };
}

function filled(seconds: number, fill: Fill, factor: number): number {
  return seconds === 0 ? 0 : seconds + seconds ** (1 - fill.power) * fill.seconds ** fill.power * factor;
}

/**
 * Least Σ share^(1 − p) · steps^p over all ways to double something so many times in several collectives: the one that
 * doubles it from 2^a to 2^b times takes b − a steps and brings (2^b − 2^a) / (2^doublings − 1) of all.
 */
function relayedSteps(doublings: number, power: number): number {
  const least = [0];
  for (let end = 1; end <= doublings; end++) {
    least[end] = Math.min(
      ...Array.from(least.slice(0, end), (before, start) => {
        const share = (2 ** end - 2 ** start) / (2 ** doublings - 1);
        return before + share ** (1 - power) * (end - start) ** power;
      }),
    );
  }
  return Math.max(1, least[doublings] ?? 1);
}
