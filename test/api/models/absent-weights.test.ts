import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { runCompiled } from '../../../src/api/run.js';
import { verify } from '../../../src/api/verify.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { TensorProto } from '../../../src/ir/onnx/schema.js';
import { node, saved, small } from '../../ir/model-maker.js';

const BYTES = 8 * 8 * 4;

/** A matmul whose weight the model keeps at `location`, in a folder of its own that `prepare` fills. */
async function modelWith(location: string, prepare: (folder: string) => Promise<unknown>): Promise<string> {
  const weight: TensorProto = {
    name: 'w',
    dims: [8, 8],
    data_type: 1,
    data_location: 1,
    external_data: [{ key: 'location', value: location }],
  };
  const file = await saved(small([node('MatMul', ['x', 'w'], ['y'])], { initializer: [weight] }));
  await prepare(path.dirname(file));
  return file;
}

const data = (name: string) => (folder: string) => writeFile(path.join(folder, name), new Uint8Array(BYTES));

interface Case {
  readonly location: string;
  readonly prepare: (folder: string) => Promise<unknown>;
  readonly code: string;
  readonly says: RegExp;
}

const CASES: Readonly<Record<string, Case>> = {
  'a data file that is not there': {
    location: 'w.bin',
    prepare: async () => undefined,
    code: 'external-data-missing',
    says: /'w\.bin' does not exist|in 'w\.bin', which does not exist/,
  },
  'a name with a typing error': {
    location: 'w.bni',
    prepare: data('w.bin'),
    code: 'external-data-missing',
    says: /'w\.bni' does not exist|in 'w\.bni', which does not exist/,
  },
  'a folder in its place': {
    location: 'w.bin',
    prepare: (folder) => mkdir(path.join(folder, 'w.bin')),
    code: 'external-data-missing',
    says: /'w\.bin' is a folder|in 'w\.bin', which is a folder/,
  },
  'a file outside of the folder': {
    location: '../w.bin',
    prepare: (folder) => data('w.bin')(path.dirname(folder)),
    code: 'external-data-outside',
    says: /'\.\.\/w\.bin' is outside|in '\.\.\/w\.bin', which is outside/,
  },
};

async function refused(t: ExecutionContext, done: Promise<unknown>, { code, says }: Case): Promise<void> {
  const error = await t.throwsAsync(done, { instanceOf: AutoparError });
  t.deepEqual([error?.code, error?.exit], [code, 'input'], error?.message);
  t.regex(error?.message ?? '', says);
  t.truthy(error?.hint);
}

for (const [name, each] of Object.entries(CASES)) {
  test(`${name}: a plan alone needs no weights, verify and run name the file`, async (t) => {
    const model = await modelWith(each.location, each.prepare);
    const directory = path.join(path.dirname(model), 'out');
    const options: NestedCompileOptions = { model, output: directory, devices: 2 };
    const planned = await compile({ ...options, planOnly: true });
    t.regex(planned.notes.join('\n'), /weights are absent: .*w\.b.*; planning needs none/);
    const absent = { ...each, code: 'no-program' };
    await refused(t, verify({ directory }), absent);
    await refused(t, runCompiled({ directory }), absent);
    await rm(directory, { recursive: true });
    await refused(t, compile({ ...options, verify: true }), each);
    const random = await compile({ ...options, initRandom: true, verify: true });
    t.true(random.verification?.passed);
  });
}

test('with absent weights the plan is written before verify is refused; a wrong name is refused before', async (t) => {
  const { prepare } = CASES['a data file that is not there'] as Case;
  const absent = await modelWith('w.bin', prepare);
  const output = path.join(path.dirname(absent), 'out');
  const done = compile({ model: absent, output, devices: 2, verify: true });
  const error = await t.throwsAsync(done, { instanceOf: AutoparError });
  t.true(error?.hint?.includes(output), error?.hint);
  t.true((await readFile(path.join(output, 'plan.json'), 'utf8')).includes('autopar-plan'));
  const wrong = await modelWith('../w.bin', async () => undefined);
  const other = path.join(path.dirname(wrong), 'out');
  await t.throwsAsync(compile({ model: wrong, output: other, devices: 2 }), { code: 'external-data-outside' });
  await t.throwsAsync(readFile(path.join(other, 'plan.json')), { code: 'ENOENT' });
});

test('a data file that goes after compiling is named by verify', async (t) => {
  const model = await modelWith('w.bin', data('w.bin'));
  const directory = path.join(path.dirname(model), 'out');
  await compile({ model, output: directory, devices: 2, verify: true });
  const file = path.join(path.dirname(model), 'w.bin');
  await copyFile(file, `${file}.kept`);
  await rm(file);
  await refused(t, verify({ directory }), CASES['a data file that is not there'] as Case);
});
