/**
 * @file The reference: ONNX models in plain PyTorch (onnx_in_torch.py), which shares no code with src/. One Python process
 * serves many jobs; starting it takes two seconds.
 */
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { readNpz, writeNpz } from '../../src/program/arrays/npz.js';

export type Arrays = Readonly<Record<string, ConstantTensor>>;

export type TorchLoss =
  /** An output of one element. */
  | { readonly kind: 'output'; readonly output: string }
  /**
   * The mean over labels that count. Classes are on `classAxis`: the last of three dimensions, else the second, by default.
   * `labels` and `weight` (of classes) name arrays of the job.
   */
  | {
      readonly kind: 'cross_entropy';
      readonly output: string;
      readonly labels: string;
      readonly ignoreIndex?: number;
      readonly weight?: string;
      readonly labelSmoothing?: number;
      readonly classAxis?: number;
    }
  | { readonly kind: 'mse'; readonly output: string; readonly labels: string }
  /** Σ weights · output over outputs, whose weights are arrays of the job: output → array. */
  | { readonly kind: 'weighted'; readonly weights: Readonly<Record<string, string>> };

export interface TorchOptimizer {
  readonly name: 'sgd' | 'adam' | 'adamw' | 'lamb';
  readonly learningRate: number;
  readonly momentum?: number;
  readonly nesterov?: boolean;
  readonly betas?: readonly [number, number];
  readonly epsilon?: number;
  readonly weightDecay?: number;
  /** Parameters that take no weight decay. */
  readonly undecayed?: readonly string[];
}

export interface TorchModel {
  /** A file, or its bytes (with all weights inside). */
  readonly model: string | Uint8Array;
  /** The type of all floating-point numbers; left out: as the file has them. */
  readonly dtype?: 'float32' | 'float64';
  /** Initializers, constants or inputs that have gradients; `all`: floating-point ones of the file of more than one element. */
  readonly parameters?: 'all' | readonly string[];
  /** BatchNormalization takes batch statistics. */
  readonly training?: boolean;
  /** 1 by default. */
  readonly threads?: number;
}

export interface TorchJob extends TorchModel {
  /** Inputs, labels, and whatever else the loss names. */
  readonly arrays: Arrays;
  readonly loss?: TorchLoss;
}

export interface TorchTrainingJob extends TorchModel {
  readonly loss: TorchLoss;
  /** Arrays per step, over and over. */
  readonly batches: readonly Arrays[];
  readonly steps: number;
  readonly optimizer: TorchOptimizer;
  /** Per step, instead of the optimizer's own. */
  readonly learningRates?: readonly number[];
  /** Gradients are scaled down to this norm over all parameters. */
  readonly clipNorm?: number;
  /** Rates of torch.optim.lr_scheduler: growth for `warmup` steps, then a fall to `floor` times the rate after `total`. */
  readonly schedule?: {
    readonly shape: 'linear' | 'cosine';
    readonly warmup?: number;
    readonly total: number;
    readonly floor?: number;
  };
  /** The forward runs under torch.autocast to this type. */
  readonly autocast?: 'float16' | 'bfloat16';
  /** torch.amp.GradScaler from this scale on. */
  readonly initialScale?: number;
}

export interface TorchResult {
  readonly outputs: Arrays;
  readonly loss: number | null;
  /** By parameter; zeros where the loss does not depend on it. */
  readonly gradients: Arrays;
  /** New running statistics of BatchNormalization, by the name of the old ones. */
  readonly statistics: Arrays;
}

export interface TorchTrained {
  /** Before each step's update. */
  readonly losses: readonly number[];
  readonly parameters: Arrays;
  readonly statistics: Arrays;
  /** Seconds of each step: forward, backward and update. */
  readonly seconds: readonly number[];
  /** The scale of the loss after each step, where there is one. */
  readonly scales: readonly number[];
}

/** The reference lacks an operator or a feature; other errors are bugs. */
export class TorchLacks extends Error {}

const SCRIPT = resolve('test/reference/onnx_in_torch.py');

const PROBE = [
  'from importlib.metadata import version',
  'from importlib.util import find_spec',
  "missing = [name for name in ('torch', 'onnx', 'numpy') if find_spec(name) is None]",
  "print('lacks ' + ' and '.join(missing) if missing else 'torch ' + version('torch'))",
].join('\n');

/** A Python with torch and onnx: AUTOPAR_PYTHON, else python3. */
function findPython(): { readonly python: string } | { readonly lacks: string } {
  const python = process.env['AUTOPAR_PYTHON'] || 'python3';
  const { status, stdout, error } = spawnSync(python, ['-c', PROBE], { encoding: 'utf8' });
  if (error || status !== 0) return { lacks: `${python} does not run` };
  return stdout.startsWith('torch ') ? { python } : { lacks: `${python} ${stdout.trim()}` };
}

/** Why the reference cannot be run here, or lacks one of the `modules` that a suite needs besides; null where it can. */
export function torchAbsence(...modules: readonly string[]): string | null {
  const found = findPython();
  if ('lacks' in found) return `comparisons with PyTorch (${found.lacks}; AUTOPAR_PYTHON names another Python)`;
  const absent = modules.filter((module) => spawnSync(found.python, ['-c', `import ${module}`]).status !== 0);
  return absent.length > 0 ? `comparisons with PyTorch (${found.python} lacks ${absent.join(', ')})` : null;
}

/** Starts the reference. Close it at the end: it is a process. */
export async function startTorch(): Promise<Torch> {
  const found = findPython();
  if ('lacks' in found) throw new Error(found.lacks);
  const child = spawn(found.python, [SCRIPT], { env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } });
  const torch = new Torch(child);
  await torch.ready();
  return torch;
}

/** A job as the script takes it, but for the files that arrays become. */
interface SentJob extends TorchModel {
  readonly batches: readonly Arrays[];
  readonly loss?: TorchLoss;
  readonly train?: Readonly<Record<string, unknown>>;
}

interface Answer {
  readonly error?: string;
  readonly missing?: boolean;
  readonly operators?: readonly string[];
}

export class Torch {
  readonly #folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  readonly #lines: AsyncIterator<string>;
  readonly #said: string[] = [];
  #last: Promise<unknown> = Promise.resolve();
  #count = 0;
  #operators: ReadonlySet<string> = new Set();

  constructor(readonly child: ChildProcessWithoutNullStreams) {
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#said.push(text);
    });
    // A process that ended is detected when its answer is missing.
    child.stdin.on('error', () => {});
  }

  /** The first line says what it knows. */
  async ready(): Promise<void> {
    this.#operators = new Set((await this.#answer()).operators);
  }

  /** `domain:operator` of all that it knows. */
  get operators(): ReadonlySet<string> {
    return this.#operators;
  }

  /** Runs a model once: outputs, and with a loss its value and gradients. Throws TorchLacks where it knows no such thing. */
  async evaluate({ arrays, ...job }: TorchJob): Promise<TorchResult> {
    const results = await this.#run({ ...job, batches: [arrays] });
    const [loss] = results['loss'] ? numbersOf(results['loss']) : [];
    return {
      outputs: under('output/', results),
      loss: loss ?? null,
      gradients: under('grad/', results),
      statistics: under('state/', results),
    };
  }

  /** Steps of an optimizer from the values in the file. */
  async train(job: TorchTrainingJob): Promise<TorchTrained> {
    const { steps, optimizer, learningRates, clipNorm, schedule, autocast, initialScale, ...rest } = job;
    const train = { steps, optimizer, learningRates, clipNorm, schedule, autocast, initialScale };
    const results = await this.#run({ ...rest, train });
    const list = (name: string) => (results[name] ? numbersOf(results[name]) : []);
    return {
      losses: list('losses'),
      parameters: under('final/', results),
      statistics: under('state/', results),
      seconds: list('seconds'),
      scales: list('scales'),
    };
  }

  close(): void {
    this.child.stdin.end();
    this.child.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Jobs run one after another, whatever order they are asked in. */
  #run(job: SentJob): Promise<Arrays> {
    const result = this.#last.then(() => this.#runNow(job));
    this.#last = result.catch(() => {});
    return result;
  }

  async #runNow({ model, batches, ...job }: SentJob): Promise<Arrays> {
    const number = this.#count++;
    const file = (name: string) => join(this.#folder, `${number}-${name}`);
    const path = typeof model === 'string' ? resolve(model) : file('model.onnx');
    if (typeof model !== 'string') writeFileSync(path, model);
    const files = batches.map((arrays, index) => {
      writeFileSync(file(`${index}.npz`), writeNpz(arrays));
      return file(`${index}.npz`);
    });
    const results = file('results.npz');
    this.child.stdin.write(`${JSON.stringify({ ...job, model: path, batches: files, results })}\n`);
    const { error, missing } = await this.#answer();
    if (missing) throw new TorchLacks(error);
    if (error !== undefined) throw new Error(`the reference fails: ${error}\n${this.#said.splice(0).join('')}`);
    const arrays = readNpz(readFileSync(results), results);
    for (const written of [...files, results, ...(typeof model === 'string' ? [] : [path])]) rmSync(written);
    return arrays;
  }

  async #answer(): Promise<Answer> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the reference ended: ${this.#said.join('')}`);
    return JSON.parse(value) as Answer;
  }
}

/** The arrays whose names start so, without that. */
function under(prefix: string, arrays: Arrays): Arrays {
  return Object.fromEntries(
    Object.entries(arrays).flatMap(([name, value]) =>
      name.startsWith(prefix) ? [[name.slice(prefix.length), value] as const] : [],
    ),
  );
}
