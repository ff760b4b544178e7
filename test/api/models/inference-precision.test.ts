/**
 * @file Inference in 16 bit: the program is of the graph that was priced, and the plan, its reports and its checks know the
 * recipe.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../../src/api/compile.js';
import type { Arrays } from '../../../src/api/execution/arrays.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { importModel } from '../../../src/api/models/import.js';
import * as verbs from '../../../src/api/verbs.js';
import { openCompiled, verify } from '../../../src/api/verify.js';
import { flattenBlocks } from '../../../src/ir/blocks/flatten-blocks.js';
import { AutoparError } from '../../../src/ir/error.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import { readPlan } from '../../../src/strategy/plan-json.js';
import { autopar, ROOT } from '../../cli/autopar.js';
import { slowTests } from '../../selection.js';

const H100 = '1x2:h100-sxm-80';
const model = (name: string) => path.join(ROOT, 'models', `${name}.onnx`);

async function folder(t: ExecutionContext): Promise<string> {
  const made = await mkdtemp(path.join(os.tmpdir(), 'autopar-inference-precision-'));
  t.teardown(() => rm(made, { recursive: true, force: true }));
  return path.join(made, 'out');
}

const slow = slowTests(test.serial);

for (const precision of ['fp16', 'bf16'] as const)
  for (const name of ['mlp', 'gpt-tiny', 'llama-tiny', 'cnn-tiny'])
    slowTests(test.serial, !['mlp', 'gpt-tiny'].includes(name))(
      `${name} in ${precision}: ranks of this machine compute what the unsharded graph does`,
      async (t) => {
        const output = await folder(t);
        const compiled = await compile({
          model: model(name),
          output,
          devices: 2,
          degrees: { tp: 2 },
          axes: 'roles',
          precision,
        });
        t.true(compiled.notes.some((note) => note.includes(`no ${precision} kernels`)));
        const { passed, reference, outputs } = await verify({ directory: output });
        t.true(passed, JSON.stringify(outputs));
        t.is(reference, 'the unsharded graph in ONNX Runtime');
      },
    );

/** The largest difference from the file's own results, as a share of the largest of them. */
function offBy(actual: Arrays, exact: Arrays): number {
  const values = (array: Arrays[string] | undefined) => new Float32Array(array?.data.slice().buffer ?? []);
  const shares = Object.entries(exact).map(([name, array]) => {
    const [a, b] = [values(actual[name]), values(array)];
    return Math.max(...a.map((value, index) => Math.abs(value - (b[index] ?? 0)))) / Math.max(...b.map(Math.abs));
  });
  return Math.max(...shares);
}

for (const precision of ['fp16', 'bf16'] as const)
  test.serial(
    `a ring over keys in ${precision}: ranks of this machine compute what the unsharded graph does`,
    async (t) => {
      const ring = { degrees: { sp: 2 }, spMethod: 'ring', precision } as const;
      const output = await folder(t);
      const compiled = await compile({ model: model('gpt-tiny'), output, devices: 2, ...ring, verify: true });
      t.true(compiled.verification?.passed);
      t.true(compiled.plan.operators['/h.0/attn/MatMul_1']?.strategy.s?.includes('sp'));
    },
  );

slow('results differ from those of float32 as the type rounds, and bfloat16 rounds more than float16', async (t) => {
  const inputs = randomInputs((await importModel(model('gpt-tiny'))).graph, 0);
  const exact = await runOnnx(model('gpt-tiny'), inputs);
  const of = async (precision: 'fp32' | 'fp16' | 'bf16') => {
    const output = await folder(t);
    await compile({ model: model('gpt-tiny'), output, devices: 2, degrees: { tp: 2 }, axes: 'roles', precision });
    return offBy((await runProgram(output, inputs, { steps: 1, warmup: 0, collect: [] })).outputs, exact);
  };
  const [full, half, brain] = [await of('fp32'), await of('fp16'), await of('bf16')];
  t.true(full < 1e-5, `${full}`);
  t.true(half > 10 * full && half < 1e-2, `${half}`);
  t.true(brain > 2 * half && brain < 8e-2, `${brain}`);
});

test('on a named cluster products are of the type that is priced, and the folder gives the same graph again', async (t) => {
  const output = await folder(t);
  const file = { model: model('gpt-tiny'), output, cluster: H100, degrees: { tp: 2 } };
  const full = await compile(file);
  t.is(full.precision, 'fp32');
  const half = await compile({ ...file, precision: 'bf16' });
  t.deepEqual([half.precision, half.plan.predicted.precision], ['bf16', 'bf16']);
  t.deepEqual(half.plan.passes.at(-1), { name: 'precision', options: { precision: 'bf16', isHeldInFloat32: false } });
  t.true(half.plan.predicted.stepSeconds !== full.plan.predicted.stepSeconds);
  const { imported, program, file: runnable } = await openCompiled(output);
  t.is(imported.fingerprint, half.plan.model.fingerprint);
  t.is(runnable, null, 'the file alone is not what the program computes');
  const { nodes, tensors } = flattenBlocks(imported.graph);
  const products = nodes.filter(({ op }) => op === 'MatMul' || op === 'Gemm');
  t.true(products.length > 0);
  for (const { name, outputs } of products) t.is(tensors.get(outputs[0] ?? '')?.dtype, 'bfloat16', name);
  for (const name of imported.graph.outputs) t.is(tensors.get(name)?.dtype, 'float32', name);
  const written = program.stages.flatMap(({ segments }) => Object.values(segments).flatMap((each) => each.nodes ?? []));
  t.true(written.some(({ op, dtypes }) => op === 'MatMul' && dtypes.includes('bfloat16')));
});

slow('compile, explain, strategy show and simulate name the precision that was priced', async (t) => {
  const output = await folder(t);
  const line = ['compile', model('mlp'), '--cluster', H100, '--precision', 'bf16', '--plan-only', '-o', output];
  const compiled = await autopar(line);
  t.regex(compiled.stdout, /per step in bf16,/, compiled.stderr);
  t.regex((await autopar(['strategy', 'show', output])).stdout, /per step in bf16,/);
  const { operators } = await readPlan(path.join(output, 'plan.json'));
  const asked = ['--rejected', '--sensitivity', '--pins', '--mesh', '--op', '--tensor'];
  for (const question of asked) {
    const name = question === '--op' ? [Object.keys(operators)[0] ?? ''] : question === '--tensor' ? ['x'] : [];
    const { stdout, stderr } = await autopar(['explain', output, question, ...name, '--json']);
    t.is((JSON.parse(stdout || '{}') as { precision?: string }).precision, 'bf16', `${question}${stderr}`);
  }
  t.regex((await autopar(['explain', output, '--rejected'])).stdout, /per step in bf16$/m);
  t.regex((await autopar(['explain', output, '--pins'])).stdout, /per step in bf16/);
  t.regex((await autopar(['simulate', model('mlp'), '--cluster', H100])).stdout, /step +\S+ \S+ in bf16/);
});

test('precision beside training is refused: training has its own', async (t) => {
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const error = await t.throwsAsync(verbs.compile({ model: model('mlp'), precision: 'bf16', training }), {
    instanceOf: AutoparError,
  });
  t.deepEqual([error?.code, error?.exit], ['bad-option', 'usage']);
  t.regex(`${error?.message} ${error?.hint}`, /precision applies to inference only.*training\.precision/);
});

test.serial('a step of training in bf16 runs on ranks of this machine', async (t) => {
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, precision: 'bf16' } as const;
  const output = await folder(t);
  await compile({ model: model('mlp'), output, devices: 2, degrees: { tp: 2 }, axes: 'roles', training });
  t.true((await verify({ directory: output })).passed);
});
