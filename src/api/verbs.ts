/**
 * @file The public verbs: each checks its options as the command line does before anything runs, and loads its implementation
 * when it is called. Errors are in JavaScript terms; the command line reports their cause, which is in its own terms.
 */
import { usageError } from '../ir/error.js';
import type { Session, SessionOptions } from '../runtime/session.js';
import type { CalibrateOptions, Calibration } from './calibrate.js';
import type { CompileResult } from './compile.js';
import type { Exported, ExportOptions } from './export-weights.js';
import type { Inspection, InspectOptions } from './inspect.js';
import type { ImportedModel, ImportOptions } from './models/import.js';
import { modelOf } from './models/model-choice.js';
import { alsoWritten } from './models/write-model.js';
import { type CompileOptions, nested, type PlanningOptions } from './options/flat-degrees.js';
import {
  COMPILE_IDLE,
  type Idle,
  INSPECT_IDLE,
  RUN_IDLE,
  refuseIdle,
  SIMULATE_IDLE,
  TRAIN_IDLE,
  VERIFY_IDLE,
} from './options/idle.js';
import { endedBy, errorInJavaScript } from './options/in-javascript.js';
import { checkArguments, checkKinds, text } from './options/kinds.js';
import { IMPORTED, PLANNED } from './options/results.js';
import { NEEDED, SESSION, TABLES, trainingPath, type Verb, verbsWith } from './options/tables.js';
import type { EmitOptions, Emitted } from './output/emit.js';
import type { PlannedModel } from './plan.js';
import type { Plot, PlotOptions } from './plot.js';
import type { MachineProfile, ProfileOptions } from './profile.js';
import type { Rehearsal, RehearseOptions } from './rehearse.js';
import { checkDegrees } from './requests/degrees.js';
import type { RunCompiledOptions, RunReport } from './run.js';
import type { SimulateOptions, Simulation } from './simulate.js';
import type { TrainOptions, TrainReport } from './train.js';
import type { VerifyOptions, VerifyResult } from './verify.js';

export type {
  CalibrateOptions,
  CompileOptions,
  EmitOptions,
  ExportOptions,
  ImportOptions,
  InspectOptions,
  PlanningOptions,
  PlotOptions,
  ProfileOptions,
  RehearseOptions,
  RunCompiledOptions,
  SimulateOptions,
  TrainOptions,
  VerifyOptions,
};

/** @throws AutoparError as `importModel` of import.ts; (usage) for unknown options */
export function importModel(file: string, options: ImportOptions = {}): Promise<ImportedModel> {
  return checked('importModel', options, [], async () => {
    checkArguments('importModel', { file: [file, text] });
    return (await import('./models/import.js')).importModel(file, options);
  });
}

/** Reports how autopar understands a model, without a plan. */
export function inspect(options: InspectOptions): Promise<Inspection> {
  return checked('inspect', options, INSPECT_IDLE, () =>
    alsoWritten(options, async () => (await import('./inspect.js')).inspect(options)),
  );
}

/** The best plan of an imported model, lowered; `emit` writes it. */
export function plan(imported: ImportedModel, options: PlanningOptions = {}): Promise<PlannedModel> {
  return checked('plan', options, [], async () => {
    checkArguments('plan', { imported: [imported, IMPORTED] });
    return (await import('./plan.js')).plan(imported, nested(options));
  });
}

/** Writes a planned model as a folder. */
export function emit(planned: PlannedModel, options: EmitOptions): Promise<Emitted> {
  return checked('emit', options, [], async () => {
    checkArguments('emit', { planned: [planned, PLANNED] });
    return (await import('./output/emit.js')).emit(planned, options);
  });
}

/** Plans a model and writes plan and program; if it fails it leaves no files behind. */
export function compile(options: CompileOptions): Promise<CompileResult> {
  return checked('compile', options, [], async () => {
    const { generate = options.generated, ...given } = options;
    const made = generate === undefined ? {} : { generated: generate };
    const inner = { ...nested({ ...given, model: given.model ?? '' }), ...made };
    refuseIdle(inner, COMPILE_IDLE);
    return alsoWritten({ ...given, generate }, async () => {
      const model = await modelOf(options, given.globalBatch);
      return (await import('./compile.js')).compile({ ...inner, model });
    });
  });
}

/** Prices one choice of degrees, batches and savings. */
export function simulate(options: SimulateOptions): Promise<Simulation> {
  return checked('simulate', options, [], async () => {
    const loss = options.loss ?? options.training?.loss;
    const { training: _, ...given } = { ...options, ...(loss === undefined ? {} : { loss }) };
    refuseIdle(given, SIMULATE_IDLE);
    checkDegrees(given, ['dp', 'tp', 'pp', 'sp']);
    return alsoWritten(given, async () => (await import('./simulate.js')).simulate(given));
  });
}

/**
 * Opens the program in `dir` (the output of `compile`, or the folder of program.json itself).
 * @throws AutoparError exit input for a bad program, segment or shard; backendAbsent; rankFailed; interrupted
 */
export async function openSession(dir: string, options: SessionOptions = {}): Promise<Session> {
  checkArguments('openSession', { dir: [dir, text], options: [options, SESSION] });
  return (await import('../runtime/session.js')).openSession(dir, options);
}

/** Runs a compiled program on ranks of this machine. */
export function runCompiled(options: RunCompiledOptions): Promise<RunReport> {
  return checked('run', options, RUN_IDLE, async () => (await import('./run.js')).runCompiled(options));
}

/** Trains a compiled program on data files. */
export function train(options: TrainOptions): Promise<TrainReport> {
  return checked('train', options, TRAIN_IDLE, async () => (await import('./train.js')).train(options));
}

/** Compares a compiled program with the unsharded model. */
export function verify(options: VerifyOptions): Promise<VerifyResult> {
  return checked('verify', options, VERIFY_IDLE, async () => (await import('./verify.js')).verify(options));
}

/** The losses of training runs in one picture. */
export function plot(options: PlotOptions): Promise<Plot> {
  return checked('plot', options, [], async () => (await import('./plot.js')).plot(options));
}

/** Runs a plan at reduced sizes on ranks of this machine, and compares it with one rank. */
export function rehearse(options: RehearseOptions): Promise<Rehearsal> {
  return checked('rehearse', options, [], async () => (await import('./rehearse.js')).rehearse(options));
}

/** Writes the weights of a checkpoint into the model's ONNX file, or as safetensors. */
export function exportWeights(options: ExportOptions): Promise<Exported> {
  return checked('exportWeights', options, [], async () =>
    (await import('./export-weights.js')).exportWeights(options),
  );
}

/** Measures this machine for `cluster: 'local'`. */
export function profile(
  options: ProfileOptions = {},
): Promise<{ readonly file: string; readonly profile: MachineProfile }> {
  return checked('profile', options, [], async () => (await import('./profile.js')).profile(options));
}

/** Fits the times of layers on a cluster to measured runs, and writes them to a cluster file. */
export function calibrate(options: CalibrateOptions): Promise<Calibration> {
  return checked('calibrate', options, [], async () => (await import('./calibrate.js')).calibrate(options));
}

/**
 * Checks the options of a verb, then runs it. Errors are in JavaScript terms.
 * @throws AutoparError (usage) `unknown-option`, `bad-option`, `missing-argument`; `interrupted`; the errors of `run`
 */
export async function checked<Options, Result>(
  verb: Verb,
  options: Options,
  idle: readonly Idle<Options>[],
  run: () => Promise<Result>,
): Promise<Result> {
  try {
    checkKinds(options, TABLES[verb], `${verb}()`, (name) => elsewhere(verb, name));
    const given = options as Readonly<Record<string, unknown>>;
    const lacks = (name: string) => given[name] === undefined && !(name === 'model' && given['generate'] !== undefined);
    const lacking = NEEDED[verb]?.find(lacks);
    if (lacking !== undefined) throw usageError('missing-argument', `${verb}() needs the option ${lacking}`);
    refuseIdle(options, idle);
    return await endedBy((options as { readonly signal?: AbortSignal }).signal, verb, run);
  } catch (error) {
    throw errorInJavaScript(verb, error);
  }
}

/** A hint on where an option belongs that the verb does not have; null for an unknown name. */
function elsewhere(verb: Verb, name: string): string | null {
  const path = 'training' in TABLES[verb] ? trainingPath(name) : null;
  if (path !== null) return `it is ${path}`;
  const verbs = verbsWith(name);
  return verbs.length === 0 ? null : `it is an option of ${verbs.map((other) => `${other}()`).join(', ')}`;
}
