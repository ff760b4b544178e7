/**
 * @file The model of a compiled folder, imported again as it was compiled.
 */
import path from 'node:path';
import { insideFolder } from '../program/inside-folder.js';
import { checkFingerprint } from '../strategy/fingerprint.js';
import type { Plan } from '../strategy/plan.js';
import type { Arrays } from './arrays.js';
import { readArrays } from './arrays.js';
import { CONSTANTS_FILE, type Source } from './folder.js';
import { type ImportedModel, importModel } from './import.js';
import { withRandomWeights } from './random-weights.js';
import { trainedModel, withTraining } from './training.js';
import { importedFor } from './training-form.js';

export interface CompiledModel {
  /** What was planned. */
  readonly planned: ImportedModel;
  /** The same as one batch, which computes what the micro-batches of `planned` do together. */
  readonly whole: ImportedModel;
  /** The model file. */
  readonly file: string;
  /** Values that inputs were fixed to. */
  readonly constants: Arrays;
}

/**
 * @param model the model file; where it lay when it was compiled, if left out
 * @throws AutoparError `model-changed` where the model is not the one that was compiled
 */
export async function compiledModel(
  directory: string,
  source: Source,
  plan: Plan,
  model?: string,
): Promise<CompiledModel> {
  const file = model ?? path.resolve(directory, source.model);
  const constants = source.constants ? await readArrays(await insideFolder(directory, CONSTANTS_FILE)) : {};
  const { training } = source;
  const at = (globalBatch: number | null) =>
    importModel(file, {
      dims: source.dims,
      constants,
      ...(globalBatch === null ? {} : { globalBatch }),
      ...(source.weights ? { weights: source.weights } : {}),
      ...importedFor(training),
    });
  const complete = async (imported: ImportedModel) =>
    source.randomWeights === null ? imported : await withRandomWeights(imported, source.randomWeights);
  const forward = await at(source.globalBatch);
  const planned = await complete(training ? await trainedModel(forward, training, at) : forward);
  checkFingerprint(plan, planned);
  const whole =
    training && planned.graph.microBatches
      ? await complete(withTraining(forward, training, { inSums: true }))
      : planned;
  return { planned, whole, file, constants };
}
