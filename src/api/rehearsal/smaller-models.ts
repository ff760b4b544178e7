/**
 * @file The smaller models that a rehearsal may use, the smallest first: a narrower model of a family, or a file with fewer
 * samples and shorter sequences.
 */
import { type NarrowSizes, narrowerTexts } from '../../../models/narrower.js';
import { inFloat32 } from '../../ir/autodiff/held-in-float32.js';
import type { LowType } from '../../ir/autodiff/mixed-precision.js';
import { LOW_TYPES } from '../../ir/autodiff/training-graph.js';
import { fingerprint } from '../../ir/fingerprint.js';
import { matchesAny } from '../../ir/glob.js';
import { batchSize } from '../../search/degrees.js';
import type { Arrays } from '../execution/arrays.js';
import type { CompiledModel } from '../models/compiled-model.js';
import { dispatchOf } from '../models/dispatch.js';
import { generatedFile } from '../models/generated.js';
import { type ImportedModel, importModel } from '../models/import.js';
import { type InferencePrecision, inPrecision } from '../models/inference-precision.js';
import { type Training, trainedModel, withTraining } from '../models/training.js';
import { importedFor, sharedIn } from '../models/training-form.js';
import type { ProgramSource } from '../output/folder.js';
import type { ReducedMesh } from './reduced-mesh.js';

/** The inputs of a rehearsal. */
export interface SmallRequest extends Omit<CompiledModel, 'whole'> {
  readonly source: ProgramSource;
  /** The precision of the plan's inference; undefined if it is that of the file. */
  readonly precision: InferencePrecision | undefined;
  /** The most ranks. */
  readonly ranks: number;
  readonly seed: number;
  readonly signal?: AbortSignal;
}

/** A dimension of the model or of the plan that the rehearsal reduces. */
export interface ReducedSize {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

export interface ModelAttempt {
  readonly name: string;
  /** Whether widths are chosen, so that axes can shard them in the same way as the widths of the plan's model. */
  readonly isNarrower: boolean;
  readonly reduced: readonly ReducedSize[];
  readonly notes: readonly string[];
  /** The forward model, without loss, gradients and optimizer. */
  readonly forward: () => Promise<ImportedModel>;
  /** The model as it is planned, and over the whole batch; without 16-bit types. */
  readonly model: (
    change: (forward: ImportedModel) => ImportedModel,
  ) => Promise<{ readonly planned: ImportedModel; readonly whole: ImportedModel; readonly constants: Arrays }>;
}

interface RehearsalSizes {
  readonly mesh: ReducedMesh;
  /** The most micro-batches; fewer if the plan has fewer. */
  readonly microBatches: number;
  readonly narrow: NarrowSizes;
}

/** The length that sequences of files are shortened to, if nothing shards them. */
const SEQUENCE = 12;

export function* modelAttempts(request: SmallRequest, sizes: RehearsalSizes): Generator<ModelAttempt> {
  const { planned, source, file } = request;
  const count = planned.graph.microBatches?.count ?? 1;
  const microBatches = Math.min(count, sizes.microBatches);
  const micro = batchSize(planned.graph);
  const batch = micro === undefined ? null : sizes.narrow.least(micro, Math.min(micro, 2)) * microBatches;
  const wholeBatch = micro === undefined ? null : micro * count;
  const batchSizes = batch === null || wholeBatch === null ? [] : [{ name: 'batch', from: wholeBatch, to: batch }];
  const own = { microBatches, globalBatch: batch, dims: source.dims };
  if (source.generated !== undefined && batch !== null) {
    for (const text of narrowerTexts(source.generated, sizes.narrow)) {
      yield attempt(request, {
        ...own,
        name: text,
        isNarrower: true,
        file: () => generatedFile(text, batch),
        reduced: batchSizes,
        notes: [`the model is ${text} instead of ${source.generated}`],
      });
    }
  }
  const here = { ...own, file: () => Promise.resolve(file), notes: [] };
  const dims = shorter(source.dims, wholeBatch, batch, sizes.narrow.least);
  const dimSizes = Object.entries(dims).flatMap(([name, to]) => {
    const from = source.dims[name] ?? to;
    return from === to ? [] : [{ name, from, to }];
  });
  if (dimSizes.length > 0)
    yield attempt(request, {
      ...here,
      name: 'a smaller batch and shorter sequences',
      dims,
      reduced: [...batchSizes, ...dimSizes],
    });
  if (batch !== null) yield attempt(request, { ...here, name: 'a smaller batch', reduced: batchSizes });
  yield attempt(request, {
    ...here,
    name: "the model's own batch",
    globalBatch: source.globalBatch,
    microBatches: count,
    reduced: [],
    notes: ['batch and sequence are those of the model: it cannot be resized'],
  });
}

interface AttemptSizes {
  readonly name: string;
  readonly isNarrower?: boolean;
  readonly file: () => Promise<string>;
  readonly dims: Readonly<Record<string, number>>;
  readonly globalBatch: number | null;
  readonly microBatches: number;
  readonly reduced: readonly ReducedSize[];
  readonly notes: readonly string[];
}

function attempt({ planned, source, constants, precision }: SmallRequest, sizes: AttemptSizes): ModelAttempt {
  const { training } = source;
  const low = lowType(training, precision);
  const at = async (globalBatch: number | null) =>
    importModel(await sizes.file(), {
      dims: sizes.dims,
      constants,
      ...(globalBatch === null ? {} : { globalBatch }),
      ...(source.weights ? { weights: source.weights } : {}),
      ...dispatchOf(planned.passes),
      ...importedFor(training, sharedIn(planned)),
    });
  return {
    name: sizes.name,
    isNarrower: sizes.isNarrower ?? false,
    reduced: sizes.reduced,
    notes: [
      ...sizes.notes,
      ...(low === null
        ? []
        : [`it is computed in float32 instead of ${low}: ranks of this machine have no ${low} kernels`]),
    ],
    forward: () => at(sizes.globalBatch),
    model: async (change) => {
      const forward = change(await at(sizes.globalBatch));
      if (!training) {
        const planned = widened(inPrecision(forward, precision), low);
        return { planned, whole: planned, constants };
      }
      const own = trainingOf({ ...training, microBatches: sizes.microBatches }, forward);
      const trained = await trainedModel(forward, own, async (batch) => change(await at(batch)));
      const planned = widened(trained, low);
      const whole = planned.graph.microBatches ? widened(withTraining(forward, own, { inSums: true }), low) : planned;
      return { planned, whole, constants };
    },
  };
}

/** The 16-bit type that ranks of this machine lack; null where there is none, or it is held in float32 already. */
function lowType(training: Training | undefined, inference: InferencePrecision | undefined): LowType | null {
  if (training?.isHeldInFloat32 || inference?.isHeldInFloat32) return null;
  const precision = training ? (training.precision ?? 'fp32') : (inference?.precision ?? 'fp32');
  return precision === 'fp32' ? null : LOW_TYPES[precision];
}

/** The model with float32 in place of a type, also in its description of training. */
function widened(imported: ImportedModel, low: LowType | null): ImportedModel {
  if (low === null) return imported;
  const graph = inFloat32(imported.graph, low);
  const made = { ...imported, graph, fingerprint: fingerprint(graph) };
  if (!imported.training) return made;
  const { precision, ...training } = imported.training;
  return { ...made, training: { ...(precision === 'fp16' ? { lossScale: 'dynamic' } : {}), ...training } };
}

/** The training options without globs that match no weight of the smaller model. */
function trainingOf(training: Training, { graph }: ImportedModel): Training {
  const names = [...graph.weights].flatMap(([name, { file }]) => [name, ...(file ? [file.name] : [])]);
  const there = (globs: readonly string[]) => globs.filter((glob) => names.some((name) => matchesAny([glob], name)));
  const globs = Object.fromEntries(
    (['decayed', 'undecayed', 'trainable', 'frozen'] as const).flatMap((key) => {
      const own = training[key];
      return own ? [[key, there(own)] as const] : [];
    }),
  );
  return { ...training, ...globs };
}

function shorter(
  dims: Readonly<Record<string, number>>,
  wholeBatch: number | null,
  batch: number | null,
  least: (size: number, base: number) => number,
): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries(dims).map(([name, size]) => [
      name,
      size === wholeBatch && batch !== null ? batch : least(size, SEQUENCE),
    ]),
  );
}
