/**
 * @file Places of a group compared: on which of two a collective never takes longer, whatever its size.
 */
import type { Cluster } from './cluster.js';
import { type CollectiveKind, SEND_ALL } from './collective-price.js';
import type { GroupPlace } from './group-place.js';
import { busBandwidth, type ClusterLevel, passesOf, roundsOf, STARS, stepsOf } from './levels.js';

/**
 * Whether a collective takes no longer on `place` than on `other`, for any number of bytes: `collectiveSeconds` is a latency and
 * the slowest level's b / B · (1 + (B · s / b)^p), which falls with the bandwidth B and grows with the filling time s for any p
 * up to 1. So it is enough that at most as many bytes pass, that latencies are at most as long, and that each level here has one
 * there that is at most as fast. Sufficient, not necessary: false where it cannot be decided.
 */
export function neverSlower(
  kind: CollectiveKind,
  place: GroupPlace,
  other: GroupPlace,
  cluster: Pick<Cluster, 'levels'>,
): boolean {
  if (place.key === other.key) return true;
  const groups = (all: GroupPlace) => [all, ...all.others];
  return groups(place).every((own) => groups(other).some((their) => isGroupAsFast(kind, own, their, cluster)));
}

function isGroupAsFast(
  kind: CollectiveKind,
  place: GroupPlace,
  other: GroupPlace,
  { levels }: Pick<Cluster, 'levels'>,
): boolean {
  const [own, theirs] = [wayOf(kind, place, levels), wayOf(kind, other, levels)];
  if (own.ranks === 1) return true;
  if (passesOf(kind, own.ranks) > passesOf(kind, theirs.ranks) || own.latencySeconds > theirs.latencySeconds)
    return false;
  return own.wires.every((wire) =>
    theirs.wires.some(
      ({ bandwidth, fillSeconds, power }) =>
        wire.bandwidth >= bandwidth &&
        wire.fillSeconds <= fillSeconds &&
        (wire.fillSeconds === 0 || (wire.power === power && power <= 1)),
    ),
  );
}

interface PlaceWires {
  readonly ranks: number;
  readonly latencySeconds: number;
  readonly wires: readonly { readonly bandwidth: number; readonly fillSeconds: number; readonly power: number }[];
}

/** The terms of `collectiveSeconds`. */
function wayOf(kind: CollectiveKind, place: GroupPlace, levels: readonly ClusterLevel[]): PlaceWires {
  let latencySeconds = 0;
  const wires: { bandwidth: number; fillSeconds: number; power: number }[] = [];
  const isStar = STARS.has(kind);
  const all = passesOf(kind, place.ranks);
  let inside = 1;
  for (const [index, level] of levels.entries()) {
    const members = place.members[index] ?? 1;
    if (members === 1) continue;
    latencySeconds +=
      (kind === 'permute' || isStar ? 1 : (kind === 'all-reduce' ? 2 : 1) * roundsOf(level, members)) *
      level.latencySeconds;
    // As if all bytes of a star crossed the level, over a link that is as much faster.
    const share = isStar ? (inside * (members - 1)) / all : 1;
    inside *= members;
    wires.push({
      bandwidth: (busBandwidth(kind, level, members) * (SEND_ALL.has(kind) ? 1 : (place.cards[index] ?? 1))) / share,
      fillSeconds: level.fill.seconds * stepsOf(level, members),
      power: level.fill.power,
    });
  }
  return { ranks: place.ranks, latencySeconds, wires };
}
