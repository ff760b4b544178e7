/**
 * @file Models of the ONNX target in Python, without anything of autopar's: onnx checks them, onnx-ir reads them and the whole
 * model's annotations, ONNX Runtime and ONNX's reference evaluator run the ranks. Outputs are those of the unsharded model; the
 * losses of a training those of one rank in the bundled runtime.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { labelBounds } from '../../../src/api/execution/labels.js';
import { type CompileOptions, compile, type Training } from '../../../src/api/index.js';
import { openCompiled } from '../../../src/api/verify.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { readNpz, writeNpz } from '../../../src/program/arrays/npz.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { missing } from '../../missing.js';
import { difference } from '../../pipelines/difference.js';
import { type ModelName, writeModel } from '../../pipelines/models.js';
import { type Arrays, torchAbsence } from '../../reference/torch.js';
import { python, ranHere } from '../torch/emitted.js';

const absence = torchAbsence('onnx', 'onnx_ir', 'onnxruntime', 'numpy');
const why = missing(absence !== null, absence ?? '');
const TOLERANCE = 1e-5;
const TRAINING: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1 } };

interface Case {
  readonly model: ModelName;
  readonly options: Partial<CompileOptions>;
  /** Operators between ranks that the models have. */
  readonly collectives: readonly string[];
  readonly files: number;
}

/** Its inputs and outputs are in zig-zag order, which annotations cannot say. */
const RING = 'a ring over sp';

const CASES: Readonly<Record<string, Case>> = {
  'dp alone, in ONNX Runtime': { model: 'mlp', options: { dp: 2, tp: 1 }, collectives: [], files: 1 },
  'dp · tp': { model: 'gpt', options: { dp: 2, tp: 2 }, collectives: ['autopar.AllReduce'], files: 2 },
  "tp over all ranks, in ONNX Runtime's collectives": {
    model: 'llama',
    options: { dp: 1, tp: 4 },
    collectives: ['com.microsoft.AllReduce'],
    files: 4,
  },
  'two stages of tp': {
    model: 'gpt',
    options: { pp: 2, dp: 1, tp: 2 },
    collectives: ['autopar.AllReduce'],
    files: 4,
  },
  [RING]: {
    model: 'gpt',
    options: { dp: 1, sp: 2, spMethod: 'ring' },
    collectives: ['autopar.Permute'],
    files: 2,
  },
  'heads exchanged over sp': {
    model: 'gpt',
    options: { dp: 2, sp: 2, spMethod: 'ulysses' },
    collectives: ['autopar.AllToAll'],
    files: 2,
  },
  'experts over dp': {
    model: 'batched-experts',
    options: { dp: 2, ep: 2 },
    collectives: ['com.microsoft.AllToAll'],
    files: 2,
  },
  'training with ZeRO': {
    model: 'mlp',
    options: { dp: 2, tp: 2, zero: 1, training: TRAINING },
    collectives: ['autopar.AllGather', 'autopar.AllReduce', 'autopar.ReduceScatter'],
    files: 4,
  },
};

/** Python's report of a folder. */
interface Read {
  readonly files: number;
  readonly collectives: readonly string[];
  readonly stages: readonly number[];
  readonly specs: number;
  readonly compared: number;
}

const compareAll = why === null ? test : test.skip;
compareAll(`models of ranks are read and run in Python${why ? `: ${why}` : ''}`, async (t) => {
  t.timeout(600_000);
  const root = mkdtempSync(join(tmpdir(), 'autopar-onnx-'));
  const jobs = await Promise.all(
    Object.entries(CASES).map(async ([, { model, options }], index) => {
      const folder = join(root, `case-${index}`);
      const file = modelFile(model);
      await compile({ model: file, output: folder, target: 'onnx', axes: 'roles', ...options });
      const { imported } = await openCompiled(folder);
      const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
      const given = join(folder, 'inputs.npz');
      writeFileSync(given, writeNpz(inputs));
      const steps = options.training ? 3 : 1;
      return {
        file,
        inputs,
        job: { folder: join(folder, 'onnx'), inputs: given, outputs: join(folder, 'o.npz'), steps },
      };
    }),
  );
  const script = join('test', 'codegen', 'onnx', 'run_ranks.py');
  const read = JSON.parse(python([script], JSON.stringify(jobs.map(({ job }) => job)))) as readonly Read[];
  for (const [index, [name, { model, options, collectives, files }]] of Object.entries(CASES).entries()) {
    const { file, inputs, job } = jobs[index] as (typeof jobs)[number];
    const { files: found, collectives: used, stages, specs, compared } = read[index] as Read;
    t.deepEqual({ files: found, stages }, { files, stages: options.pp === 2 ? [0, 1] : [0] }, name);
    for (const operator of collectives) t.true(used.includes(operator), `${name}: ${used.join(', ')}`);
    if (collectives.length === 0) t.deepEqual(used, [], name);
    t.true(specs > 0 && (compared > 0 || name === RING), `${name}: ${specs} specs, ${compared} compared`);
    const outputs = readNpz(readFileSync(job.outputs), name);
    const wanted = options.training
      ? await losses(model, options.training, inputs, job.steps)
      : await runOnnx(file, inputs);
    for (const [output, value] of Object.entries(wanted)) {
      const got = outputs[output];
      const worst = got
        ? difference(numbersOf(value).map(Number), numbersOf(got).map(Number))
        : Number.POSITIVE_INFINITY;
      t.true(worst < TOLERANCE, `${name}: ${output} differs by ${worst}`);
    }
  }
});

function modelFile(name: ModelName): string {
  const file = join(mkdtempSync(join(tmpdir(), 'autopar-onnx-model-')), `${name}.onnx`);
  writeModel(name, file);
  return file;
}

/** The losses of one rank in the bundled runtime. */
async function losses(model: ModelName, training: Training, inputs: Arrays, steps: number): Promise<Arrays> {
  const folder = join(mkdtempSync(join(tmpdir(), 'autopar-onnx-alone-')), 'out');
  await compile({ model: modelFile(model), output: folder, devices: 1, training });
  writeFileSync(join(folder, 'inputs.npz'), writeNpz(inputs));
  const { losses: values } = await ranHere({ folder, ranks: 1, steps });
  const data = new Uint8Array(Float32Array.from(values).buffer);
  return { loss: { dtype: 'float32', shape: [steps], data } };
}
