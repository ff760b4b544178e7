/**
 * @file The Python of the torch target without Python: equal layers, its size, its weights, and what is refused.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { generatedModel } from '../../../models/families.js';
import { gpt } from '../../../models/gpt.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { AutoparError, type CompileOptions, compile, importModel } from '../../../src/api/index.js';
import { type Training, trainedModel } from '../../../src/api/models/training.js';
import { programOf } from '../../../src/codegen/program-of.js';
import { torchProgram } from '../../../src/codegen/torch/emit-torch.js';
import { numbersText } from '../../../src/codegen/torch/operators/operator.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { plan } from '../../../src/search/plan.js';

const SIZES = { sequence: 16, width: 32, heads: 4, vocabulary: 64 };
const TRAINING: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 0.001 } };

interface Wanted {
  readonly degrees: { readonly dp: number; readonly tp: number };
  readonly batch: number;
  readonly layers: number;
  readonly training?: Training;
}

/** The files of a GPT's program. */
async function filesFor({ degrees, batch, layers, training }: Wanted): Promise<Readonly<Record<string, string>>> {
  const model = join(mkdtempSync(join(tmpdir(), 'autopar-torch-')), 'gpt.onnx');
  writeFileSync(model, writeOnnx(gpt('gpt', { batch, layers, ...SIZES }, 1)));
  const read = await importModel(model);
  const { graph } = training ? await trainedModel(read, training, async () => read) : read;
  const { lowered } = await plan(graph, parseCluster(undefined, degrees.dp * degrees.tp), {
    degrees,
    request: training ? { zero: 0 } : {},
  });
  return torchProgram(lowered, programOf(lowered, { name: 'gpt', fingerprint: '0' }).program).files;
}

test('equal layers are one class, whatever their number', async (t) => {
  const of = (layers: number) => filesFor({ degrees: { dp: 2, tp: 2 }, batch: 4, layers });
  const [three, six] = [await of(3), await of(6)];
  t.deepEqual(three['model.py']?.match(/^class \w+/gm), ['class Layer', 'class Model']);
  t.true(three['model.py']?.includes('"""h.0, h.1, h.2"""'));
  const classOf = (text = '') => text.slice(text.indexOf('def __init__'), text.indexOf('class Model'));
  t.is(classOf(three['model.py']), classOf(six['model.py']));
});

test('the program has the same size on 2 and on 1024 devices', async (t) => {
  const of = (dp: number) => filesFor({ degrees: { dp, tp: 1 }, batch: 2048, layers: 2, training: TRAINING });
  const [small, large] = [await of(2), await of(1024)];
  t.true(small['model.py']?.includes('self.dp_group'));
  for (const [name, text] of Object.entries(small))
    t.is(large[name]?.split('\n').length, text.split('\n').length, name);
});

test('a pipeline has the same size on 4 and on 1024 devices, its transfers too', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const of = async (dp: number) => {
    const output = join(folder, `${dp}`);
    await compile({
      ...{
        model: 'models/mlp.onnx',
        output,
        target: 'torch',
        axes: 'roles',
        globalBatch: 1024,
        schedule: '1f1b',
        zero: 0,
      },
      ...{ devices: 2 * dp, pp: 2, dp, training: { ...TRAINING, loss: { kind: 'mse' }, microBatches: 2 } },
    });
    return (name: string) => readFileSync(join(output, 'torch', name), 'utf8');
  };
  const [small, large] = [await of(2), await of(512)];
  t.regex(small('mesh.py'), /^RECEIVERS = \(\(1,\), \(0,\)\)$/m);
  for (const name of ['mesh.py', 'layers.py', 'stage_0.py', 'stage_1.py', 'schedule.csv'])
    t.is(large(name).split('\n').length, small(name).split('\n').length, name);
});

test('each action of schedule.csv has a method, where a stage has the embedding alone too', async (t) => {
  const output = join(mkdtempSync(join(tmpdir(), 'autopar-torch-')), 'out');
  await compile({
    ...{ model: 'models/llama-tiny.onnx', output, target: 'torch', training: { ...TRAINING, microBatches: 2 } },
    ...{ devices: 2, pp: 2, schedule: 'zero-bubble', stages: 'E | t*2 H' },
  });
  const read = (name: string) => readFileSync(join(output, 'torch', name), 'utf8');
  const rows = read('schedule.csv').trim().split('\n');
  t.is(rows.length, 2);
  for (const [stage, row] of rows.entries()) {
    const [, table = ''] = /^LISTS = \{\n(.*?)^\}/ms.exec(read(`stage_${stage}.py`)) ?? [];
    const methods = new Set([...table.matchAll(/"(.+)":/g)].map(([, name]) => name));
    const lists = row.split(',').filter((action) => !/(SEND|RECV)_/.test(action));
    t.true(lists.length >= 4);
    for (const action of lists) t.true(methods.has(action.replace(/\d+$/, '')), `${action} of stage ${stage}`);
  }
});

test('the gradient of an operator is one call, on the heads that a rank has', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const [model, output] = [join(folder, 'llama.onnx'), join(folder, 'out')];
  const graph = generatedModel('llama:layers=1,hidden=32,heads=4,kv_heads=2,ffn=64,seq=16,vocab=64').build(4);
  writeFileSync(model, writeOnnx(graph, { weights: 'external' }));
  await compile({
    ...{ model, output, target: 'torch', initRandom: true },
    ...{ devices: 4, dp: 2, tp: 2, axes: 'roles', training: TRAINING },
  });
  const text = readFileSync(join(output, 'torch', 'model.py'), 'utf8');
  const calls = text.match(/recorded\(\s*lambda [^:]+: .+/g) ?? [];
  t.true(
    calls.some((call) => call.includes('attention(a, b, c, heads=2, kv_heads=1, causal=True)')),
    calls.join('\n'),
  );
  t.true(calls.some((call) => call.includes('F.rms_norm(a, (32,), b, 0.00001)')));
  // They run once: their gradients are made of what was kept of them.
  t.notRegex(text, /gradients\(\s*recorded\(lambda [^:]+: (attention|F\.rms_norm)/);
});

test("a convolution's kernel and a normalisation of the batch get their gradients by one function each", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const model = join(folder, 'cnn.onnx');
  const sizes = { batch: 8, channels: 3, size: 8, widths: [8, 8], classes: 4, dropout: 0 };
  writeFileSync(model, writeOnnx(normalisedCnn('cnn', sizes, 1)));
  const of = async (devices: number, more: Partial<Training> = {}) => {
    const output = join(folder, `${devices} ${Object.keys(more)}`);
    const training: Training = { ...TRAINING, precision: 'bf16', ...more };
    const cluster = `1x${devices}:a100-sxm-80`;
    await compile({ model, output, target: 'torch', cluster, zero: 0, dp: devices, tp: 1, training });
    return readFileSync(join(output, 'torch', 'model.py'), 'utf8');
  };
  const count = (text: string, part: string) => text.split(part).length - 1;
  const alone = await of(1);
  // Three normalisations and the loss: the fourth's running statistics have gradients too, as the module is called once more.
  t.deepEqual(
    ['conv2d_weight(', 'batch_norm_training(', 'gradients(', 'threshold_backward(', 'F.pad('].map((part) =>
      count(alone, part),
    ),
    [4, 4, 4, 4, 0],
  );
  const parts = await of(2, { batchStatistics: 'shard' });
  t.deepEqual(
    ['conv2d_weight(', 'batch_norm_training('].map((part) => count(parts, part)),
    [4, 4],
  );
  // Ranks that share the samples of a mean add up their sums: no function of one rank does that.
  const shared = await of(2);
  t.is(count(shared, 'conv2d_weight('), 4);
  t.is(count(shared, 'batch_norm_training('), 0);
});

test('normalisations and activations that a file writes out are functions of torch', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const [model, output] = [join(folder, 'written.onnx'), join(folder, 'out')];
  const build = new GraphBuilder('written', 1);
  const number = (name: string, value: number) => build.constant(name, constant('float32', [value]));
  const size = 16;
  const matrix = (name: string) => build.parameter(name, [size, size]);
  const data = build.operator('MatMul', [build.input('x', 'float32', [4, size]), matrix('in')]);
  const squares = build.operator('Pow', [data, number('two', 2)]);
  const mean = build.operator('ReduceMean', [squares], { axes: [-1], keepdims: 1 });
  const root = build.operator('Sqrt', [build.operator('Add', [mean, number('epsilon', 1e-6)])]);
  const unit = build.operator('Mul', [data, build.operator('Reciprocal', [root])]);
  const normal = build.operator('Mul', [build.parameter('norm', [size], { mean: 1 }), unit]);
  const gate = build.operator('MatMul', [normal, matrix('gate')]);
  const silu = build.operator('Mul', [gate, build.operator('Sigmoid', [gate])]);
  const up = build.operator('Mul', [silu, build.operator('MatMul', [normal, matrix('up')])]);
  const down = build.operator('MatMul', [up, matrix('down')]);
  const erf = build.operator('Erf', [build.operator('Div', [down, number('root-two', Math.SQRT2)])]);
  const whole = build.operator('Mul', [down, build.operator('Add', [erf, number('one', 1)])]);
  const gelu = build.operator('Mul', [whole, number('half', 0.5)]);
  build.output('y', build.operator('MatMul', [gelu, matrix('out')]));
  writeFileSync(model, writeOnnx(build.build()));
  await compile({ model, output, target: 'torch', devices: 1, training: TRAINING });
  const text = readFileSync(join(output, 'torch', 'model.py'), 'utf8');
  for (const call of ['F.rms_norm(a, (16,), b, eps=0.000001)', 'F.silu(a) * b', 'F.gelu(a)'])
    t.is(text.split(`: ${call}, (`).length, 2, `${call} runs once, and its gradients read what was kept of it`);
  t.notRegex(text, /torch\.(erf|sigmoid|reciprocal)/);
});

test('the last micro-batch alone keeps what its gradients read, where the others recompute', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const [model, output] = [join(folder, 'llama.onnx'), join(folder, 'out')];
  const graph = generatedModel('llama:layers=2,hidden=16,heads=4,kv_heads=2,ffn=32,seq=8,vocab=32').build(4);
  writeFileSync(model, writeOnnx(graph, { weights: 'external' }));
  await compile({
    ...{ model, output, target: 'torch', initRandom: true, devices: 1, recompute: 'full:except-last' },
    training: { ...TRAINING, microBatches: 2 },
  });
  const text = readFileSync(join(output, 'torch', 'model.py'), 'utf8');
  const [forward = '', last = ''] = ['forward', 'forward_1'].map(
    (name) => new RegExp(`    def ${name}\\(.*?\\n\\n`, 's').exec(text)?.[0],
  );
  t.is(forward.match(/recorded\(/g)?.length, undefined, forward);
  t.is(last.match(/recorded\(/g)?.length, 4, last);
  t.notRegex(text, /gradients\(\s*recorded\(\s*lambda [^:]+: (attention|F\.rms_norm)/);
});

test('inputs that index tables or hold labels are stated with the values that they may hold', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const inputsOf = async (name: string, options: Partial<CompileOptions>) => {
    const output = join(folder, name);
    await compile({ model: 'models/gpt-tiny.onnx', output, target: 'torch', devices: 2, dp: 2, ...options });
    const text = readFileSync(join(output, 'torch', 'model.py'), 'utf8');
    return [...text.matchAll(/^ +"(\w+)": Value\(.*?within=(\(.*?\))\),$/gms)].map(
      ([, input, range]) => `${input} ${range}`,
    );
  };
  t.deepEqual(await inputsOf('inference', {}), ['ids (-64, 64, None)']);
  t.deepEqual(await inputsOf('training', { training: TRAINING }), ['ids (0, 64, None)', 'labels (0, 64, -100)']);
});

test('every parameter is in a file of its folder', async (t) => {
  const folder = join(mkdtempSync(join(tmpdir(), 'autopar-torch-')), 'out');
  await compile({
    model: 'models/gpt-tiny.onnx',
    output: folder,
    target: 'torch',
    devices: 4,
    dp: 2,
    tp: 2,
    axes: 'roles',
  });
  const torch = join(folder, 'torch');
  const index = JSON.parse(readFileSync(join(torch, 'weights', 'index.json'), 'utf8')) as readonly Readonly<
    Record<string, { readonly file: string; readonly key: string; readonly axes: readonly string[] }>
  >[];
  const declared = readFileSync(join(torch, 'model.py'), 'utf8').match(/declare\(self, "[^"]+"/g) ?? [];
  t.true(declared.length > 0);
  const names = Object.keys(index[0] ?? {});
  for (const text of declared) {
    const name = text.slice('declare(self, "'.length, -1);
    t.true(
      names.some((full) => full === name || full.endsWith(`.${name}`)),
      name,
    );
  }
  for (const { file, key, axes } of Object.values(index[0] ?? {}))
    for (const shard of axes.length === 0 ? [0] : [0, 1])
      t.true(headerOf(join(torch, file.replace('{k}', String(shard)))).includes(JSON.stringify(key)), key);
});

function headerOf(file: string): string {
  const bytes = readFileSync(file);
  return bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE(0))).toString();
}

/** Options for compiling an MLP, and text that its program has for each. */
const PLANS: readonly (readonly [options: Partial<CompileOptions>, file: string, text: RegExp])[] = [
  [{ meshes: 'tp2 | dp2', pp: 2 }, 'mesh.py', /^AXES = \(\("pp", 2\), \("rank", 2\)\)$/m],
  [{ gradientSync: 'parameter-server', degrees: { dp: 2, tp: 1 } }, 'model.py', /if self\.is_first_dp:\n/],
  [{ interleave: 2, degrees: { dp: 1, tp: 2 } }, 'model.py', /= yield from self\./],
  [{ offload: 'optimizer:disk', degrees: { dp: 2, tp: 1 } }, 'model.py', /declare\(self, .*place="disk"\)/],
  [{ offload: 'gradients:host', degrees: { dp: 2, tp: 1 } }, 'model.py', /accumulate\(.*place="cpu"\)/],
];

for (const [options, file, text] of PLANS)
  test(`a plan with ${JSON.stringify(options)} has a program`, async (t) => {
    const output = join(mkdtempSync(join(tmpdir(), 'autopar-torch-')), 'out');
    const training: Training = { ...TRAINING, loss: { kind: 'mse' }, microBatches: 2 };
    await compile({ model: 'models/mlp.onnx', axes: 'roles', ...options, training, output, target: 'torch' });
    t.regex(readFileSync(join(output, 'torch', file), 'utf8'), text);
  });

test('constants of 64 bits keep all their digits', (t) => {
  const bytes = new Uint8Array(BigUint64Array.of(2n ** 64n - 1n, 11400714819323198485n).buffer);
  const value = { dtype: 'uint64', shape: [2], data: bytes } as const;
  t.deepEqual(numbersText(value), ['18446744073709551615', '11400714819323198485']);
  t.deepEqual(numbersText({ ...value, dtype: 'int64' }), ['-1', '-7046029254386353131']);
});

test('the exponent of a power is a number of the code', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const [model, output] = [join(folder, 'power.onnx'), join(folder, 'out')];
  const build = new GraphBuilder('power', 1);
  const exponent = build.constant('exponent', constant('float32', [3]));
  build.output('y', build.operator('Pow', [build.input('x', 'float32', [4, 8]), exponent]));
  writeFileSync(model, writeOnnx(build.build()));
  await compile({ model, output, target: 'torch', devices: 1 });
  t.regex(readFileSync(join(output, 'torch', 'model.py'), 'utf8'), /torch\.pow\(.*, 3\.0\)/);
});

test('an operator without a torch function is refused with its node, and nothing is written', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  const builder = new GraphBuilder('unknown', 1);
  const x = builder.input('x', 'float32', [2, 8, 4, 4]);
  const regions = builder.input('regions', 'float32', [3, 5]);
  builder.output('y', builder.operator('MaxRoiPool', [x, regions], { pooled_shape: [2, 2] }));
  const model = join(folder, 'unknown.onnx');
  writeFileSync(model, writeOnnx(builder.build()));
  const error = await refused(t, { model, devices: 1 });
  t.is(error.code, 'target-lacks-operator');
  t.regex(error.message, /MaxRoiPool/);
  t.truthy(error.where.node);
});

async function refused(
  t: { readonly deepEqual: (got: unknown, wanted: unknown) => void },
  options: CompileOptions,
): Promise<AutoparError> {
  const parent = mkdtempSync(join(tmpdir(), 'autopar-torch-'));
  try {
    await compile({ ...options, output: join(parent, 'out'), target: 'torch' });
  } catch (error) {
    t.deepEqual(existsSync(parent) ? readdirSync(parent) : [], []);
    if (error instanceof AutoparError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}
