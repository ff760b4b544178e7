/**
 * @file Strategy checkpoints as files: every form out and back, models that load in ONNX Runtime and pass the checker, and
 * weights recut byte for byte.
 */
import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import test from 'ava';
import { floats, GraphBuilder } from '../../models/builder.js';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { importModel } from '../../src/api/models/import.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { readAnnotations } from '../../src/api/requests/annotations.js';
import { recut } from '../../src/api/strategies/strategy-weights.js';
import {
  convertStrategy,
  diffStrategies,
  mergeStrategies,
  ranksForTransform,
  showStrategy,
} from '../../src/api/strategy.js';
import { AutoparError } from '../../src/ir/error.js';
import { decodeModel, encodeModel, type NodeDeviceConfigurationProto } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { annotationPins } from '../../src/strategy/onnx/read-annotations.js';
import { planFromJson, planToJson, readPlan } from '../../src/strategy/plan-json.js';
import { ROOT } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { slowTests } from '../selection.js';
import { ABSENT, sharedCases } from './shared-models.js';

const slow = slowTests(test);

const MODELS = path.join(ROOT, 'models');
const GPT = path.join(MODELS, 'gpt-tiny.onnx');

async function workFolder(t: { teardown: (fn: () => void) => void }): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'autopar-strategy-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

const refused = async (t: { throwsAsync: typeof test.prototype.throwsAsync }, run: Promise<unknown>) =>
  (await t.throwsAsync(() => run, { instanceOf: AutoparError })) as AutoparError;

test('plan.json round-trips byte for byte', async (t) => {
  const folder = await workFolder(t);
  for (const model of ['mlp', 'gpt-tiny', 'llama-tiny', 'cnn-tiny']) {
    const directory = path.join(folder, model);
    await compile({ model: path.join(MODELS, `${model}.onnx`), output: directory, devices: 4, planOnly: true });
    const file = path.join(directory, 'plan.json');
    const text = await readFile(file, 'utf8');
    t.is(planToJson(planFromJson(text, file)), text);
    await convertStrategy({ from: file, output: path.join(folder, 'again.plan.json') });
    t.is(await readFile(path.join(folder, 'again.plan.json'), 'utf8'), text);
  }
});

slow('a plan of training is written in every form: MindSpore has the forward, the others all', async (t) => {
  const folder = await workFolder(t);
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  const options = { model: GPT, degrees: { dp: 2, tp: 2 }, planOnly: true, training } as const;
  const directory = path.join(folder, 'gpt');
  await compile({ ...options, output: directory });
  const to = (name: string) => path.join(folder, name);

  await convertStrategy({ from: directory, output: to('gpt.ckpt') });
  const shown = await showStrategy(to('gpt.ckpt'));
  if (shown.form !== 'mindspore') return t.fail(shown.form);
  t.true(shown.document.parameters.has('wte.weight'));
  t.true(shown.document.operators.has('BatchMatMul_h.0.mlp.c_fc.weight'));
  t.false([...shown.document.operators.keys()].some((key) => /Update|gradient/i.test(key)));

  await convertStrategy({ from: directory, output: to('gpt.onnx') });
  await convertStrategy({ from: to('gpt.onnx'), output: to('back.plan.json') });
  const text = await readFile(path.join(directory, 'plan.json'), 'utf8');
  t.is(await readFile(to('back.plan.json'), 'utf8'), text);

  await convertStrategy({ from: directory, output: to('gpt.yaml') });
  const annotations = await readAnnotations(to('gpt.yaml'));
  await compile({ ...options, output: to('again'), annotations });
  const operators = async (place: string) => (await readPlan(path.join(place, 'plan.json'))).operators;
  t.deepEqual(await operators(to('again')), await operators(directory));

  const alone = await refused(t, convertStrategy({ from: to('back.plan.json'), output: to('x.ckpt'), model: GPT }));
  t.is(alone.code, 'model-needed');
  t.regex(alone.message, /for a training step/);
});

test('a plan goes into its model and comes back the same; the model computes what it did', async (t) => {
  const folder = await workFolder(t);
  for (const model of ['mlp', 'gpt-tiny', 'llama-tiny', 'cnn-tiny']) {
    const file = path.join(MODELS, `${model}.onnx`);
    const directory = path.join(folder, model);
    await compile({ model: file, output: directory, degrees: { dp: 2, tp: 2 }, devices: 4, planOnly: true });
    const annotated = path.join(folder, `${model}.onnx`);
    await convertStrategy({ from: directory, output: annotated });
    const back = path.join(folder, `${model}.plan.json`);
    await convertStrategy({ from: annotated, output: back });
    t.is(await readFile(back, 'utf8'), await readFile(path.join(directory, 'plan.json'), 'utf8'));
    const [original, copy] = [await importModel(file), await importModel(annotated)];
    t.is(copy.fingerprint, original.fingerprint);
    const inputs = randomInputs(original.graph, 1);
    t.deepEqual(await runOnnx(annotated, inputs), await runOnnx(file, inputs));
    t.true((await diffStrategies(annotated, directory)).same);
  }
});

test('an independent decoder sees the same model', async (t) => {
  const folder = await workFolder(t);
  await compile({ model: GPT, output: path.join(folder, 'gpt'), devices: 2, planOnly: true });
  const annotated = path.join(folder, 'gpt.onnx');
  await convertStrategy({ from: path.join(folder, 'gpt'), output: annotated });
  const { onnx } = createRequire(import.meta.url)('onnx-proto') as {
    onnx: { ModelProto: { decode: (bytes: Uint8Array) => { graph: unknown } } };
  };
  const graphOf = async (file: string) => JSON.stringify(onnx.ModelProto.decode(await readFile(file)).graph);
  t.is(await graphOf(annotated), await graphOf(GPT));
});

const PYTHON = [process.env['AUTOPAR_PYTHON'] ?? 'python3', '/usr/bin/python3'].find(
  (name) => spawnSync(name, ['-c', 'import onnx'], { timeout: 60_000 }).status === 0,
);
const withoutChecker = missing(
  PYTHON === undefined,
  "onnx.checker on annotated models (Python's onnx is not installed)",
);
(withoutChecker ? test.skip : test)('annotated models pass the official checker', async (t) => {
  const folder = await workFolder(t);
  for (const model of ['mlp', 'gpt-tiny', 'llama-tiny', 'cnn-tiny']) {
    const directory = path.join(folder, model);
    await compile({ model: path.join(MODELS, `${model}.onnx`), output: directory, devices: 4, planOnly: true });
    const annotated = path.join(folder, `${model}.onnx`);
    await convertStrategy({ from: directory, output: annotated });
    const { status, stderr } = spawnSync(
      PYTHON ?? '',
      ['-c', 'import onnx, sys; onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)', annotated],
      { encoding: 'utf8' },
    );
    t.is(status, 0, stderr);
  }
});

const withoutShared = missing(sharedCases().length === 0, ABSENT);
for (const name of [
  'torch-1.13.1-gpt2_local_functions',
  'torch-2.13.0-hf_gpt2',
  'torch-2.13.0-hf_llama_sdpa_opset23',
]) {
  (withoutShared ? test.skip : test)(`an exporter's model keeps its plan and results: ${name}`, async (t) => {
    const folder = await workFolder(t);
    const found = sharedCases().find((item) => item.name === name);
    if (!found) throw new Error(`no shared model ${name}`);
    const directory = path.join(folder, 'plan');
    await compile({
      ...{ model: found.file, output: directory, devices: 2, planOnly: true },
      ...{ degrees: { dp: 1, tp: 2 }, axes: 'roles' },
    });
    const annotated = path.join(folder, 'copy.onnx');
    await convertStrategy({ from: directory, output: annotated });
    await convertStrategy({ from: annotated, output: path.join(folder, 'back.plan.json') });
    t.is(
      await readFile(path.join(folder, 'back.plan.json'), 'utf8'),
      await readFile(path.join(directory, 'plan.json'), 'utf8'),
    );
    t.deepEqual(await runOnnx(annotated, found.inputs), await runOnnx(found.file, found.inputs));
    // Read as another tool would, without the plan: every layout is found on the mesh.
    const model = decodeModel(await readFile(annotated));
    const { graph } = await importModel(annotated);
    const { pins } = annotationPins(model as never, graph, { file: annotated });
    t.true(pins.pins.length > 10);
    t.true(pins.pins.every((pin) => pin.layout !== undefined && pin.split === undefined));
  });
}

test('data files of weights stay valid, in another folder too', async (t) => {
  const folder = await workFolder(t);
  const [from, to] = [path.join(folder, 'from'), path.join(folder, 'to')];
  await mkdir(from);
  await mkdir(to);
  const model = await externalModel(from);
  await compile({ model, output: path.join(folder, 'plan'), devices: 2, planOnly: true });
  const beside = path.join(from, 'annotated.onnx');
  t.deepEqual((await convertStrategy({ from: path.join(folder, 'plan'), output: beside })).notes, []);
  const elsewhere = path.join(to, 'annotated.onnx');
  const { notes } = await convertStrategy({ from: path.join(folder, 'plan'), output: elsewhere });
  t.regex(notes.join(), /copied weights.bin/);
  const inputs = randomInputs((await importModel(model)).graph, 1);
  const expected = await runOnnx(model, inputs);
  t.deepEqual(await runOnnx(beside, inputs), expected);
  t.deepEqual(await runOnnx(elsewhere, inputs), expected);
  t.deepEqual((await convertStrategy({ from: path.join(folder, 'plan'), output: elsewhere })).notes, []);
  await writeFile(path.join(to, 'weights.bin'), 'something else');
  const again = convertStrategy({ from: path.join(folder, 'plan'), output: elsewhere });
  t.is((await refused(t, again)).code, 'data-file-differs');
  const onto = convertStrategy({ from: path.join(folder, 'plan'), output: model, to: 'onnx' });
  t.is((await refused(t, onto)).code, 'same-file');
  for (const to of ['annotations', 'mindspore-json', 'plan', 'megatron'] as const)
    t.is((await refused(t, convertStrategy({ from: path.join(folder, 'plan'), output: model, to }))).code, 'same-file');
  t.deepEqual(await runOnnx(model, inputs), expected);
});

/** mlp.onnx with all of its weights in weights.bin. */
async function externalModel(folder: string): Promise<string> {
  const model = decodeModel(await readFile(path.join(MODELS, 'mlp.onnx')));
  const parts: Uint8Array[] = [];
  let offset = 0;
  const initializer = (model.graph?.initializer ?? []).map(({ raw_data: data, ...tensor }) => {
    const bytes = Uint8Array.from(data ?? new Uint8Array());
    parts.push(bytes);
    const external_data = [
      { key: 'location', value: 'weights.bin' },
      { key: 'offset', value: String(offset) },
      { key: 'length', value: String(bytes.length) },
    ];
    offset += bytes.length;
    const { name = '', dims = [], data_type = 1 } = tensor;
    return { name, dims, data_type, data_location: 1, external_data };
  });
  await writeFile(path.join(folder, 'weights.bin'), Buffer.concat(parts));
  const file = path.join(folder, 'model.onnx');
  await writeFile(file, encodeModel({ ...model, graph: { ...model.graph, initializer } }));
  return file;
}

slow('weights are recut to the bytes that compiling gives', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  const degrees = { 'tp-2': { dp: 1, tp: 2 }, 'tp-4': { dp: 1, tp: 4 }, 'dp-2-tp-2': { dp: 2, tp: 2 } };
  for (const [name, pinned] of Object.entries(degrees))
    await compile({ model: GPT, output: at(name), degrees: pinned, devices: pinned.dp * pinned.tp, axes: 'roles' });
  for (const from of Object.keys(degrees)) {
    for (const to of Object.keys(degrees)) {
      if (from === to) continue;
      const expected = await contents(at(to));
      await cp(at(to), at('target'), { recursive: true });
      await rm(path.join(at('target'), 'program', 'weights'), { recursive: true });
      await recut({ from: at(from), to: at('target') });
      t.deepEqual(await contents(at('target')), expected, `${from} → ${to}`);
      await rm(at('target'), { recursive: true });
      // From the plan alone the program is written as well.
      await cp(path.join(at(to), 'plan.json'), at('alone.plan.json'));
      await recut({ from: at(from), to: at('alone.plan.json'), output: at('written') });
      t.deepEqual(await contents(at('written')), expected, `${from} → plan of ${to}`);
      await readCompiled(at('written'));
      await rm(at('written'), { recursive: true });
    }
  }
  await recut({ from: at('tp-2'), to: at('tp-4'), output: at('copy') });
  t.deepEqual(await contents(at('copy')), await contents(at('tp-4')));
  const llama = path.join(MODELS, 'llama-tiny.onnx');
  await compile({ model: llama, output: at('llama'), devices: 2 });
  t.is((await refused(t, recut({ from: at('llama'), to: at('tp-4') }))).code, 'strategy-mismatch');
  t.is((await refused(t, recut({ from: at('tp-2'), to: at('alone.plan.json') }))).code, 'missing-argument');
  t.is((await refused(t, recut({ from: at('tp-2'), to: at('llama'), output: MODELS }))).code, 'strategy-mismatch');
});

test('a constant that one plan has in its segments and another cuts is recut too', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  const build = new GraphBuilder('shifted', 1);
  const numbers = Array.from({ length: 512 }, (_, index) => index / 512);
  // Folded when it is read, and so a constant of the graph; small constants that are not sharded are parts of segments.
  const shift = build.operator('Mul', [build.constant('table', floats(numbers, [8, 64])), build.scalar(2)]);
  const shifted = build.operator('Sub', [build.input('x', 'float32', [8, 64]), shift]);
  const hidden = build.operator('Relu', [build.operator('MatMul', [shifted, build.parameter('up.weight', [64, 512])])]);
  build.output('y', build.operator('MatMul', [hidden, build.parameter('down.weight', [512, 64])]));
  const model = at('model.onnx');
  await writeFile(model, writeOnnx(build.build()));
  const degrees = { 'dp-2': { dp: 2, tp: 1 }, 'dp-4': { dp: 4, tp: 1 }, 'tp-2': { dp: 1, tp: 2 } };
  for (const [name, pinned] of Object.entries(degrees))
    await compile({ model, output: at(name), degrees: pinned, devices: pinned.dp * pinned.tp, axes: 'roles' });
  const stored = async (name: string) =>
    (await readCompiled(at(name))).program.stages.some(({ weights }) =>
      Object.values(weights).some(({ source }) => source === shift),
    );
  t.deepEqual([await stored('dp-2'), await stored('dp-4'), await stored('tp-2')], [true, true, false]);
  for (const [from, to] of [
    ['tp-2', 'dp-2'],
    ['dp-2', 'dp-4'],
    ['dp-2', 'tp-2'],
  ] as const) {
    await cp(path.join(at(to), 'plan.json'), at('alone.plan.json'));
    await recut({ from: at(from), to: at('alone.plan.json'), output: at('written') });
    t.deepEqual(await contents(at('written')), await contents(at(to)), `${from} → ${to}`);
    await rm(at('written'), { recursive: true });
  }
});

/** Every file of a folder by its path. */
async function contents(folder: string): Promise<Readonly<Record<string, string>>> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const entries = files
    .filter((file) => file.isFile())
    .map(async (file) => {
      const full = path.join(file.parentPath, file.name);
      return [path.relative(folder, full), (await readFile(full)).toString('base64')] as const;
    });
  return Object.fromEntries((await Promise.all(entries)).sort(([a], [b]) => (a < b ? -1 : 1)));
}

test('MindSpore’s files are written, compared, merged and listed', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  const options = { model: GPT, devices: 4, axes: 'roles', planOnly: true } as const;
  await compile({ ...options, output: at('tp'), degrees: { dp: 1, tp: 4 } });
  await compile({ ...options, output: at('dp'), degrees: { dp: 2, tp: 2 } });
  await convertStrategy({ from: at('tp'), output: at('tp.ckpt') });
  await convertStrategy({ from: at('tp'), output: at('tp.json') });
  await convertStrategy({ from: at('dp'), output: at('dp.ckpt') });
  t.true((await diffStrategies(at('tp.ckpt'), at('tp.json'))).same);
  t.true((await diffStrategies(at('tp'), at('tp.json'))).same);
  const difference = await diffStrategies(at('tp.ckpt'), at('dp.ckpt'));
  t.is(difference.form, 'mindspore');
  t.is(difference.cost, null);
  t.true(difference.operators.length > 0);
  await mergeStrategies([at('tp.ckpt')], at('merged.ckpt'));
  const merged = await showStrategy(at('merged.ckpt'));
  t.true('document' in merged && [...merged.document.parameters.keys()].every((name) => name.startsWith('0-')));
  t.deepEqual(await ranksForTransform(at('tp.ckpt'), at('tp.json'), 3), [3]);
  const ranks = await ranksForTransform(at('tp.ckpt'), at('dp.ckpt'), 0);
  t.true(ranks.length >= 2 && ranks.every((rank) => rank < 4));
  t.is((await refused(t, convertStrategy({ from: at('tp'), output: at('x.ckpt'), stage: 1 }))).code, 'bad-option');
  t.is((await refused(t, convertStrategy({ from: at('tp.ckpt'), output: at('x.plan.json') }))).code, 'cannot-convert');
  t.is((await refused(t, convertStrategy({ from: at('tp.ckpt'), output: at('x.yaml') }))).code, 'model-needed');
  t.is((await refused(t, convertStrategy({ from: at('tp'), output: at('x.txt') }))).code, 'unknown-format');
  await t.notThrowsAsync(convertStrategy({ from: at('tp.ckpt'), output: at('x.yaml'), model: GPT, devices: 4 }));
  const other = convertStrategy({ from: at('tp.ckpt'), output: at('x.yaml'), model: GPT, devices: 8 });
  t.is((await refused(t, other)).code, 'strategy-mismatch');
  t.is((await refused(t, mergeStrategies([at('tp')], at('x.ckpt')))).code, 'cannot-convert');
});

test('a MindSpore file of a training step with chunks is imported as pins that give the step again', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  // As exporters merge parameters that start equal.
  const file = decodeModel(await readFile(GPT));
  const [kept, merged] = ['h.0.ln_1.weight', 'h.1.ln_1.weight'];
  const { node = [], initializer = [] } = file.graph ?? {};
  const graph = {
    ...file.graph,
    node: node.map((item) => ({ ...item, input: item.input?.map((name) => (name === merged ? kept : name)) ?? [] })),
    initializer: initializer.filter(({ name }) => name !== merged),
  };
  await writeFile(at('gpt.onnx'), encodeModel({ ...file, graph }));
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  const options = { model: at('gpt.onnx'), planOnly: true, axes: 'roles' } as const;
  const schedule = { schedule: 'interleaved-1f1b', virtualStages: 2, degrees: { pp: 2, dp: 2 }, devices: 4 } as const;
  await compile({ ...options, ...schedule, training: { ...training, microBatches: 2 }, output: at('before') });
  await convertStrategy({ from: at('before'), output: at('gpt.ckpt') });
  const { notes } = await convertStrategy({ from: at('gpt.ckpt'), output: at('gpt.yaml'), model: options.model });
  t.true(notes.some((note) => note.startsWith('the stages run 2 chunks each in turn')));
  t.true(notes.some((note) => note.endsWith('compile with --train; its loss is not pinned')));
  t.false(notes.some((note) => /no (operator|parameter) for .*ln_1/.test(note)));
  await compile({ ...options, training, annotations: await readAnnotations(at('gpt.yaml')), output: at('after') });
  const difference = await diffStrategies(at('before'), at('after'));
  t.deepEqual([difference.operators, difference.tensors], [[], []]);

  const one = { ...options, training, degrees: { pp: 2, dp: 2 }, devices: 4, schedule: 'zbv' } as const;
  await compile({ ...one, training: { ...training, microBatches: 2 }, output: at('zbv') });
  await convertStrategy({ from: at('zbv'), output: at('zbv.ckpt') });
  const turned = await convertStrategy({ from: at('zbv.ckpt'), output: at('zbv.yaml'), model: options.model });
  t.true(turned.notes.some((note) => /stages are not pinned; give the schedule, or --stages/.test(note)));
  t.notRegex(await readFile(at('zbv.yaml'), 'utf8'), /stage:/);
});

test('a plan with sp or ZeRO 3 comes back from its MindSpore file and from its pins', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  const options = { model: GPT, planOnly: true, axes: 'roles', training } as const;
  // The attention of plans with sp has another form, with its mask as an operand.
  const cases = {
    gather: { degrees: { dp: 2, sp: 2 }, again: {}, zigzag: false },
    ring: { degrees: { sp: 2 }, again: { spMethod: 'ring' }, zigzag: true },
    zero: { degrees: { dp: 2, tp: 2 }, again: { zero: 3 }, zigzag: false },
  } as const;
  for (const [name, { degrees, again, zigzag }] of Object.entries(cases)) {
    await compile({ ...options, ...again, degrees, output: at(name) });
    await convertStrategy({ from: at(name), output: at('read.ckpt') });
    const named = 'sp' in degrees ? { degrees: { sp: 2 } } : {};
    const read = await convertStrategy({ from: at('read.ckpt'), output: at('read.yaml'), model: GPT, ...named });
    t.is(
      read.notes.some((note) => /in shards of the optimizer.*--zero 3$/.test(note)),
      name === 'zero',
    );
    const pinned = await convertStrategy({ from: at(name), output: at('pins.yaml') });
    t.is(
      pinned.notes.some((note) => /zig-zag order.*--sp-method ring/.test(note)),
      zigzag,
    );
    for (const file of ['read.yaml', 'pins.yaml']) {
      const annotations = await readAnnotations(at(file));
      await compile({ ...options, ...again, annotations, output: at('after'), force: true });
      const { operators, tensors } = await diffStrategies(at(name), at('after'));
      t.deepEqual([operators, tensors], [[], []], `${name} from ${file}`);
    }
  }
  // The names of axes say sp.
  await convertStrategy({ from: at('gather'), output: at('read.json') });
  await convertStrategy({ from: at('read.json'), output: at('read.yaml'), model: GPT });
  t.deepEqual((await readAnnotations(at('read.yaml'))).mesh, { dp: 2, sp: 2, tp: 1 });
});

test('a checkpoint for another model, version or device count is refused', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  await compile({ model: GPT, output: at('gpt'), devices: 2, planOnly: true });
  const llama = path.join(MODELS, 'llama-tiny.onnx');
  const model = await refused(t, convertStrategy({ from: at('gpt'), output: at('x.ckpt'), model: llama }));
  t.is(model.code, 'model-changed');
  const devices = await refused(t, convertStrategy({ from: at('gpt'), output: at('x.ckpt'), devices: 4 }));
  t.is(devices.code, 'strategy-mismatch');
  t.regex(devices.message, /there are 4 devices, not 2/);
  const plan = await readPlan(path.join(at('gpt'), 'plan.json'));
  await writeFile(at('newer.json'), JSON.stringify({ ...plan, version: 99 }));
  t.is((await refused(t, showStrategy(at('newer.json')))).code, 'plan-newer');
  await writeFile(at('alone.json'), planToJson(plan));
  t.is((await refused(t, convertStrategy({ from: at('alone.json'), output: at('x.ckpt') }))).code, 'model-needed');
  await convertStrategy({ from: at('gpt'), output: at('gpt.onnx') });
  const bytes = await readFile(at('gpt.onnx'));
  await writeFile(at('cut.onnx'), bytes.subarray(0, bytes.length - 100));
  t.is((await refused(t, showStrategy(at('cut.onnx')))).code, 'truncated-model');
  const newer = Buffer.from(bytes.toString('latin1').replace('"version": 2\n', '"version": 9\n'), 'latin1');
  await writeFile(at('newer.onnx'), newer);
  t.is((await refused(t, showStrategy(at('newer.onnx')))).code, 'plan-newer');
  t.is((await refused(t, showStrategy(at('absent.ckpt')))).code, 'file-missing');
  t.is((await refused(t, showStrategy(GPT))).code, 'not-annotated');
});

test('annotations of plans with chunks, sp or meshes of stages are read as pins that give the plan again', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  const options = { model: GPT, planOnly: true, axes: 'roles', training: { ...training, microBatches: 2 } } as const;
  const chunks = { schedule: 'interleaved-1f1b', virtualStages: 2 } as const;
  const meshes = { meshes: 'tp4 | dp2 tp2', schedule: '1f1b' } as const;
  const cases = {
    chunks: { ...chunks, degrees: { pp: 2, dp: 2 }, devices: 4 },
    sp: { degrees: { sp: 2 }, devices: 2 },
    meshes: { ...meshes, devices: 8 },
  } as const;
  const again = { chunks: {}, sp: {}, meshes };
  const notes = {
    chunks: /run 2 chunks each in turn/,
    sp: /^$/,
    meshes: /--meshes "dp1 tp4 \| dp2 tp2"$/,
  };
  for (const [name, asked] of Object.entries(cases) as [keyof typeof cases, (typeof cases)['chunks']][]) {
    await compile({ ...options, ...asked, output: at(name) });
    await convertStrategy({ from: at(name), output: at('model.onnx') });
    const read = { from: at('model.onnx'), output: at('read.yaml'), pinsOnly: true, model: GPT };
    const { notes: said } = await convertStrategy(read);
    t.is(
      said.some((note) => notes[name].test(note)),
      name !== 'sp',
      `${name}: ${said.join('; ')}`,
    );
    await convertStrategy({ from: at(name), output: at('pins.yaml') });
    for (const file of ['read.yaml', 'pins.yaml']) {
      const annotations = await readAnnotations(at(file));
      await compile({ ...options, ...again[name], annotations, output: at('after'), force: true });
      const { operators } = await diffStrategies(at(name), at('after'));
      // Annotations hold no gradients and no loss.
      const forward = operators.filter((own) => !/gradient|^loss/.test(own.name));
      t.deepEqual(file === 'pins.yaml' ? operators : forward, [], `${name} from ${file}`);
    }
  }
});

test('annotations that were changed are read as pins only', async (t) => {
  const folder = await workFolder(t);
  const at = (name: string) => path.join(folder, name);
  await compile({ model: GPT, output: at('gpt'), devices: 2, planOnly: true });
  await convertStrategy({ from: at('gpt'), output: at('gpt.onnx') });
  const model = decodeModel(await readFile(at('gpt.onnx')));
  const edited = (own: NodeDeviceConfigurationProto) => {
    const nodes = model.graph?.node ?? [];
    const first = nodes.findIndex(({ device_configurations: all }) => (all?.[0]?.sharding_spec ?? []).length > 0);
    return nodes.map((item, index) => (index === first ? { ...item, device_configurations: [own] } : item));
  };
  const write = (name: string, own: NodeDeviceConfigurationProto) =>
    writeFile(at(name), encodeModel(withNodes(model, edited(own))));
  await write('edited.onnx', { configuration_id: 'autopar', pipeline_stage: 0 });
  await write('stages.onnx', { configuration_id: 'autopar', pipeline_stage: 3 });
  const error = await refused(t, convertStrategy({ from: at('edited.onnx'), output: at('x.plan.json') }));
  t.is(error.code, 'plan-contradicts-itself');
  await convertStrategy({ from: at('edited.onnx'), output: at('x.yaml'), to: 'annotations', pinsOnly: true });
  t.regex(await readFile(at('x.yaml'), 'utf8'), /layout:\s*\{?\s*in:/);
  const pins = { from: at('stages.onnx'), output: at('y.yaml'), to: 'annotations', pinsOnly: true } as const;
  t.regex((await refused(t, convertStrategy(pins))).message, /2 devices for 4 stages, which do not divide them/);
});

function withNodes(model: ReturnType<typeof decodeModel>, node: readonly object[]): ReturnType<typeof decodeModel> {
  const graph = Object.create(Object.getPrototypeOf(model.graph), {
    ...Object.getOwnPropertyDescriptors(model.graph ?? {}),
    node: { value: node, enumerable: true },
  });
  return Object.create(Object.getPrototypeOf(model), {
    ...Object.getOwnPropertyDescriptors(model),
    graph: { value: graph, enumerable: true },
  }) as ReturnType<typeof decodeModel>;
}
