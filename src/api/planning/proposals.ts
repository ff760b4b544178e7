/**
 * @file Proposals: requests for a plan that a search over steps makes, limited to what programs can be lowered to: degrees,
 * micro-batches, stages with their layers, schedule, ZeRO, recompute, offload. They are priced by layers and are only
 * proposals: each is planned operator by operator, lowered and priced again (lower-proposals.ts).
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { Degrees, StepConfiguration } from '../../cost-model/step/configuration.js';
import { repeatedLayers } from '../../ir/autodiff/recompute-kinds.js';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { placeOfPart } from '../../schedule/parts.js';
import { fewestChunks, type ScheduleKind } from '../../schedule/schedule.js';
import type { PricedConfiguration } from '../../search/configurations/priced.js';
import { batchSize } from '../../search/degrees.js';
import { evenLayers } from '../../search/pipeline/even-layers.js';
import { isInOperators, layoutOfStages, readStageLayout } from '../../search/pipeline/stage-layout.js';
import { type StageUnit, stageUnits } from '../../search/pipeline/units.js';
import { axesOfPins } from '../../sharding-propagation/annotations/idle-axes.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { EXPERTS, INNER_AXES } from '../../sharding-propagation/roles.js';
import type { Deadline } from '../../solver/deadline.js';
import { dispatchIn } from '../models/dispatch.js';
import type { ImportedModel } from '../models/import.js';
import type { Training } from '../models/training.js';
import { dashed } from '../options/option-name.js';
import type { ProposalRequest } from '../output/folder.js';
import type { NestedPlanningOptions } from '../plan.js';
import { withAnnotatedDegrees } from '../requests/annotations.js';
import type { NestedCompileOptions } from '../requests/compile-options.js';
import { requestedStages } from '../requests/decisions.js';
import { pricedOffload } from '../requests/offload.js';
import { readRecompute } from '../requests/recompute-words.js';
import { type FewerDevices, fewerDevices } from './fewer-devices.js';
import { pricingFor } from './preferred-step.js';
import { prepareStep, type StepSearch, type StepSearchOptions, searchPrepared } from './search-step.js';

/** Proposals within a memory limit. */
export interface ProposedConfigurations {
  /** The best of each combination of degrees by the price of layers; for training, the best of each kind comes first. */
  readonly proposals: readonly PricedConfiguration[];
  /** The search that the proposals are from. */
  readonly searched: StepSearch;
}

export interface Proposer {
  /** Bytes that a proposal would need on the fullest device without sharded training state (ZeRO 0). */
  readonly wholeBytes: (proposal: PricedConfiguration) => number;
  readonly propose: (limitBytes: number | null) => Promise<ProposedConfigurations>;
  /** Fewer devices that are as fast as the result found; not searched under a time limit. */
  readonly fewer: (found: StepSearch) => Promise<FewerDevices | null>;
}

/** Options of the sharding planner that layers have no price for: with one of them nothing is proposed. */
const OF_OPERATORS = [
  ...(['axes', 'mode', 'config', 'complete', 'searchMode', 'meshes'] as const),
] as const satisfies readonly (keyof NestedPlanningOptions)[];

/** Why nothing is proposed, in words; null where proposals can be made. */
export function unproposed(options: NestedCompileOptions, training: Training | undefined): string | null {
  const said = operatorOptionText(options);
  if (said !== null) return said;
  const { batchStatistics, gradientReduction } = training ?? {};
  if (batchStatistics !== undefined && batchStatistics !== 'batch')
    return `--batch-statistics ${batchStatistics} depends on dp and the number of micro-batches`;
  if (gradientReduction === 'sum') return '--gradient-reduction sum depends on dp';
  const { interleave, stages, degrees } = options;
  // The plan of these options is refused, and says why.
  if (stages !== undefined && (degrees?.pp ?? 1) === 1) return '--stages needs --pp';
  if (interleave === 2) return 'layer prices do not cover --interleave 2';
  return null;
}

/** Values of these options that change nothing. */
const AS_USUAL: ReadonlySet<unknown> = new Set(['auto', 'semi-auto', 'search']);

/** The option that fixes how operators are planned, for which layers have no price, in words; null if none does. */
function operatorOptionText(options: NestedCompileOptions): string | null {
  const given = OF_OPERATORS.find((name) => options[name] !== undefined && !AS_USUAL.has(options[name]));
  return given === undefined ? null : `--${dashed(given)} fixes how operators are planned`;
}

/**
 * Reads a model's layers, for proposals of steps on a cluster.
 * @param read the model at the batch of a step
 * @throws AutoparError where its layers cannot be read or no combination of degrees is possible
 */
export async function proposer(
  options: NestedCompileOptions,
  training: Training | undefined,
  read: ImportedModel,
  cluster: Cluster,
  deadline?: Pick<Deadline, 'isOver'>,
): Promise<Proposer> {
  // Given degrees may need more ranks than this machine has by default.
  const asked = { ...asSearched(options, training, read), on: cluster, top: LOOKED_AT };
  const prepared = await prepareStep(asked);
  const { searching, ...rest } = prepared;
  const timed = deadline ? { ...searching, isOver: () => deadline.isOver() } : searching;
  const propose: Proposer['propose'] = async (limitBytes) => {
    const searched = await searchPrepared({ ...rest, searching: timed, limitBytes });
    return { proposals: training ? unlike(searched.best) : searched.best, searched };
  };
  const pricing = pricingFor(prepared);
  const wholeBytes: Proposer['wholeBytes'] = ({ configuration }) => pricing.bytes({ ...configuration, zero: 0 }).bytes;
  const fewer = async (found: StepSearch) =>
    options.timeLimit === undefined
      ? fewerDevices((on) => prepareStep({ ...asked, on }, prepared.read), prepared, found)
      : null;
  return { wholeBytes, propose, fewer };
}

/** Combinations of degrees that are priced in full. */
const LOOKED_AT = 8;

/**
 * Prices of layers are closest to lowered ones within a kind: with the same number of stages, which fill and drain, and with
 * experts either on every rank or spread over ranks, which tokens are dispatched to.
 */
export function kindOf(priced: PricedConfiguration): string {
  return `${priced.configuration.degrees.pp} ${spreadsExperts(priced) ? 'spread' : 'whole'}`;
}

/** Whether experts are spread over ranks. */
function spreadsExperts({ configuration }: PricedConfiguration): boolean {
  return configuration.degrees.ep > 1;
}

/** The best of each kind first, then the others. */
function unlike(best: readonly PricedConfiguration[]): readonly PricedConfiguration[] {
  const first = best.filter((priced, index) => best.findIndex((other) => kindOf(other) === kindOf(priced)) === index);
  return [...first, ...best.filter((priced) => !first.includes(priced))];
}

/**
 * The options of a search over steps: given options and pins are kept, and those that programs cannot be lowered for are left
 * out. Pins of operators have no price in layers: lowered proposals obey them, and these are the degrees that they leave.
 */
export function asSearched(
  options: NestedCompileOptions,
  training: Training | undefined,
  read: ImportedModel,
): StepSearchOptions {
  const { generated, model, dims, shapes, constants, weights, cluster, devices, memory, signal } = options;
  const { microBatch, zero, schedule, recompute, offload, prefer, headroom, tpSequence } = options;
  const isOfFile = generated === undefined || [dims, shapes, constants, weights].some((given) => given !== undefined);
  const globalBatch = batchSize(read.graph);
  const given = {
    ...(isOfFile ? { model, dims, shapes, constants, weights } : { generate: generated }),
    ...{ cluster, devices, memory, signal, microBatch, zero, globalBatch, prefer, headroom, tpSequence },
    ...pinnedSettings(options, read),
    ...dispatchIn(options),
    // A program of inference runs its batch at once.
    microBatches: training ? training.microBatches : 1,
    schedule,
    recompute: recompute === undefined ? undefined : pricedRecompute(recompute),
    offload: offload === undefined ? undefined : pricedWords(offload),
    loss: training?.loss,
    precision: (training ?? options).precision ?? 'fp32',
    objective: options.objective === 'memory' ? 'memory' : undefined,
    // Programs have their ranks in this order.
    meshOrder: AXIS_ORDER,
    program: true,
  };
  return withoutUndefined(given) as StepSearchOptions;
}

/** Degrees, chunks and stages as given and as pins name them, and the axes that pins need. */
function pinnedSettings(
  options: NestedCompileOptions,
  read: ImportedModel,
): Pick<StepSearchOptions, keyof Degrees | 'virtualStages' | 'pinnedAxes' | 'stageLayers'> {
  const { annotations, degrees = {}, stages, schedule = '1f1b' } = options;
  const stated = annotations ? withAnnotatedDegrees(degrees, annotations) : degrees;
  const pp = requestedStages(read, options);
  const chunks = annotations?.pins.flatMap(({ chunk }) => chunk ?? []) ?? [];
  const fewest = stages === undefined ? 1 : fewestChunks(schedule);
  const virtualStages = options.virtualStages ?? chunks.reduce((most, chunk) => Math.max(most, chunk + 1), fewest);
  const named = annotations ? axesOfPins(annotations) : new Set();
  const pinnedAxes = PINNED_AXES.filter((axis) => named.has(axis) && stated[axis] === undefined);
  return withoutUndefined({
    ...stated,
    ...(pp > 1 ? { pp } : {}),
    ...(virtualStages > 1 || options.virtualStages !== undefined || stages !== undefined ? { virtualStages } : {}),
    stageLayers: stages === undefined ? undefined : layersOfStages(stages, read.graph, pp * virtualStages),
    pinnedAxes: pinnedAxes.length > 0 ? pinnedAxes : undefined,
  });
}

/** The layers of each part of a layout; undefined where it is one of single operators. @throws AutoparError `bad-stages` */
function layersOfStages(layout: string, graph: Graph, parts: number): readonly number[] | undefined {
  if (isInOperators(layout)) return undefined;
  const layers = new Set(repeatedLayers(graph));
  const units = stageUnits(graph, 0);
  let next = 0;
  return readStageLayout(layout, units, parts).map((size) => {
    const own = units.slice(next, next + size);
    next += size;
    return own.filter(({ name }) => layers.has(name)).length;
  });
}

const PINNED_AXES = [...INNER_AXES, EXPERTS] as const;

/** The same without model file and cluster, which a folder records elsewhere. It is stored: `explain` searches again. */
export function storedProposalRequest(asked: StepSearchOptions): ProposalRequest {
  const elsewhere = new Set(['model', 'dims', 'shapes', 'constants', 'weights', 'cluster', 'devices', 'on', 'signal']);
  return Object.fromEntries(Object.entries(asked).filter(([name]) => !elsewhere.has(name)));
}

/** Layers have no price for recompute from what enters a stage: it takes as long as that from what enters each layer. */
function pricedRecompute(recompute: string): StepSearchOptions['recompute'] {
  const { kind } = readRecompute(recompute);
  return kind === 'stage' ? 'full' : kind;
}

/** Offload without a price in layers becomes `none`: it is left to the lowered plan. */
function pricedWords(offload: string): StepSearchOptions['offload'] {
  try {
    return pricedOffload(offload);
  } catch (error) {
    if (error instanceof AutoparError) return 'none';
    throw error;
  }
}

/** Micro-batches of a step that is proposed. */
export function microBatchCount({ globalBatch, microBatch, degrees }: StepConfiguration): number {
  return globalBatch / (microBatch * degrees.dp);
}

/** The settings that a proposal decides for the sharding plan, where they are not given. */
export const PROPOSED_OPTIONS = [
  ...(['dp', 'tp', 'pp', 'sp', 'ep', 'schedule', 'virtualStages', 'zero', 'recompute', 'offload'] as const),
] as const satisfies readonly (keyof ProposalRequest)[];
export type ProposedOption = (typeof PROPOSED_OPTIONS)[number];

/**
 * The options of the operators' planner for a proposal: options that are given stay as they are.
 * @param graph the graph of one of its micro-batches
 * @param isCut whether stages are given, or operators are pinned to them: then the proposal's own are left out
 */
export function proposalOptions(
  configuration: StepConfiguration,
  graph: Graph,
  { zero, recompute, offload }: Pick<NestedPlanningOptions, 'zero' | 'recompute' | 'offload'>,
  isCut: boolean,
): NestedPlanningOptions {
  const { degrees, virtualStages, schedule = virtualStages > 1 ? 'interleaved-1f1b' : '1f1b' } = configuration;
  const { pp, dp, sp, tp, ep } = degrees;
  // Inference has no micro-batches to order.
  const ordered = pp > 1 && !configuration.inference;
  const cut = pp > 1 ? cutOf(configuration, graph) : null;
  const words = {
    zero: zero ?? (configuration.zero === 0 ? undefined : configuration.zero),
    recompute: recompute ?? recomputeWords(configuration, graph, cut),
    offload: offload ?? OFFLOADED[configuration.offload ?? 'none'],
  };
  return {
    // Without a number of stages, there are those that operators are pinned to.
    degrees: { dp, tp, ...(pp > 1 || isCut ? { pp } : {}), ...(sp > 1 ? { sp } : {}), ...(ep > 1 ? { ep } : {}) },
    ...(ordered ? { schedule, ...(virtualStages > 1 ? { virtualStages } : {}) } : {}),
    ...(cut && !isCut ? { stages: layoutOfStages(cut.units, cut.sizes) } : {}),
    ...withoutUndefined(words),
  };
}

const OFFLOADED: Readonly<Record<NonNullable<StepConfiguration['offload']>, string | undefined>> = {
  none: undefined,
  optimizer: 'optimizer:host',
  activations: 'activations:host',
  all: 'optimizer:host,activations:host',
};

/** Units of the model, how many each part has, and the layers among them. */
interface UnitCut {
  readonly units: readonly StageUnit[];
  readonly sizes: readonly number[];
  readonly layers: readonly (readonly string[])[];
}

/** The layers of each part as proposed; null where the graph's layers are not those that were priced. */
function cutOf({ degrees: { pp }, virtualStages, stageLayers }: StepConfiguration, graph: Graph): UnitCut | null {
  const parts = pp * virtualStages;
  const units = stageUnits(graph, parts);
  const layers = new Set(repeatedLayers(graph));
  const all = units.filter(({ name }) => layers.has(name)).length;
  const counts = stageLayers ?? evenLayers(all, parts);
  if (counts.length !== parts || counts.reduce((sum, count) => sum + count, 0) !== all) return null;
  const own: { units: number; layers: string[] }[] = counts.map(() => ({ units: 0, layers: [] }));
  let part = 0;
  for (const { name } of units) {
    // Units between layers are in the part of the layers before them.
    if (layers.has(name)) while ((own[part]?.layers.length ?? 0) >= (counts[part] ?? 0) && part < parts - 1) part++;
    const current = own[part];
    if (!current) return null;
    current.units++;
    if (layers.has(name)) current.layers.push(name);
  }
  if (own.some((one) => one.units === 0)) return null;
  return { units, sizes: own.map((one) => one.units), layers: own.map((one) => one.layers) };
}

/** `full:0-3,8-11`: the first layers of each stage, as many as it recomputes; undefined where nothing is recomputed. */
function recomputeWords(
  { recompute, recomputedLayers, schedule, degrees: { pp } }: StepConfiguration,
  graph: Graph,
  cut: UnitCut | null,
): string | undefined {
  if (recompute === 'none') return undefined;
  const layers = repeatedLayers(graph);
  const stages = cut ? byStage(cut, pp, schedule) : pp === 1 ? [layers] : null;
  if (!recomputedLayers || !stages) return recompute;
  const named = new Set(stages.flatMap((own, stage) => own.slice(0, recomputedLayers[stage] ?? 0)));
  const numbers = layers.flatMap((layer, index) => (named.has(layer) ? [index] : []));
  if (numbers.length === 0) return undefined;
  return numbers.length === layers.length ? recompute : `${recompute}:${ranges(numbers)}`;
}

function byStage({ layers }: UnitCut, stages: number, schedule: ScheduleKind = '1f1b'): readonly (readonly string[])[] {
  const stageOf = (part: number) => placeOfPart(schedule, part, stages).stage;
  return Array.from({ length: stages }, (_, stage) => layers.filter((__, part) => stageOf(part) === stage).flat());
}

/** Rising numbers as `0-3,6`. */
function ranges(numbers: readonly number[]): string {
  const rows: [number, number][] = [];
  for (const number of numbers) {
    const last = rows.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else rows.push([number, number]);
  }
  return rows.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(',');
}
