/**
 * @file Strategy checkpoints of every form as files: identifies the form, reads the file, and finds its model.
 */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { decodeModel, type ModelProto } from '../../ir/onnx/schema.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { insideFolder } from '../../program/inside-folder.js';
import { checkFingerprint } from '../../strategy/fingerprint.js';
import type { MindSporeStrategy } from '../../strategy/mindspore/document.js';
import { strategyFromJson } from '../../strategy/mindspore/json.js';
import { decodeStrategy } from '../../strategy/mindspore/schema.js';
import { planInModel, trainingInModel } from '../../strategy/onnx/read-annotations.js';
import type { Plan } from '../../strategy/plan.js';
import { planFromJson, readPlan } from '../../strategy/plan-json.js';
import { readArrays } from '../execution/arrays.js';
import { dispatchOf } from '../models/dispatch.js';
import { type ImportedModel, type ImportOptions, importModel } from '../models/import.js';
import { inPrecision, loweredOfPlan } from '../models/inference-precision.js';
import { importedFor, type SharedDimensions, sharedIn, trainingForm } from '../models/training-form.js';
import { misfit } from '../options/kinds.js';
import { STORED_TRAINING } from '../options/step-kinds.js';
import { CONSTANTS_FILE, type ProgramSource, readSource } from '../output/folder.js';
import { PROPOSED_OPTIONS, type ProposedOption } from '../planning/proposals.js';
import type { Training } from '../requests/training-request.js';
import type { ModelOptions, StrategyForm } from './forms.js';

/** A checkpoint that was read. */
export type StrategyFile =
  | { readonly form: 'plan'; readonly file: string; readonly plan: Plan; readonly folder: string | null }
  | { readonly form: 'mindspore' | 'mindspore-json'; readonly file: string; readonly document: MindSporeStrategy }
  | { readonly form: 'onnx'; readonly file: string; readonly model: ModelProto; readonly plan: Plan | null };

/**
 * Reads a checkpoint: a folder that compile wrote, plan.json, MindSpore's protobuf or JSON, or an annotated ONNX model.
 * The contents determine the form.
 * @throws AutoparError (input) if it is missing, truncated, of a newer version or of none of these forms
 */
export async function readStrategy(file: string): Promise<StrategyFile> {
  const information = await stat(file).catch(() => null);
  if (!information) {
    throw new AutoparError('file-missing', 'input', 'there is no such file', { file }, 'check the path');
  }
  if (information.isDirectory()) {
    const plan = await insideFolder(file, 'plan.json');
    return { form: 'plan', file: plan, plan: await readPlan(plan), folder: file };
  }
  const { form } = ENDINGS.find(({ ending }) => ending.test(path.basename(file))) ?? {};
  if (form === 'annotations' || form === 'megatron' || form === 'torchtitan') throw writtenAlone(form, file);
  const bytes = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    throw new AutoparError('file-unreadable', 'input', `the file cannot be read: ${error.message}`, { file });
  });
  if (isText(bytes) || /\.json$/i.test(file)) return readJson(bytes.toString('utf8'), file);
  const model = /\.onnx$/i.test(file) ? decodeOnnx(bytes, file) : null;
  if (model) return { form: 'onnx', file, model, plan: planInModel(model, file) };
  return { form: 'mindspore', file, document: decodeStrategy(bytes, file) };
}

/** A form that strategies are written in, and not read from. */
function writtenAlone(form: StrategyForm, file: string): AutoparError {
  const isPins = form === 'annotations';
  return new AutoparError(
    'unknown-format',
    'input',
    `the file holds ${isPins ? 'annotations' : `a configuration of ${form}`}, not a strategy checkpoint`,
    { file },
    isPins ? 'compile takes it as it is: --annotations FILE' : 'give the plan that it was written from',
  );
}

/** The form for a file's name. @throws AutoparError `unknown-format` (usage) for an ending of no form */
export function formOf(file: string): StrategyForm {
  const name = path.basename(file);
  const found = ENDINGS.find(({ ending }) => ending.test(name));
  if (found) return found.form;
  throw new AutoparError(
    'unknown-format',
    'usage',
    `${name} does not end in a form of a strategy checkpoint`,
    { file },
    'plan.json, .ckpt (MindSpore), .json (MindSpore), .onnx, .yaml (annotations), .sh (Megatron-LM) or .toml ' +
      '(torchtitan); or give --to FORM',
  );
}

const ENDINGS: readonly { readonly ending: RegExp; readonly form: StrategyForm }[] = [
  { ending: /(^|[.\-_])plan\.json$/i, form: 'plan' },
  { ending: /\.json$/i, form: 'mindspore-json' },
  { ending: /\.(ckpt|pb|strategy)$/i, form: 'mindspore' },
  { ending: /\.onnx$/i, form: 'onnx' },
  { ending: /\.ya?ml$/i, form: 'annotations' },
  { ending: /\.sh$/i, form: 'megatron' },
  { ending: /\.toml$/i, form: 'torchtitan' },
];

/**
 * The model of a plan: `options.model`, the annotated model itself, or the path that the compiled folder states.
 * @throws AutoparError `model-needed` (usage) if the path is unknown; `model-changed` (input) for another model
 */
export async function modelOfPlan(read: StrategyFile, plan: Plan, options: ModelOptions): Promise<ImportedModel> {
  const source = read.form === 'plan' ? await sourceBeside(read) : null;
  const file =
    options.model ??
    (read.form === 'onnx' ? read.file : source ? path.resolve(source.folder, source.source.model) : undefined);
  if (file === undefined) throw modelNeeded(read.file);
  const training = await trainingOfPlan(read);
  if (training) {
    const { compiledModel } = await import('../models/compiled-model.js');
    const { dims, globalBatch } = plan.model;
    const alone: ProgramSource = {
      ...{ format: 'autopar-source', model: file, dims, globalBatch },
      ...NOTHING_ELSE,
      training,
    };
    return (await compiledModel(source?.folder ?? '', source?.source ?? alone, plan, file)).planned;
  }
  if (plan.training) throw folderNeeded(read.file);
  const imported = inPrecision(await importModel(file, await importOptions(plan, source)), loweredOfPlan(plan));
  checkFingerprint(plan, imported);
  return imported;
}

const NOTHING_ELSE = { randomWeights: null, constants: false } as const;

/** The training of a plan's step, as the folder or the annotated model states it; undefined for inference. */
export async function trainingOfPlan(read: StrategyFile): Promise<Training | undefined> {
  if (read.form === 'plan') return (await sourceBeside(read))?.source.training;
  const said = read.form === 'onnx' ? trainingInModel(read.model) : undefined;
  return misfit(said, STORED_TRAINING, 'training') === null ? (said as Training) : undefined;
}

/** The error for a missing source.json: it states the loss and optimizer from which a training step is built. */
function folderNeeded(file: string): AutoparError {
  return new AutoparError(
    'model-needed',
    'usage',
    'the plan is for a training step, and source.json with its loss and optimizer is not in its folder',
    { file },
    'name the folder that compile wrote',
  );
}

/** Imports the named model as ranks share it. @throws AutoparError `model-needed` (usage) if none is named */
export async function namedModel(
  file: string,
  { model, dims, shapes, globalBatch }: ModelOptions,
  shared: SharedDimensions = {},
): Promise<ImportedModel> {
  if (model === undefined) throw modelNeeded(file);
  return importModel(model, { ...withoutUndefined({ dims, shapes, globalBatch }), ...shared });
}

/**
 * The forward graph of a named model's training step, in which parameters that its file merged are apart; null where the model
 * cannot be trained.
 */
export async function inTrainingForm(
  imported: ImportedModel,
  { dims, shapes, globalBatch }: ModelOptions,
  shared: SharedDimensions,
): Promise<Graph | null> {
  try {
    const options = { ...withoutUndefined({ dims, shapes, globalBatch }), ...importedFor({}, shared) };
    return trainingForm(await importModel(imported.file, options), {}).graph;
  } catch (error) {
    if (error instanceof AutoparError) return null;
    throw error;
  }
}

/** source.json of the folder that contains a plan; null if there is none. */
async function sourceBeside({ file, folder }: Extract<StrategyFile, { form: 'plan' }>): Promise<{
  readonly folder: string;
  readonly source: ProgramSource;
} | null> {
  const place = folder ?? path.dirname(file);
  const there = await stat(path.join(place, 'source.json')).catch(() => null);
  if (!there || (folder === null && path.basename(file) !== 'plan.json')) return null;
  return { folder: place, source: await readSource(place) };
}

/** The decisions of a plan that a search over training steps made, beside those that were given. */
export async function proposedIn(read: StrategyFile): Promise<readonly ProposedOption[]> {
  const proposals = read.form === 'plan' ? (await sourceBeside(read))?.source.decisions?.proposals : undefined;
  return proposals ? PROPOSED_OPTIONS.filter((name) => proposals[name] === undefined) : [];
}

async function importOptions(
  plan: Plan,
  beside: { readonly folder: string; readonly source: ProgramSource } | null,
): Promise<ImportOptions> {
  const { globalBatch } = plan.model;
  const constants = beside?.source.constants ? await readArrays(path.join(beside.folder, CONSTANTS_FILE)) : undefined;
  return {
    dims: plan.model.dims,
    ...importedFor(undefined, sharedIn(plan)),
    ...(globalBatch === null ? {} : { globalBatch }),
    ...(constants ? { constants } : {}),
    ...(beside?.source.weights ? { weights: beside.source.weights } : {}),
    ...dispatchOf(plan.passes),
  };
}

function readJson(text: string, file: string): StrategyFile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The reader of the intended form reports what is wrong with the file.
    value = text.includes('autopar-plan') ? { format: '' } : null;
  }
  const isPlan = typeof value === 'object' && value !== null && ('format' in value || 'operators' in value);
  if (isPlan) return { form: 'plan', file, plan: planFromJson(text, file), folder: null };
  if (typeof value === 'object' && value !== null && 'pins' in value) throw writtenAlone('annotations', file);
  return { form: 'mindspore-json', file, document: strategyFromJson(text, file) };
}

/** Only a text begins with a brace or bracket; a protobuf of a strategy begins with field 1. */
function isText(bytes: Uint8Array): boolean {
  const first = bytes.find((byte) => ![0x20, 0x09, 0x0a, 0x0d, 0xef, 0xbb, 0xbf].includes(byte));
  return first === 0x7b || first === 0x5b;
}

function decodeOnnx(bytes: Uint8Array, file: string): ModelProto {
  try {
    const model = decodeModel(bytes);
    if (model.graph) return model;
  } catch (error) {
    throw new AutoparError(
      error instanceof RangeError ? 'truncated-model' : 'not-onnx',
      'input',
      error instanceof RangeError
        ? 'the file ends in the middle of a record: it is truncated'
        : 'this is not an ONNX model',
      { file },
      'compare its size with the original and copy it again',
    );
  }
  throw new AutoparError(
    'not-onnx',
    'input',
    'this is not an ONNX model: it has no graph',
    { file },
    'name an .onnx file',
  );
}

function modelNeeded(file: string): AutoparError {
  return new AutoparError(
    'model-needed',
    'usage',
    'the checkpoint does not name its model file',
    { file },
    'name the model: --model FILE; or name the folder that compile wrote',
  );
}
