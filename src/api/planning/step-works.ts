/**
 * @file A model's work at any tensor-parallel degree and micro-batch, read off one layer of each run of equal ones, and only once
 * for repeated requests of a search.
 */
import type { GeneratedModel } from '../../../models/families.js';
import { languageModel } from '../../../models/language-model.js';
import type { LanguageModelSizes } from '../../../models/language-sizes.js';
import { type Cluster, clusterSize } from '../../cost-model/cluster.js';
import { type WorkPoint, workAt } from '../../cost-model/step/affine-work.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { AutoparError, badOption } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { interruptible } from '../../ir/interruption.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import { recogniseRegions } from '../../ir/passes/recognise-regions.js';
import { writeSinks } from '../../ir/passes/write-sinks.js';
import { divisors } from '../../search/configurations/space.js';
import { batchSize } from '../../search/degrees.js';
import { generatedFile } from '../models/generated.js';
import { type ImportOptions, importModel, type ModelReader, modelReader } from '../models/import.js';
import { importedFor } from '../models/training-form.js';
import {
  graphOfWork,
  graphWork,
  type Purpose,
  type ReadWork,
  type StoredByPrograms,
  storedByPrograms,
} from './graph-work.js';

/** Sizes that work is read at before it is extrapolated: where the first two differ, the next two do not. */
const MOST_POINTS = 3;

/** The source of a model. */
export interface ModelSource extends Omit<ImportOptions, 'globalBatch'> {
  /** The model file; left out where it is generated. */
  readonly model?: string;
}

/** The batch that a model states, 1 where it has none. @throws AutoparError as importing does */
export async function statedBatch(
  { model = '', ...importing }: ModelSource,
  generated: GeneratedModel | null,
): Promise<number> {
  if (generated) return generated.batch;
  return batchSize((await importModel(model, importing)).graph) ?? 1;
}

/** The work of one micro-batch of this many samples per rank. @throws AutoparError as importing and planning do */
export type WorkReader = (tp: number, microBatch: number) => Promise<ReadWork>;

/** The layers of a model at a batch, over any number of tensor-parallel ranks, in the layouts of other samples or as searched. */
type LayersAt = (tp: number, known: ReadWork | null) => ReadWork | Promise<ReadWork>;

/** The largest divisor of the batch that is at most a device's share of the samples when all devices share it; at least 1. */
export function evenShare(globalBatch: number, cluster: Cluster): number {
  return Math.max(1, ...divisors(globalBatch).filter((size) => size * clusterSize(cluster) <= globalBatch));
}

/**
 * Reads each work once.
 * @param usual samples at which the layouts of a graph are searched; other sizes reuse them, so that work grows evenly with the
 * samples. Where it is null, or the model cannot be rebuilt at it, each size has its own layouts
 * @throws AutoparError (usage) `bad-option` for options about a file's inputs where there is no file
 */
export function workReader(
  source: ModelSource,
  generated: GeneratedModel | null,
  purpose: Purpose,
  cluster: Cluster,
  usual: number | null = null,
): WorkReader {
  if (generated) checkGenerated(source);
  const works = new Map<string, Promise<ReadWork>>();
  const models = new Map<number, Promise<LayersAt>>();
  let modelReading: Promise<ModelReader> | undefined;
  let ofPrograms: Promise<StoredByPrograms | null> | undefined;
  const modelAt = kept(models, read);
  const reader: WorkReader = (tp, microBatch) =>
    kept(works, async () => (await modelAt(microBatch))(tp, await usualAt(tp, microBatch)))(`${tp} ${microBatch}`);
  return reader;

  async function usualAt(tp: number, microBatch: number): Promise<ReadWork | null> {
    if (usual === null || tp === 1 || microBatch === usual) return null;
    return reader(tp, usual).catch((error: unknown) => {
      if (isUnbuilt(error)) return null;
      throw error;
    });
  }

  /** The layers at a batch, for any number of ranks. */
  async function read(batch: number): Promise<LayersAt> {
    modelReading ??= readerOf(source, generated);
    const whole = await imported(await modelReading, purpose, batch);
    const plain = graphOfWork(whole, purpose);
    ofPrograms ??= storedByPrograms(plain, whole, purpose, cluster);
    const graph = { ...plain, stored: await ofPrograms };
    return (tp, known) => graphWork(graph, tp, cluster, known);
  }
}

/** Codes of a file that cannot be rebuilt at a batch. */
const UNBUILT: ReadonlySet<string> = new Set(['batch-ambiguous', 'batch-constant']);

/** Whether reading failed since the file cannot be rebuilt at that batch: another one, above all its own, may work. */
export function isUnbuilt(error: unknown): error is AutoparError {
  return error instanceof AutoparError && UNBUILT.has(error.code);
}

async function readerOf(
  { model = '', dims = {}, shapes = {}, constants = {}, weights = [], ...importing }: ModelSource,
  generated: GeneratedModel | null,
): Promise<ModelReader> {
  // With a batch of one sample, not all operators show which of their dimensions contain the batch.
  if (generated) return modelReader(await generatedFile(generated.text, Math.max(2, generated.batch)));
  const read = modelReader(model, { dims, shapes, constants, weights });
  return (options) => read({ ...importing, ...options });
}

/** A model at a batch. */
async function imported(read: ModelReader, purpose: Purpose, batch: number): Promise<Graph> {
  // Experts are stacked so that ep can spread them over ranks, whether or not it does in the end.
  const form = importedFor(purpose.kind === 'training' ? {} : undefined, { stacksExperts: true });
  return (await read({ ...form, globalBatch: batch })).graph;
}

/** The work of a language model's training on one of `tp` ranks. @throws AutoparError where no plan shards it over them */
export async function modelWork(sizes: LanguageModelSizes, tp: number, cluster: Cluster): Promise<ModelWork> {
  // As a file of it is imported, except for constant folding: thousands of measured runs are read so.
  const whole = findLayers(recogniseRegions(writeSinks(languageModel('generated', sizes, 0, 'absent'))));
  const graph = graphOfWork(whole, { kind: 'training', loss: { kind: 'cross_entropy' } });
  return (await graphWork(graph, tp, cluster)).work;
}

/** Sizes of a generated model are keys of its family; its inputs cannot be changed. */
function checkGenerated({ dims = {}, shapes = {}, constants = {}, weights = [] }: ModelSource): void {
  const [dim] = Object.keys(dims);
  const [shape] = Object.keys(shapes);
  const [constant] = Object.keys(constants);
  const [weight] = weights;
  const stray =
    dim !== undefined
      ? `--dim ${dim}`
      : shape !== undefined
        ? `--shape ${shape}`
        : constant !== undefined
          ? `--const ${constant}`
          : weight && `--weights ${weight}`;
  if (!stray) return;
  throw badOption(
    `${stray} applies to inputs of a model file, and this model is generated`,
    'its sizes are keys of its family, as in --model gpt:seq=512,batch=8',
  );
}

/** A function that is called once for each key. */
function kept<Key, Value>(known: Map<Key, Value>, make: (key: Key) => Value): (key: Key) => Value {
  return (key) => {
    const found = known.get(key) ?? make(key);
    known.set(key, found);
    return found;
  };
}

/**
 * The works that a search may need, without waiting: read at the two smallest sizes, and extrapolated from there; read at other
 * sizes where that does not suffice.
 */
export async function knownWorks(
  read: WorkReader,
  tps: readonly number[],
  microBatches: readonly number[],
  signal?: AbortSignal,
): Promise<(tp: number, microBatch: number) => ModelWork> {
  const works = new Map<string, ModelWork>();
  for (const tp of tps) {
    const points: WorkPoint[] = [];
    for (const samples of [...microBatches].sort((a, b) => a - b)) {
      await interruptible(signal);
      const [one, two] = points.slice(-2);
      const work = (one && two && workAt(samples, one, two)) ?? (await read(tp, samples)).work;
      if (points.length < MOST_POINTS) points.push({ samples, work });
      works.set(`${tp} ${samples}`, work);
    }
  }
  return (tp, microBatch) => {
    const work = works.get(`${tp} ${microBatch}`);
    if (!work) throw new Error(`no work was read at tp ${tp} and ${microBatch} samples`);
    return work;
  };
}
