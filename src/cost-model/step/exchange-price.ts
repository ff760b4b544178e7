/**
 * @file Seconds of a step's collectives: over groups that lie inside a node, across nodes, or both (then hierarchically).
 */
import type { Cluster } from '../cluster.js';
import type { CollectiveKind } from '../collective-price.js';
import { type DeviceSpec, profileOf } from '../device.js';
import type { StepConstants } from './constants.js';

/** Members of a group that share a node, and on how many nodes. */
export interface Place {
  readonly inside: number;
  readonly across: number;
}

/** Where a group of `ranks` lies whose members are `stride` ranks apart. */
export function placeOf(ranks: number, stride: number, perNode: number): Place {
  const inside = Math.max(1, Math.min(ranks, Math.floor(perNode / stride)));
  return { inside, across: Math.ceil(ranks / inside) };
}

const PASSES: Readonly<Record<CollectiveKind, number>> = {
  'all-reduce': 2,
  'all-gather': 1,
  'reduce-scatter': 1,
  'all-to-all': 1,
  permute: 1,
  broadcast: 1,
};

/** @param bytes of the whole array for reductions and gathers; of one rank's block for all-to-all, permute and broadcast */
export function exchangeSeconds(
  kind: CollectiveKind,
  bytes: number,
  { inside, across }: Place,
  cluster: Cluster,
  constants: StepConstants,
): number {
  const { device } = cluster;
  const passes = PASSES[kind];
  const level = (ranks: number, share: number, bandwidth: number, round: number): number => {
    if (ranks <= 1) return 0;
    const moved = kind === 'permute' || kind === 'broadcast' ? 1 : (ranks - 1) / ranks;
    const rounds = kind === 'permute' ? 1 : passes * Math.ceil(Math.log2(ranks));
    return rounds * round + (passes * moved * share) / bandwidth;
  };
  return (
    level(inside, bytes, insideBandwidth(device) * constants.busShare, constants.roundSeconds) +
    level(
      across,
      kind === 'all-to-all' ? bytes : bytes / inside,
      device.scaleOut.bandwidth * constants.networkShare,
      constants.roundSecondsAcross,
    )
  );
}

/** Measured bus bandwidth, where there is one. */
function insideBandwidth(device: DeviceSpec): number {
  const measured = device.measuredCollectives?.['allReduceBusbwIntra'];
  return typeof measured === 'number' ? measured : device.scaleUp.bandwidth * profileOf(device).linkCeiling;
}
