/**
 * @file searchStep: the fastest way to train a model on a cluster, over every dimension that a step can be priced in: pp · dp ·
 * sp · tp, ep, micro-batches, schedules, ZeRO, recomputation. Nothing is lowered here; `compile` lowers proposals of this search.
 */
import { type GeneratedModel, generatedModel } from '../../../models/families.js';
import { type Cluster, clusterSize, parseCluster } from '../../cost-model/cluster.js';
import { deviceBytes } from '../../cost-model/predict.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { modelFlops } from '../../cost-model/step/model-flops.js';
import type { LossOptions } from '../../ir/autodiff/append-loss.js';
import { LOW_TYPES } from '../../ir/autodiff/training-graph.js';
import { AutoparError, nullIfRefused } from '../../ir/error.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { carryingState } from '../../search/absent-factors.js';
import { type DegreesVerdict, inOrder } from '../../search/configurations/best-configurations.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import type { ConfigurationSearchOptions } from '../../search/configurations/pricing.js';
import {
  combinations,
  type DecidedSettings,
  divisors,
  factsOf,
  type SpaceOptions,
} from '../../search/configurations/space.js';
import { timeWritten } from '../../search/figures.js';
import { type PlanPreference, type Preferences, preferencesOf } from '../../search/preference.js';
import { listInWords } from '../../search/smallest-conflict.js';
import { Deadline } from '../../solver/deadline.js';
import type { WriteModelOptions } from '../models/write-model.js';
import { clusterSources } from '../requests/cluster-sources.js';
import { conflictingPins, keepingOnly, type PinnedKey, pinsTyped } from '../requests/step-conflict.js';
import {
  baseConfiguration,
  checkOffload,
  checkPurpose,
  type SimulateOptions,
  type Simulation,
  simulationOf,
} from '../simulate.js';
import { type FewerDevices, fewerDevices } from './fewer-devices.js';
import type { Purpose, ReadWork } from './graph-work.js';
import { impossible, nothingFits, outOfTime } from './no-step.js';
import { type PreferredStep, preferredStep } from './preferred-step.js';
import type { PreparedStep, WorkOfDegrees } from './prepared-step.js';
import { evenShare, isUnbuilt, knownWorks, statedBatch, type WorkReader, workReader } from './step-works.js';

export interface StepSearchOptions extends Omit<SimulateOptions, 'trace' | keyof WriteModelOptions>, PlanPreference {
  /** The cluster, where it is known already. */
  readonly on?: Cluster;
  readonly objective?: 'time' | 'memory';
  /** The result of the search is written as a program. */
  readonly program?: true;
  /** Axes that pins of operators name, which need several ranks. */
  readonly pinnedAxes?: DecidedSettings['pinnedAxes'];
  /** Layers of each part of the pipeline. */
  readonly stageLayers?: readonly number[];
  /** How many combinations of degrees are shown beside the best. */
  readonly top?: number;
  /** Seconds from now on after which the best so far is taken; or the clock that says when they are over. */
  readonly timeLimit?: number;
  readonly deadline?: Pick<Deadline, 'isOver'>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface StepSearch extends PreferredStep {
  /** The best configuration, priced as `simulate` does. */
  readonly simulation: Simulation;
  /** The layers that the best configuration's work was read off. */
  readonly layers: ReadWork;
  /** (cost − bound) / cost, of the configurations that are in the space. */
  readonly gap: number;
  readonly objective: ConfigurationSearchOptions['objective'];
  /** Decisions before the search. */
  readonly decided: DecidedSettings;
  /** The preferences that the plan was chosen by. */
  readonly preferences: Preferences;
  /** Fewer devices that are as fast; null where none are, or they were not searched. */
  readonly fewer: FewerDevices | null;
  /** Why micro-batches are left out that the model cannot be rebuilt at, a line each. */
  readonly unbuilt: readonly string[];
}

/**
 * Searches for the best step.
 * @throws AutoparError (noPlan) `nothing-fits` with what would fit, `no-combination`, `out-of-time`; (usage) for degrees that no
 * combination has; also the errors of reading the model and the cluster
 */
export async function searchStep(options: StepSearchOptions): Promise<StepSearch> {
  try {
    const prepared = await prepareStep(options);
    const found = await searchPrepared(prepared);
    const prepare = (on: Cluster) => prepareStep({ ...options, on }, prepared.read);
    return { ...found, fewer: await fewerDevices(prepare, prepared, found) };
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    const hint = [await stepRemedy(options, error), error.hint].filter((remedy) => remedy).join('; else ');
    throw error.reworded(error.message, hint);
  }
}

/** The options that leave no step, or none that fits, in words; null where no option does, or time is limited. */
export async function stepRemedy(options: StepSearchOptions, { code }: AutoparError): Promise<string | null> {
  const isTimed = options.timeLimit !== undefined || options.deadline !== undefined;
  if (!WITHOUT_PLAN.has(code) || (isTimed && code === 'nothing-fits')) return null;
  const wider = isTimed ? null : await widerThanUsual(options);
  return wider ?? conflict(options, code);
}

/** Errors that other pins may fix, or a tp that is searched only on request. */
const WITHOUT_PLAN: ReadonlySet<string> = new Set(['nothing-fits', 'no-combination', 'degrees-do-not-match-devices']);

/** The options that leave no plan, in words; null where no option does. */
async function conflict(options: StepSearchOptions, code: string): Promise<string | null> {
  options.onProgress?.('looking for the conflicting options');
  const isOfMemory = code === 'nothing-fits';
  const { read } = await sourcesOf(options);
  const pins = isOfMemory
    ? await conflictOfMemory(options, read)
    : await conflictingPins(options, (some) => prepareStep(some, read));
  if (pins.length === 0) return null;
  const typed = pinsTyped(options, pins);
  const none = isOfMemory ? 'nothing that fits' : 'no combination of degrees';
  return typed.length === 1
    ? `${typed[0]} leaves ${none}, whatever the other degrees are: leave it out`
    : `${listInWords(typed)} leave ${none}, whatever the other degrees are: leave one of them out`;
}

/** The options that leave nothing that fits. Each set is searched for the first step that fits, the one found to the end. */
async function conflictOfMemory(options: StepSearchOptions, read: WorkReader): Promise<readonly PinnedKey[]> {
  const first = async (some: StepSearchOptions) => {
    const { searching, ...prepared } = await prepareStep(some, read);
    return searchPrepared({ ...prepared, searching: { ...searching, isOver: () => true } });
  };
  const pins = await conflictingPins(options, first);
  if (pins.length === 0) return [];
  const all = await searchPrepared(await prepareStep(keepingOnly(options, pins), read)).catch(nullIfRefused);
  return all ? [] : pins;
}

/** The least tp larger than a node, or than the heads, with which a step fits, in words; null where none does. */
async function widerThanUsual(options: StepSearchOptions): Promise<string | null> {
  if (options.tp !== undefined) return null;
  const cluster = options.on ?? parseCluster(options.cluster, options.devices, await clusterSources(options.cluster));
  for (const tp of divisors(clusterSize(cluster)).slice(1)) {
    const found = await prepareStep({ ...options, tp })
      .then((prepared) => (isUsual(tp, prepared.space) ? null : searchPrepared(prepared)))
      .catch(nullIfRefused);
    if (found) {
      const { stepSeconds } = found.simulation;
      return `--tp ${tp}, which spans nodes or exceeds the heads, fits, at ${timeWritten(stepSeconds * 1e9)} a step`;
    }
  }
  return null;
}

/** Whether a degree of tp is searched without a request. */
function isUsual(tp: number, { perNode, facts }: SpaceOptions): boolean {
  return tp <= perNode && tp <= (facts.heads ?? tp);
}

/**
 * Reads what a search needs.
 * @param reader a reader that has read some of it for another cluster of the same devices
 * @throws AutoparError as `searchStep`, but for `nothing-fits` and `out-of-time`
 */
export async function prepareStep(options: StepSearchOptions, reader?: WorkReader): Promise<PreparedStep> {
  const deadline = options.deadline ?? (options.timeLimit === undefined ? null : new Deadline(options.timeLimit));
  const { generated, cluster, globalBatch, read } = await sourcesOf(options, reader);
  options.onProgress?.('reading the layers');
  const { space, works, sample } = await spaceOf(options, globalBatch, cluster, read, generated);
  options.onProgress?.('searching');
  return {
    name: generated?.text ?? options.model ?? '',
    cluster,
    space,
    works,
    read,
    sample,
    limitBytes: limitOf(options, cluster),
    limitsTensors: options.memory !== undefined && options.program === true,
    preferences: preferencesOf(options, options.memory !== undefined),
    searching: {
      objective: options.objective ?? 'time',
      top: 1 + (options.top ?? SHOWN),
      ...(options.signal ? { signal: options.signal } : {}),
      ...(deadline ? { isOver: () => deadline.isOver() } : {}),
    },
  };
}

interface StepSources {
  readonly generated: GeneratedModel | null;
  readonly cluster: Cluster;
  /** Samples of a step. */
  readonly globalBatch: number;
  readonly read: WorkReader;
}

/**
 * The sources of a search, and their reader. @throws AutoparError as `prepareStep`, for the model's name, the cluster, and
 * options that contradict each other
 */
async function sourcesOf(options: StepSearchOptions, reader?: WorkReader): Promise<StepSources> {
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const cluster = options.on ?? parseCluster(options.cluster, options.devices, await clusterSources(options.cluster));
  checkPurpose(options);
  checkOffload(options, cluster);
  const purpose: Purpose = options.loss ? trainingPurpose(options.loss, options) : { kind: 'inference' };
  const globalBatch = await batchOf(options, generated);
  const read = reader ?? workReader(options, generated, purpose, cluster, evenShare(globalBatch, cluster));
  return { generated, cluster, globalBatch, read };
}

function trainingPurpose(loss: LossOptions, { program, precision }: StepSearchOptions): Purpose {
  const isLow = program && (precision === 'bf16' || precision === 'fp16');
  return { kind: 'training', loss, ...(isLow ? { program: LOW_TYPES[precision] } : {}) };
}

/** Memory of a device; null for ranks of this machine. A limit for a program is one for its tensors alone. */
function limitOf({ memory, program }: StepSearchOptions, cluster: Cluster): number | null {
  if (memory === undefined) return cluster.local ? null : cluster.device.memoryBytes;
  return program ? deviceBytes(memory, cluster) : memory;
}

/** Searches a prepared step. @throws AutoparError (noPlan) `nothing-fits`, `out-of-time` */
export async function searchPrepared(prepared: PreparedStep): Promise<StepSearch> {
  const { cluster, space, limitBytes, preferences, searching } = prepared;
  const found = preferredStep(prepared);
  if (found.best.length === 0 && found.isCutOff) throw outOfTime(found);
  if (found.best.length === 0) throw nothingFits(found.verdicts, limitBytes, cluster, prepared.limitsTensors);
  const first = found.best[0] as PricedConfiguration;
  const simulation = await simulationAt(prepared, first.configuration);
  const cost = searching.objective === 'memory' ? first.bytes : first.seconds;
  return {
    ...found,
    // The preferred configuration, and those with uneven cuts, were put in front.
    verdicts: inOrder(found.verdicts, searching.objective),
    simulation,
    layers: await prepared.read(first.configuration.degrees.tp, prepared.sample),
    gap: 1 - found.bound / cost,
    objective: searching.objective,
    decided: space.decided,
    preferences,
    fewer: null,
    unbuilt: [...(space.unbuilt?.values() ?? [])],
  };
}

/** Prices a configuration of a prepared step. */
async function simulationAt(prepared: PreparedStep, configuration: StepConfiguration): Promise<Simulation> {
  const { name, cluster, works, read, sample, limitBytes } = prepared;
  const work = works(configuration.degrees.tp, configuration.microBatch);
  const one = await read(1, sample);
  return simulationOf({
    ...{ name, cluster, configuration, work, sequence: one.sequence },
    modelFlops: modelFlops(one.work, { ...configuration, microBatch: sample }),
    memory: limitBytes ?? undefined,
  });
}

export type { DegreesVerdict, PreparedStep, PricedConfiguration };

/** Runners-up that are shown by default. */
const SHOWN = 5;

/** The global batch: as given, else as in the model; for a model of one sample, micro-batch · micro-batches · dp. */
export async function batchOf(
  options: Omit<StepSearchOptions, 'objective'>,
  generated: GeneratedModel | null,
): Promise<number> {
  const { globalBatch, microBatch = 1, microBatches = 1, dp = 1 } = options;
  if (globalBatch !== undefined) return globalBatch;
  const stated = await statedBatch(options, generated);
  return stated > 1 ? stated : microBatch * microBatches * dp;
}

/** The search space, and the works that it needs. */
async function spaceOf(
  options: StepSearchOptions,
  globalBatch: number,
  cluster: Cluster,
  read: WorkReader,
  generated: GeneratedModel | null,
): Promise<{ readonly space: SpaceOptions; readonly works: WorkOfDegrees; readonly sample: number }> {
  const sample = await sampleOf(options, read, generated);
  const { work, graph } = await read(1, sample);
  const isStateful = options.program === true && carryingState(graph) !== undefined;
  const space: SpaceOptions = {
    devices: clusterSize(cluster),
    perNode: cluster.perNode,
    globalBatch,
    facts: { ...factsOf(work), ...(isStateful ? { carriesState: true } : {}) },
    decided: decidedOf(options),
    base: { ...baseConfiguration(cluster, options, globalBatch), ...(options.program ? { program: true } : {}) },
  };
  return { ...(await builtSpace(space, read, options.signal)), sample };
}

/** One sample; the file's own batch where it cannot be rebuilt at one. @throws AutoparError where it can be read at neither */
async function sampleOf(
  options: StepSearchOptions,
  read: WorkReader,
  generated: GeneratedModel | null,
): Promise<number> {
  try {
    await read(1, 1);
    return 1;
  } catch (error) {
    const { globalBatch: _wanted, ...file } = options;
    const own = isUnbuilt(error) ? await statedBatch(file, generated) : 1;
    if (own === 1) throw error;
    return own;
  }
}

/**
 * The space without micro-batches that the model cannot be rebuilt at, and its works.
 * @throws AutoparError why it cannot be rebuilt at any of them, where nothing is left
 */
async function builtSpace(
  whole: SpaceOptions,
  read: WorkReader,
  signal: AbortSignal | undefined,
): Promise<{ readonly space: SpaceOptions; readonly works: WorkOfDegrees }> {
  const unbuilt = new Map<number, string>();
  const tried: WorkReader = async (tp, size) => {
    try {
      return await read(tp, size);
    } catch (error) {
      if (isUnbuilt(error)) unbuilt.set(size, `micro-batches of ${size} are not searched: ${error.message}`);
      throw error;
    }
  };
  let { tps, sizes } = possibleOf(whole);
  for (;;) {
    const space = unbuilt.size === 0 ? whole : { ...whole, unbuilt };
    const known = unbuilt.size;
    try {
      return { space, works: await knownWorks(tried, tps, sizes, signal) };
    } catch (error) {
      if (unbuilt.size === known) throw error;
      const left = combinations({ ...whole, unbuilt }).some(({ reason }) => reason === null);
      if (!left) throw error;
      ({ tps, sizes } = possibleOf({ ...whole, unbuilt }));
    }
  }
}

/** Degrees of tp and micro-batches of possible combinations. @throws AutoparError (noPlan, usage) where none is possible */
function possibleOf(space: SpaceOptions): { readonly tps: readonly number[]; readonly sizes: readonly number[] } {
  const all = combinations(space);
  const possible = all.filter(({ reason }) => reason === null);
  if (possible.length === 0) throw impossible(all, space);
  return {
    tps: [...new Set(possible.map(({ degrees }) => degrees.tp))],
    sizes: [...new Set(possible.flatMap(({ microBatches }) => microBatches))].sort((a, b) => a - b),
  };
}

function decidedOf(options: StepSearchOptions): DecidedSettings {
  const { dp, tp, pp, sp, ep, microBatch, microBatches, zero, recompute, schedule, virtualStages } = options;
  const { meshOrder, offload, pinnedAxes, stageLayers } = options;
  const degrees = { dp, tp, pp, sp, ep };
  const batches = { microBatch, microBatches };
  const settings = { zero, recompute, schedule, virtualStages, meshOrder, offload, pinnedAxes, stageLayers };
  const tpSequence = options.tpSequence === 'on' ? true : options.tpSequence === 'off' ? false : undefined;
  return withoutUndefined({ ...degrees, ...batches, ...settings, tpSequence });
}
