/**
 * @file Runs one case in every mode; started by main.ts as a child process, to which it reports message by message.
 *
 *     node case.js FOLDER SCRATCH
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import { AutoparError } from '../../src/ir/error.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { readProgram } from '../../src/program/reader.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { type Arrays, type CaseFiles, readCase, tiled } from './arrays.js';
import { difference } from './compare.js';
import { type Mode, RESIZED, RESIZED_FROM, RESIZED_MODES, SHARDED_MODES, UNSHARDED } from './modes.js';
import type { CaseMessage, ModeResult } from './report.js';

const [folder = '', scratch = ''] = process.argv.slice(2);

async function runCase(): Promise<void> {
  const files = readCase(folder);
  let dims: Readonly<Record<string, number>> = {};
  const unsharded = await attempt(UNSHARDED, async () => {
    dims = await boundDimensions(files);
    return runMode(files, dims, UNSHARDED, files.inputs, files.outputs);
  });
  if (unsharded.outcome !== 'passed') return;
  for (const mode of SHARDED_MODES) await attempt(mode, () => runMode(files, dims, mode, files.inputs, files.outputs));
  if (batchOf(files) === RESIZED_FROM) await runResized(files, dims);
}

/** The reference is the unsharded program at the new batch; where inputs repeat, its rows must repeat the file's outputs. */
async function runResized(files: CaseFiles, dims: Readonly<Record<string, number>>): Promise<void> {
  let inputs: Arrays = {};
  let expected: Arrays = {};
  const reference = await attempt(RESIZED, async () => {
    const directory = await compileMode(files, dims, RESIZED);
    const program = await readProgram(join(directory.folder, 'program'));
    inputs = Object.fromEntries(program.inputs.map(({ name, shape }) => [name, tiled(inputOf(files, name), shape)]));
    expected = (await runProgram(join(directory.folder, 'program'), inputs, {})).outputs;
    return { ...directory.shares, detail: rowsDiffer(files, expected) };
  });
  if (reference.outcome !== 'passed') return;
  for (const mode of RESIZED_MODES) await attempt(mode, () => runMode(files, dims, mode, inputs, expected));
}

/** Says so where the repeated rows do not repeat: a model that mixes samples; then only the resized run is the reference. */
function rowsDiffer(files: CaseFiles, resized: Arrays): string {
  const faults = Object.entries(files.outputs).flatMap(([name, output]) => {
    const found = resized[name];
    if (!found || found.shape.length !== output.shape.length) return [`${name} has another rank`];
    return difference(name, found, tiled(output, found.shape), files.tolerance) ?? [];
  });
  return faults.length === 0 ? '' : `rows do not repeat: ${faults.join('; ')}`;
}

async function runMode(
  files: CaseFiles,
  dims: Readonly<Record<string, number>>,
  mode: Mode,
  inputs: Arrays,
  expected: Arrays,
): Promise<Partial<ModeResult>> {
  const compiled = await compileMode(files, dims, mode);
  const { outputs } = await runProgram(join(compiled.folder, 'program'), inputs, {});
  const faults = Object.entries(expected).flatMap(
    ([name, wanted]) => difference(name, outputs[name], wanted, files.tolerance) ?? [],
  );
  if (faults.length > 0) throw new Error(faults.join('; '));
  return compiled.shares;
}

interface CompiledMode {
  readonly folder: string;
  readonly shares: Partial<ModeResult>;
}

async function compileMode(
  files: CaseFiles,
  dims: Readonly<Record<string, number>>,
  mode: Mode,
): Promise<CompiledMode> {
  const output = join(scratch, mode.name.replaceAll(/\W+/g, '-'));
  await rm(output, { recursive: true, force: true });
  const result = await compile({
    model: files.model,
    output,
    dims,
    devices: mode.ranks,
    ...(mode.degrees ? { degrees: mode.degrees } : {}),
    ...(mode.globalBatch === undefined ? {} : { globalBatch: mode.globalBatch }),
  });
  if (!result.programWritten) throw new Error(result.programReason ?? 'no program was written');
  const { predicted, degrees, operators } = result.plan;
  return {
    folder: output,
    shares: {
      flopsShare: predicted.flopsTotal > 0 ? predicted.flopsPerRank / predicted.flopsTotal : 1,
      sharded: Object.values(operators).some(({ strategy }) => Object.values(strategy).some((axes) => axes.length > 0)),
      degrees: `dp ${degrees.dp} · tp ${degrees.tp}`,
      exceptions: result.exceptions.map(({ operator, reason }) => `${operator}: ${reason}`),
    },
  };
}

/** Runs one mode, tells the parent before and after, and turns what is thrown into an outcome. */
async function attempt(mode: Mode, run: () => Promise<Partial<ModeResult>>): Promise<ModeResult> {
  send({ kind: 'begin', mode: mode.name });
  const result = await run()
    .then((found): ModeResult => ({ mode: mode.name, outcome: 'passed', detail: '', ...found }))
    .catch((error: unknown): ModeResult => {
      const refused = error instanceof AutoparError && error.exit !== 'fault' && error.exit !== 'rankFailed';
      const detail = error instanceof AutoparError ? `${error.code}: ${error.message}` : String(error);
      return { mode: mode.name, outcome: refused ? 'refused' : 'failed', detail };
    });
  send({ kind: 'end', result });
  return result;
}

/** Names of dynamic dimensions and the sizes that the case's inputs give them. */
async function boundDimensions(files: CaseFiles): Promise<Readonly<Record<string, number>>> {
  const { graph } = await readOnnx(files.model);
  const bound: Record<string, number> = {};
  for (const { name, shape } of graph.inputs) {
    for (const [axis, size] of (files.inputs[name]?.shape ?? []).entries()) {
      const dimension = shape?.[axis];
      if (typeof dimension === 'string' && /^\w+$/.test(dimension)) bound[dimension] = size;
    }
  }
  return bound;
}

function batchOf({ inputs }: CaseFiles): number | undefined {
  return Object.values(inputs)[0]?.shape[0];
}

function inputOf({ inputs }: CaseFiles, name: string): ConstantTensor {
  const array = inputs[name];
  if (!array) throw new Error(`io.json has no input ${name}`);
  return array;
}

function send(message: CaseMessage): void {
  process.send?.(message);
}

await runCase().catch((error: unknown) => {
  send({ kind: 'end', result: { mode: 'reading the case', outcome: 'failed', detail: String(error) } });
});
process.disconnect?.();
