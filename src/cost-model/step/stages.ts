/**
 * @file The layers of each stage of a pipeline, and the devices of each stage.
 */
import { madeOnce } from '../../ir/remembered.js';
import { type PartPlace, placeOfPart } from '../../schedule/parts.js';
import type { Cluster } from '../cluster.js';
import { clustersOfStages } from '../node-kinds.js';
import type { StepConfiguration } from './configuration.js';
import { stageStride } from './mesh-order.js';
import type { ModelWork } from './work.js';

/** The layers of a stage, or of a chunk of it, by class, and the model's ends. */
export interface StageLayers {
  readonly stage: number;
  /** Layers of each class that store their activations, and that recompute. */
  readonly stored: readonly number[];
  readonly recomputed: readonly number[];
  readonly first: boolean;
  readonly last: boolean;
}

/**
 * The layers of each chunk, in the model's order: `placeOfPart` states which stage has it. Cut by `stageLayers`, a chunk has
 * the classes of its layers; cut evenly (one layer more on the first chunks where it does not divide), each has its share
 * of every class, as a cut by hand would balance them. The first `recomputedLayers` layers of a stage recompute,
 * all where that is left out.
 * @throws Error where `stageLayers` are not those of the model
 */
export function chunkLayers(model: ModelWork, configuration: StepConfiguration): readonly StageLayers[] {
  const { counts, totals } = cutOf(model, configuration);
  const { recomputedLayers } = configuration;
  const place = placesIn(configuration);
  return counts.map((byClass, chunk) => {
    const { stage } = place(chunk);
    const ends = { first: chunk === 0, last: chunk === counts.length - 1 };
    if (!recomputedLayers) return { stage, stored: byClass.map(() => 0), recomputed: byClass, ...ends };
    const share = shareOf(recomputedLayers, stage, totals);
    return {
      stage,
      stored: byClass.map((count) => count * (1 - share)),
      recomputed: byClass.map((count) => count * share),
      ...ends,
    };
  });
}

/** A model's layers over chunks, whether they recompute or not. */
export interface LayerCut {
  /** By chunk and class. */
  readonly counts: readonly (readonly number[])[];
  /** By stage and class: those of its chunks. */
  readonly ofStages: readonly (readonly number[])[];
  /** By stage. */
  readonly totals: readonly number[];
}

/** @throws Error where `stageLayers` are not those of the model */
export function cutOf(model: ModelWork, configuration: StepConfiguration): LayerCut {
  if (configuration.stageLayers) return made(model, configuration);
  const known = madeOnce(EVEN_CUTS, model, () => new Map<string, LayerCut>());
  const key = `${configuration.degrees.pp} ${configuration.virtualStages} ${configuration.schedule === 'zbv'}`;
  return madeOnce(known, key, () => made(model, configuration));
}

/** By stages and chunks: a search uses the same few, for each of its configurations. */
const EVEN_CUTS = new WeakMap<ModelWork, Map<string, LayerCut>>();

function made(model: ModelWork, configuration: StepConfiguration): LayerCut {
  const { pp } = configuration.degrees;
  const cut = chunkCut(model, configuration);
  const counts = configuration.stageLayers ? classesAt(cut, model) : layerShares(cut, model);
  const totals = Array.from({ length: pp }, () => 0);
  const ofStages = totals.map(() => model.layers.map(() => 0));
  const place = placesIn(configuration);
  for (let chunk = 0; chunk < cut.length; chunk++) {
    const { stage } = place(chunk);
    totals[stage] = (totals[stage] as number) + (cut[chunk] as number);
    const sums = ofStages[stage] as number[];
    for (const [index, count] of (counts[chunk] as readonly number[]).entries())
      sums[index] = (sums[index] as number) + count;
  }
  return { counts, ofStages, totals };
}

/**
 * The layers of each stage: those of its chunks.
 * @param cut of the configuration, where the caller has it
 * @throws Error where `stageLayers` are not those of the model
 */
export function stageLayers(
  model: ModelWork,
  configuration: StepConfiguration,
  cut: LayerCut = cutOf(model, configuration),
): readonly StageLayers[] {
  const { ofStages, totals } = cut;
  const { recomputedLayers } = configuration;
  const none = model.layers.map(() => 0);
  const lastStage = stageOfLast(configuration);
  return ofStages.map((counts, stage) => {
    const ends = { stage, first: stage === 0, last: stage === lastStage };
    if (!recomputedLayers) return { stored: none, recomputed: counts, ...ends };
    const share = shareOf(recomputedLayers, stage, totals);
    return {
      stored: counts.map((count) => count * (1 - share)),
      recomputed: counts.map((count) => count * share),
      ...ends,
    };
  });
}

/** Classes of the model's layers, in its order. */
export function layerOrder({ layers, order }: ModelWork): readonly number[] {
  return order ?? layers.flatMap(({ count }, index) => Array.from({ length: count }, () => index));
}

/** The share of a stage's layers that recomputes. */
function shareOf(recomputedLayers: readonly number[], stage: number, totals: readonly number[]): number {
  return Math.min(1, (recomputedLayers[stage] ?? 0) / Math.max(1, totals[stage] as number));
}

/** Number of layers of each chunk, in the model's order. */
export function chunkCut({ layers }: ModelWork, configuration: StepConfiguration): readonly number[] {
  const { degrees, virtualStages, stageLayers: cut } = configuration;
  const { pp } = degrees;
  const chunks = pp * virtualStages;
  const total = layers.reduce((sum, { count }) => sum + count, 0);
  const even = (count: number, parts: number, part: number) =>
    Math.floor(count / parts) + (part < count % parts ? 1 : 0);
  if (!cut) return Array.from({ length: chunks }, (_, chunk) => even(total, chunks, chunk));
  if ((cut.length !== pp && cut.length !== chunks) || cut.reduce((sum, own) => sum + own, 0) !== total)
    throw new Error(`stages of ${cut.join(', ')} layers are not ${pp} stages of a model of ${total} layers`);
  if (cut.length === chunks) return cut;
  const place = placesIn(configuration);
  return Array.from({ length: chunks }, (_, part) => {
    const { stage, chunk } = place(part);
    return even(cut[stage] ?? 0, virtualStages, chunk);
  });
}

/** Where each part of the model is. */
export function placesIn({ degrees, schedule = '1f1b' }: StepConfiguration): (part: number) => PartPlace {
  return (part) => placeOfPart(schedule, part, degrees.pp);
}

/** The stage of the model's end: head and loss. */
export function stageOfLast(configuration: StepConfiguration): number {
  const { degrees, virtualStages } = configuration;
  return placesIn(configuration)(degrees.pp * virtualStages - 1).stage;
}

/** Layers by chunk and class, in the model's order. */
function classesAt(cut: readonly number[], { layers, order }: ModelWork): readonly (readonly number[])[] {
  const classes = order ?? layers.flatMap(({ count }, index) => Array.from({ length: count }, () => index));
  let next = 0;
  return cut.map((own) => {
    const counts = layers.map(() => 0);
    for (const index of classes.slice(next, next + own)) counts[index] = (counts[index] as number) + 1;
    next += own;
    return counts;
  });
}

/** Layers by chunk and class, the same share of every class. */
function layerShares(cut: readonly number[], { layers }: ModelWork): readonly (readonly number[])[] {
  const total = layers.reduce((sum, { count }) => sum + count, 0);
  return cut.map((own) => layers.map(({ count }) => (count * own) / total));
}

/** The devices of each stage: the order of the axes places stages on nodes. */
export function stageClusters(
  cluster: Cluster,
  { degrees, meshOrder }: Pick<StepConfiguration, 'degrees' | 'meshOrder'>,
): readonly Cluster[] {
  return clustersOfStages(cluster, degrees.pp, stageStride(degrees, meshOrder));
}
