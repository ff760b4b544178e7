/**
 * @file Models of PyTorch's two exporters, trained here and by PyTorch: by `compile --train` and `train` from the file, and as
 * the module that was exported (exported_models.py). Losses of every step and weights behind the last are compared.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import type { Training } from '../../src/api/models/training.js';
import { trainFrom } from '../../src/api/train.js';
import { openCompiled } from '../../src/api/verify.js';
import { type ConstantTensor, elementCount, type Weight } from '../../src/ir/graph.js';
import { loadWeight } from '../../src/ir/onnx/tensors.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { readNpz, writeNpz } from '../../src/program/arrays/npz.js';
import type { Arrays } from './torch.js';

export const MODELS = [
  'mlp',
  'cnn',
  'encoder',
  'gpt',
  'lstm',
  'llama',
  'moe',
  'gru',
  'embedding-bag',
  'prelu',
  'conv-transpose',
] as const;
const EXPORTERS = ['ts', 'dynamo'] as const;

const OPTIMIZERS = {
  sgd: { kind: 'sgd', learningRate: 0.1 },
  nesterov: { kind: 'sgd', learningRate: 0.05, momentum: 0.9, nesterov: true, weightDecay: 0.01 },
  adam: { kind: 'adam', learningRate: 3e-3 },
  adamw: { kind: 'adamw', learningRate: 3e-3, weightDecay: 0.01 },
  lamb: { kind: 'lamb', learningRate: 1e-2, weightDecay: 0.01 },
} as const satisfies Readonly<Record<string, Training['optimizer']>>;

const MESHES = [
  { dp: 1, tp: 1 },
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
] as const;

const STEPS = 20;

/** Relative tolerance; norm-wise for weights. */
const TOLERANCE = 1e-4;

/** One model, trained once. */
export interface ExportedRun {
  readonly model: (typeof MODELS)[number];
  readonly exporter: (typeof EXPORTERS)[number];
  readonly optimizer: keyof typeof OPTIMIZERS;
  readonly mesh: (typeof MESHES)[number];
}

/** How far a run is from PyTorch's in float64. */
export interface Comparison {
  /** The largest relative difference of a loss. */
  readonly loss: number;
  /** The largest of a weight, norm-wise. */
  readonly weights: number;
  readonly compared: number;
  /** Differences beyond rounding, in words; empty if there are none. */
  readonly faults: readonly string[];
}

const NAMES = Object.keys(OPTIMIZERS) as (keyof typeof OPTIMIZERS)[];

export const ALL_RUNS: readonly ExportedRun[] = MODELS.flatMap((model) =>
  EXPORTERS.flatMap((exporter) =>
    NAMES.flatMap((optimizer) => MESHES.map((mesh) => ({ model, exporter, optimizer, mesh }))),
  ),
);

/** Every file once, and every optimizer once on every mesh. */
export const SAMPLE_RUNS: readonly ExportedRun[] = EXPORTERS.flatMap((exporter, second) =>
  MODELS.map((model, first) => {
    const turn = first + second * MODELS.length;
    const [optimizer, mesh] = [NAMES[turn % NAMES.length], MESHES[turn % MESHES.length]];
    return { model, exporter, optimizer: optimizer ?? 'sgd', mesh: mesh ?? MESHES[0] };
  }),
);

export function runName({ model, exporter, optimizer, mesh }: ExportedRun): string {
  return `${model}, ${exporter}, ${optimizer}, dp ${mesh.dp} · tp ${mesh.tp}`;
}

/** The files of some runs and what PyTorch makes of their modules. */
export class ExportedModels {
  private readonly folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));

  /** Exports and trains in PyTorch, which takes seconds per model. */
  constructor(runs: readonly ExportedRun[]) {
    const of = (model: string) => runs.filter((run) => run.model === model);
    const models = [...new Set(runs.map(({ model }) => model))].map((model) => {
      const exporters = [...new Set(of(model).map(({ exporter }) => exporter))];
      return [model, { exporters, optimizers: [...new Set(of(model).map(({ optimizer }) => optimizer))] }] as const;
    });
    const settings = Object.entries(OPTIMIZERS).map(
      ([name, { kind, ...rest }]) => [name, { name: kind, ...rest }] as const,
    );
    const job = { models: Object.fromEntries(models), optimizers: Object.fromEntries(settings) };
    execFileSync(
      process.env['AUTOPAR_PYTHON'] || 'python3',
      ['test/reference/exported_models.py', this.folder, JSON.stringify(job)],
      { stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } },
    );
  }

  async compare({ model, exporter, optimizer, mesh }: ExportedRun): Promise<Comparison> {
    const file = join(this.folder, `${model}.${exporter}.onnx`);
    const directory = join(this.folder, 'out');
    const training = { loss: { kind: 'cross_entropy' }, optimizer: OPTIMIZERS[optimizer] } as const;
    const { dp, tp } = mesh;
    // Experts on the ranks of dp, each token sent to its own.
    const [ep, sent] = model === 'moe' ? ([dp, { dispatch: 'padded' }] as const) : ([1, {}] as const);
    const devices = dp * tp;
    await compile({
      ...{ model: file, output: directory, force: true, training, devices, degrees: { dp, tp, ep }, axes: 'roles' },
      ...sent,
    });
    const data = join(this.folder, 'data.npz');
    const { graph } = (await openCompiled(directory)).imported;
    const input = graph.inputs.find((name) => name !== 'labels') ?? '';
    const { x, labels } = this.arrays(`${model}.npz`);
    if (!x || !labels) throw new Error(`${model} lacks data`);
    writeFileSync(data, writeNpz({ [input]: x, labels }));
    const { report, kept } = await trainFrom({ directory, data: [data], steps: STEPS, inOrder: true }, {}, true);
    const expected = this.arrays(`${model}.${optimizer}.npz`);
    const losses = lossFaults(report.losses, expected);
    const weights = await this.weightFaults(graph.initial ?? new Map(), kept, expected);
    return {
      loss: losses.worst,
      weights: weights.worst,
      compared: weights.compared,
      faults: [...losses.faults, ...weights.faults],
    };
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  private arrays(file: string): Arrays {
    return readNpz(readFileSync(join(this.folder, file)), file);
  }

  /** A weight is the module's tensor that it was equal to before the first step, under its name where several were. */
  private async weightFaults(initial: ReadonlyMap<string, Omit<Weight, 'role'>>, kept: Arrays, expected: Arrays) {
    const faults: string[] = [];
    const left = new Set(named('initial/', expected).keys());
    let [worst, compared] = [0, 0];
    for (const [name, weight] of initial) {
      if (/^optimizer\/|\/(mean|square|momentum)$/.test(name)) continue;
      const data = await loadWeight(weight.source);
      const first = data && { ...weight, data };
      const after = kept[name];
      if (!first || !after) {
        faults.push(`${name} is not kept`);
        continue;
      }
      const same = [...named('initial/', expected)].flatMap(([key, value]) => {
        const turn = turnOf(first, value);
        return turn ? [{ key, turn }] : [];
      });
      const found = same.find(({ key }) => key === name) ?? same.find(({ key }) => left.has(key));
      if (!found) {
        faults.push(`${name} ${first.shape} begins with what no tensor of the module does`);
        continue;
      }
      left.delete(found.key);
      compared++;
      const [fine, coarse] = ['final/', 'rounded/'].map((kind) =>
        found.turn(numbersOf(expected[`${kind}${found.key}`] as ConstantTensor)),
      );
      const size = norm(fine ?? []);
      const error = apart(numbersOf(after), fine ?? []) / size;
      const open = apart(coarse ?? [], fine ?? []) / size;
      if (error <= TOLERANCE) worst = Math.max(worst, error);
      else if (!(error <= 4 * open))
        faults.push(`${name} (${found.key}) ${error.toExponential(1)}, rounding ${open.toExponential(1)}`);
    }
    for (const key of left) faults.push(`${key} of the module is nowhere`);
    return { worst, compared, faults };
  }
}

function lossFaults(losses: readonly number[], expected: Arrays) {
  const [fine, coarse] = [expected['losses'], expected['roundedLosses']].map((list) => (list ? numbersOf(list) : []));
  const faults: string[] = [];
  let worst = 0;
  for (const [step, wanted] of (fine ?? []).entries()) {
    const error = Math.abs((losses[step] ?? Number.NaN) - wanted) / wanted;
    const open = Math.abs((coarse?.[step] ?? Number.NaN) - wanted) / wanted;
    worst = Math.max(worst, error);
    if (!(error <= Math.max(TOLERANCE, 4 * open)))
      faults.push(`loss of step ${step + 1}: ${losses[step]}, expected ${wanted}`);
  }
  return { worst, faults };
}

function named(prefix: string, arrays: Arrays): ReadonlyMap<string, ConstantTensor> {
  return new Map(
    Object.entries(arrays).flatMap(([name, value]) =>
      name.startsWith(prefix) ? [[name.slice(prefix.length), value]] : [],
    ),
  );
}

/** How the module's tensor becomes ours: as it is, or transposed; null where they differ. */
function turnOf(
  own: ConstantTensor,
  module: ConstantTensor,
): ((values: readonly number[]) => readonly number[]) | null {
  if (elementCount(own.shape) !== elementCount(module.shape)) return null;
  const [left, right] = [numbersOf(own), numbersOf(module)];
  const equals = (values: readonly number[]) => values.every((value, at) => value === left[at]);
  const [rows = 1, columns = 1] = module.shape;
  const transposed = (values: readonly number[]) =>
    values.map((_, at) => values[(at % rows) * columns + Math.floor(at / rows)] ?? Number.NaN);
  if (module.shape.length === 2 && own.shape[0] === columns && equals(transposed(right))) return transposed;
  return equals(right) ? (values) => values : null;
}

function norm(values: readonly number[]): number {
  return Math.max(Math.hypot(...values), 1e-12);
}

function apart(left: readonly number[], right: readonly number[]): number {
  return Math.sqrt(right.reduce((sum, value, at) => sum + ((left[at] ?? Number.NaN) - value) ** 2, 0));
}
