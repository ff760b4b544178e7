/**
 * @file Programs of the torch target, compiled as a user would, and run: ranks as forks of one Python process, or as processes that
 * torchrun starts.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type CompileOptions, compile } from '../../../src/api/index.js';
import { randomInputs } from '../../../src/api/inputs.js';
import { labelBounds } from '../../../src/api/labels.js';
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

/** What a run leaves: outputs and state by the model's names. */
export interface Ran {
  readonly outputs: Arrays;
  readonly state: Arrays;
}

/** Compiles a model to `folder` with the torch target, and writes inputs for it. */
export async function emitted(folder: string, steps: number, options: CompileOptions): Promise<Emitted> {
  await compile({ ...options, output: folder, target: 'torch' });
  const { imported, program } = await openCompiled(folder);
  const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
  writeFileSync(join(folder, 'inputs.npz'), writeNpz(inputs));
  return { folder, ranks: rankCount(program.mesh), steps };
}

/** Runs the same program in the bundled runtime. */
export async function ranHere({ folder, steps }: Emitted): Promise<Ran> {
  const { program } = await openCompiled(folder);
  const inputs = readNpz(readFileSync(join(folder, 'inputs.npz')), 'inputs');
  const pairs = program.state ?? [];
  const { outputs, tensors } = await runProgram(folder, inputs, { steps, collect: pairs.map(({ from }) => from) });
  const state = pairs.flatMap(({ from, to }) => (tensors[from] ? [[to, tensors[from]] as const] : []));
  return { outputs, state: Object.fromEntries(state) };
}

const PYTHON = process.env['AUTOPAR_PYTHON'] || 'python3';

/** Runs programs one after the other, their ranks being forks of one process. By folder what those leave that do not fail. */
export function runForked(programs: readonly Emitted[]): ReadonlyMap<string, Ran> {
  const jobs = programs.map(({ folder, ranks, steps }) => ({
    folder: join(folder, 'torch'),
    ranks,
    options: { ...files(folder), inputs: [join(folder, 'inputs.npz')], device: 'cpu', steps, seed: 0 },
  }));
  console.log(python([resolve('test/codegen/torch/run_forked.py')], JSON.stringify(jobs)));
  return new Map(
    programs.flatMap(({ folder }) => (existsSync(files(folder).state) ? [[folder, ranIn(folder)] as const] : [])),
  );
}

/** Runs a program as its README says, on gloo. */
export function runTorchrun({ folder, ranks, steps }: Emitted): Ran {
  const { outputs, state } = files(folder);
  const given = ['--device', 'cpu', '--steps', String(steps), '--inputs', join(folder, 'inputs.npz')];
  const main = join(folder, 'torch', 'main.py');
  const launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', String(ranks), main];
  python([...launch, ...given, '--outputs', outputs, '--state', state]);
  return ranIn(folder);
}

function files(folder: string): { readonly outputs: string; readonly state: string } {
  return { outputs: join(folder, 'outputs.npz'), state: join(folder, 'state.npz') };
}

/** Runs Python. Throws with what it printed where it fails. */
export function python(given: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync(PYTHON, given, {
    input,
    encoding: 'utf8',
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', OMP_NUM_THREADS: '1' },
  });
  if (status !== 0) throw new Error(`python ended with ${status}:\n${stderr.slice(-4000)}${stdout.slice(-2000)}`);
  return stdout;
}

function ranIn(folder: string): Ran {
  const { outputs, state } = files(folder);
  const index = JSON.parse(readFileSync(join(folder, 'torch', 'weights', 'index.json'), 'utf8')) as readonly Readonly<
    Record<string, { readonly key: string }>
  >[];
  const byPath = Object.entries(readNpz(readFileSync(state), state));
  return {
    outputs: readNpz(readFileSync(outputs), outputs),
    state: Object.fromEntries(
      byPath.map(([name, value]) => [index.find((stage) => stage[name])?.[name]?.key ?? name, value]),
    ),
  };
}
