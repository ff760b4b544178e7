/**
 * @file compile: turns a model and a cluster into a folder with plan and program. Imports, plans, emits, and verifies on request.
 */
import { isDeepStrictEqual } from 'node:util';
import { clusterSize, parseCluster } from '../cost-model/cluster.js';
import { interruptible } from '../ir/interruption.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import type { PlanResult } from '../search/plan.js';
import { explainablePlanOf } from './explanations/explain-compiled.js';
import { weightsNeeded } from './models/absent-weights.js';
import { dispatchIn } from './models/dispatch.js';
import { type ImportedModel, importModel } from './models/import.js';
import { inPrecision, loweredPrecision } from './models/inference-precision.js';
import { withRandomWeights } from './models/random-weights.js';
import { type Training, trainedModel } from './models/training.js';
import { importedFor, sharedBy } from './models/training-form.js';
import type { WrittenModel } from './models/write-model.js';
import { emit } from './output/emit.js';
import { checkTarget, defaultFolder, readSource } from './output/folder.js';
import { choosePlan } from './planning/choose-plan.js';
import type { ComparedPlan, PreparedModel } from './planning/compared-plans.js';
import { comparisonOf, type PlanComparison } from './planning/comparison.js';
import { unsearchedDimensions } from './planning/left-out.js';
import { onPart } from './planning/objective.js';
import { asSearched, storedProposalRequest, unproposed } from './planning/proposals.js';
import type { ClusterSize } from './planning/search-clusters.js';
import type { StepSearch } from './planning/search-step.js';
import { type PlanSummary, summaryOf } from './reports/plan-summary.js';
import { type ConfigOptions, optionsOf } from './requests/annotations.js';
import { clusterSources } from './requests/cluster-sources.js';
import type { NestedCompileOptions } from './requests/compile-options.js';
import { loadedPins, saveStrategy } from './requests/config-checkpoints.js';
import { requestedStages } from './requests/decisions.js';
import { inMicroBatches } from './requests/micro-batches.js';
import { refuseUntrained } from './requests/recompute.js';
import type { ModelOptions } from './strategies/forms.js';
import { type VerifyResult, verify } from './verify.js';

export type { NestedCompileOptions };

export interface CompileResult extends PlanSummary, WrittenModel {
  readonly comparison: PlanComparison;
  readonly directory: string;
  /** Notes of import and search for the user. */
  readonly notes: readonly string[];
  /** Operators that a pinned degree could not shard, with the reason. */
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
  readonly rejected: PlanResult['rejected'];
  /** The best combinations of degrees, starting with the chosen one. */
  readonly top: PlanResult['top'];
  /** Proposed plans that were lowered, the chosen one first; empty if none could be lowered, null if none were proposed. */
  readonly compared: readonly ComparedPlan[] | null;
  /** All configurations of the step that were compared by the price of layers; null if nothing was proposed. */
  readonly searched: StepSearch | null;
  /** Dimensions of the search, by the names of their options, that were not searched. */
  readonly leftOut: readonly string[];
  /** The option because of which no steps were proposed, and why, in words; null where no option is the cause. */
  readonly unproposed: string | null;
  /** Device subsets that were compared, smallest first; null if the plan is for the whole cluster. */
  readonly sizes: readonly ClusterSize[] | null;
  readonly programWritten: boolean;
  /** The reason why there is no program, in a sentence. */
  readonly programReason?: string;
  readonly verification?: VerifyResult;
}

/**
 * Plans, lowers, and writes plan.json, program/ and source.json; if it fails it leaves no files behind.
 * @throws AutoparError for everything that the user can fix.
 */
export async function compile(options: NestedCompileOptions): Promise<CompileResult> {
  const progress = options.onProgress ?? (() => undefined);
  const directory = options.output ?? defaultFolder(options.model);
  const { dims, shapes, constants, weights, seed = 0, signal } = options;
  if (!options.training) refuseUntrained(options.recompute);
  await checkTarget(directory, options.force ?? false, options.model);
  progress('importing');
  const readAt = (globalBatch: number | undefined, degrees: NestedCompileOptions['degrees']) =>
    importModel(options.model, {
      ...withoutUndefined({ dims, shapes, constants, globalBatch, weights }),
      ...dispatchIn(options),
      ...importedFor(options.training, sharedBy(degrees)),
    });
  const config = options.config ? optionsOf(options.config, options.devices) : undefined;
  const stated = { ...config?.degrees, ...options.annotations?.mesh };
  const withConfigured = (degrees: NestedCompileOptions['degrees']) => ({ ...stated, ...degrees });
  const read = await readAt(options.globalBatch, withConfigured(options.degrees));
  await interruptible(options.signal);
  const random = options.initRandom === true && !read.weightsPresent;
  const modelOptions: ModelOptions = {
    model: options.model,
    dims: read.dims,
    ...withoutUndefined({ globalBatch: options.globalBatch }),
  };
  const loaded = await loadedPins(options.config, options.annotations, modelOptions);
  const trained = options.training && (await trainingOn(options.training, options.cluster));
  const clusterHints = options.clusterHints ?? (await clusterSources(options.cluster));
  const { options: placed, sizes } = await onPart(
    { ...options, clusterHints, ...(loaded ? { annotations: loaded } : {}) },
    trained,
    read,
  );
  const {
    imported: chosen,
    training,
    planned: found,
    axes,
    compared,
    searched,
    notes,
  } = await choosePlan({
    cluster: parseCluster(placed.cluster, placed.devices, {
      ...placed.clusterHints,
      degrees: placed.degrees ?? {},
    }),
    read,
    options: placed,
    training: trained,
    form: async (asked, training) => {
      const degrees = withConfigured(asked.degrees);
      const at = (globalBatch: number | undefined) => readAt(globalBatch, degrees);
      const isRead = isDeepStrictEqual(sharedBy(degrees), sharedBy(withConfigured(options.degrees)));
      return formed(isRead ? read : await at(options.globalBatch), { ...asked, degrees }, training, at, config);
    },
  });
  // Random values come after everything that may fail: for a large model they take minutes.
  const imported = random && !options.planOnly ? await withRandomWeights(chosen, seed, options.signal) : chosen;
  const planned = { ...found, imported };
  await interruptible(options.signal);
  progress('writing');
  const comparison = comparisonOf({ ...planned.found, compared, searched });
  const { targetNotes, ...emitted } = await emit(planned, {
    directory,
    comparison,
    randomWeights: random ? seed : null,
    decisions: {
      ...options,
      ...withoutUndefined({ axes }),
      ...(searched ? { proposals: storedProposalRequest(asSearched(placed, trained, read)) } : {}),
    },
    constants: imported.constants,
    ...withoutUndefined({ training, generated: options.generated, weights, signal }),
    ...withoutUndefined({ force: options.force, planOnly: options.planOnly, target: options.target }),
  });
  const saved = await saveStrategy(options.config, directory, modelOptions);
  if (options.verify && !emitted.programWritten)
    throw weightsNeeded(
      { ...imported, generated: options.generated },
      '--verify needs a program, and compile wrote none',
      `--init random makes values; the plan is in ${directory}`,
    );
  const verification = options.verify
    ? await verify({ directory, model: options.model, seed, onProgress: progress, ...withoutUndefined({ signal }) })
    : undefined;
  return {
    directory,
    ...summaryOf({
      plan: planned.plan,
      comparison,
      cluster: planned.cluster,
      graph: planned.imported.graph,
      memory: options.memory,
      lowering: {
        lowered: planned.found.lowered,
        schedule: planned.pipeline?.schedule ?? null,
        memory: planned.found.memory,
      },
      assignment: planned.found.assignment,
      precision: planned.found.prediction.precision,
      recompute: planned.recompute(),
      stageLayout: planned.pipeline?.text ?? null,
      explainable: async () =>
        explainablePlanOf(directory, await readSource(directory), planned.plan, planned.imported),
    }),
    notes: [
      ...imported.notes,
      ...planned.notes,
      ...notes,
      ...targetNotes,
      ...(saved === null ? [] : [`the strategy is in ${saved}, as the configuration says`]),
    ],
    exceptions: planned.found.exceptions,
    rejected: planned.found.rejected,
    top: planned.found.top,
    compared,
    searched,
    sizes,
    leftOut: compared
      ? []
      : unsearchedDimensions(imported.graph, {
          devices: clusterSize(planned.cluster),
          given: planned.plan.meshes ? planned.plan.degrees : (options.degrees ?? {}),
          stages: planned.plan.degrees.pp,
          trains: training !== undefined,
          isLocal: planned.cluster.local,
        }).filter((option) => !Object.hasOwn(planned.plan.requested ?? {}, option)),
    unproposed: compared ? null : unproposed(placed, trained),
    comparison,
    ...emitted,
    ...withoutUndefined({ verification }),
  };
}

/**
 * The model in the form that is planned: a training step in its micro-batches, or inference in its precision.
 * @param options with the degrees of the configuration
 */
async function formed(
  read: ImportedModel,
  options: NestedCompileOptions,
  training: Training | undefined,
  at: (batch: number) => Promise<ImportedModel>,
  config: ConfigOptions | undefined,
): Promise<PreparedModel> {
  if (!training) {
    const isLow = (options.precision ?? 'fp32') !== 'fp32';
    const lowered = isLow ? loweredPrecision(options.precision, await isLocal(options.cluster)) : undefined;
    return { imported: inPrecision(read, lowered), training };
  }
  const clusterHints = options.clusterHints ?? (await clusterSources(options.cluster));
  const stages = requestedStages(read, { ...options, clusterHints });
  const configured = config?.microBatches ?? 1;
  const interleave = options.interleave ?? config?.interleave ?? 1;
  const asked: Training =
    training.gradientReduction === undefined && config?.gradientReduction
      ? { ...training, gradientReduction: config.gradientReduction }
      : training;
  const cut = inMicroBatches(asked, { ...options, stages, configured, interleave }, read);
  return { imported: await trainedModel(read, cut, at), training: cut };
}

/**
 * Ranks of this machine have no 16-bit kernels: they hold the 16-bit tensors of a recipe in float32. They also return the model's
 * outputs for inspection and comparison; on accelerators the logits of all micro-batches would take memory that nothing reads.
 */
async function trainingOn(training: Training, cluster: string | undefined): Promise<Training> {
  if (!(await isLocal(cluster))) return { ...training, lossAlone: true };
  return (training.precision ?? 'fp32') !== 'fp32' ? { ...training, isHeldInFloat32: true } : training;
}

async function isLocal(cluster: string | undefined): Promise<boolean> {
  return parseCluster(cluster, undefined, await clusterSources(cluster)).local;
}
