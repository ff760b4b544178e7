/**
 * @file Inference in 16 bit: the program is of the graph that was priced, and the plan, its reports and its checks know the
 * recipe.
 */
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { generatedModel } from '../../../models/families.js';
import { compile } from '../../../src/api/compile.js';
import type { Arrays } from '../../../src/api/execution/arrays.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { importModel } from '../../../src/api/models/import.js';
import * as verbs from '../../../src/api/verbs.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { openCompiled, verify } from '../../../src/api/verify.js';
import { heldInFloat32 } from '../../../src/ir/autodiff/held-in-float32.js';
import { inMixedPrecision, type LowType } from '../../../src/ir/autodiff/mixed-precision.js';
import { onnxOfDtype } from '../../../src/ir/dtype.js';
import { AutoparError } from '../../../src/ir/error.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Weight } from '../../../src/ir/graph.js';
import { encodeModel } from '../../../src/ir/onnx/schema.js';
import { readWeight } from '../../../src/ir/onnx/tensors.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, constantWeight, numbersOf } from '../../../src/ir/ops/constants.js';
import { isConversion } from '../../../src/ir/ops/index.js';
import { openSafetensors } from '../../../src/program/safetensors.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { runProgram } from '../../../src/runtime/run-program.js';
import { readPlan } from '../../../src/strategy/plan-json.js';
import { autopar, ROOT } from '../../cli/autopar.js';
import * as onnx from '../../ir/model-maker.js';
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
  const { nodes, tensors } = flattenRegions(imported.graph);
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

/** The tensors of a compiled folder whose ranks hold all weights whole. */
async function storedWeights(directory: string): Promise<Arrays> {
  const file = await openSafetensors(path.join(directory, 'program/weights/whole.safetensors'));
  try {
    const read = [...file.entries.keys()].map(async (key) => [key, await file.read(key)] as const);
    return Object.fromEntries(await Promise.all(read));
  } finally {
    await file.close();
  }
}

const TYPES = { fp16: 'float16', bf16: 'bfloat16' } as const;

/** The numbers of a float32 tensor after a Cast to the type and one back. */
async function castByOnnxRuntime(low: LowType, x: ConstantTensor): Promise<readonly number[]> {
  const graph = {
    node: [
      onnx.node('Cast', ['x'], ['low'], { to: onnxOfDtype(low) }),
      onnx.node('Cast', ['low'], ['y'], { to: onnxOfDtype('float32') }),
    ],
    input: [onnx.value('x', x.shape)],
    output: [onnx.value('y', x.shape)],
  };
  const { y } = await runOnnx(encodeModel(onnx.model(graph)), { x }, { optimised: false });
  return y ? numbersOf(y) : [];
}

for (const precision of ['fp16', 'bf16'] as const)
  test(`weights that are read in ${precision} alone, and tables, have that type in files and in memory`, async (t) => {
    const low = TYPES[precision];
    // The table of gpt-tiny is its head too, transposed; its positions are added in float32.
    for (const name of ['llama-tiny', 'gpt-tiny']) {
      const output = await folder(t);
      const { memory } = await compile({ model: model(name), output, cluster: '1x1:h100-sxm-80', precision });
      const stored = await storedWeights(output);
      const counted = Object.values(stored).reduce((sum, { data }) => sum + data.length, 0);
      t.is(counted, memory[0]?.kinds['weight'] ?? 0);
      const { weights } = (await importModel(model(name))).graph;
      for (const [key, value] of Object.entries(stored)) {
        const weight = weights.get(key);
        const own = weight && readWeight(weight.source);
        if (!own) return t.fail(key);
        const isWide = /norm|ln_|wpe|causal_mask|rotary/.test(key);
        t.is(value.dtype, isWide ? 'float32' : low, key);
        const file = { dtype: weight.dtype, shape: weight.shape, data: own };
        t.deepEqual(numbersOf(value), isWide ? numbersOf(file) : await castByOnnxRuntime(low, file), key);
      }
    }
  });

const TABLE = 'model.embed_tokens.weight';

for (const precision of ['fp16', 'bf16'] as const)
  test.serial(
    `weights rounded to ${precision} once give the bits of weights that are cast at every step`,
    async (t) => {
      const output = await folder(t);
      await compile({ model: model('llama-tiny'), output, devices: 1, precision });
      const { imported } = await openCompiled(output);
      const low = TYPES[precision];
      const { graph } = await importModel(model('llama-tiny'));
      const table = graph.weights.get(TABLE) as Weight;
      const numbers = await castByOnnxRuntime(low, { ...table, data: readWeight(table.source) as Uint8Array });
      const rounded = { ...table, ...constantWeight(constant('float32', numbers, table.shape)), role: table.role };
      const weights = new Map([...graph.weights, [TABLE, rounded]]);
      const cast = heldInFloat32(inMixedPrecision({ ...graph, weights }, low), low);
      const inputs = randomInputs(graph, 5);
      t.deepEqual(await runGraph(imported.graph, inputs), await runGraph(cast, inputs));
      const read = imported.graph.nodes.flatMap((node) => (isConversion(node) ? node.inputs : []));
      t.deepEqual(
        read.filter((name) => imported.graph.weights.has(name ?? '')),
        [],
      );
    },
  );

test('random values are those of the 16-bit type, on devices and held in float32 on ranks of this machine', async (t) => {
  const generated = generatedModel('llama:layers=1,hidden=32,heads=2,kv_heads=2,ffn=64,vocab=64,seq=16,batch=2');
  const file = path.join(path.dirname(await folder(t)), 'model.onnx');
  writeFileSync(file, writeOnnx(generated.build(generated.batch)));
  const of = async (cluster: string) => {
    const output = await folder(t);
    await compile({ model: file, output, cluster, degrees: { dp: 1, tp: 1 }, precision: 'fp16', initRandom: true });
    return storedWeights(output);
  };
  const [low, wide] = [await of('1x1:h100-sxm-80'), await of('local')];
  t.true(Object.values(low).some(({ dtype }) => dtype === 'float16'));
  for (const [key, value] of Object.entries(low)) {
    t.is(wide[key]?.dtype, 'float32', key);
    t.deepEqual(wide[key] && numbersOf(wide[key]), numbersOf(value), key);
  }
});

test('the part of a cluster that costs least is large enough for the program', async (t) => {
  const output = await folder(t);
  const generate = 'llama:layers=4,hidden=128,heads=4,kv_heads=4,ffn=512,vocab=64,seq=32,batch=1';
  const generated = generatedModel(generate);
  const file = path.join(path.dirname(output), 'model.onnx');
  writeFileSync(file, writeOnnx(generated.build(generated.batch)));
  const memory = 3 * 2 ** 20;
  const asked = { model: file, output, cluster: '1x4:h100-sxm-80', memory, precision: 'bf16', planOnly: true } as const;
  const { plan, sizes } = await compile({ ...asked, objective: 'cost' });
  t.deepEqual([plan.degrees.dp, plan.degrees.tp, plan.degrees.pp], [1, 1, 1]);
  t.true((sizes?.length ?? 0) > 1);
  t.true(Math.max(...plan.predicted.peakBytes) <= memory);
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
