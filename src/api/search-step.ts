/**
 * @file searchStep: the fastest way to train a model on a cluster, over every dimension that a step can be priced in: pp · dp · sp
 * · tp, ep, micro-batches, schedules, ZeRO, recomputation. Nothing is lowered; it is what `compile --plan-only` chooses from.
 */
import { type GeneratedModel, generatedModel } from '../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../cost-model/cluster.js';
import { modelFlops } from '../cost-model/step/model-flops.js';
import type { ModelWork } from '../cost-model/step/work.js';
import { bestConfigurations, type Found, type Verdict } from '../search/configurations/best-configurations.js';
import { cutUnevenly } from '../search/configurations/cut-unevenly.js';
import type { Priced } from '../search/configurations/priced.js';
import type { SearchOptions } from '../search/configurations/pricing.js';
import { combinations, type Decided, factsOf, type SpaceOptions } from '../search/configurations/space.js';
import { pricingOf } from '../search/configurations/step-pricing.js';
import { Deadline } from '../search/deadline.js';
import { clusterSources } from './cluster-sources.js';
import type { Purpose } from './graph-work.js';
import type { ReadWork } from './layer-classes.js';
import { impossible, nothingFits, outOfTime } from './no-step.js';
import {
  baseConfiguration,
  checkOffload,
  checkPurpose,
  type SimulateOptions,
  type Simulation,
  simulationOf,
} from './simulate.js';
import { simulatedFirst } from './simulated-first.js';
import { knownWorks, statedBatch, type WorkReader, workReader } from './step-works.js';

export interface StepSearchOptions extends Omit<SimulateOptions, 'trace'> {
  /** The cluster, where it is there already. */
  readonly on?: Cluster;
  readonly objective?: 'time' | 'memory';
  /** How many combinations of degrees are shown beside the best. */
  readonly top?: number;
  /** Seconds from now on after which the best so far is taken; or the clock that says when they are over. */
  readonly timeLimit?: number;
  readonly deadline?: Pick<Deadline, 'isOver'>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface StepSearch extends Found {
  /** The best configuration, priced as `simulate` does. */
  readonly simulation: Simulation;
  /** What the best configuration's work was read off. */
  readonly layers: ReadWork;
  /** (cost − bound) / cost, of the configurations that are in the space. */
  readonly gap: number;
  readonly objective: SearchOptions['objective'];
  /** What was said before the search. */
  readonly decided: Decided;
}

/** A model and a cluster, read: all that searching needs, whatever is changed about the cluster. */
export interface PreparedStep {
  readonly name: string;
  readonly cluster: Cluster;
  readonly space: SpaceOptions;
  readonly works: Works;
  readonly read: WorkReader;
  readonly limitBytes: number | null;
  readonly searching: Omit<SearchOptions, 'limitBytes'>;
}

/**
 * Searches.
 * @throws AutoparError (noPlan) `nothing-fits` with what would, `no-combination`, `out-of-time`; (usage) for degrees that no combination has; what
 * reading the model and the cluster refuse
 */
export async function searchStep(options: StepSearchOptions): Promise<StepSearch> {
  return searchPrepared(await prepareStep(options));
}

/**
 * Reads what a search needs.
 * @param reader what has read some of it for another cluster of the same devices
 * @throws AutoparError as `searchStep`, but for `nothing-fits` and `out-of-time`
 */
export async function prepareStep(options: StepSearchOptions, reader?: WorkReader): Promise<PreparedStep> {
  const deadline = options.deadline ?? (options.timeLimit === undefined ? null : new Deadline(options.timeLimit));
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const cluster = options.on ?? parseCluster(options.cluster, options.devices, await clusterSources(options.cluster));
  checkPurpose(options);
  checkOffload(options, cluster);
  const purpose: Purpose = options.loss ? { kind: 'training', loss: options.loss } : { kind: 'inference' };
  const read = reader ?? workReader(options, generated, purpose, cluster);
  options.onProgress?.('reading the layers');
  const globalBatch = await batchOf(options, generated);
  const { space, works } = await spaceOf(options, globalBatch, cluster, read);
  options.onProgress?.('searching');
  return {
    name: generated?.text ?? options.model ?? '',
    cluster,
    space,
    works,
    read,
    limitBytes: options.memory ?? (cluster.local ? null : cluster.device.memoryBytes),
    searching: {
      objective: options.objective ?? 'time',
      top: 1 + (options.top ?? SHOWN),
      ...(options.signal ? { signal: options.signal } : {}),
      ...(deadline ? { isOver: () => deadline.isOver() } : {}),
    },
  };
}

/** Searches what was read. @throws AutoparError (noPlan) `nothing-fits`, `out-of-time` */
export async function searchPrepared(prepared: PreparedStep): Promise<StepSearch> {
  const { name, cluster, space, works, read, limitBytes, searching } = prepared;
  const pricing = pricingOf(cluster, works, limitBytes, space.decided.recompute === undefined);
  const even = bestConfigurations(space, pricing, { ...searching, limitBytes });
  const { signal, isOver = () => false } = searching;
  const request = { space, cluster, works, limitBytes, signal, isOver };
  const found = searching.objective === 'time' ? simulatedFirst(cutUnevenly(even, pricing, request), prepared) : even;
  if (found.best.length === 0 && found.isCutOff) throw outOfTime(found);
  if (found.best.length === 0) throw nothingFits(found.verdicts, limitBytes, cluster);
  const first = found.best[0] as Priced;
  const { configuration } = first;
  const work = works(configuration.degrees.tp, configuration.microBatch);
  const sample = await read(1, 1);
  const simulation = simulationOf({
    ...{ name, cluster, configuration, work, sequence: sample.sequence },
    modelFlops: modelFlops(sample.work, { ...configuration, microBatch: 1 }),
    memory: limitBytes ?? undefined,
  });
  const cost = searching.objective === 'memory' ? first.bytes : first.seconds;
  return {
    ...found,
    simulation,
    layers: await read(configuration.degrees.tp, 1),
    gap: 1 - found.bound / cost,
    objective: searching.objective,
    decided: space.decided,
  };
}

export type { Priced, Verdict };

/** Runners-up that are shown where nothing says how many. */
const SHOWN = 5;

/** Samples of a step: as is said, else as the model states; of a model of one sample what micro-batches and dp make of it. */
async function batchOf(options: StepSearchOptions, generated: GeneratedModel | null): Promise<number> {
  const { globalBatch, microBatch = 1, microBatches = 1, dp = 1 } = options;
  if (globalBatch !== undefined) return globalBatch;
  const stated = await statedBatch(options, generated);
  return stated > 1 ? stated : microBatch * microBatches * dp;
}

/** The space, and the works that it asks for. */
async function spaceOf(
  options: StepSearchOptions,
  globalBatch: number,
  cluster: Cluster,
  read: WorkReader,
): Promise<{ readonly space: SpaceOptions; readonly works: Works }> {
  const facts = factsOf((await read(1, 1)).work);
  const space: SpaceOptions = {
    devices: clusterSize(cluster),
    perNode: cluster.perNode,
    globalBatch,
    facts,
    decided: decidedOf(options),
    base: baseConfiguration(options, globalBatch),
  };
  const all = combinations(space);
  const possible = all.filter(({ reason }) => reason === null);
  if (possible.length === 0) throw impossible(all, space);
  const tps = [...new Set(possible.map(({ degrees }) => degrees.tp))];
  const sizes = [...new Set(possible.flatMap(({ microBatches }) => microBatches))].sort((a, b) => a - b);
  return { space, works: await knownWorks(read, tps, sizes, options.signal) };
}

type Works = (tp: number, microBatch: number) => ModelWork;

function decidedOf(options: StepSearchOptions): Decided {
  const { dp, tp, pp, sp, ep, microBatch, microBatches, zero, recompute, schedule, virtualStages } = options;
  const { meshOrder, offload } = options;
  const given = {
    dp,
    tp,
    pp,
    sp,
    ep,
    microBatch,
    microBatches,
    zero,
    recompute,
    schedule,
    virtualStages,
    meshOrder,
    offload,
  };
  const tpSequence = options.tpSequence === 'on' ? true : options.tpSequence === 'off' ? false : undefined;
  return Object.fromEntries(
    Object.entries({ ...given, tpSequence }).filter(([, value]) => value !== undefined),
  ) as Decided;
}
