/**
 * @file Reshards the weights of a compiled folder for another plan: the existing shards are joined and sharded again, one weight
 * at a time. The model is read only for constants that the source program has in its segments and the target program in files.
 */
import { copyFile, mkdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { weightBytes } from '../../codegen/weights.js';
import { AutoparError } from '../../ir/error.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { cannotWrite, writeFileAtomic, writeFolderAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { filesOf } from '../../program/check-files.js';
import { insideFolder } from '../../program/inside-folder.js';
import type { Program } from '../../program/program.js';
import { programFolder, readProgram } from '../../program/reader.js';
import { type ProgramPlace, recutWeights } from '../../program/recut.js';
import type { Plan } from '../../strategy/plan.js';
import { planToJson } from '../../strategy/plan-json.js';
import type { ImportedModel } from '../models/import.js';
import { endedBy } from '../options/in-javascript.js';
import { checkArguments, flag, having, options as optionsOf, signal as signalKind, text } from '../options/kinds.js';
import { CONSTANTS_FILE, checkTarget, type ProgramSource, readCompiled } from '../output/folder.js';
import { clusterOf, lowerPlan, programOfPlan } from '../planning/lower-plan.js';
import { LOCATING, type ModelOptions } from './forms.js';
import { modelOfPlan, readStrategy } from './strategy-files.js';

export interface RecutOptions extends ModelOptions {
  /** A folder that compile wrote, with its program. */
  readonly from: string;
  /** The plan to reshard for: another such folder, or plan.json. */
  readonly to: string;
  /** The folder to write; by default the folder `to` itself, whose weights are replaced. */
  readonly output?: string;
  readonly force?: boolean;
  readonly signal?: AbortSignal;
}

const OPTIONS = having(
  optionsOf<RecutOptions>({ ...LOCATING, from: text, to: text, output: text, force: flag, signal: signalKind }),
  'from',
  'to',
);

/**
 * Writes the weights of `from` in the layouts of the plan `to`: into the folder `to`, or with plan and program into `output`.
 * It writes all files or none. The bytes are the same as those of compiling from the original weights.
 * @returns the folder that was written
 * @throws AutoparError `strategy-mismatch` (input) for plans of two models, `weights-cannot-be-recut` (input),
 *   `missing-argument` (usage) if no folder to write is given
 */
export async function recut(options: RecutOptions): Promise<string> {
  checkArguments('recut', { options: [options, OPTIONS] });
  return endedBy(options.signal, 'recut', async () => {
    const { from, to, signal } = options;
    const source = await readCompiled(from);
    const place: ProgramPlace = { program: source.program, folder: await programFolder(from) };
    const constantOf = constantsOf(source.plan, options);
    const read = await readStrategy(to);
    if (read.form !== 'plan') {
      throw new AutoparError(
        'cannot-convert',
        'usage',
        'the target of --weights is not a plan: give a folder that compile wrote, or plan.json',
        { file: to },
        'autopar strategy convert converts other checkpoints to plan.json where possible',
      );
    }
    checkOneModel(source.plan, read.plan, to);
    if (options.output === undefined) return inPlace(place, read.folder, options, constantOf);
    await checkTarget(options.output, options.force ?? false, path.resolve(from, source.source.model));
    const finished = read.folder ? await finishedProgram(read.folder) : null;
    await writeFolderAtomic(options.output, async (folder) => {
      await writeFileAtomic(path.join(folder, 'plan.json'), planToJson(read.plan));
      await writeJsonAtomic(path.join(folder, 'source.json'), moved(source.source, from, options.output ?? folder));
      if (source.source.constants)
        await copy(await insideFolder(from, CONSTANTS_FILE), path.join(folder, CONSTANTS_FILE));
      const directory = path.join(folder, 'program');
      const program = finished
        ? await copiedProgram(finished, directory)
        : await newProgram(read.plan, options, directory);
      await mkdir(path.join(directory, 'weights'));
      await recutWeights(place, program, (file) => path.join(directory, file), constantOf, signal);
    });
    return options.output;
  });
}

type ConstantOf = (name: string) => Promise<ConstantTensor | null>;

/** Reads constants of the model; the first one imports the model. */
function constantsOf(plan: Plan, options: RecutOptions): ConstantOf {
  let imported: Promise<ImportedModel> | null = null;
  return async (name) => {
    imported ??= readStrategy(options.from).then((read) => modelOfPlan(read, plan, options));
    const weight = (await imported).graph.weights.get(name);
    if (weight?.role !== 'constant') return null;
    return { dtype: weight.dtype, shape: weight.shape, data: await weightBytes(name, weight) };
  };
}

/** Replaces the weights of a compiled folder. */
async function inPlace(
  place: ProgramPlace,
  folder: string | null,
  { to, signal }: RecutOptions,
  constantOf: ConstantOf,
): Promise<string> {
  if (folder === null) {
    throw new AutoparError(
      'missing-argument',
      'usage',
      'a plan alone has no folder for the weights',
      { file: to },
      'name the folder to write with -o',
    );
  }
  const program = await readProgram(folder);
  const directory = await programFolder(folder);
  const weights = path.join(directory, 'weights');
  await writeFolderAtomic(weights, (temporary) =>
    recutWeights(
      place,
      program,
      (file) => path.join(temporary, path.relative(weights, path.join(directory, file))),
      constantOf,
      signal,
    ),
  );
  return folder;
}

/** The program of a compiled folder; null if it was compiled with --plan-only. */
async function finishedProgram(folder: string): Promise<ProgramPlace | null> {
  const there = await stat(path.join(folder, 'program', 'program.json')).catch(() => null);
  return there ? { program: (await readCompiled(folder)).program, folder: await programFolder(folder) } : null;
}

async function copiedProgram({ program, folder }: ProgramPlace, directory: string): Promise<Program> {
  await mkdir(directory);
  await mkdir(path.join(directory, 'segments'));
  const files = program.stages
    .flatMap((stage) => Object.values(stage.segments).flatMap(filesOf))
    .map(({ file }) => file);
  for (const file of new Set([...files, 'program.json']))
    await copy(await insideFolder(folder, file), path.join(directory, file));
  return program;
}

/** The program of a plan that was not compiled, without weights. */
async function newProgram(plan: Plan, options: RecutOptions, directory: string): Promise<Program> {
  const { graph } = await modelOfPlan(await readStrategy(options.from), plan, options);
  const { program, segments } = programOfPlan(lowerPlan(plan, graph), plan, clusterOf(plan));
  try {
    await mkdir(directory);
    await mkdir(path.join(directory, 'segments'));
    for (const [file, model] of segments) await writeFile(path.join(directory, file), model);
  } catch (error) {
    throw cannotWrite(error, directory);
  }
  await writeJsonAtomic(path.join(directory, 'program.json'), program);
  return program;
}

/** source.json for a folder in another place, with the model's path relative to that folder. */
function moved(source: ProgramSource, from: string, to: string): ProgramSource {
  const model = path.resolve(from, source.model);
  return { ...source, model: path.relative(path.resolve(to), model).split(path.sep).join('/') };
}

async function copy(from: string, to: string): Promise<void> {
  await copyFile(from, to).catch((error: unknown) => {
    throw cannotWrite(error, to);
  });
}

function checkOneModel(from: Plan, to: Plan, file: string): void {
  if (from.model.fingerprint === to.model.fingerprint) return;
  const names = from.model.name === to.model.name ? '' : `: ${from.model.name} and ${to.model.name}`;
  throw new AutoparError(
    'strategy-mismatch',
    'input',
    `the weights are of another model than the plan${names}`,
    { file },
    'give two plans of one model, at the same dimensions',
  );
}
