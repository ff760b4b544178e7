import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { inspect } from '../../src/api/inspect.js';
import { type ImportOptions, importModel } from '../../src/api/models/import.js';
import { readSource } from '../../src/api/output/folder.js';
import { verify } from '../../src/api/verify.js';
import { onnxOfDtype } from '../../src/ir/dtype.js';
import type { ValueInfoProto } from '../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, value } from '../ir/model-maker.js';

/** x · w, with an input as exporters write it. */
async function product(input: ValueInfoProto): Promise<string> {
  const nodes = [node('MatMul', ['x', 'w'], ['y'])];
  return saved(
    model({ node: nodes, input: [input], output: [value('y', ['?', 8])], initializer: [ramp('w', [8, 8])] }),
  );
}

const elements = { elem_type: onnxOfDtype('float32') };
const nameless: Readonly<Record<string, ValueInfoProto>> = {
  'no field': { name: 'x', type: { tensor_type: { ...elements, shape: { dim: [{}, { dim_value: 8 }] } } } },
  'an empty name': value('x', ['', 8]),
  'a question mark': value('x', ['?', 8]),
  '-1 as a number': value('x', [-1, 8]),
  '-1 as a name': value('x', ['-1', 8]),
};

for (const [form, input] of Object.entries(nameless)) {
  test(`a dimension without a name is bound by place: ${form}`, async (t) => {
    const file = await product(input);
    const error = await t.throwsAsync(importModel(file), { message: /dimensions open: x\[0\] \(x \[\?, 8\] axis 0\)/ });
    t.regex((error as { hint?: string }).hint ?? '', /--dim 'x\[0\]=SIZE'; or a whole shape: --shape x=SIZE,8/);
    for (const options of [{ dims: { 'x[0]': 4 } }, { shapes: { x: [4, 8] } }] satisfies ImportOptions[])
      t.deepEqual((await importModel(file, options)).graph.tensors.get('y')?.shape, [4, 8]);
  });
}

test('inspect takes sizes for dimensions without a name, and names them as --dim does', async (t) => {
  const { open, inputs } = await inspect({ model: await product(value('x', ['?', '?', 8])) });
  t.deepEqual(
    open.map(({ name }) => name),
    ['x[0]', 'x[1]'],
  );
  t.is(inputs[0]?.shape.length, 3);
});

test('a shape for an input without one is recorded, and the plan verified with it', async (t) => {
  const file = await product({ name: 'x', type: { tensor_type: elements } });
  const error = await t.throwsAsync(importModel(file), { message: /input 'x' has no shape/ });
  t.regex((error as { hint?: string }).hint ?? '', /--shape x=SIZE,SIZE.*--dim 'x\[0\]=SIZE'/);
  const output = join(await mkdtemp(join(tmpdir(), 'autopar-')), 'out');
  const { plan } = await compile({ model: file, output, devices: 2, shapes: { x: [4, 8] } });
  t.deepEqual(plan.model.dims, { 'x[0]': 4, 'x[1]': 8 });
  t.deepEqual((await readSource(output)).dims, plan.model.dims);
  t.true((await verify({ directory: output })).passed);
});
