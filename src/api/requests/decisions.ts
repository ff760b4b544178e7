/**
 * @file The user's decisions before planning: degrees, mode, pins and limits, merged once from options, annotations, a
 * configuration and the model's own device annotations. The search decides everything else.
 */
import { type Cluster, type ClusterHints, clusterSize, parseCluster } from '../../cost-model/cluster.js';
import { AutoparError, badOption, usageError } from '../../ir/error.js';
import { type Graph, isBackward } from '../../ir/graph.js';
import type { MultiDevice } from '../../ir/onnx/device-annotations.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { ScheduleKind } from '../../schedule/schedule.js';
import { checkMeshes, meshSizes, readMeshes } from '../../search/pipeline/mesh-layout.js';
import { type PipelineRequest, refuseAbsentStages } from '../../search/pipeline/pipeline.js';
import { unshardedSeconds } from '../../search/pipeline/unsharded-seconds.js';
import { type Mesh, STAGE_AXIS, subAxes } from '../../sharding-propagation/mesh.js';
import type { Pin, PinSource, RecomputePin, StagePin } from '../../sharding-propagation/pin.js';
import { EXPERTS, INNER_AXES, type InnerDegrees } from '../../sharding-propagation/roles.js';
import { type ConfigOptions, optionsOf } from '../parallel-config/config-options.js';
import { checkAgainstModel } from '../parallel-config/config-rules.js';
import type { ParallelConfig } from '../parallel-config/parallel-config.js';
import { type Annotations, pinsFor, recomputePinsFor, stagePinsFor, withAnnotatedDegrees } from './annotations.js';

/** MindSpore's parallel modes: auto (2), semi-auto (1), data (0), hybrid (3: operators without a pin are replicated). */
export type Mode = 'auto' | 'semi-auto' | 'data' | 'hybrid';

/** Where decisions come from. */
export interface DecisionSources {
  readonly devices?: number;
  /** `NxM:ID`, a file, or `local` (the default). */
  readonly cluster?: string;
  /** The source that was read for the cluster (`cluster-sources.ts`). */
  readonly clusterHints?: ClusterHints;
  /** Degrees that are pinned. If pp is left out, it follows from operators that are pinned to stages, else it is 1. */
  readonly degrees?: InnerDegrees & { readonly pp?: number };
  readonly schedule?: ScheduleKind;
  /** Chunks of each stage. */
  readonly virtualStages?: number;
  /** The contents of each stage: `E t*3 | t*2 | t*3 H`. */
  readonly stages?: string;
  /** The mesh of each stage: `tp2 | dp2`. */
  readonly meshes?: string;
  readonly mode?: Mode;
  readonly annotations?: Annotations;
  readonly config?: ParallelConfig;
}

export interface Decisions {
  readonly cluster: Cluster;
  readonly degrees: InnerDegrees;
  /** Null for one stage. */
  readonly pipeline: PipelineRequest | null;
  readonly mode: Mode;
  /**
   * The pins on a mesh, for the model's graph or for the graph that a pipeline's stages are cut from; null if nothing is
   * pinned.
   */
  readonly pinsOn: ((mesh: Mesh, graph?: Graph) => readonly Pin[]) | null;
  /** Pins from annotations that say whether operators recompute. */
  readonly recomputePins: readonly RecomputePin[];
  /** Whether resharding may use all-to-all. */
  readonly allToAll: boolean;
  /** The options of the configuration, if there is one. */
  readonly config: ConfigOptions | null;
  /** Notes for the user, one line each. */
  readonly notes: readonly string[];
}

/** The model that decisions are about. */
interface DecidedModel {
  readonly graph: Graph;
  readonly file: string;
  readonly multiDevice: MultiDevice | null;
}

/** @throws AutoparError (usage, input) where decisions contradict each other or ask for something unsupported */
export function decide(model: DecidedModel, sources: DecisionSources): Decisions {
  const { config = null, annotations = null } = sources;
  const configured = config ? optionsOf(config, sources.devices) : null;
  const mode = modeOf(sources);
  const stated = statedDegrees(sources);
  const { count: pp, pins: stagePinned } = stagesOf(model, sources, mode);
  const pinned = { ...plainDegrees(stated), ...(pp > 1 ? { pp } : {}) };
  const all = sources.cluster === undefined ? configured?.devices : undefined;
  const devices = sources.devices ?? all ?? undefined;
  const cluster = parseCluster(sources.cluster, devices, { ...sources.clusterHints, degrees: pinned });
  checkStages(pp, clusterSize(cluster));
  if (sources.meshes !== undefined) checkMeshes(sources.meshes, readMeshes(sources.meshes), clusterSize(cluster) / pp);
  const inner = plainDegrees(pinned);
  const degrees = mode === 'data' ? dataParallel(inner, clusterSize(cluster) / pp) : inner;
  const pinSources = { annotations, config, model, degrees, stages: pp };
  const pins = (mesh: Mesh, graph: Graph = model.graph): readonly Pin[] => {
    const own = pinsFor(pinSources, graph, mesh).pins;
    return mode === 'hybrid' ? [...own, ...replicatedPins(graph, mesh, own)] : own;
  };
  const hasPins = annotations !== null || config !== null || model.multiDevice !== null || mode === 'hybrid';
  if (mode === 'data' && annotations !== null) throw pinsInDataMode(annotations);
  return {
    cluster,
    degrees,
    pipeline: pipelineRequest(
      pp > 1 ? withConfigured(sources, configured, model.graph) : sources,
      pp,
      stagePinned,
      model.graph,
    ),
    mode,
    pinsOn: hasPins && mode !== 'data' ? pins : null,
    recomputePins: recomputePinsFor(annotations, model.graph),
    allToAll: configured?.allToAll ?? true,
    config: configured,
    notes: config && configured ? configNotes(config, configured, model.graph, cluster) : [],
  };
}

/** The stages as decided: their number, and the operators that are pinned to one. */
interface DecidedStages {
  readonly count: number;
  readonly pins: readonly StagePin[];
}

/**
 * The requested number of stages: by degree, or by the last stage that anything is pinned to; 1 by default.
 * @throws AutoparError (input) where the annotations are for another degree
 */
export function requestedStages(model: DecidedModel, sources: DecisionSources): number {
  const { pp } = statedDegrees(sources);
  if (pp !== undefined || modeOf(sources) === 'data') return pp ?? 1;
  return stagesNamed(model, sources).reduce((most, stage) => Math.max(most, stage + 1), 1);
}

/** The stages that operators are pinned to, by annotations or the model's own: one for each pin. */
export function stagesNamed(model: DecidedModel, sources: DecisionSources): readonly number[] {
  const { annotations, cluster, devices, clusterHints } = sources;
  const all = clusterSize(parseCluster(cluster, devices, { ...clusterHints, degrees: statedDegrees(sources) }));
  // Annotations may name operators of the loss, which this graph need not have yet.
  const pinned = annotations?.pins.flatMap(({ stage }) => stage ?? []) ?? [];
  return [...pinned, ...stagePinsFor({ model }, model.graph, all).map(({ stage }) => stage)];
}

function stagesOf(model: DecidedModel, sources: DecisionSources, mode: Mode): DecidedStages {
  const { annotations = null, cluster, devices, clusterHints } = sources;
  if (mode === 'data') return { count: statedDegrees(sources).pp ?? 1, pins: [] };
  const all = clusterSize(parseCluster(cluster, devices, { ...clusterHints, degrees: statedDegrees(sources) }));
  const pins = stagePinsFor({ annotations, model }, model.graph, all);
  return { count: statedDegrees(sources).pp ?? pins.reduce((most, { stage }) => Math.max(most, stage + 1), 1), pins };
}

function modeOf({ mode, config, devices }: DecisionSources): Mode {
  return mode ?? (config ? optionsOf(config, devices).mode : 'auto');
}

/** Degrees of options, else of the annotations, else of the configuration. */
function statedDegrees({ annotations, config, degrees, devices, meshes }: DecisionSources): ConfigOptions['degrees'] {
  const stated = { ...(config ? optionsOf(config, devices).degrees : {}), ...degrees };
  const all = annotations ? withAnnotatedDegrees(stated, annotations) : stated;
  return meshes === undefined ? all : withMeshes(all, meshes);
}

/** Degrees of a pipeline whose stages have their own meshes: the number of stages, and the degrees of the first. */
function withMeshes(stated: ConfigOptions['degrees'], text: string): ConfigOptions['degrees'] {
  const stages = readMeshes(text);
  const degrees = { ...stages[0], pp: stages.length };
  const inner = [...INNER_AXES, EXPERTS] as const;
  const other = ([STAGE_AXIS, ...inner] as const).find((axis) => (stated[axis] ?? degrees[axis]) !== degrees[axis]);
  const given = other ?? inner.find((axis) => stated[axis] !== undefined);
  if (given === undefined) return { ...stated, ...degrees };
  throw usageError(
    'bad-meshes',
    given === STAGE_AXIS
      ? `--meshes "${text}" has ${stages.length} stages, and pp is ${stated.pp}`
      : `--meshes "${text}" sets ${given} of each stage, and ${given} is also set to ${stated[given]}`,
    given === STAGE_AXIS ? 'give a mesh for each stage, or leave out --pp' : `leave out --${given}`,
  );
}

/** Schedule and chunks of the options, else of the configuration, which orders micro-batches only for training. */
function withConfigured(sources: DecisionSources, configured: ConfigOptions | null, graph: Graph): DecisionSources {
  if (sources.schedule || sources.virtualStages !== undefined || !trains(graph)) return sources;
  const { schedule = null, virtualStages = null } = configured ?? {};
  return { ...sources, ...(schedule ? { schedule } : {}), ...(virtualStages === null ? {} : { virtualStages }) };
}

function trains({ nodes }: Graph): boolean {
  return nodes.some(({ phase }) => isBackward(phase));
}

/** @throws AutoparError (usage) `bad-option` for options that need a pipeline, or one that trains, where there is none */
function pipelineRequest(
  { schedule, virtualStages, stages: layout, meshes }: DecisionSources,
  stages: number,
  pins: readonly StagePin[],
  graph: Graph,
): PipelineRequest | null {
  const chunks = virtualStages ?? pins.reduce((most, { chunk = 0 }) => Math.max(most, chunk + 1), 1);
  refuseAbsentStages(pins, stages, chunks);
  const [untrained] = trains(graph)
    ? []
    : Object.entries({ schedule, 'virtual-stages': virtualStages }).filter(isDefined);
  if (stages > 1 && untrained)
    throw badOption(
      `--${untrained[0]} ${untrained[1]} orders the micro-batches of training, and the program is for inference`,
      `add --train, or leave out --${untrained[0]}`,
    );
  if (stages > 1)
    return {
      stages,
      pins,
      ...(virtualStages === undefined && chunks === 1 ? {} : { virtualStages: chunks }),
      ...withoutUndefined({ schedule, layout }),
      ...(meshes === undefined ? {} : unlikeMeshes(meshes)),
    };
  const [idle] = Object.entries({ schedule, 'virtual-stages': virtualStages, stages: layout }).filter(isDefined);
  if (!idle) return null;
  throw badOption(
    `--${idle[0]} ${idle[1]} needs a pipeline, and the plan has one stage`,
    `add --pp N, or leave out --${idle[0]}`,
  );
}

/** Equal meshes are treated like a pipeline without `--meshes`. */
function unlikeMeshes(text: string): Pick<PipelineRequest, 'meshes'> {
  const meshes = readMeshes(text);
  const [first, ...others] = meshSizes(meshes).map((sizes) => sizes.join());
  return others.some((sizes) => sizes !== first) ? { meshes } : {};
}

function isDefined([, value]: readonly [string, unknown]): boolean {
  return value !== undefined;
}

/** @throws AutoparError (usage) `degrees-do-not-match-devices` for devices that cannot form equal stages */
function checkStages(pp: number, devices: number): void {
  if (devices % pp === 0) return;
  throw usageError(
    'degrees-do-not-match-devices',
    `pp ${pp} does not divide the ${devices} devices`,
    `devices = pp · dp · tp: give --devices ${Math.ceil(devices / pp) * pp}, or another --pp`,
  );
}

function plainDegrees(stated: InnerDegrees): Decisions['degrees'] {
  return Object.fromEntries(
    [...INNER_AXES, EXPERTS].flatMap((axis) => {
      const degree = stated[axis as keyof InnerDegrees];
      return degree === undefined ? [] : [[axis, degree]];
    }),
  );
}

/** All devices are data-parallel. */
function dataParallel(degrees: Decisions['degrees'], devices: number): Decisions['degrees'] {
  const { dp = devices, ...others } = degrees;
  const [other] = Object.entries(others).filter(([, degree]) => degree > 1);
  if (!other) return { dp, tp: 1 };
  throw usageError(
    'degree-in-data-mode',
    `mode data shards the batch only, and --${other.join(' ')} is given`,
    `leave out --${other[0]}, or use --mode auto or semi-auto`,
  );
}

function pinsInDataMode({ file }: Annotations): AutoparError {
  return new AutoparError(
    'annotations-in-data-mode',
    'usage',
    'mode data shards the batch only, and annotations pin other layouts',
    file === null ? {} : { file },
    'use --mode semi-auto with annotations',
  );
}

/** In hybrid mode every operator that is not pinned is replicated on every rank. */
function replicatedPins(graph: Graph, mesh: Mesh, pins: readonly Pin[]): readonly Pin[] {
  const pinnedNodes = new Set(pins.flatMap((pin) => (pin.kind === 'operator' ? [pin.node] : [])));
  const pinnedTensors = new Set(pins.flatMap((pin) => (pin.kind === 'tensor' ? [pin.tensor] : [])));
  const source: PinSource = {
    file: null,
    line: null,
    text: '--mode hybrid',
    priority: Number.MIN_SAFE_INTEGER,
    why: null,
  };
  const without = subAxes(mesh).map(({ name }) => name);
  return graph.nodes
    .filter((node) => !pinnedNodes.has(node.name))
    .filter((node) => [...node.inputs, ...node.outputs].every((name) => name === null || !pinnedTensors.has(name)))
    .map((node): Pin => ({ kind: 'operator', node: node.name, source, without }));
}

function configNotes(
  config: ParallelConfig,
  configured: ConfigOptions,
  graph: Graph,
  cluster: Cluster,
): readonly string[] {
  const place = (line: number | null) => [config.file, line].filter((part) => part !== null).join(':');
  return [
    ...(configured.microBatches > 1 && !trains(graph)
      ? [
          `${config.pipelineStage > 1 ? 'micro_batch_num' : 'gradient_accumulation_steps'} ` +
            `${configured.microBatches} applies to training only; inference runs one micro-batch`,
        ]
      : []),
    ...((configured.recompute ?? 'none') !== 'none' && !trains(graph)
      ? [`recompute applies to training only; inference stores no activations`]
      : []),
    ...(configured.gradientBuckets !== null && !trains(graph)
      ? [
          `gradient_aggregation_group ${configured.gradientBuckets} applies to training only; inference has no gradients`,
        ]
      : []),
    ...(configured.bucketBytes !== null && !trains(graph)
      ? ['comm_fusion applies to gradient reductions; inference has none']
      : []),
    ...(configured.interleave > 1 && !trains(graph)
      ? [`micro_batch_interleave_num ${configured.interleave} applies to training only; inference has no micro-batches`]
      : []),
    ...checkAgainstModel(config, graph, { layersSeconds: layersSeconds(graph, cluster) }),
    ...[...configured.remarks, ...configured.notLowered].map(
      ({ key, line, says }) => `${[place(line), key].filter(Boolean).join(' ')}: ${says}`,
    ),
  ];
}

/** Seconds that the repeated layers take on one device, without sharding. */
function layersSeconds(graph: Graph, cluster: Cluster): number {
  return [...unshardedSeconds(graph, cluster)].reduce((sum, [{ layer }, time]) => sum + (layer === null ? 0 : time), 0);
}
