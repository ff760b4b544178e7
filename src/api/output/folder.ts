/**
 * @file The folder that `compile` writes and others read: plan.json, program/, source.json.
 *
 * source.json states the model's path relative to the folder, so that `verify` and `run` find it; plan.json holds no path.
 */
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { AutoparError, badOption } from '../../ir/error.js';
import { insideFolder } from '../../program/inside-folder.js';
import { checkUnlocked } from '../../program/lock.js';
import type { Program } from '../../program/program.js';
import type { SearchMode, SolverName } from '../../search/search-mode.js';
import type { Plan } from '../../strategy/plan.js';
import { planDigest, readPlan } from '../../strategy/plan-json.js';
import {
  amount,
  flag,
  having,
  integerFrom,
  misfit,
  numbers,
  oneOf,
  options,
  orNull,
  record,
  text,
  texts,
} from '../options/kinds.js';
import {
  axes,
  loss,
  mode,
  preferring,
  STORED_TRAINING,
  searchMode,
  simulating,
  solver,
} from '../options/step-kinds.js';
import type { StepSearchOptions } from '../planning/search-step.js';
import type { Training } from '../requests/training-request.js';

export interface ProgramSource {
  readonly format: 'autopar-source';
  /** Path relative to the folder, with forward slashes; empty if the model was generated for the plan of a training step. */
  readonly model: string;
  /** `FAMILY:key=value,…`, if the model was generated. */
  readonly generated?: string;
  readonly dims: Readonly<Record<string, number>>;
  readonly globalBatch: number | null;
  /** Seed of random weights, if the model file has no weights. */
  readonly randomWeights: number | null;
  /** Whether inputs were fixed to values (--const), which are in constants.npz next to this file. */
  readonly constants: boolean;
  /** Globs of inputs that are weights (--weights); left out if none were given. */
  readonly weights?: readonly string[];
  /** Loss, optimizer and options of the training step; left out for inference. */
  readonly training?: Training;
  /** The sources of the plan's pins, for `explain`; paths are relative to the folder. */
  readonly decisions?: SourceDecisions;
}

export interface SourceDecisions {
  readonly mode?: 'auto' | 'semi-auto' | 'data' | 'hybrid';
  readonly annotations?: string;
  readonly config?: string;
  /** Options of the search that were given: `explain` searches again. */
  readonly axes?: 'roles' | 'free';
  readonly memoryBytes?: number;
  readonly searchMode?: SearchMode;
  readonly solver?: SolverName;
  /** Options of the search over training steps, if there was one. */
  readonly proposals?: ProposalRequest;
}

/** All options of a search over training steps except the model file and the cluster. */
export type ProposalRequest = Omit<
  StepSearchOptions,
  | 'model'
  | 'dims'
  | 'shapes'
  | 'constants'
  | 'weights'
  | 'cluster'
  | 'devices'
  | 'on'
  | 'signal'
  | 'deadline'
  | 'onProgress'
>;

const STORED_SOURCE = having(
  options<ProgramSource>({
    format: oneOf('autopar-source'),
    model: text,
    generated: text,
    dims: record(integerFrom(0)),
    globalBatch: orNull(integerFrom(0)),
    randomWeights: orNull(integerFrom(0)),
    constants: flag,
    weights: texts,
    training: STORED_TRAINING,
    decisions: options<SourceDecisions>({
      mode,
      annotations: text,
      config: text,
      axes,
      memoryBytes: amount,
      searchMode,
      solver,
      proposals: options<ProposalRequest>({
        ...simulating,
        ...preferring,
        loss: having(loss, 'kind'),
        memory: amount,
        objective: oneOf('time', 'memory'),
        program: flag,
        pinnedAxes: texts,
        stageLayers: numbers,
        top: integerFrom(1),
        timeLimit: amount,
      }),
    }),
  }),
  ...['format', 'model', 'dims', 'globalBatch', 'randomWeights', 'constants'],
);

/** Name of the file that holds the values to which inputs were fixed. */
export const CONSTANTS_FILE = 'constants.npz';

/** Name of the folder in which a training run stores its checkpoints. */
export const CHECKPOINTS = 'checkpoints';

/** Steps of the checkpoints in a folder, ascending. */
export async function stepsIn(root: string): Promise<readonly number[]> {
  const names = await readdir(root).catch((): string[] => []);
  return names
    .flatMap((name) => Number(/^step-(\d+)$/.exec(name)?.[1] ?? Number.NaN))
    .filter(Number.isSafeInteger)
    .sort((one, other) => one - other);
}

/** `./<model file stem>.autopar`. */
export function defaultFolder(model: string): string {
  return `${path.basename(model).replace(/\.onnx$/i, '')}.autopar`;
}

/**
 * Refuses a folder with other contents than an earlier result of autopar. Even with `force` it refuses a folder that must not
 * be removed: one that contains the model itself or the current folder.
 * @throws AutoparError `folder-is-file`, `folder-in-use`, `folder-not-empty`, `checkpoints-there` (exit cannotWrite);
 * `bad-option` (usage).
 */
export async function checkTarget(folder: string, force: boolean, model: string): Promise<void> {
  if (folder === '') throw badOption('--output: expected the name of a folder');
  const information = await stat(folder).catch(() => null);
  if (!information) return;
  if (!information.isDirectory()) {
    throw new AutoparError(
      'folder-is-file',
      'cannotWrite',
      `${folder} is a file, not a folder`,
      { file: folder },
      'Choose another folder with -o, or remove the file.',
    );
  }
  const files = await readdir(folder);
  if (files.length === 0) return;
  await checkUse(folder, model);
  if (force) return;
  const steps = await stepsIn(path.join(folder, CHECKPOINTS));
  if (steps.length > 0)
    throw new AutoparError(
      'checkpoints-there',
      'cannotWrite',
      `${folder} holds checkpoints of a training, the last after step ${steps.at(-1)}`,
      { file: folder },
      `Choose another folder with -o, whose training can resume from there (--resume ${folder}); or give --force.`,
    );
  const plan = await readFile(path.join(folder, 'plan.json'), 'utf8').catch(() => '');
  if (plan.includes('"autopar-plan"')) return;
  throw new AutoparError(
    'folder-not-empty',
    'cannotWrite',
    `${folder} is not empty and was not written by autopar`,
    { file: folder },
    'Choose another folder with -o, or replace it with --force.',
  );
}

/** The lock of a training in a compiled folder, and what it is held for. */
export const TRAINING_LOCK = path.join(CHECKPOINTS, 'lock');
export const TRAINING_WRITES = 'a training writes checkpoints to this folder';

/** Refuses folders in use, since replacing a folder removes all its contents. */
async function checkUse(folder: string, model: string): Promise<void> {
  await checkUnlocked(path.join(folder, TRAINING_LOCK), TRAINING_WRITES);
  const real = async (file: string) => realpath(file).catch(() => path.resolve(file));
  const target = await real(folder);
  const inside = (file: string) =>
    file === target || file.startsWith(target.endsWith(path.sep) ? target : target + path.sep);
  const current = inside(await real(process.cwd()));
  if (!current && !inside(await real(model))) return;
  throw new AutoparError(
    'folder-in-use',
    'cannotWrite',
    `${folder} cannot be replaced: ${current ? 'it is the current folder, or holds it' : `it holds the model ${model}`}`,
    { file: folder },
    'Choose another folder with -o.',
  );
}

/** The parts of a compiled folder, each read and checked; the program belongs to the plan. */
export interface CompiledParts {
  readonly source: ProgramSource;
  readonly plan: Plan;
  readonly program: Program;
}

/**
 * Reads a folder that `compile` wrote.
 * @throws AutoparError (exit input) for a folder that autopar did not write, and for a part that is missing, truncated, or of
 * another plan.
 */
export async function readCompiled(directory: string): Promise<CompiledParts> {
  const source = await readSource(directory);
  const plan = await readPlan(await insideFolder(directory, 'plan.json'));
  const { readProgram } = await import('../../program/reader.js');
  const program = await readProgram(directory);
  const { fingerprint, plan: digest } = program.model;
  if (fingerprint === plan.model.fingerprint && (digest === undefined || digest === planDigest(plan))) {
    return { source, plan, program };
  }
  throw new AutoparError(
    'program-of-another-plan',
    'input',
    `program/ in ${directory} was not made from the plan beside it: plan.json was edited, or one of the two replaced`,
    { file: path.join(directory, 'plan.json') },
    'Undo the edit, or compile the model again.',
  );
}

/** Reads source.json. @throws AutoparError (exit input) if autopar did not write the folder. */
export async function readSource(folder: string): Promise<ProgramSource> {
  const file = await insideFolder(folder, 'source.json');
  const text = await readFile(file, 'utf8').catch(() => {
    throw new AutoparError(
      'not-compiled',
      'input',
      `${folder} holds no compiled program (source.json is missing)`,
      { file: folder },
      'Write one with: autopar compile MODEL -o DIR',
    );
  });
  const source = parsed(text);
  const wrong = source === undefined ? 'it is not JSON' : misfit(source, STORED_SOURCE, '');
  if (wrong === null) return source as ProgramSource;
  throw new AutoparError(
    'bad-source',
    'input',
    `source.json is truncated or was edited: ${wrong.replace(/^: /, '')}`,
    { file },
    'Compile the model again.',
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
