import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { encodeModel } from '../../src/ir/onnx/schema.js';
import { model, node, ramp, value } from '../ir/model-maker.js';
import { autopar, workplace } from './autopar.js';

/** y = relu(x · w): dimension N is open, and w is an input. */
const OPEN = model({
  node: [node('MatMul', ['x', 'w'], ['h']), node('MatMul', ['h', 'v'], ['y'])],
  initializer: [ramp('v', [8, 6])],
  input: [value('x', ['N', 4]), value('w', [4, 8])],
  output: [value('y', ['N', 6])],
});

interface Report {
  readonly schema: string;
  readonly model: { readonly name: string; readonly dims: Readonly<Record<string, number>> };
  readonly openDimensions: readonly {
    readonly name: string;
    readonly places: readonly string[];
    readonly assumed: number;
  }[];
  readonly inputs: readonly { readonly name: string }[];
  readonly parameters: {
    readonly elements: number;
    readonly weightBytes: number;
    readonly trainableElements: number;
    readonly list: readonly { readonly name: string; readonly trainable: boolean; readonly present: boolean }[];
  };
  readonly totalFlops: number;
}

async function report(words: readonly string[], cwd: string): Promise<Report> {
  const { code, stdout, stderr } = await autopar(['inspect', ...words, '--json'], { cwd });
  if (code !== 0) throw new Error(stderr + stdout);
  return JSON.parse(stdout) as Report;
}

test('words for people fit a hundred columns', async (t) => {
  for (const name of ['gpt-tiny', 'llama-tiny', 'mlp', 'cnn-tiny']) {
    const { code, stdout, stderr } = await autopar(['inspect', `models/${name}.onnx`, '--parameters']);
    t.is(code, 0, stderr);
    for (const line of stdout.split('\n')) t.true([...line].length <= 100, line);
    for (const title of ['inputs and outputs', 'operators', 'parameters']) t.true(stdout.includes(title), title);
    t.notRegex(stdout, /autopar\./);
    t.is(name !== 'mlp' && name !== 'cnn-tiny', stdout.includes('\nfused regions\n'), name);
  }
});

test('an object for programs', async (t) => {
  const found = await report(['models/gpt-tiny.onnx'], process.cwd());
  t.is(found.schema, 'autopar-inspect-v1');
  t.is(found.parameters.weightBytes, 4 * found.parameters.elements);
  t.is(found.parameters.trainableElements, found.parameters.elements);
  t.true(found.totalFlops > 0);
});

test('open dimensions get a size, and are told; bound ones are used', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  writeFileSync(join(folder, 'open.onnx'), encodeModel(OPEN));
  const [assumed] = (await report(['open.onnx'], folder)).openDimensions;
  t.deepEqual(assumed, { name: 'N', places: ['x [N, 4] axis 0'], assumed: 4 });
  const bound = await report(['open.onnx', '--dim', 'N=10'], folder);
  t.deepEqual(bound.openDimensions, []);
  t.deepEqual(bound.model.dims, { N: 10 });
  const { stdout } = await autopar(['inspect', 'open.onnx'], { cwd: folder });
  t.regex(stdout, /--dim N=N\s+4\s+x \[N, 4\] axis 0/);
});

test('--weights makes an input a weight, here and for compile', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  writeFileSync(join(folder, 'open.onnx'), encodeModel(OPEN));
  const without = await report(['open.onnx'], folder);
  t.deepEqual(
    without.inputs.map(({ name }) => name),
    ['x', 'w'],
  );
  t.is(without.parameters.elements, 48);
  const told = await report(['open.onnx', '--weights', 'w*'], folder);
  t.deepEqual(
    told.inputs.map(({ name }) => name),
    ['x'],
  );
  t.is(told.parameters.elements, 80);
  t.like(
    told.parameters.list.find(({ name }) => name === 'w'),
    { trainable: true, present: false },
  );
  const compile = ['compile', 'open.onnx', '--dim', 'N=4', '--weights', 'w', '--devices', '2', '--init', 'random'];
  const compiled = await autopar([...compile, '--verify'], { cwd: folder });
  t.is(compiled.code, 0, compiled.stderr);
  t.regex(compiled.stdout, /verified/);
  const verified = await autopar(['verify', 'open.autopar'], { cwd: folder });
  t.is(verified.code, 0, verified.stderr);
  for (const command of ['inspect', 'compile']) {
    const wrong = await autopar([command, 'open.onnx', '--dim', 'N=4', '--weights', 'ww'], { cwd: folder });
    t.is(wrong.code, 2);
    t.regex(wrong.stderr, /error\[unknown-weight\].*\n.*\n.*did you mean w\?/);
  }
});

test('--tie, --untie, --trainable and --frozen', async (t) => {
  const frozen = await report(['models/gpt-tiny.onnx', '--frozen', 'wte*'], process.cwd());
  t.is(frozen.parameters.list.find(({ name }) => name === 'wte.weight')?.trainable, false);
  const all = await report(['models/gpt-tiny.onnx', '--frozen', '*', '--trainable', 'h.0.*'], process.cwd());
  t.true(all.parameters.list.every(({ name, trainable }) => trainable === name.startsWith('h.0.')));
  const apart = await report(['models/gpt-tiny.onnx', '--untie', 'wte.weight'], process.cwd());
  t.is(apart.parameters.elements - frozen.parameters.elements, 64 * 32);
  const wrong = await autopar(['inspect', 'models/gpt-tiny.onnx', '--tie', 'wte.weight=wpe.wieght']);
  t.is(wrong.code, 2);
  t.regex(wrong.stderr, /error\[unknown-parameter\][\s\S]*did you mean wpe\.weight\?/);
});

test('a model that cannot be looked at without sizes says what to bind', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const reshape = node('Reshape', ['x', 's'], ['y']);
  const file = join(folder, 'm.onnx');
  const shape = {
    ...ramp('s', [1]),
    data_type: 7,
    raw_data: new Uint8Array(new BigInt64Array([-7n, 0n]).buffer),
    dims: [2],
  };
  writeFileSync(
    file,
    encodeModel(
      model({ node: [reshape], initializer: [shape], input: [value('x', ['N'])], output: [value('y', [7])] }),
    ),
  );
  const { code, stderr } = await autopar(['inspect', 'm.onnx'], { cwd: folder });
  t.is(code, 3);
  t.regex(stderr, /error\[unbound-dimension\].*N[\s\S]*--dim N=SIZE/);
});

interface TrainingReport {
  readonly training: {
    readonly labels: string;
    readonly precision: string;
    readonly parameters: readonly {
      readonly name: string;
      readonly elements: number;
      readonly decays: boolean;
      readonly state: readonly string[];
    }[];
    readonly groups: readonly { readonly decays: boolean; readonly count: number; readonly elements: number }[];
    readonly scalars: readonly string[];
    readonly total: Readonly<Record<'weightBytes' | 'copyBytes' | 'gradientBytes' | 'stateBytes', number>>;
  };
  readonly parameters: { readonly elements: number };
}

test('--train tells what is trained, its groups and state, and the bytes of all of it', async (t) => {
  const line = ['inspect', 'models/mlp.onnx', '--train', '--precision', 'bf16', '--undecayed', '*0.weight'];
  const { stdout, stderr } = await autopar([...line, '--json']);
  t.is(stderr, '');
  const { training, parameters } = JSON.parse(stdout) as TrainingReport;
  const elements = training.parameters.reduce((sum, row) => sum + row.elements, 0);
  t.is(elements, parameters.elements);
  t.deepEqual([training.labels, training.precision], ['labels', 'bf16']);
  const { weightBytes, copyBytes, gradientBytes, stateBytes } = training.total;
  t.deepEqual([weightBytes, gradientBytes, copyBytes], [4 * elements, 4 * elements, 2 * elements]);
  t.is(stateBytes, 8 * elements + 8, 'two moments, and the number of the step');
  t.deepEqual(training.scalars, ['optimizer/step']);
  for (const row of training.parameters) {
    t.deepEqual(row.state, [`${row.name}/mean`, `${row.name}/square`]);
    t.is(row.decays, row.name.endsWith('weight') && !row.name.endsWith('0.weight'), row.name);
  }
  const [decayed, kept] = training.groups;
  t.is((decayed?.elements ?? 0) + (kept?.elements ?? 0), elements);
  const words = await autopar(line);
  for (const line of words.stdout.split('\n')) t.true([...line].length <= 100, line);
  t.regex(words.stdout, /\ntraining\n {2}loss .* loss, of an input labels\n {2}optimizer .* adamw, bf16\n/);
  t.regex(words.stdout, /\n {2}all +\S+ \S+ +\S+ \S+ +\S+ \S+ +\S+ \S+\n/);
});

test('micro-batches are a plan’s: inspect does not offer them', async (t) => {
  const help = await autopar(['inspect', '--help']);
  t.notRegex(help.stdout, /--micro-batch/);
  t.regex(help.stdout, /--train +inspect the training step/);
  const { code, stderr } = await autopar(['inspect', 'models/mlp.onnx', '--train', '--micro-batches', '2']);
  t.is(code, 2);
  t.regex(stderr, /unknown option '--micro-batches'/);
});
