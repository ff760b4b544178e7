/**
 * @file A model in training form, before loss and gradients: parameters by place, batch statistics, active dropout.
 */

import {
  keepRunningStatistics,
  ONE_PART,
  type StatisticsParts,
  takeBatchStatistics,
} from '../../ir/autodiff/batch-statistics.js';
import { drawDropout, keepMasks } from '../../ir/autodiff/dropout.js';
import { isFloating } from '../../ir/dtype.js';
import type { Graph } from '../../ir/graph.js';
import { findParameters } from '../../ir/parameters/find-parameters.js';
import type { Parameter, ParameterEvidence, ParameterOptions, Parameters } from '../../ir/parameters/parameter.js';
import { placeParameters } from '../../ir/parameters/place-parameters.js';
import { isNatural, isPlausible } from '../../ir/parameters/places.js';
import { DOTTED, LITERAL } from '../../ir/parameters/role.js';
import { sameValues } from '../../ir/parameters/same-values.js';
import type { PlanPass } from '../../strategy/plan.js';
import type { ImportedModel, ImportOptions } from './import.js';
import type { BatchStatistics } from './statistics-parts.js';

/** Options for converting a model to training form; `trainable` and `frozen` are globs of names. */
export interface TrainingFormOptions extends ParameterOptions {
  /**
   * `training` (the default): as after PyTorch's `model.train()`, with batch statistics and active dropout; `as-exported`: the
   * operators as they are in the file.
   */
  readonly trainMode?: 'training' | 'as-exported';
  /** Normalisations use their running statistics and do not update them. */
  readonly freezeBatchStatistics?: boolean;
  /**
   * The samples that normalisations compute statistics over: the whole batch (the default), each micro-batch, or each dp rank's
   * shard of it. The choice changes the results of the model: `verify` compares with the same statistics.
   */
  readonly batchStatistics?: BatchStatistics;
  /** Ranks of dp, for statistics of shards and sums of gradients. */
  readonly shards?: number;
  /** Random seed of the dropout masks; 0 by default. */
  readonly dropoutSeed?: number;
}

/** The number of micro-batches in a step, and whether the model is for one of them or for the whole batch. */
export interface CutBatch {
  readonly microBatches: number;
  readonly isPart: boolean;
}

/** A forward graph ready for loss and gradients. */
export interface PreparedTraining {
  readonly graph: Graph;
  /** Names of the weights that are trained. */
  readonly trained: readonly string[];
  /** Notes for the user, one line each. */
  readonly notes: readonly string[];
  /** The pass that was applied, for the plan. */
  readonly pass: PlanPass;
}

/**
 * Import options for training: operators on parameters are kept, and so is Dropout if it is active; experts are stacked. The
 * options for dimensions that ranks shard are added.
 */
export function importedFor(
  training: TrainingFormOptions | undefined,
  shared: SharedDimensions = {},
): Pick<ImportOptions, 'forTraining' | 'keepsParameters'> & SharedDimensions {
  if (!training) return shared;
  return {
    ...shared,
    keepsParameters: true,
    // At all degrees, since every plan must be able to read a checkpoint.
    stacksExperts: true,
    ...(training.trainMode === 'as-exported' ? {} : { forTraining: true }),
  };
}

/** Import options for the dimensions that ranks shard besides batch and weights: sequence and experts. */
export type SharedDimensions = Pick<ImportOptions, 'sharesSequence' | 'sharesExperts' | 'stacksExperts'>;

/** The options for these degrees. */
export function sharedBy({ sp = 1, ep = 1 }: { readonly sp?: number; readonly ep?: number } = {}): SharedDimensions {
  return { ...(sp > 1 ? { sharesSequence: true } : {}), ...(ep > 1 ? { sharesExperts: true } : {}) };
}

/** The options that a model, or the model of a plan, was imported with. */
export function sharedIn({ passes }: { readonly passes: readonly Pick<PlanPass, 'name'>[] }): SharedDimensions {
  const has = (pass: string) => passes.some(({ name }) => name === pass);
  return {
    ...(has('write-attention') ? { sharesSequence: true } : {}),
    ...(has('expand-experts') ? { sharesExperts: true } : {}),
    ...(has('stack-experts') || has('sum-gathered') ? { stacksExperts: true } : {}),
  };
}

/**
 * Converts an imported model to its training form. Dropout is present only if the model was imported for training
 * (`importedFor`).
 * @throws AutoparError (usage) `unknown-parameter`, `tie-mismatch`, `bad-option` for names that the model lacks
 */
export function trainingForm(
  imported: ImportedModel,
  options: TrainingFormOptions,
  cut: CutBatch = { microBatches: 1, isPart: false },
): PreparedTraining {
  const { graph, evidence } = imported;
  const found = findParameters(graph, { ...evidence, values: sameValues(graph.weights) }, options);
  const { parameters, buffers } = found;
  const { graph: placed, weightOf } = placeParameters(graph, [...parameters, ...buffers]);
  const asExported = options.trainMode === 'as-exported';
  const moved =
    options.freezeBatchStatistics === true
      ? { graph: keepRunningStatistics(placed), taken: 0 }
      : asExported
        ? { graph: placed, taken: 0 }
        : takeBatchStatistics(placed, evidence.identities, partsOf(options, cut));
  const { graph: drawing, drawn } = asExported
    ? { graph: moved.graph, drawn: 0 }
    : drawDropout(moved.graph, options.dropoutSeed ?? 0);
  return {
    graph: keepMasks(drawing),
    trained: parameters.filter(({ trainable }) => trainable).map(weightOf),
    notes: [
      ...(imported.folded === null ? [] : [imported.folded]),
      ...verdictNotes(found, evidence.kinds),
      ...notesOf(moved.taken, drawn, options),
    ],
    pass: {
      name: 'training-form',
      options: { batchStatistics: moved.taken, dropout: drawn, seed: options.dropoutSeed ?? 0 },
    },
  };
}

/** Notes on tensors that neither an operator's rule nor the exporter classifies: untrained ones with reasons, trained ones. */
function verdictNotes(
  { parameters, buffers, constants }: Parameters,
  kinds: ParameterEvidence['kinds'],
): readonly string[] {
  const isDecided = ({ weights, why }: Parameter) =>
    weights.some((name) => kinds.has(name)) || why.startsWith('set by');
  const met = ({ places }: Parameter) => places.some((place) => isPlausible(place) || place.use === 'standard');
  const left = [...buffers, ...constants].filter(
    (item) => isFloating(item.dtype) && item.elements > 1 && item.why !== LITERAL && met(item) && !isDecided(item),
  );
  const groups = [...new Set(left.map(({ why }) => why))].map((why) => {
    return `${some(left.filter((item) => item.why === why))} (${why})`;
  });
  const named = ({ weights }: Parameter) => weights.every((name) => DOTTED.test(name));
  const taken = parameters.filter(
    (item) => item.trainable && !item.places.some(isNatural) && !isDecided(item) && !named(item),
  );
  return [
    ...(groups.length > 0 ? [`not trained: ${groups.join('; ')}; --trainable NAME trains one`] : []),
    ...(taken.length > 0
      ? [
          `trained, as operands of data whose values are neither a mask nor a formula: ${some(taken)}; --frozen NAME freezes one`,
        ]
      : []),
  ];
}

/** The first names, and how many more there are. */
function some(items: readonly Parameter[]): string {
  const names = items.slice(0, MOST_NAMES).map(({ name }) => name);
  const more = items.length - names.length;
  return `${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

const MOST_NAMES = 3;

/** The parts of the batch that have statistics of their own. */
function partsOf(
  { batchStatistics, shards = 1 }: TrainingFormOptions,
  { microBatches, isPart }: CutBatch,
): StatisticsParts {
  if (batchStatistics === undefined || batchStatistics === 'batch') return ONE_PART;
  const each = batchStatistics === 'shard' ? shards : 1;
  return { here: isPart ? each : each * microBatches, whole: each * microBatches };
}

const WHOSE: Readonly<Record<BatchStatistics, string>> = {
  batch: 'the global batch',
  'micro-batch': 'each micro-batch',
  shard: 'the part of a micro-batch on each rank of dp',
};

function notesOf(taken: number, drawn: number, { batchStatistics = 'batch' }: TrainingFormOptions): readonly string[] {
  const count = (number: number, singular: string, plural: string) =>
    number === 1 ? `one ${singular}` : `${number} ${plural}`;
  return [
    ...(taken === 0 && batchStatistics !== 'batch'
      ? [`--batch-statistics ${batchStatistics} changes nothing: no operator takes statistics of a batch`]
      : []),
    ...(taken > 0
      ? [
          `${count(taken, 'BatchNormalization takes', 'BatchNormalizations take')} statistics of ${WHOSE[batchStatistics]} ` +
            '(--freeze-batch-statistics uses the running ones)',
        ]
      : []),
    ...(drawn > 0
      ? [`${count(drawn, 'Dropout is', 'Dropouts are')} active (--train-mode as-exported removes them)`]
      : []),
  ];
}
