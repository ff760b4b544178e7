/**
 * @file What emitted programs read and write: inputs made up in the range of a table, outputs of names and types that numpy or
 * gloo have a meaning for or lack.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { compile } from '../../../src/api/index.js';
import { onnxOfDtype } from '../../../src/ir/dtype.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { readNpz, writeNpz } from '../../../src/program/arrays/npz.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { python } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');
const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));
const tested = missing(absence !== null, `arrays of torch programs (${absence})`) ? test.skip : test;

/** Compiles a model for one rank, and returns a function that runs its program. */
async function programOf(builder: GraphBuilder, name: string): Promise<(...options: string[]) => string> {
  const model = join(folder, `${name}.onnx`);
  writeFileSync(model, writeOnnx(builder.build()));
  const output = join(folder, name);
  await compile({ model, output, devices: 1, target: 'torch' });
  return (...options) => python([join(output, 'torch', 'main.py'), '--device', 'cpu', ...options]);
}

tested('an output may have the name of a parameter of numpy.savez, and a type that numpy or gloo lacks', async (t) => {
  const builder = new GraphBuilder('outputs', 1);
  const x = builder.input('x', 'float32', [2, 4]);
  const types = ['float8e4m3fn', 'float8e5m2', 'int16', 'bfloat16'] as const;
  for (const type of types) builder.output(type, builder.operator('Cast', [x], { to: onnxOfDtype(type) }));
  builder.output('file', builder.operator('Neg', [x]));
  const run = await programOf(builder, 'outputs');
  const [inputs, outputs] = [join(folder, 'inputs.npz'), join(folder, 'outputs.npz')];
  const values = [0, 1, 2, -3, 4, 5, 6, -7];
  writeFileSync(inputs, writeNpz({ x: constant('float32', values, [2, 4]) }));
  run('--inputs', inputs, '--outputs', outputs);
  const found = readNpz(readFileSync(outputs), outputs);
  const numbersIn = (name: string) => numbersOf(found[name] ?? constant('float32', [], [0])).map(Number);
  t.deepEqual(
    numbersIn('file').map((value) => 0 - value),
    values,
  );
  for (const type of types) t.deepEqual(numbersIn(type), values, type);
});

tested('inputs that are made up are rows of the table that they index', async (t) => {
  const builder = new GraphBuilder('types', 1);
  const ids = builder.input('ids', 'int64', [2, 8]);
  builder.output('y', builder.operator('Gather', [builder.parameter('table', [1, 4]), ids]));
  t.regex((await programOf(builder, 'types'))(), /^step 1/m);
});
