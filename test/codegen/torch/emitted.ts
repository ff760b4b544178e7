/**
 * @file Programs of the torch target, compiled as a user would, and run: ranks as forks of one Python process, or as processes
 * that torchrun starts.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { labelBounds } from '../../../src/api/execution/labels.js';
import { type CompileOptions, compile, type Training } from '../../../src/api/index.js';
import { openCompiled } from '../../../src/api/verify.js';
import { readNpz, writeNpz } from '../../../src/program/arrays/npz.js';
import { rankCount } from '../../../src/program/mesh.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import type { Arrays } from '../../reference/torch.js';

/** A program in a folder, with the inputs of its runs. */
export interface Emitted {
  readonly folder: string;
  readonly ranks: number;
  readonly steps: number;
}

/** Results of a run: outputs and state by the model's names, state after the first step, and the loss of every step. */
export interface Ran {
  readonly outputs: Arrays;
  readonly first: Arrays;
  readonly state: Arrays;
  readonly losses: readonly number[];
}

/** Compiles a model to `folder` with the torch target, axes in their roles, and writes inputs for it. */
export async function emitted(folder: string, steps: number, options: CompileOptions): Promise<Emitted> {
  await compile({ axes: 'roles', ...options, output: folder, target: 'torch' });
  const { imported, program } = await openCompiled(folder);
  const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
  writeFileSync(join(folder, 'inputs.npz'), writeNpz(inputs));
  return { folder, ranks: rankCount(program.mesh), steps };
}

/** Options for the same model and training on one rank, in one batch. */
export function unshardedOptions(options: Partial<CompileOptions>): Partial<CompileOptions> {
  const { globalBatch, initRandom, dispatch, capacityFactor, training } = options;
  const { microBatches: _, ...step } = training ?? ({} as Partial<Training>);
  return {
    ...{ devices: 1, degrees: { dp: 1, tp: 1 } },
    ...(globalBatch === undefined ? {} : { globalBatch }),
    ...(initRandom ? { initRandom } : {}),
    // Tokens that experts drop are part of the computation.
    ...(dispatch === undefined ? {} : { dispatch }),
    ...(capacityFactor === undefined ? {} : { capacityFactor }),
    ...(training ? { training: step as Training } : {}),
  };
}

/** Runs the same program in the bundled runtime. */
export async function ranHere({ folder, steps }: Emitted): Promise<Ran> {
  const { program } = await openCompiled(folder);
  const inputs = readNpz(readFileSync(join(folder, 'inputs.npz')), 'inputs');
  const pairs = program.state ?? [];
  const after = async (count: number) => {
    const run = await runProgram(folder, inputs, { program, steps: count, collect: pairs.map(({ from }) => from) });
    const state = pairs.flatMap(({ from, to }) => (run.tensors[from] ? [[to, run.tensors[from]] as const] : []));
    return { ...run, state: Object.fromEntries(state) };
  };
  const first = steps > 1 ? (await after(1)).state : {};
  const { outputs, history, state } = await after(steps);
  return { outputs, first, state, losses: history['loss'] ?? [] };
}

const PYTHON = process.env['AUTOPAR_PYTHON'] || 'python3';

/** Runs programs one after the other, their ranks being forks of one process. By folder what those leave that do not fail. */
export function runForked(programs: readonly Emitted[]): ReadonlyMap<string, Ran> {
  runJobs(
    programs.map((program) => {
      const { outputs, state, first, metrics } = files(program.folder);
      const whole = { outputs, state, metrics, steps: program.steps };
      return { program, runs: program.steps > 1 ? [{ state: first, steps: 1 }, whole] : [whole] };
    }),
  );
  return new Map(
    programs.flatMap(({ folder }) => (existsSync(files(folder).state) ? [[folder, ranIn(folder)] as const] : [])),
  );
}

/** Options of main.py, beside those that every run has. */
type RunOptions = Readonly<Record<string, string | number | boolean>>;

/** Runs each program so many times, in processes that are forks of one. */
export function runJobs(jobs: readonly { readonly program: Emitted; readonly runs: readonly RunOptions[] }[]): void {
  const sent = jobs.map(({ program: { folder, ranks }, runs }) => {
    const usual = { ...DEFAULTS, inputs: [join(folder, 'inputs.npz')], device: 'cpu' };
    return { folder: join(folder, 'torch'), ranks, runs: runs.map((options) => ({ ...usual, ...options })) };
  });
  console.log(python([resolve('test/codegen/torch/run_forked.py')], JSON.stringify(sent)));
}

const DEFAULTS = {
  outputs: null,
  state: null,
  metrics: null,
  save: null,
  save_every: null,
  resume: null,
  compile: false,
  seed: 0,
};

/** Runs a program as its README says, on gloo. */
export function runTorchrun({ folder, ranks, steps }: Emitted): Ran {
  const { outputs, state, metrics } = files(folder);
  const given = ['--device', 'cpu', '--steps', String(steps), '--inputs', join(folder, 'inputs.npz')];
  const main = join(folder, 'torch', 'main.py');
  const launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', String(ranks), main];
  python([...launch, ...given, '--outputs', outputs, '--state', state, '--metrics', metrics]);
  return ranIn(folder);
}

type Results = Readonly<Record<'outputs' | 'state' | 'first' | 'metrics', string>>;

function files(folder: string): Results {
  const at = (name: string) => join(folder, name);
  return { outputs: at('outputs.npz'), state: at('state.npz'), first: at('first.npz'), metrics: at('metrics.csv') };
}

/** Runs Python. Throws with what it printed where it fails. */
export function python(given: readonly string[], input = '', more: Readonly<Record<string, string>> = {}): string {
  const { status, stdout, stderr } = spawnSync(PYTHON, given, {
    input,
    encoding: 'utf8',
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', OMP_NUM_THREADS: '1', ...more },
  });
  if (status !== 0) throw new Error(`python ended with ${status}:\n${stderr.slice(-4000)}${stdout.slice(-2000)}`);
  return stdout;
}

function ranIn(folder: string): Ran {
  const { outputs, state, first, metrics } = files(folder);
  const [header = '', ...rows] = readFileSync(metrics, 'utf8').trim().split(/\r?\n/);
  const loss = header.split(',').indexOf('loss');
  return {
    outputs: readNpz(readFileSync(outputs), outputs),
    first: existsSync(first) ? readNpz(readFileSync(first), first) : {},
    state: readNpz(readFileSync(state), state),
    losses: loss < 0 ? [] : rows.map((row) => Number(row.split(',')[loss])),
  };
}
