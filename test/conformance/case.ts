/**
 * @file One case in every mode: on plain ONNX Runtime first, then compiled and run, unsharded and sharded.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import { importModel } from '../../src/api/models/import.js';
import { AutoparError } from '../../src/ir/error.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { readProgram } from '../../src/program/reader.js';
import type { BackendName } from '../../src/runtime/backend.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { shapeInputs } from './bind-shapes.js';
import { type Arrays, type CaseFiles, type DataSet, readCase } from './case-files.js';
import { difference, leewayOf, type Slack } from './compare.js';
import type { CaseReference } from './find-cases.js';
import {
  type Mode,
  ORIGINAL,
  READING,
  RESIZED,
  RESIZED_FROM,
  RESIZED_MODES,
  SHARDED_MODES,
  TRAINED,
  TRAINED_MODES,
  UNSHARDED,
} from './modes.js';
import { Refusal, reasonClass } from './refusals.js';
import type { CaseMessage, ModeResult } from './report.js';
import { tiled } from './tiled.js';
import { trainIn } from './trained.js';

/** A data set with the options that autopar needs to compile the model for it. */
interface Prepared extends DataSet {
  readonly dims: Readonly<Record<string, number>>;
  readonly constants: Arrays;
  /** Outputs in which ONNX Runtime itself differs in a way that is not an error. */
  readonly slack: Slack;
}

export interface CaseSettings {
  /** A folder for what is compiled; emptied by whoever made it. */
  readonly scratch: string;
  /** Names of the modes to run besides the unsharded one; all where left out. */
  readonly modes?: readonly string[];
  /** Whether whole models are trained as well. */
  readonly train?: boolean;
  /** The backend of the ranks; the CPU if left out. */
  readonly backend?: BackendName;
}

/** Runs a compiled program and gives its outputs. */
export type RunCompiled = (folder: string, inputs: Arrays) => Promise<Arrays>;

function compiledOn(backend: BackendName): RunCompiled {
  return async (folder, inputs) => (await runProgram(join(folder, 'program'), inputs, { backend })).outputs;
}

/**
 * Runs the case and reports each mode to `send` before and after it, so that a crash can be assigned to its mode. `run`
 * runs programs (the runner's own test passes one that is wrong).
 */
export async function runCase(
  reference: CaseReference,
  settings: CaseSettings,
  send: (message: CaseMessage) => void,
  run = compiledOn(settings.backend ?? 'cpu'),
): Promise<void> {
  const attempt = attempts(send);
  let files: CaseFiles = { model: reference.model, sets: [], tolerance: { rtol: 0, atol: 0 } };
  let sets: readonly Prepared[] = [];
  send({ kind: 'begin', mode: READING });
  try {
    files = await readOrRefuse(reference, settings.scratch);
  } catch (error) {
    send({ kind: 'end', result: outcomeOf(READING, error) });
    return;
  }
  const original = await attempt(ORIGINAL, async () => {
    sets = await Promise.all(files.sets.map((set) => onOnnxRuntime(files, set)));
    const { graph } = await readOnnx(files.model);
    return { operators: [...new Set(graph.nodes.map(({ op }) => op))] };
  });
  if (original.outcome !== 'passed') return;
  const unsharded = await attempt(UNSHARDED.name, async () => {
    sets = await Promise.all(sets.map((set) => withBindings(files.model, set)));
    const result = await runSets(files, sets, UNSHARDED, settings.scratch, run);
    return { ...result, ...(files.unpacked ? { unpacked: files.unpacked } : {}) };
  });
  if (unsharded.outcome !== 'passed') return;
  const whole = unsharded.bytes ?? Infinity;
  const wanted = (mode: Mode): boolean => settings.modes?.includes(mode.name) ?? true;
  for (const mode of SHARDED_MODES[reference.layout].filter(wanted))
    await attempt(mode.name, async () => fallen(await runSets(files, sets, mode, settings.scratch, run), whole));
  const [first] = sets;
  if (settings.train && first && reference.layout !== 'onnx') await runTrained(files, first, settings, attempt);
  if (reference.layout === 'listed' && first && batchOf(first) === RESIZED_FROM)
    await runResized(files, first, settings, attempt, run);
}

/** `result` as sharded only where an operator is, and work or bytes of a rank are less than `whole`, those of one rank alone. */
export function fallen(result: Partial<ModeResult>, whole: number): Partial<ModeResult> {
  const { sharded = false, flopsShare = 1, bytes = Infinity } = result;
  return { ...result, sharded: sharded && (flopsShare < 1 || bytes < whole) };
}

type Attempt = (mode: string, run: () => Promise<Partial<ModeResult>>) => Promise<ModeResult>;

/** Runs a mode and turns what is thrown into an outcome. */
function attempts(send: (message: CaseMessage) => void): Attempt {
  return async (mode, run) => {
    send({ kind: 'begin', mode });
    const result = await run()
      .then((found): ModeResult => ({ mode, outcome: 'passed', detail: '', ...found }))
      .catch((error: unknown): ModeResult => outcomeOf(mode, error));
    send({ kind: 'end', result });
    return result;
  };
}

function outcomeOf(mode: string, error: unknown): ModeResult {
  if (error instanceof Refusal) return { mode, outcome: 'refused', reason: error.reason, detail: error.message };
  if (!(error instanceof AutoparError)) return { mode, outcome: 'failed', detail: String(error) };
  const refused = error.exit !== 'fault' && error.exit !== 'rankFailed';
  const detail = `${error.code}: ${error.message}`;
  if (!refused) return { mode, outcome: 'failed', detail };
  return { mode, outcome: 'refused', code: error.code, reason: reasonClass(error), detail };
}

/**
 * Reads the case. Where its arrays are of a kind that autopar refuses (strings, sequences), the model must be refused as
 * well: import is checked even if the case cannot be judged.
 */
async function readOrRefuse(reference: CaseReference, scratch: string): Promise<CaseFiles> {
  try {
    return await readCase(reference, scratch);
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    const refused = await importModel(reference.model).catch((other: unknown) => other);
    if (refused instanceof Error && !(refused instanceof AutoparError)) throw refused;
    throw error;
  }
}

/** Throws a Refusal where ONNX Runtime cannot run the file as it is, or gives something else than the case expects. */
async function onOnnxRuntime({ model, tolerance }: CaseFiles, set: DataSet): Promise<Prepared> {
  const found = await runOnnx(model, set.inputs).catch((error: unknown) => {
    throw new Refusal('onnxruntime cannot run it', error instanceof Error ? error.message : String(error));
  });
  const outputs = Object.keys(set.outputs).length > 0 ? set.outputs : found;
  const slack: Slack = new Map(
    Object.entries(outputs).flatMap(([name, wanted]) => {
      const leeway = leewayOf(found[name], wanted, tolerance);
      return leeway ? [[name, leeway] as const] : [];
    }),
  );
  const faults = Object.entries(outputs).flatMap(
    ([name, wanted]) => difference(name, found[name], wanted, tolerance, slack) ?? [],
  );
  if (faults.length > 0) throw new Refusal('onnxruntime gives another result', faults.join('; '));
  return { ...set, outputs, dims: {}, constants: {}, slack };
}

async function withBindings(model: string, set: Prepared): Promise<Prepared> {
  const dims = await boundDimensions(model, set);
  return { ...set, dims, constants: await shapeInputs(model, set, dims) };
}

/** All data sets in one mode; a compiled program serves several where they bind the same. */
async function runSets(
  files: CaseFiles,
  sets: readonly Prepared[],
  mode: Mode,
  scratch: string,
  run: RunCompiled,
): Promise<Partial<ModeResult>> {
  let shares: Partial<ModeResult> = {};
  let last: { readonly set: Prepared; readonly compiled: CompiledMode } | null = null;
  for (const set of sets) {
    const compiled: CompiledMode =
      last && sameBindings(last.set, set) ? last.compiled : await compileMode(files.model, set, mode, scratch);
    last = { set, compiled };
    shares = compiled.shares;
    const feeds = Object.fromEntries(Object.entries(set.inputs).filter(([name]) => !(name in set.constants)));
    const outputs = await run(compiled.folder, feeds);
    const faults = Object.entries(set.outputs).flatMap(
      ([name, wanted]) => difference(name, outputs[name], wanted, files.tolerance, set.slack) ?? [],
    );
    if (faults.length > 0) throw new Error(faults.join('; '));
  }
  return shares;
}

function sameBindings(a: Prepared, b: Prepared): boolean {
  return (
    JSON.stringify(a.dims) === JSON.stringify(b.dims) &&
    Object.keys(a.constants).length + Object.keys(b.constants).length === 0
  );
}

interface CompiledMode {
  readonly folder: string;
  readonly shares: Partial<ModeResult>;
}

async function compileMode(
  model: string,
  { dims, constants }: Pick<Prepared, 'dims' | 'constants'>,
  mode: Mode,
  scratch: string,
): Promise<CompiledMode> {
  const output = join(scratch, mode.name.replaceAll(/\W+/g, '-'));
  await rm(output, { recursive: true, force: true });
  const result = await compile({
    model,
    output,
    dims,
    constants,
    devices: mode.ranks,
    // Each given degree is to do its own axis's part; without any, everything that compile searches is open.
    ...(mode.degrees ? { degrees: mode.degrees, axes: mode.axes ?? 'roles' } : {}),
    ...(mode.globalBatch === undefined ? {} : { globalBatch: mode.globalBatch }),
  });
  if (!result.programWritten) throw new Error(result.programReason ?? 'no program was written');
  const { predicted, degrees, operators } = result.plan;
  const bound = Object.keys(constants);
  return {
    folder: output,
    shares: {
      bytes: Math.max(...predicted.peakBytes),
      flopsShare: predicted.flopsTotal > 0 ? predicted.flopsPerRank / predicted.flopsTotal : 1,
      sharded: Object.values(operators).some(({ strategy }) => Object.values(strategy).some((axes) => axes.length > 0)),
      degrees: `dp ${degrees.dp} · tp ${degrees.tp}`,
      exceptions: result.exceptions.map(({ operator, reason }) => `${operator}: ${reason}`),
      ...(mode.largestShare === undefined ? {} : { largestShare: mode.largestShare }),
      ...(bound.length > 0 ? { bound } : {}),
    },
  };
}

/** The reference is the unsharded program at the new batch; where inputs repeat, its rows must repeat the file's outputs. */
async function runResized(
  files: CaseFiles,
  set: Prepared,
  { scratch, modes }: CaseSettings,
  attempt: Attempt,
  run: RunCompiled,
): Promise<void> {
  const wanted = RESIZED_MODES.filter((mode) => modes?.includes(mode.name) ?? true);
  if (wanted.length === 0) return;
  let resized: Prepared = set;
  const reference = await attempt(RESIZED.name, async () => {
    const { folder, shares } = await compileMode(files.model, set, RESIZED, scratch);
    const program = await readProgram(join(folder, 'program'));
    const inputs = Object.fromEntries(
      program.inputs.map(({ name, shape }) => [name, tiled(inputOf(set, name), shape)]),
    );
    const outputs = await run(folder, inputs);
    resized = { ...set, inputs, outputs };
    return { ...shares, detail: rowsDiffer(files, set, outputs) };
  });
  if (reference.outcome !== 'passed') return;
  const whole = reference.bytes ?? Infinity;
  for (const mode of wanted)
    await attempt(mode.name, async () => fallen(await runSets(files, [resized], mode, scratch, run), whole));
}

/** The reference is the step on one rank. */
async function runTrained(files: CaseFiles, set: Prepared, settings: CaseSettings, attempt: Attempt): Promise<void> {
  const trained = { ...set, model: files.model };
  let expected: Arrays = {};
  const reference = await attempt(TRAINED.name, async () => {
    const { outputs, shares } = await trainIn(TRAINED, trained, settings.scratch, null);
    expected = outputs;
    return shares;
  });
  if (reference.outcome !== 'passed') return;
  for (const mode of TRAINED_MODES.filter(({ name }) => settings.modes?.includes(name) ?? true))
    await attempt(mode.name, async () =>
      fallen((await trainIn(mode, trained, settings.scratch, expected)).shares, reference.bytes ?? Infinity),
    );
}

/** Says so where the repeated rows do not repeat: a model that mixes samples; then only the resized run is the reference. */
function rowsDiffer({ tolerance }: CaseFiles, { outputs }: Prepared, resized: Arrays): string {
  const faults = Object.entries(outputs).flatMap(([name, output]) => {
    const found = resized[name];
    if (!found || found.shape.length !== output.shape.length) return [`${name} has another rank`];
    return difference(name, found, tiled(output, found.shape), tolerance) ?? [];
  });
  return faults.length === 0 ? '' : `rows do not repeat: ${faults.join('; ')}`;
}

/** Names of dynamic dimensions and the sizes that the inputs give them. */
async function boundDimensions(model: string, { inputs }: DataSet): Promise<Readonly<Record<string, number>>> {
  const { graph } = await readOnnx(model);
  const bound: Record<string, number> = {};
  for (const { name, shape } of graph.inputs) {
    for (const [axis, size] of (inputs[name]?.shape ?? []).entries()) {
      const dimension = shape?.[axis];
      if (typeof dimension === 'string' && /^\w+$/.test(dimension)) bound[dimension] = size;
    }
  }
  return bound;
}

function batchOf({ inputs }: DataSet): number | undefined {
  return Object.values(inputs)[0]?.shape[0];
}

function inputOf({ inputs }: DataSet, name: string): ConstantTensor {
  const array = inputs[name];
  if (!array) throw new Error(`io.json has no input ${name}`);
  return array;
}
