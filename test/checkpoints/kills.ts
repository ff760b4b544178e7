/**
 * @file A training that is killed again and again, as a user's process, and resumed: at random moments, while a checkpoint is
 * written, and between steps. It is compared with one that nobody kills.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { checkpointIn } from '../../src/api/execution/checkpoints.js';
import { compile, train } from '../../src/api/index.js';
import { readMetrics, type StepMetrics } from '../../src/api/training-run/metrics.js';
import { type Checkpoint, readManifest } from '../../src/program/checkpoint.js';

const MAIN = fileURLToPath(new URL('../../bundle/cli/main.js', import.meta.url));

const STEPS = 60;
const EVERY = 3;

/** Events to wait for before the kill. */
const MOMENTS = ['some time', 'a checkpoint being written', 'a step'] as const;

export interface Killed {
  readonly kills: number;
  /** Kills while a checkpoint was half-written. */
  readonly whileWriting: number;
  readonly runs: number;
  /** Differences from the run that nobody killed; empty if there are none. */
  readonly differences: readonly string[];
}

/** Kills trainings until so many kills are done. `seed` draws the moments. */
export async function killTrainings(kills: number, seed: number): Promise<Killed> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const next = draws(seed);
  try {
    const data = join(folder, 'tokens.bin');
    writeFileSync(
      data,
      Uint16Array.from({ length: 16 * 40 + 1 }, () => Math.floor(next() * 64)),
    );
    const directories = ['alone', 'killed'].map((name) => join(folder, name));
    const [alone = '', killed = ''] = directories;
    for (const output of directories)
      await compile({
        model: 'models/gpt-tiny.onnx',
        output,
        devices: 2,
        degrees: { dp: 2, tp: 1 },
        axes: 'roles',
        zero: 1,
        training: {
          loss: { kind: 'cross_entropy' },
          optimizer: { kind: 'adamw', learningRate: 1e-2 },
          precision: 'fp16',
        },
      });
    await train({ directory: alone, data: [data], steps: STEPS, seed });
    const expected = await leftBy(alone);
    const differences: string[] = [];
    let [done, whileWriting, runs] = [0, 0, 0];
    while (done < kills) {
      rmSync(join(killed, 'checkpoints'), { recursive: true, force: true });
      runs++;
      for (let isOver = false; !isOver; ) {
        const moment = MOMENTS[Math.floor(next() * MOMENTS.length)] as (typeof MOMENTS)[number];
        const child = start(killed, data, seed, hasCheckpoint(killed));
        const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
        if (done < kills) await killAt(moment, child, killed, next);
        const code = await ended;
        if (code === 0) isOver = true;
        else if (code === null) {
          done++;
          if (unfinished(killed)) whileWriting++;
        } else throw new Error(`a resumed training ended with exit code ${code}`);
      }
      differences.push(...compared(expected, await leftBy(killed)));
    }
    return { kills: done, whileWriting, runs, differences };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function start(directory: string, data: string, seed: number, resumes: boolean): ChildProcess {
  const order = resumes ? ['--resume'] : ['--seed', String(seed)];
  const words = ['train', directory, '--data', data, '--steps', String(STEPS), '--checkpoint-every', String(EVERY)];
  return spawn(process.execPath, [MAIN, ...words, ...order], { stdio: ['ignore', 'ignore', 'inherit'] });
}

async function killAt(
  moment: (typeof MOMENTS)[number],
  child: ChildProcess,
  directory: string,
  next: () => number,
): Promise<void> {
  const metrics = join(directory, 'metrics.jsonl');
  const lines = 1 + Math.floor(next() * 2 * EVERY);
  const isRunning = () => child.exitCode === null && child.signalCode === null;
  const waitFor = async (holds: () => boolean) => {
    while (isRunning() && !holds()) await setTimeout(1);
  };
  if (moment === 'some time') await setTimeout(next() * 4000);
  else {
    await waitFor(() => existsSync(join(directory, 'checkpoints', 'lock')));
    const size = existsSync(metrics) ? statSync(metrics).size : 0;
    await waitFor(() => existsSync(metrics) && Math.abs(statSync(metrics).size - size) > 150 * lines);
    if (moment === 'a checkpoint being written') await waitFor(() => unfinished(directory));
    await setTimeout(next() * 10);
  }
  child.kill('SIGKILL');
}

function hasCheckpoint(directory: string): boolean {
  const root = join(directory, 'checkpoints');
  return existsSync(root) && readdirSync(root).some((name) => name.startsWith('step-'));
}

/** Whether there is a folder that a checkpoint is being written to. */
function unfinished(directory: string): boolean {
  const root = join(directory, 'checkpoints');
  return existsSync(root) && readdirSync(root).some((name) => name.endsWith('.tmp'));
}

interface Left {
  readonly metrics: readonly StepMetrics[];
  readonly checkpoint: Checkpoint;
  readonly bytes: Readonly<Record<string, Uint8Array>>;
}

async function leftBy(directory: string): Promise<Left> {
  const folder = await checkpointIn(directory);
  const files = readdirSync(folder).filter((name) => name.endsWith('.safetensors'));
  return {
    metrics: await readMetrics(join(directory, 'metrics.jsonl')),
    checkpoint: await readManifest(folder),
    bytes: Object.fromEntries(files.map((name) => [name, readFileSync(join(folder, name))])),
  };
}

/** Losses, gradient norms and loss scales of all steps, where the data are read on, and every byte of the state. */
function compared(expected: Left, found: Left): readonly string[] {
  const steps = ({ metrics }: Left) =>
    JSON.stringify(
      metrics.map(({ step, epoch, loss, gradientNorm, lossScale }) => [step, epoch, loss, gradientNorm, lossScale]),
    );
  const differences: string[] = [];
  if (steps(expected) !== steps(found)) differences.push(`metrics ${steps(found)}, expected ${steps(expected)}`);
  const where = ({ checkpoint: { step, state } }: Left) => JSON.stringify([step, state]);
  if (where(expected) !== where(found)) differences.push(`${where(found)}, expected ${where(expected)}`);
  for (const [name, bytes] of Object.entries(expected.bytes))
    if (!found.bytes[name] || Buffer.compare(bytes, found.bytes[name]) !== 0) differences.push(`${name} differs`);
  return differences;
}

/** Numbers from 0 to 1 (a linear congruential generator). */
function draws(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
