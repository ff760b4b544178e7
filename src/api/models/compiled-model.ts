/**
 * @file The model of a compiled folder, imported again as it was compiled.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import { insideFolder } from '../../program/inside-folder.js';
import { checkFingerprint } from '../../strategy/fingerprint.js';
import type { Plan } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import type { Arrays } from '../execution/arrays.js';
import { readArrays } from '../execution/arrays.js';
import { CONSTANTS_FILE, type CompiledParts, type ProgramSource, readCompiled, readSource } from '../output/folder.js';
import { PLAN_FILE } from '../requests/plan-path.js';
import { weightsNeeded } from './absent-weights.js';
import { dispatchOf } from './dispatch.js';
import { generatedFile } from './generated.js';
import { type ImportedModel, modelReader } from './import.js';
import { inPrecision, loweredOfPlan } from './inference-precision.js';
import { trainedModel, withTraining } from './training.js';
import { importedFor, sharedIn } from './training-form.js';

export interface CompiledModel {
  /** The model that was planned. */
  readonly planned: ImportedModel;
  /** The same model over the whole batch: it computes what the micro-batches of `planned` compute together. */
  readonly whole: ImportedModel;
  /** The model file. */
  readonly file: string;
  /** Values that inputs were fixed to. */
  readonly constants: Arrays;
}

/**
 * The parts of a compiled folder that holds a program.
 * @throws AutoparError as `readCompiled`; it names the data file if the program is missing because the model has no weights
 */
export async function readRunnable(directory: string, model?: string): Promise<CompiledParts> {
  try {
    return await readCompiled(directory);
  } catch (error) {
    if (!(error instanceof AutoparError) || error.code !== 'no-program') throw error;
    const source = await readSource(directory);
    if (source.randomWeights !== null || (source.model === '' && model === undefined)) throw error;
    const plan = await readPlan(path.join(directory, PLAN_FILE));
    const { planned } = await compiledModel(directory, source, plan, model).catch(() => {
      throw error;
    });
    if (planned.weightsPresent) throw error;
    throw weightsNeeded(
      { ...planned, generated: source.generated },
      `${directory} holds a plan but no program`,
      'compile with --init random, which makes values',
      error.code,
    );
  }
}

/** A compiled folder with its model, imported again; the folder need not hold a program. */
export interface OpenedPlan extends CompiledModel {
  readonly source: ProgramSource;
  readonly plan: Plan;
}

/**
 * @param model the model file; if left out, the path that it was compiled from
 * @throws AutoparError (input) if the folder or its model has changed
 */
export async function openPlan(directory: string, model?: string): Promise<OpenedPlan> {
  const plan = await readPlan(path.join(directory, PLAN_FILE));
  const source = await readSource(directory);
  return { source, plan, ...(await compiledModel(directory, source, plan, model)) };
}

/** The path of the model file. A generated model is generated again if its temporary file is gone. */
async function modelFileOf(directory: string, { model, generated, globalBatch }: ProgramSource): Promise<string> {
  const file = path.resolve(directory, model);
  if (generated === undefined || existsSync(file)) return file;
  return generatedFile(generated, globalBatch ?? undefined);
}

/** The importer of a compiled folder's model, for any batch (null: that of the file). */
export async function importerOf(
  directory: string,
  source: ProgramSource,
  plan: Pick<Plan, 'passes'>,
  model: string | undefined,
  form: Parameters<typeof importedFor>[0],
): Promise<{
  readonly file: string;
  readonly constants: Arrays;
  readonly at: (globalBatch: number | null) => Promise<ImportedModel>;
}> {
  const file = model ?? (await modelFileOf(directory, source));
  const constants = source.constants ? await readArrays(await insideFolder(directory, CONSTANTS_FILE)) : {};
  const read = modelReader(file, {
    dims: source.dims,
    constants,
    ...(source.weights ? { weights: source.weights } : {}),
  });
  const at = (globalBatch: number | null) =>
    read({
      ...(globalBatch === null ? {} : { globalBatch }),
      ...dispatchOf(plan.passes),
      ...importedFor(form, sharedIn(plan)),
    });
  return { file, constants, at };
}

/**
 * The forward model of a compiled folder, before loss and gradients.
 * @param model the model file; if left out, the path that it was compiled from
 * @throws AutoparError `model-changed` where it is not the one that was compiled
 */
export async function importedAgain(
  directory: string,
  { source, plan }: Pick<CompiledParts, 'source' | 'plan'>,
  model?: string,
): Promise<{ readonly forward: ImportedModel; readonly file: string }> {
  const { file } = await compiledModel(directory, source, plan, model);
  const { at } = await importerOf(directory, source, plan, file, source.training);
  return { forward: await at(source.globalBatch), file };
}

/**
 * @param model the model file; if left out, the path that it was compiled from
 * @throws AutoparError `model-changed` where the model is not the one that was compiled
 */
export async function compiledModel(
  directory: string,
  source: ProgramSource,
  plan: Plan,
  model?: string,
): Promise<CompiledModel> {
  const { training } = source;
  const { file, constants, at } = await importerOf(directory, source, plan, model, training);
  const forward = await at(source.globalBatch);
  const planned = training ? await trainedModel(forward, training, at) : inPrecision(forward, loweredOfPlan(plan));
  checkFingerprint(plan, planned);
  const whole = training && planned.graph.microBatches ? withTraining(forward, training, { inSums: true }) : planned;
  return { planned, whole, file, constants };
}
