/**
 * @file compileStep: a model and a cluster in, the plan of a whole step out, over every dimension that can be priced.
 * There is no program: its price is of layers, and that of a program of operators.
 */
import path from 'node:path';
import { type GeneratedModel, generatedModel } from '../../models/families.js';
import { clusterSize } from '../cost-model/cluster.js';
import { usualPrecision } from '../cost-model/device.js';
import { fingerprint } from '../ir/fingerprint.js';
import type { Graph } from '../ir/graph.js';
import { interruptible } from '../ir/interruption.js';
import { findLayers } from '../ir/passes/find-layers.js';
import type { Plan, PlanTraining } from '../strategy/plan.js';
import { planOfStep } from '../strategy/plan-of-step.js';
import { dispatchIn } from './dispatch.js';
import { emitPlan } from './emit-plan.js';
import { defaultFolder } from './folder.js';
import type { ImportedModel } from './import.js';
import type { ClusterSearch } from './search-clusters.js';
import { type StepSearch, type StepSearchOptions, searchStep } from './search-step.js';
import type { Training } from './training-request.js';

export interface CompileStepOptions extends Omit<StepSearchOptions, 'loss' | 'objective'> {
  /** Of the step (`time` by default, or `memory`), or of the part of the cluster that is taken. */
  readonly objective?: 'time' | 'memory' | 'cost' | 'devices';
  /** Seconds that a step may take, for `devices`. */
  readonly within?: number;
  /** The folder to write; default `./<model file stem, or family>.autopar`. */
  readonly output?: string;
  readonly force?: boolean;
  /** A step of training; inference where it is left out. */
  readonly training?: Training;
}

export interface CompiledStep {
  readonly directory: string;
  readonly plan: Plan;
  /** What the user should know, a line each. */
  readonly notes: readonly string[];
  /** With the sizes that were looked at, where the objective was a part of the cluster. */
  readonly search: StepSearch & Partial<Pick<ClusterSearch, 'sizes'>>;
}

/** @throws AutoparError as searching a step and writing a folder do */
export async function compileStep({ output, force, training, ...options }: CompileStepOptions): Promise<CompiledStep> {
  const recipe = training?.precision;
  const step = training ? { loss: training.loss, ...(recipe === undefined ? {} : { precision: recipe }) } : {};
  const search = await searchFor({ ...options, ...step });
  // The search never waits: an interruption has its turn before anything is written.
  await interruptible(options.signal);
  const { simulation, layers } = search;
  const precision = recipe ?? usualPrecision(simulation.cluster.device);
  const generated = options.generate === undefined ? null : generatedModel(options.generate);
  const model = generated ? generatedSource(generated) : await fileSource(options);
  const plan = planOfStep(
    {
      configuration: simulation.configuration,
      microBatches: simulation.microBatches,
      graph: layers.graph,
      runs: layers.runs,
      assignment: layers.assignment,
      stageLayers: chunksOf(search),
      prediction: predictionOf(search),
      costSeconds: simulation.stepSeconds,
      boundSeconds: boundSeconds(search),
      decided: decidedOf(search.decided),
      requested: requestedOf(search),
      objective: search.objective,
      memoryBytes: simulation.memoryBytes,
      isTimeLimited: search.isCutOff,
      isUncompared: search.isUncompared,
    },
    { ...model, training: training ? trainingOf({ ...training, precision }, model.graph) : null },
    clusterOf(search),
  );
  const directory = output ?? defaultFolder(options.model ?? `${generated?.family ?? 'model'}.onnx`);
  const { weights } = options;
  await emitPlan(plan, {
    directory,
    force: force ?? false,
    model: options.model ?? '',
    source: {
      ...(options.generate === undefined ? {} : { generated: options.generate }),
      dims: model.dims,
      globalBatch: simulation.configuration.globalBatch,
      randomWeights: null,
      constants: false,
      ...(weights?.length ? { weights } : {}),
      ...(training ? { training: { ...training, precision } } : {}),
    },
  });
  return {
    directory: path.normalize(directory),
    plan,
    notes: [...idlePins(options, search), ...unpriced(training), ...search.unbuilt],
    search,
  };
}

/** What of training is kept in the plan, and changes no price. */
function unpriced(training: Training | undefined): readonly string[] {
  if (!training) return [];
  const { optimizer, trainable = [], frozen = [] } = training;
  return [
    ...(trainable.length + frozen.length > 0
      ? ['--trainable and --frozen are kept in the plan; the step is priced with every parameter trained']
      : []),
    ...(optimizer.kind === 'sgd'
      ? ['--optimizer sgd is kept in the plan; the step is priced with the two moments of adam']
      : []),
  ];
}

/** Options of a pipeline where the best plan has none. */
function idlePins(
  { schedule, virtualStages }: Omit<CompileStepOptions, 'training'>,
  { simulation }: StepSearch,
): readonly string[] {
  if (simulation.configuration.degrees.pp > 1) return [];
  const given = [
    ...(schedule === undefined ? [] : [`--schedule ${schedule}`]),
    ...(virtualStages === undefined ? [] : [`--virtual-stages ${virtualStages}`]),
  ];
  return given.map((option) => `${option} has no effect: the best plan has no pipeline; --pp 2 or more asks for one`);
}

/** The search's bound of the seconds; of the memory objective no more is known of them than whether it ended. */
function boundSeconds({ objective, bound, isCutOff, simulation }: StepSearch): number {
  if (objective === 'time') return bound;
  return isCutOff ? 0 : simulation.stepSeconds;
}

async function searchFor({
  objective,
  within,
  ...options
}: Omit<StepSearchOptions, 'objective'> & Pick<CompileStepOptions, 'objective' | 'within'>): Promise<
  CompiledStep['search']
> {
  if (objective === 'cost' || objective === 'devices') {
    const { searchClusters } = await import('./search-clusters.js');
    return searchClusters({ ...options, objective, ...(within === undefined ? {} : { within }) });
  }
  return searchStep({ ...options, ...(objective ? { objective } : {}) });
}

/** Which plan was wanted; of the memory objective the one with the least. */
function requestedOf({ objective, preferences: { prefer, headroom } }: StepSearch): Plan['requested'] {
  return objective === 'time' ? { prefer, headroom } : {};
}

/** As options are written. */
function decidedOf({
  meshOrder,
  ...decided
}: StepSearch['decided']): Readonly<Record<string, string | number | boolean>> {
  return { ...decided, ...(meshOrder ? { meshOrder: meshOrder.join(',') } : {}) };
}

/** A model as the plan names it. */
type Named = Pick<ImportedModel, 'name' | 'fingerprint' | 'dims' | 'graph'>;

function generatedSource({ family, batch, build }: GeneratedModel): Named {
  const graph = findLayers(build(batch));
  return { name: family, fingerprint: fingerprint(graph), dims: {}, graph };
}

/** At the file's own batch: what a micro-batch holds is the search's to say. */
async function fileSource({
  model = '',
  dims,
  shapes,
  constants,
  weights,
  ...others
}: Omit<CompileStepOptions, 'training'>): Promise<Named> {
  const { importModel } = await import('./import.js');
  return importModel(model, {
    ...(dims ? { dims } : {}),
    ...(shapes ? { shapes } : {}),
    ...(constants ? { constants } : {}),
    ...(weights ? { weights } : {}),
    ...dispatchIn(others),
  });
}

function clusterOf({ simulation: { cluster } }: StepSearch): Plan['cluster'] {
  const { nodes, perNode, device, description } = cluster;
  return { nodes, perNode, device: device.id, ...(description ? { description } : {}) };
}

/** Layers of each chunk, chunk c of stage s at c · pp + s. */
function chunksOf({ simulation: { configuration }, layers: { work } }: StepSearch): readonly number[] {
  if (configuration.stageLayers) return configuration.stageLayers;
  const total = work.layers.reduce((sum, { count }) => sum + count, 0);
  const chunks = configuration.degrees.pp * configuration.virtualStages;
  return Array.from({ length: chunks }, (_, chunk) => Math.floor(total / chunks) + (chunk < total % chunks ? 1 : 0));
}

function predictionOf({ simulation }: StepSearch): Plan['predicted'] {
  const { stepSeconds, priceLevel, parts, bytes, stages, modelFlops, cluster, configuration } = simulation;
  return {
    stepSeconds,
    priceLevel,
    precision: configuration.precision,
    peakBytes: stages.map(({ total }) => Math.round(total)),
    parts: { ...parts },
    flopsPerRank: modelFlops / clusterSize(cluster),
    flopsTotal: modelFlops,
    bytesCommunicated: Object.values(bytes).reduce((sum, sent) => sum + sent, 0),
  };
}

function trainingOf(
  { loss, optimizer, precision, lossScale }: Omit<Training, 'precision'> & Required<Pick<PlanTraining, 'precision'>>,
  graph: Graph,
): PlanTraining {
  return {
    loss: {
      kind: loss.kind,
      ...(loss.output === undefined ? {} : { output: loss.output }),
      ...(loss.labelSmoothing === undefined ? {} : { labelSmoothing: loss.labelSmoothing }),
    },
    optimizer: { ...optimizer },
    trained: [...graph.weights.values()].filter(({ role }) => role === 'parameter').length,
    precision,
    ...(lossScale === undefined ? {} : { lossScale }),
  };
}
