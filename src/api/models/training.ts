/**
 * @file A training model: the imported model with loss, gradients and optimizer.
 */

import { outputOf } from '../../ir/autodiff/append-loss.js';
import {
  cutInMicroBatches,
  type TrainingGraph,
  type TrainingOptions,
  trainingGraph,
} from '../../ir/autodiff/training-graph.js';
import { isFloating } from '../../ir/dtype.js';
import { AutoparError, usageError } from '../../ir/error.js';
import { fingerprint } from '../../ir/fingerprint.js';
import { matchesAny } from '../../ir/glob.js';
import type { Graph } from '../../ir/graph.js';
import { needed } from '../../ir/needed.js';
import { fileNames } from '../../ir/parameters/find-parameters.js';
import { isNatural, parameterPlaces } from '../../ir/parameters/places.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { batchSize } from '../../search/degrees.js';
import type { PlanTraining } from '../../strategy/plan.js';
import { checkArguments } from '../options/kinds.js';
import { IMPORTED, TRAINING } from '../options/results.js';
import { checkTraining, type Training } from '../requests/training-request.js';
import type { ImportedModel } from './import.js';
import { type PreparedTraining, trainingForm } from './training-form.js';

export type { Training };

/**
 * The training model that `withTraining` makes. If a step has several micro-batches, its graph is that of one micro-batch.
 * @param whole the model at the whole batch, imported with the options of `importedFor`
 * @param at the same model at another batch
 * @throws AutoparError as `withTraining` and `cutInMicroBatches` do
 */
export async function trainedModel(
  whole: ImportedModel,
  training: Training,
  at: (batch: number) => Promise<ImportedModel>,
): Promise<ImportedModel> {
  const { microBatches: count = 1 } = training;
  if (count === 1) return withTraining(whole, training);
  checkTraining(training);
  const microBatches = cutInMicroBatches(
    trainingForm(whole, training, { microBatches: count, isPart: false }).graph,
    training,
    count,
  );
  const part = await at((batchSize(whole.graph) ?? count) / count);
  return withTraining({ ...part, globalBatch: whole.globalBatch, notes: whole.notes }, training, { microBatches });
}

/** Whether micro-batches, in any number, would compute another result than the whole batch. */
export function mixesSamples(whole: ImportedModel, training: Training): boolean {
  try {
    cutInMicroBatches(trainingForm(whole, training, { microBatches: 2, isPart: false }).graph, training, 2);
    return false;
  } catch (error) {
    if (error instanceof AutoparError) return error.code === 'mixes-samples';
    throw error;
  }
}

/** Whether the graph is that of one micro-batch, or of the whole batch with the loss in the form that micro-batches have. */
type MicroBatchForm = Pick<TrainingOptions, 'microBatches' | 'inSums'>;

/**
 * The model with a training step as its graph. Import it with the options of `importedFor`, so that its Dropout is present.
 * @throws AutoparError (usage) `bad-option` for contradictory options, `unknown-parameter` for a glob that matches no weight;
 * also the errors of the training form and of the training graph
 */
export function withTraining(imported: ImportedModel, training: Training, cut?: MicroBatchForm): ImportedModel {
  checkArguments('withTraining', { imported: [imported, IMPORTED], training: [training, TRAINING] });
  const { step, form } = trainingGraphOf(imported, training, cut);
  const graph = findLayers(step.graph, form.graph);
  const { loss, optimizer } = training;
  return {
    ...imported,
    graph,
    fingerprint: fingerprint(graph),
    training: planned(step, training),
    gradients: step.gradients,
    step,
    notes: [...imported.notes, ...form.notes, ...unreachedNote(form.trained, step.trained), ...sumNote(training)],
    passes: [...imported.passes, form.pass, { name: 'train', options: { loss: loss.kind, optimizer: optimizer.kind } }],
  };
}

/** The graph of a step, and the forward graph that it is made from. @throws AutoparError as `withTraining` */
export function trainingGraphOf(
  imported: ImportedModel,
  training: Training,
  cut: MicroBatchForm = {},
): { readonly step: TrainingGraph; readonly form: PreparedTraining } {
  checkTraining(training);
  checkFloating(imported.graph, training);
  const { microBatches = 1 } = training;
  const form = trainingForm(imported, training, { microBatches, isPart: cut.microBatches !== undefined });
  const { loss, optimizer, precision, lossScale, isHeldInFloat32, gradientReduction, shards = 1 } = training;
  const step = trainingGraph(form.graph, {
    loss,
    optimizer,
    ...withoutUndefined({ precision, lossScale, isHeldInFloat32 }),
    ...(gradientReduction === 'sum' ? { summedOver: shards } : {}),
    ...cut,
    trained: reachedWeights(form, training),
    decays: decayOf(form.graph, training),
  });
  return { step, form };
}

/**
 * The weights to train without those that serve other outputs than the loss's. Those that `trainable` names stay, and so do all
 * where none would be left: that no gradient arrives is an error then.
 */
function reachedWeights({ graph, trained }: PreparedTraining, { loss, trainable = [] }: Training): readonly string[] {
  const ends = [outputOf(graph, loss)];
  const read = new Set([...ends, ...needed(graph.nodes, ends).flatMap(({ inputs }) => inputs)]);
  const isNamed = (name: string) => [name, ...fileNames(graph, name)].some((known) => matchesAny(trainable, known));
  const reached = trained.filter((name) => read.has(name) || isNamed(name));
  return reached.length > 0 ? reached : trained;
}

function unreachedNote(given: readonly string[], trained: readonly string[]): readonly string[] {
  const kept = new Set(trained);
  const left = given.filter((name) => !kept.has(name));
  if (left.length === 0) return [];
  const more = left.length > MOST_NAMES ? ` and ${left.length - MOST_NAMES} more` : '';
  const whom = left.length > 1 ? 'them' : 'it';
  return [`not trained: ${left.slice(0, MOST_NAMES).join(', ')}${more} (the loss does not depend on ${whom})`];
}

const MOST_NAMES = 3;

function sumNote({ gradientReduction, shards = 1 }: Training): readonly string[] {
  if (gradientReduction !== 'sum') return [];
  return [
    shards === 1
      ? '--gradient-reduction sum changes nothing on dp 1'
      : `gradients are summed over ${shards} ranks of dp, not averaged: ${shards} times the gradients of the global batch`,
  ];
}

/** The plan's record of a training step. */
function planned(
  { classes, trained }: TrainingGraph,
  { loss, optimizer, precision, lossScale, lossAlone, gradientReduction }: Training,
): PlanTraining {
  const { output, labelSmoothing, moeBalance } = loss;
  return {
    loss: {
      kind: loss.kind,
      ...withoutUndefined({ output, labels: classes ?? undefined, labelSmoothing, moeBalance }),
    },
    optimizer: { ...optimizer },
    trained: trained.length,
    ...withoutUndefined({ precision, lossScale }),
    ...(gradientReduction === 'sum' ? { gradientReduction } : {}),
    ...(lossAlone ? { lossAlone: true as const } : {}),
  };
}

/** @throws AutoparError `nothing-to-train` where a glob of `trainable` matches integer weights only */
function checkFloating(graph: Graph, { trainable = [] }: Training): void {
  const fitting = (glob: string) => [...graph.weights].filter(([name]) => matchesAny([glob], name));
  const whole = trainable.find((glob) => {
    const found = fitting(glob);
    return found.length > 0 && !found.some(([, { dtype }]) => isFloating(dtype));
  });
  if (whole === undefined) return;
  throw new AutoparError(
    'nothing-to-train',
    'input',
    `weights that fit '${whole}' hold whole numbers, which cannot be trained`,
    {},
    'leave it out of --trainable',
  );
}

/** Which weights decay: matrices; not biases, scales or vectors of any shape. `decayed` and `undecayed` take precedence. */
export function decayOf(graph: Graph, { decayed = [], undecayed = [] }: Training): (name: string) => boolean {
  checkGlobs(graph, [...decayed, ...undecayed]);
  const places = parameterPlaces(graph, graph.weights.keys());
  return (name) => {
    const names = [name, ...fileNames(graph, name)];
    if (names.some((known) => matchesAny(undecayed, known))) return false;
    if (names.some((known) => matchesAny(decayed, known))) return true;
    const { shape = [] } = graph.weights.get(name) ?? {};
    const natural = (places.get(name) ?? []).filter(isNatural);
    // A matrix with one row is a matrix; a vector of channels is one in every shape that broadcasting gives it.
    if (natural.some(({ use }) => use === 'product' || use === 'lookup')) return shape.length > 1;
    return natural.length === 0 && shape.filter((size) => size > 1).length > 1;
  };
}

function checkGlobs(graph: Graph, globs: readonly string[]): void {
  const names = [...graph.weights.keys()].flatMap((name) => [name, ...fileNames(graph, name)]);
  const stray = globs.find((glob) => !names.some((name) => matchesAny([glob], name)));
  if (stray === undefined) return;
  throw usageError(
    'unknown-parameter',
    `no weight has a name that fits '${stray}'`,
    'autopar inspect --parameters lists them',
  );
}
