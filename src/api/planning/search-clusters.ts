/**
 * @file searchClusters: chooses the part of a cluster with the cheapest step in device-seconds, or with the fewest devices that
 * make a step in time. Each size is searched as a cluster of its own, on works that are read once.
 */
import { generatedModel } from '../../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../../cost-model/cluster.js';
import { type ClusterPart, clusterParts, powersTo } from '../../cost-model/cluster-parts.js';
import { AutoparError, badOption } from '../../ir/error.js';
import { Deadline } from '../../solver/deadline.js';
import { clusterSources } from '../requests/cluster-sources.js';
import type { Purpose } from './graph-work.js';
import {
  batchOf,
  prepareStep,
  type StepSearch,
  type StepSearchOptions,
  searchPrepared,
  searchStep,
} from './search-step.js';
import { evenShare, workReader } from './step-works.js';

export interface ClusterSearchOptions extends Omit<StepSearchOptions, 'objective'> {
  /** `cost`: device-seconds per step. `devices`: the fewest whose step takes `within` seconds at most. */
  readonly objective: 'cost' | 'devices';
  readonly within?: number;
}

/** The best step on one part of the cluster; seconds are null where nothing fits or no degrees are possible. */
export interface ClusterSize {
  readonly nodes: number;
  readonly perNode: number;
  /** The number of the first node in the whole cluster, from 0 on; where its nodes differ. */
  readonly firstNode?: number;
  readonly stepSeconds: number | null;
  readonly deviceSeconds: number | null;
}

export interface ClusterSearch extends StepSearch {
  /** All sizes that were searched, small ones first. */
  readonly sizes: readonly ClusterSize[];
}

/**
 * @throws AutoparError (usage) `bad-option` without the time that `devices` needs; (noPlan) `nothing-fits` where no size has a
 * plan, `not-in-time` where none is fast enough, `out-of-time` where none was found to be before the time limit
 */
export async function searchClusters(options: ClusterSearchOptions): Promise<ClusterSearch> {
  const { objective, within = 0, timeLimit } = options;
  if (objective === 'devices' && options.within === undefined)
    throw badOption('--objective devices needs a step time', 'give the maximum seconds per step: --within 2.5');
  const sources = await clusterSources(options.cluster);
  const whole = options.on ?? parseCluster(options.cluster, options.devices, sources);
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const purpose: Purpose = options.loss ? { kind: 'training', loss: options.loss } : { kind: 'inference' };
  const deadline = options.deadline ?? (timeLimit === undefined ? undefined : new Deadline(timeLimit));
  const timed = deadline ? { ...options, deadline } : options;
  const share = evenShare(await batchOf(options, generated), whole);
  const read = workReader(options, generated, purpose, whole, share);
  const found: SearchedPart[] = [];
  const planned = () => found.flatMap(({ search }) => (search ? [search] : []));
  const isInTime = (search: StepSearch) => search.simulation.stepSeconds <= within;
  const isMissed = () => planned().length > 0 && deadline?.isOver() === true;
  const parts = partsOf(whole, (ranks) => parseCluster(options.cluster, ranks, sources));
  for (const [index, part] of parts.entries()) {
    options.signal?.throwIfAborted();
    const { nodes, perNode } = part.cluster;
    if (objective === 'devices' && isEnough(found, part, isInTime)) break;
    if (isMissed()) break;
    options.onProgress?.(`searching subset ${index + 1} of ${parts.length}: ${nodes}x${perNode}`);
    const search = await onPart({ ...timed, objective: 'time', on: part.cluster }, read);
    found.push({ part, search });
  }
  const isCutOff = deadline?.isOver() === true || planned().some((search) => search.isCutOff);
  const sizes = found.map((one) => sizeOf(one, whole));
  if (planned().length === 0) return { ...(await searchStep({ ...timed, objective: 'time' })), sizes };
  const best = planned().reduce((known, one) => (isBetter(one, known, options) ? one : known));
  if (objective === 'devices' && !isInTime(best)) throw notInTime(best, within, isCutOff);
  // A size that was not searched to the end may be the better one, by an unknown amount.
  return { ...best, sizes, isCutOff, ...(isCutOff ? { bound: 0, gap: 1 } : {}) };
}

interface SearchedPart {
  readonly part: ClusterPart;
  readonly search: StepSearch | null;
}

/** Whether a smaller part makes the step in time; among parts with equally many devices the fastest is searched for. */
function isEnough(
  found: readonly SearchedPart[],
  part: ClusterPart,
  isInTime: (search: StepSearch) => boolean,
): boolean {
  const devices = clusterSize(part.cluster);
  return found.some(({ search }) => search && isInTime(search) && clusterSize(search.simulation.cluster) < devices);
}

/** By device-seconds; or by devices where both are in time, then by seconds. */
function isBetter(one: StepSearch, known: StepSearch, { objective, within = 0 }: ClusterSearchOptions): boolean {
  const seconds = ({ simulation }: StepSearch) => simulation.stepSeconds;
  const devices = ({ simulation }: StepSearch) => clusterSize(simulation.cluster);
  if (objective === 'cost') return seconds(one) * devices(one) < seconds(known) * devices(known);
  const inTime = [one, known].map((search) => seconds(search) <= within);
  if (inTime[0] !== inTime[1]) return inTime[0] === true;
  return inTime[0] && devices(one) !== devices(known) ? devices(one) < devices(known) : seconds(one) < seconds(known);
}

/** The parts of a cluster; on this machine also fewer ranks are measured ranks. */
function partsOf(whole: Cluster, ofRanks: (ranks: number) => Cluster): readonly ClusterPart[] {
  if (!whole.local || !whole.description) return clusterParts(whole);
  return powersTo(clusterSize(whole)).map((ranks) => ({ cluster: ofRanks(ranks), firstNode: 0 }));
}

/** Errors that concern only one size. */
const OF_THIS_SIZE: ReadonlySet<string> = new Set([
  'nothing-fits',
  'no-combination',
  'degrees-do-not-match-devices',
  'out-of-time',
]);

async function onPart(options: StepSearchOptions, read: ReturnType<typeof workReader>): Promise<StepSearch | null> {
  try {
    return await searchPrepared(await prepareStep(options, read));
  } catch (error) {
    if (error instanceof AutoparError && OF_THIS_SIZE.has(error.code)) return null;
    throw error;
  }
}

function sizeOf({ part, search }: SearchedPart, { kinds }: Cluster): ClusterSize {
  const { nodes, perNode } = part.cluster;
  const stepSeconds = search?.simulation.stepSeconds ?? null;
  return {
    ...{ nodes, perNode },
    ...(kinds ? { firstNode: part.firstNode } : {}),
    stepSeconds,
    deviceSeconds: stepSeconds === null ? null : stepSeconds * nodes * perNode,
  };
}

/** @param isCutOff whether a time limit left parts out */
function notInTime(
  { simulation: { stepSeconds, cluster } }: StepSearch,
  within: number,
  isCutOff: boolean,
): AutoparError {
  const fastest = `the fastest takes ${stepSeconds.toPrecision(3)} s, on ${cluster.nodes}x${cluster.perNode}`;
  return isCutOff
    ? new AutoparError(
        'out-of-time',
        'noPlan',
        `the time limit ended before a device subset with a step within ${within} s was found: ${fastest}`,
        {},
        'give more seconds (--time-limit), or fewer choices (--pp, --micro-batch, ...)',
      )
    : new AutoparError(
        'not-in-time',
        'noPlan',
        `no device subset takes at most ${within} s per step: ${fastest}`,
        {},
        'take a larger cluster, faster devices, or a smaller --global-batch',
      );
}
