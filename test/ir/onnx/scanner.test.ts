/**
 * @file The scanner against protobufjs: the same message, but for large values, whose place it reports; and no file, however
 * damaged, that makes it fail otherwise than with an error for the user.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { AutoparError } from '../../../src/ir/error.js';
import { readOnnx } from '../../../src/ir/onnx/reader.js';
import { scanModel } from '../../../src/ir/onnx/scanner.js';
import { ATTRIBUTE_TYPE, decodeModel, encodeModel, type TensorProto } from '../../../src/ir/onnx/schema.js';
import { readWeight } from '../../../src/ir/onnx/tensors.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { ROOT } from '../../cli/autopar.js';
import { draws, slowTests } from '../../selection.js';
import { model, node, ramp, saved, value } from '../model-maker.js';

const slow = slowTests(test);

/** A message without protobufjs's classes. */
function plain(message: unknown): unknown {
  if (message instanceof Uint8Array) return Buffer.from(message).toString('base64');
  if (Array.isArray(message)) return message.map(plain);
  if (typeof message !== 'object' || message === null) return message;
  return Object.fromEntries(Object.entries(message).map(([name, item]) => [name, plain(item)]));
}

const SHIPPED = readdirSync(join(ROOT, 'models')).filter((name) => name.endsWith('.onnx'));

test('the shipped models are read as protobufjs reads them', (t) => {
  for (const name of SHIPPED) {
    const file = join(ROOT, 'models', name);
    t.deepEqual(plain(scanModel(file)), plain(decodeModel(readFileSync(file))), name);
  }
});

slow('a file of many megabytes is put together from its parts', async (t) => {
  const nodes = Array.from({ length: 60_000 }, (_, index) =>
    node(
      'Relu',
      [index === 0 ? 'x' : `t${index - 1}`],
      [`t${index}`],
      {},
      { name: `a node with the number ${index}${'.'.repeat(100)}` },
    ),
  );
  const content = model({ node: nodes, initializer: [ramp('w', [4]), ramp('v', [4])], input: [value('x', [4])] });
  const file = await saved(content);
  t.deepEqual(plain(scanModel(file)), plain(decodeModel(encodeModel(content))));
});

/** Many values of every list that can hold them. */
const COUNT = 300_000;
const numbers = Array.from({ length: COUNT }, (_, index) => index * 7919 - 1e9);
const LISTS: Readonly<Record<string, Omit<TensorProto, 'dims' | 'name'>>> = {
  raw: { data_type: 1, raw_data: new Uint8Array(Float32Array.from(numbers).buffer) },
  float_data: { data_type: 1, float_data: numbers.map(Math.fround) },
  double_data: { data_type: 11, double_data: numbers },
  int64_data: { data_type: 7, int64_data: numbers.map((number) => number * 2 ** 20) },
  uint64_data: { data_type: 13, uint64_data: numbers.map((number) => Math.abs(number) * 2 ** 20) },
  'uint32 in uint64_data': { data_type: 12, uint64_data: numbers.map((number) => Math.abs(number) % 2 ** 32) },
  int32_data: { data_type: 6, int32_data: numbers.map((number) => number % 2 ** 31) },
};

for (const [name, tensor] of Object.entries(LISTS)) {
  test(`large values: ${name}`, async (t) => {
    const file = await saved(model({ initializer: [{ name: 'w', dims: [COUNT], ...tensor }, ramp('v', [2])] }));
    const { graph } = await readOnnx(file);
    const found = graph.initializers.get('w');
    const data = found && readWeight(found.source);
    if (!found || !data) return t.fail('the weight is not there');
    const given = Object.values(tensor).at(-1) as readonly number[] | Uint8Array;
    const wanted = given instanceof Uint8Array ? new Float32Array(given.slice().buffer) : given;
    t.deepEqual(numbersOf({ ...found, data }), [...wanted]);
    t.is(found.source.kind, ['raw', 'float_data', 'double_data'].includes(name) ? 'external' : 'inline');
    t.true(graph.initializers.has('v'));
  });
}

test('fields of a large weight may come in any order', async (t) => {
  const file = await saved(model({ initializer: [{ name: 'w', dims: [COUNT], ...LISTS['raw'] }] }));
  const bytes = readFileSync(file);
  const { graph } = await readOnnx(file);
  const source = graph.initializers.get('w')?.source;
  if (source?.kind !== 'external') return t.fail('the weight was read');
  // The fields behind raw_data are none of this file's; those before it move behind it.
  const start = bytes.indexOf(Buffer.from('w')) - 2;
  const dims = bytes.subarray(start - 6, start);
  const moved = Buffer.concat([
    bytes.subarray(0, start - 6),
    bytes.subarray(start, source.offset + source.length),
    dims,
    bytes.subarray(source.offset + source.length),
  ]);
  writeFileSync(file, moved);
  t.deepEqual((await readOnnx(file)).graph.initializers.get('w')?.shape, [COUNT]);
});

/** Reads damaged bytes: whatever happens, it is an error for the user. */
async function survives(bytes: Uint8Array): Promise<boolean> {
  const file = await saved(bytes);
  return readOnnx(file).then(
    () => true,
    (error: unknown) => error instanceof AutoparError && error.exit === 'input',
  );
}

test('a file that is cut anywhere', async (t) => {
  const bytes = readFileSync(join(ROOT, 'models', 'mlp.onnx')).subarray(-3000);
  const whole = encodeModel(model({ node: [node('MatMul', ['x', 'w'], ['y'])], initializer: [ramp('w', [3, 3])] }));
  for (let length = 1; length < whole.length; length++) t.true(await survives(whole.subarray(0, length)), `${length}`);
  for (let length = 1; length < bytes.length; length += 97)
    t.true(await survives(bytes.subarray(0, length)), `${length}`);
});

test('attributes of every type whose value is left out', async (t) => {
  for (let type = 0; type <= 16; type++) {
    const attribute = [{ name: 'auto_pad', type }];
    const file = await saved(model({ node: [{ op_type: 'Conv', input: ['x', 'w'], output: ['y'], attribute }] }));
    t.true(await survives(readFileSync(file)), `${type}`);
    if (type !== ATTRIBUTE_TYPE.string) continue;
    t.is((await readOnnx(file)).graph.nodes[0]?.attributes['auto_pad'], '', 'text that is left out is empty');
  }
});

test('a file whose bytes are changed anywhere', async (t) => {
  const whole = encodeModel(
    model({
      node: [node('Conv', ['x', 'w'], ['h'], { strides: [1, 1], auto_pad: 'VALID' }), node('Relu', ['h'], ['y'])],
      initializer: [ramp('w', [3, 3, 1, 1])],
      input: [value('x', [2, 3, 'N', 4])],
      output: [value('y', [2, 3, 'N', 4])],
    }),
  );
  const change = fc.tuple(fc.nat(whole.length - 1), fc.nat(255));
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), async (changes) => {
      const bytes = Uint8Array.from(whole);
      for (const [place, byte] of changes) bytes[place] = byte;
      return survives(bytes);
    }),
    { numRuns: draws(500), seed: 7 },
  );
  t.pass();
});
