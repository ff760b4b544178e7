/**
 * @file searchClusters: which part of a cluster to take: the cheapest step in device-seconds, or the fewest devices that make a
 * step in time. Each size is searched as a cluster of its own, on works that are read once.
 */
import { generatedModel } from '../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import { divisors } from '../search/configurations/space.js';
import { Deadline } from '../search/deadline.js';
import { clusterSources } from './cluster-sources.js';
import type { Purpose } from './graph-work.js';
import { prepareStep, type StepSearch, type StepSearchOptions, searchPrepared } from './search-step.js';
import { workReader } from './step-works.js';

export interface ClusterSearchOptions extends Omit<StepSearchOptions, 'objective'> {
  /** `cost`: device-seconds per step. `devices`: the fewest whose step takes `within` seconds at most. */
  readonly objective: 'cost' | 'devices';
  readonly within?: number;
}

/** The best step on one part of the cluster; null where nothing fits or no degrees go. */
export interface ClusterSize {
  readonly nodes: number;
  readonly perNode: number;
  readonly stepSeconds: number | null;
  readonly deviceSeconds: number | null;
}

export interface ClusterSearch extends StepSearch {
  /** All sizes that were looked at, small ones first. */
  readonly sizes: readonly ClusterSize[];
}

/**
 * @throws AutoparError (usage) `bad-option` without the time that `devices` wants, `whole-cluster` for a cluster whose parts differ;
 * (noPlan) `nothing-fits` where no size has a plan, `not-in-time` where none is fast enough
 */
export async function searchClusters(options: ClusterSearchOptions): Promise<ClusterSearch> {
  const { objective, within } = options;
  if (objective === 'devices' && within === undefined)
    throw usage(
      'bad-option',
      '--objective devices wants a time',
      'give the seconds that a step may take: --within 2.5',
    );
  const whole = options.on ?? parseCluster(options.cluster, options.devices, await clusterSources(options.cluster));
  if (whole.description)
    throw usage(
      'whole-cluster',
      `--objective ${objective} takes parts of a cluster, and which part of a cluster file is meant is not said`,
      'name a device of the catalogue: --cluster NxM:ID',
    );
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const purpose: Purpose = options.loss ? { kind: 'training', loss: options.loss } : { kind: 'inference' };
  const deadline = options.timeLimit === undefined ? undefined : new Deadline(options.timeLimit);
  const timed = deadline ? { ...options, deadline } : options;
  const read = workReader(options, generated, purpose, whole);
  const found: { readonly cluster: Cluster; readonly search: StepSearch | null }[] = [];
  for (const cluster of partsOf(whole)) {
    options.signal?.throwIfAborted();
    options.onProgress?.(`searching ${cluster.nodes}x${cluster.perNode}`);
    const search = await onPart({ ...timed, objective: 'time', on: cluster }, read);
    found.push({ cluster, search });
    if (search && objective === 'devices' && search.simulation.stepSeconds <= (within ?? 0)) break;
  }
  const sizes = found.map(({ cluster, search }) => sizeOf(cluster, search));
  const planned = found.flatMap(({ search }) => (search ? [search] : []));
  if (planned.length === 0)
    return { ...(await searchPrepared(await prepareStep({ ...timed, objective: 'time' }))), sizes };
  const best = planned.reduce((known, one) => (rank(one, options) < rank(known, options) ? one : known));
  if (objective === 'devices' && best.simulation.stepSeconds > (within ?? 0)) throw notInTime(best, within ?? 0);
  // A size that was not searched to the end may be the better one.
  const isCutOff = deadline?.isOver() === true || planned.some((search) => search.isCutOff);
  return { ...best, sizes, isCutOff };
}

/** What is least wanted first: over time, then devices or device-seconds. */
function rank(
  { simulation: { stepSeconds, cluster } }: StepSearch,
  { objective, within = 0 }: ClusterSearchOptions,
): number {
  if (objective === 'cost') return stepSeconds * clusterSize(cluster);
  return stepSeconds <= within ? clusterSize(cluster) : 1e9 + stepSeconds;
}

/** Parts that one would rent: nodes by powers of two and all of them; of one node, devices by powers of two. */
function partsOf({ nodes, perNode, device }: Cluster): readonly Cluster[] {
  const powers = (count: number) => divisors(2 ** Math.floor(Math.log2(count)));
  const inside = powers(perNode).filter((count) => count < perNode);
  const sizes = [
    ...inside.map((count) => [1, count] as const),
    ...[...new Set([...powers(nodes), nodes])].map((count) => [count, perNode] as const),
  ];
  return sizes.map(([count, each]) => parseCluster(`${count}x${each}:${device.id}`, undefined));
}

/** Errors that say something of one size alone. */
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

function sizeOf({ nodes, perNode }: Cluster, search: StepSearch | null): ClusterSize {
  const stepSeconds = search?.simulation.stepSeconds ?? null;
  return { nodes, perNode, stepSeconds, deviceSeconds: stepSeconds === null ? null : stepSeconds * nodes * perNode };
}

function notInTime({ simulation: { stepSeconds, cluster } }: StepSearch, within: number): AutoparError {
  return new AutoparError(
    'not-in-time',
    'noPlan',
    `no part of the cluster makes a step in ${within} s: the fastest takes ${stepSeconds.toPrecision(3)} s, on ${cluster.nodes}x${cluster.perNode}`,
    {},
    'take a larger cluster, faster devices, or a smaller --global-batch',
  );
}

function usage(code: string, message: string, hint: string): AutoparError {
  return new AutoparError(code, 'usage', message, {}, hint);
}
