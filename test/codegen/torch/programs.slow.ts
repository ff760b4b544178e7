/**
 * @file Programs of the torch target against the unsharded model: outputs of inference; the loss, every weight and all momentum
 * after some steps of training, which are linear in the gradients and in their norm.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { annotationsOf, type CompileOptions, type Training } from '../../../src/api/index.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { readNpz } from '../../../src/program/arrays/npz.js';
import { missing } from '../../missing.js';
import { difference } from '../../pipelines/difference.js';
import { type ModelName, writeModel } from '../../pipelines/models.js';
import { torchAbsence } from '../../reference/torch.js';
import { shortened } from '../../selection.js';
import { checkRun } from './check-run.js';
import {
  type Emitted,
  emitted,
  python,
  type Ran,
  ranHere,
  runForked,
  runJobs,
  runTorchrun,
  unshardedOptions,
} from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');
const STEPS = shortened(20);
const TOLERANCE = 1e-5;
const TRAINS = { steps: STEPS, tolerance: TOLERANCE };
const INFERS = { steps: 0, tolerance: TOLERANCE };

/** Clipping is active from the first step on. */
const TRAINING: Training = {
  loss: { kind: 'mse' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.05 },
};
/**
 * Steps that do not spread rounding. At a rate of 0.1 without clipping, PyTorch on one rank is 2e-4 from the bundled runtime on
 * one rank after three steps of experts, with equal tokens of every expert; so at 1e-6 over twenty steps, no term of a gradient
 * lacks.
 */
const SMOOTH: Training['optimizer'] = { kind: 'sgd', momentum: 0.9, learningRate: 0.01, clipNorm: 0.05 };
/** Without clipping, which would undo it. */
const SUMMED: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.01 },
  gradientReduction: 'sum',
  microBatches: 2,
};
const LANGUAGE: Training = { ...TRAINING, loss: { kind: 'cross_entropy' } };

interface Case {
  readonly name: string;
  readonly model: string | ModelName;
  readonly options: Partial<CompileOptions>;
}

interface Ranks {
  readonly devices: number;
  readonly degrees: NonNullable<CompileOptions['degrees']>;
}

const degrees = (dp: number, tp: number): Ranks => ({ devices: dp * tp, degrees: { dp, tp } });

const pipeline = (pp: number, dp: number, tp: number, microBatches: number) => ({
  devices: pp * dp * tp,
  degrees: { pp, dp, tp },
  training: { microBatches },
});

/** The table's rows are looked up, and updated, on the host. */
const ON_HOST = annotationsOf({ version: 1, pins: [{ match: { op: 'Gather' }, place: 'host' }] });

const PIPELINES = [
  { ...pipeline(2, 1, 2, 4), schedule: '1f1b' },
  { ...pipeline(2, 2, 1, 4), schedule: 'zero-bubble', zero: 1 },
  { ...pipeline(2, 1, 1, 4), schedule: 'interleaved-1f1b', virtualStages: 2 },
  { ...pipeline(3, 1, 1, 4), schedule: 'f-then-b', model: 'skips' },
  { ...pipeline(2, 1, 1, 2), recompute: 'full', model: 'llama' },
  { ...pipeline(2, 2, 1, 4), recompute: 'full:except-last', bucket: 4096 },
  { ...pipeline(2, 1, 1, 4), schedule: 'zbv' },
  { ...pipeline(2, 1, 1, 4), schedule: 'interleaved-zero-bubble', virtualStages: 2 },
  { ...pipeline(2, 1, 1, 2), schedule: 'naive', interleave: 2 },
  { devices: 4, pp: 2, meshes: 'tp2 | dp2', training: { microBatches: 4 } },
  { ...pipeline(2, 2, 1, 2), gradientSync: 'parameter-server' },
  { ...pipeline(2, 2, 2, 2), schedule: '1f1b', zero: 1 },
] as const;

/** Other features of the lowered list: micro-batches, ZeRO, recompute, sequence and expert parallelism, buckets, optimizers. */
const MORE: readonly (Partial<Omit<CompileOptions, 'training' | 'model'>> & {
  readonly model?: ModelName;
  readonly training?: Partial<Training>;
})[] = [
  { ...degrees(2, 2), training: { microBatches: 4 } },
  ...([1, 2, 3] as const).map((zero) => ({ ...degrees(2, 2), zero, training: { microBatches: 2 } })),
  {
    ...degrees(1, 2),
    zero: 0,
    training: { optimizer: { kind: 'adamw', learningRate: 0.01, weightDecay: 0.1, epsilon: 0.1 } },
  },
  { ...degrees(2, 1), recompute: 'full', training: { microBatches: 2 } },
  { ...degrees(1, 2), recompute: 'selective' },
  { devices: 4, degrees: { dp: 2, sp: 2 }, spMethod: 'gather' },
  { devices: 2, degrees: { sp: 2 }, spMethod: 'ulysses' },
  { devices: 4, degrees: { sp: 4 }, spMethod: 'ring' },
  { devices: 4, degrees: { sp: 4 }, spMethod: 'ring', model: 'sinks' },
  { devices: 2, degrees: { sp: 2 }, spMethod: 'ring', model: 'documents' },
  { devices: 4, degrees: { sp: 2, tp: 2 }, spMethod: 'ring', model: 'windows' },
  { devices: 2, degrees: { sp: 2 }, spMethod: 'ring', model: 'cross-attention' },
  { devices: 4, degrees: { sp: 4 }, spMethod: 'ulysses', model: 'documents' },
  { devices: 2, degrees: { sp: 2 }, spMethod: 'gather', model: 'sinks' },
  { devices: 2, degrees: { dp: 2, ep: 2 }, model: 'moe' },
  ...(['padded', 'variable'] as const).map((dispatch) => ({
    ...({ devices: 2, degrees: { dp: 2, ep: 2 }, model: 'routed-experts', dispatch, capacityFactor: 1 } as const),
    training: { optimizer: SMOOTH },
  })),
  {
    ...({ devices: 4, degrees: { dp: 4, ep: 4 }, model: 'chosen-experts', dispatch: 'variable' } as const),
    training: { optimizer: SMOOTH },
  },
  { devices: 2, degrees: { sp: 2 }, model: 'resnet' },
  // Statistics of all samples on each rank: a normalisation and its gradients are torch's own.
  { ...degrees(1, 1), model: 'resnet' },
  { ...degrees(1, 2), model: 'resnet' },
  { ...degrees(1, 1), model: 'batch-norm' },
  { devices: 4, degrees: { sp: 4 }, model: 'u-net' },
  { devices: 4, degrees: { dp: 2, sp: 2 }, model: 'cnn' },
  { ...degrees(1, 2), model: 'skips' },
  { ...degrees(2, 2), model: 'lookup' },
  { ...degrees(2, 1), bucket: 4096, training: { microBatches: 4 } },
  { ...degrees(2, 1), recompute: 'full:except-last', training: { microBatches: 4 } },
  { ...degrees(2, 1), recompute: 'full:except-last', model: 'llama', training: { microBatches: 4 } },
  { ...degrees(2, 1), offload: 'all', training: { microBatches: 2 } },
  { ...degrees(2, 2), gradientSync: 'parameter-server', training: { microBatches: 2 } },
  { ...degrees(2, 2), interleave: 2, bucket: 4096, training: { microBatches: 2 } },
  { ...degrees(2, 1), interleave: 2, recompute: 'full:except-last', training: { microBatches: 4 } },
  { ...degrees(2, 1), offload: 'all:disk', training: { microBatches: 2 } },
  { ...degrees(2, 1), annotations: ON_HOST, training: { microBatches: 2 } },
  ...PIPELINES,
];

const CASES: readonly Case[] = [
  ...['models/gpt-tiny.onnx', 'models/llama-tiny.onnx', 'models/mlp.onnx', 'models/cnn-tiny.onnx'].map((model) => ({
    name: `${model} infers on dp 2, tp 2`,
    model,
    options: degrees(2, 2),
  })),
  { name: 'llama-tiny infers on one rank', model: 'models/llama-tiny.onnx', options: degrees(1, 1) },
  ...[degrees(1, 2), degrees(2, 1), degrees(2, 2)].map((options, index) => ({
    name: `gpt-tiny trains, ${index}`,
    model: 'models/gpt-tiny.onnx',
    options: { ...options, training: LANGUAGE },
  })),
  { name: 'llama-tiny trains', model: 'models/llama-tiny.onnx', options: { ...degrees(2, 2), training: LANGUAGE } },
  { name: 'cnn trains', model: 'cnn', options: { ...degrees(2, 2), training: TRAINING } },
  ...(['mlp', 'batch-norm', 'shared-layer', 'encoder-decoder', 'same-weight-twice'] as const).map((model) => ({
    name: `${model} trains on dp 2, tp 2`,
    model,
    options: { ...degrees(2, 2), training: TRAINING },
  })),
  ...MORE.map(({ model = 'gpt', ...options }) => ({
    name: `${model} trains under ${JSON.stringify(options)}`,
    model,
    options: {
      ...(model === 'moe' ? { initRandom: true } : { globalBatch: 16 }),
      ...options,
      training: { ...TRAINING, ...options.training },
    },
  })),
];

/** Cases with equal state: one that writes a checkpoint, and one of another plan that resumes it. */
const RESUMED = CASES.findIndex(({ options }) => options.zero === 2);
const RESUMED_BY = CASES.findIndex(({ options }) => options.schedule === 'zero-bubble');

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-target-'));
  const programs = new Map<number, Emitted>();
  const refused = new Map<number, unknown>();
  let summed: Emitted | undefined;
  let ran: ReadonlyMap<string, Ran> = new Map();
  test.before(async () => {
    for (const [index, { model, options }] of CASES.entries())
      await compiled(index, model, options).then(
        (program) => programs.set(index, program),
        (error) => refused.set(index, error),
      );
    summed = await compiled('summed', 'gpt', { ...degrees(2, 1), globalBatch: 16, training: SUMMED });
    ran = runForked([...programs.values(), summed]);
  });
  const ranAt = (index: number): Ran => {
    const result = ran.get(programs.get(index)?.folder ?? '');
    if (!result) throw refused.get(index) ?? new Error('the program did not run');
    return result;
  };

  for (const [index, { name, model, options }] of CASES.entries())
    test.serial(name, async (t) => {
      checkRun(t, await unsharded(model, options), ranAt(index), options.training ? TRAINS : INFERS);
    });

  test.serial('gradients that ranks add up in torch and in the bundled runtime', async (t) => {
    const got = ran.get(summed?.folder ?? '');
    t.truthy(got, 'the program did not run');
    if (summed && got) checkRun(t, await ranHere(summed), got, TRAINS);
  });

  for (const [what, index] of [
    ['one stage', CASES.findIndex(({ name }) => name === 'gpt-tiny trains, 2')],
    ['a pipeline', RESUMED_BY],
  ] as const)
    test.serial(`${what} under torchrun, on gloo`, (t) => {
      checkRun(t, ranAt(index), runTorchrun(programs.get(index) as Emitted), TRAINS);
    });

  test.serial(
    'a run that resumes ends as one that was not cut, under the same plan bit for bit, and under another',
    (t) => {
      const whole = programs.get(RESUMED) as Emitted;
      const others = [whole, programs.get(RESUMED_BY) as Emitted];
      const half = { steps: STEPS / 2 };
      const saved = join(folder, 'checkpoints');
      runJobs([{ program: whole, runs: [{ ...half, save: saved, save_every: STEPS / 4 }] }]);
      t.deepEqual(readdirSync(saved).sort(), [`step-${STEPS / 2}`, `step-${STEPS / 4}`].sort());
      const ends = others.map((program, index) => ({
        program,
        runs: [{ ...half, resume: saved, state: join(folder, `resumed-${index}.npz`) }],
      }));
      runJobs(ends);
      const [same, other] = others.map((_, index) => {
        const file = join(folder, `resumed-${index}.npz`);
        return readNpz(readFileSync(file), file);
      });
      t.deepEqual(same, ranAt(RESUMED).state);
      for (const [name, tensor] of Object.entries(ranAt(RESUMED).state)) {
        const value = other?.[name];
        t.true(
          value !== undefined && difference(numbersOf(tensor).map(Number), numbersOf(value).map(Number)) <= TOLERANCE,
          name,
        );
      }
    },
  );

  test.serial('modules that are absent or too old are named with the command that installs them', (t) => {
    const main = join(programs.get(0)?.folder ?? '', 'torch', 'main.py');
    const bare = t.throws(() => python(['-S', main]));
    t.regex(
      bare?.message ?? '',
      /needs torch, safetensors, numpy, which this Python lacks: run \S+ -m pip install -r req/,
    );
    const old = join(folder, 'old');
    mkdirSync(join(old, 'torch-2.8.0.dist-info'), { recursive: true });
    writeFileSync(
      join(old, 'torch-2.8.0.dist-info', 'METADATA'),
      'Metadata-Version: 2.1\nName: torch\nVersion: 2.8.0\n',
    );
    const error = t.throws(() => python([main], '', { PYTHONPATH: old }));
    t.regex(
      error?.message ?? '',
      /needs torch 2\.9 or newer, and this Python has 2\.8\.0: run \S+ -m pip install -r req/,
    );
  });

  test.serial('files that are absent are named before the first step', (t) => {
    const main = join(programs.get(0)?.folder ?? '', 'torch', 'main.py');
    for (const [given, says] of [
      [['--inputs', 'none.npz'], /none\.npz does not exist: check the path/],
      [['--metrics', 'none/steps.csv'], /none\/steps\.csv cannot be written: .*none is no folder/],
      [['--save', join(main, 'checkpoints')], /--save .* cannot be made \(.*\): give another folder/],
    ] as const) {
      const error = t.throws(() => python([main, '--device', 'cpu', ...given]));
      t.regex(error?.message ?? '', says);
      t.notRegex(error?.message ?? '', /Traceback/);
    }
  });

  test.serial('a program that writes no file needs no folder that may be written to', (t) => {
    const folder = join(programs.get(0)?.folder ?? '', 'torch');
    const script =
      'import os, runpy, sys; os.access = lambda *_: False; sys.path.insert(0, sys.argv[1]); ' +
      "main = os.path.join(sys.argv[1], 'main.py'); sys.argv = [main]; runpy.run_path(main, run_name='__main__')";
    t.regex(t.throws(() => python(['-c', script, folder]))?.message ?? '', /needs 4 ranks, and 1 run/);
  });

  test.serial('what is kept of an operator is without its result, where no gradient needs it', (t) => {
    const index = CASES.findIndex(({ name }) => name === 'gpt-tiny trains, 0');
    const script = `
import sys, weakref
sys.path.insert(0, sys.argv[1])
import torch
import torch.nn.functional as F
from operators import gradients, recorded
results = []
def norm(x):
    results.append(F.layer_norm(x, (8,)))
    return results[-1]
y, record = recorded(norm, (torch.randn(4, 8),))
kept = weakref.ref(results.pop())
print(kept() is None, gradients(record, y)[0].shape)
`;
    const folder = join(programs.get(index)?.folder ?? '', 'torch');
    t.is(python(['-c', script, folder]).trim(), 'True torch.Size([4, 8])');
  });

  test.serial('another world size is refused with the command', (t) => {
    const main = join(programs.get(0)?.folder ?? '', 'torch', 'main.py');
    const error = t.throws(() => python([main, '--device', 'cpu']));
    t.regex(error?.message ?? '', /needs 4 ranks, and 1 run: start it with torchrun --nproc-per-node 4 main\.py/);
  });

  const formatter = python(['-c', "from importlib.util import find_spec; print(find_spec('ruff') is not None)"]).trim();
  if (missing(formatter !== 'True', 'the format of emitted programs (ruff is absent)') === null)
    test.serial('ruff finds nothing in any program', (t) => {
      const folders = [...programs.values()].map((program) => join(program.folder, 'torch'));
      t.notThrows(() => python(['-m', 'ruff', 'check', ...folders]));
      t.notThrows(() => python(['-m', 'ruff', 'format', '--diff', ...folders]));
    });

  const alone = new Map<string, Promise<Ran>>();

  /** The same model and training on one rank of the bundled runtime. */
  function unsharded(model: string, options: Partial<CompileOptions>): Promise<Ran> {
    const whole = unshardedOptions(options);
    const key = JSON.stringify([model, whole]);
    const known = alone.get(key);
    if (known) return known;
    const result = compiled(`alone-${alone.size}`, model, whole).then(ranHere);
    alone.set(key, result);
    return result;
  }

  async function compiled(index: number | string, model: string, options: Partial<CompileOptions>): Promise<Emitted> {
    const file = model.endsWith('.onnx') ? model : join(folder, `${index}.onnx`);
    if (file !== model) writeModel(model as ModelName, file);
    return emitted(join(folder, `${index}`), options.training ? STEPS : 1, { ...options, model: file });
  }
}
