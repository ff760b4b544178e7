/**
 * @file The devices that a plan is for: `2x8:h100-sxm-80` is two nodes of eight; without a name, ranks on this machine.
 */
import { availableParallelism } from 'node:os';
import { AutoparError } from '../ir/error.js';
import type { CodeOf } from '../ir/error-codes.js';
import { AXIS_ORDER, MOST_DEVICES } from '../sharding-propagation/mesh.js';
import type { ClusterDescription } from './cluster-schema.js';
import { CPU_RANK, type DeviceSpec } from './device.js';
import { findDevice, offerDevices } from './find-device.js';
import { type ClusterLevel, deviceLevels } from './levels.js';
import type { LayerFactors } from './measured-layers/layer-factors.js';

export interface Cluster {
  readonly nodes: number;
  readonly perNode: number;
  readonly device: DeviceSpec;
  /** The links, innermost first; their sizes multiply to the devices. */
  readonly levels: readonly ClusterLevel[];
  /** Ranks of this machine: no memory limit applies, since all share one memory that autopar does not own. */
  readonly local: boolean;
  /** Where nodes differ: their kinds, in the order of the nodes. `device` is then the slowest of each figure. */
  readonly kinds?: readonly NodeKind[];
  /** Correction factors from measured layers (docs/clusters.md): seconds of a layer are so many times the predicted ones. */
  readonly layerFactors?: LayerFactors;
  /** The description that the cluster is read from, where it is not an `NxM:ID`. */
  readonly description?: ClusterDescription;
}

/** Consecutive nodes of one kind. */
export interface NodeKind {
  readonly nodes: number;
  readonly device: DeviceSpec;
}

/** Other inputs that decide how many local ranks there are when nothing names a number. */
export interface ClusterHints {
  /** Pinned degrees: `--dp 2 --tp 2` alone means four ranks. */
  readonly degrees?: { readonly [Axis in (typeof AXIS_ORDER)[number]]?: number | undefined };
  /** Cores of this machine; read from the system when left out. */
  readonly cores?: number;
  /** The cluster in the file that `--cluster` names. */
  readonly file?: Cluster;
  /** Ranks of this machine as they were measured (`autopar profile`). */
  readonly local?: (ranks: number) => Cluster;
}

/**
 * Reads `--cluster` and `--devices`.
 * @param text `NxM:ID` (N nodes of M devices), `M:ID` or `ID` (one node), `local`, or nothing for `local`; anything where
 * `hints` have the cluster of a file
 * @param devices `--devices`; must be N·M where both are given
 * @throws AutoparError (usage) for a text of another form, an unknown device, or numbers that contradict each other
 */
export function parseCluster(text: string | undefined, devices: number | undefined, hints: ClusterHints = {}): Cluster {
  if (devices !== undefined && !(Number.isInteger(devices) && devices >= 1)) {
    throw usage(
      'bad-devices',
      `--devices ${devices} is not a positive whole number`,
      'give a number such as --devices 4',
    );
  }
  if (text === undefined || text === 'local' || hints.local) {
    const perNode = devices ?? localRanks(hints);
    checkSize(perNode);
    if (hints.local) return hints.local(perNode);
    return { nodes: 1, perNode, device: CPU_RANK, levels: deviceLevels(CPU_RANK, 1, perNode), local: true };
  }
  if (hints.file) return checkDevices(hints.file, text, devices);
  const match = /^(?:(?:(\d+)x)?(\d+):)?([\w.-]+)$/.exec(text);
  if (!match) {
    throw usage(
      'bad-cluster',
      `cluster "${text}" is not of the form NxM:ID`,
      'for example --cluster 2x8:h100-sxm-80; a cluster file ends in .yaml, .yml or .json',
    );
  }
  if (/^\d*(x\d*)?$/.test(match[3] ?? '')) {
    throw usage('bad-cluster', `cluster "${text}" names no device`, 'for example --cluster 2x8:h100-sxm-80');
  }
  const nodes = Number(match[1] ?? 1);
  const perNode = Number(match[2] ?? devices ?? 1);
  const device = deviceOf(match[3] ?? '');
  if (nodes < 1 || perNode < 1) {
    throw usage('bad-cluster', `cluster "${text}" has no devices`, 'give at least one node of one device: 1x1:ID');
  }
  checkSize(nodes * perNode);
  const cluster = {
    nodes,
    perNode,
    device,
    levels: deviceLevels(device, nodes, perNode),
    local: device.id === CPU_RANK.id,
  };
  return checkDevices(cluster, text, devices);
}

function checkDevices(cluster: Cluster, text: string, devices: number | undefined): Cluster {
  if (devices === undefined || devices === clusterSize(cluster)) return cluster;
  throw usage(
    'devices-do-not-match',
    `--devices ${devices} contradicts --cluster ${text}, which has ${clusterSize(cluster)} devices`,
    'give one of the two',
  );
}

/** @throws AutoparError (usage) `bad-devices` for more devices than there can be. */
function checkSize(devices: number): void {
  if (devices <= MOST_DEVICES) return;
  throw usage(
    'bad-devices',
    `${devices} devices are more than the ${MOST_DEVICES} that autopar plans for`,
    'check --devices, --cluster and the degrees',
  );
}

/** Number of devices of a cluster. */
export function clusterSize(cluster: Cluster): number {
  return cluster.nodes * cluster.perNode;
}

/** The catalogue's record of an id; a typo is answered with the nearest ones. */
export function deviceOf(id: string): DeviceSpec {
  const found = findDevice(id);
  if (found) return found;
  throw usage('unknown-device', `no device "${id}" in the catalogue`, offerDevices(id));
}

/** One rank per core, two at least, eight at most; with pinned degrees, the largest multiple of them within that. */
function localRanks(hints: ClusterHints): number {
  const usual = Math.min(8, Math.max(2, hints.cores ?? availableParallelism()));
  const { degrees = {} } = hints;
  const { dp, tp } = degrees;
  const pinned = AXIS_ORDER.reduce((product, axis) => product * validDegree(degrees[axis]), 1);
  if (dp !== undefined && tp !== undefined) return pinned;
  return pinned * Math.max(1, Math.floor(usual / pinned));
}

/** A degree that is not a positive integer counts as one here: the planner reports it. */
function validDegree(degree: number | undefined): number {
  return degree !== undefined && Number.isInteger(degree) && degree > 0 ? degree : 1;
}

function usage(code: CodeOf<'usage'>, message: string, hint: string): AutoparError {
  return new AutoparError(code, 'usage', message, {}, hint);
}
