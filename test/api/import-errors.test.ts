import { mkdir, mkdtemp, open, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type ImportOptions, importModel } from '../../src/api/models/import.js';
import { AutoparError } from '../../src/ir/error.js';
import type { ErrorCode } from '../../src/ir/error-codes.js';
import { encodeModel, type ModelProto, type NodeProto, type TensorProto } from '../../src/ir/onnx/schema.js';
import { constant } from '../../src/ir/ops/constants.js';
import { model, node, ramp, saved, tensor, value } from '../ir/model-maker.js';

/** The import must fail with this code and exit, and a message (with its hint) that says so. */
async function refused(
  t: ExecutionContext,
  file: string,
  code: ErrorCode,
  message: RegExp,
  options: ImportOptions = {},
): Promise<AutoparError> {
  const error = await t.throwsAsync(importModel(file, options));
  if (!(error instanceof AutoparError)) {
    t.fail(`a fault of ours: ${error?.stack}`);
    throw new Error('not an AutoparError');
  }
  t.is(error.code, code);
  t.regex(`${error.message} | ${error.hint ?? ''}`, message);
  t.truthy(error.where.file ?? error.where.node);
  return error;
}

const small = (nodes: readonly NodeProto[], more: Partial<NonNullable<ModelProto['graph']>> = {}): ModelProto =>
  model({ node: nodes, input: [value('x', [2, 3])], output: [value('y', [2, 3])], ...more });
const fine = small([node('Relu', ['x'], ['y'])]);

test('a file that is not there, or a folder', async (t) => {
  await refused(t, '/nonexistent/model.onnx', 'file-missing', /no such file/);
  await refused(t, tmpdir(), 'not-a-file', /not a file/);
});

test('not a protobuf', async (t) => {
  await refused(
    t,
    await saved(new TextEncoder().encode('hello, this is text and no model at all\n'.repeat(20))),
    'not-onnx',
    /not an ONNX model/,
  );
  await refused(t, await saved(new Uint8Array([0x08])), 'truncated-model', /truncated/);
});

test('a protobuf that is no model', async (t) => {
  await refused(t, await saved(encodeModel({ producer_name: 'someone' })), 'not-onnx', /no graph/);
});

test('an empty file', async (t) => {
  await refused(t, await saved(new Uint8Array(0)), 'empty-file', /the file is empty/);
});

test('a truncated model is refused wherever it is cut', async (t) => {
  const bytes = encodeModel(small([node('MatMul', ['x', 'w'], ['y'])], { initializer: [ramp('w', [3, 3])] }));
  for (let length = 1; length < bytes.length; length += 7) {
    const error = await t.throwsAsync(importModel(await saved(bytes.slice(0, length))));
    t.true(error instanceof AutoparError, `cut at ${length}: ${error?.stack}`);
  }
  await refused(t, await saved(bytes.slice(0, bytes.length - 9)), 'truncated-model', /truncated.*copy it again/);
});

test('more than 2 GiB in one file', async (t) => {
  const file = join(await mkdtemp(join(tmpdir(), 'autopar-test-')), 'large.onnx');
  const handle = await open(file, 'w');
  // Sparse: the file system stores nothing of it.
  await handle.truncate(2 ** 31 + 1);
  await handle.close();
  await refused(t, file, 'model-too-large', /2\.0 GiB.*external data/);
});

test('opset and IR version that are too new or too old', async (t) => {
  await refused(t, await saved(model(fine.graph ?? {}, 29)), 'opset-too-new', /opset 29; autopar knows opsets 1 to 28/);
  await refused(t, await saved(model(fine.graph ?? {}, 0)), 'opset-too-old', /opset 0/);
  await refused(t, await saved({ ...fine, ir_version: 99 }), 'ir-too-new', /IR version 99; autopar reads up to 14/);
});

test('a cycle is shown', async (t) => {
  const cycle = small([
    node('Add', ['x', 'b'], ['a'], {}, { name: 'first' }),
    node('Relu', ['a'], ['b'], {}, { name: 'second' }),
    node('Neg', ['b'], ['y']),
  ]);
  await refused(t, await saved(cycle), 'cyclic-graph', /(first → second → first|second → first → second)/);
});

test('nodes in the wrong order are put in order', async (t) => {
  const imported = await importModel(await saved(small([node('Neg', ['a'], ['y']), node('Exp', ['x'], ['a'])])));
  t.deepEqual(
    imported.graph.nodes.map((item) => item.op),
    ['Exp', 'Neg'],
  );
});

test('duplicate names', async (t) => {
  await refused(
    t,
    await saved(small([node('Relu', ['x'], ['y']), node('Neg', ['x'], ['y'])])),
    'duplicate-name',
    /name 'y'/,
  );
  await refused(t, await saved(small([node('Relu', ['x'], ['x'])])), 'duplicate-name', /name 'x'/);
  await refused(
    t,
    await saved(small([node('Add', ['x', 'w'], ['y'])], { initializer: [ramp('w', [3]), ramp('w', [3])] })),
    'duplicate-name',
    /name 'w'/,
  );
});

test('an undefined tensor', async (t) => {
  const error = await refused(
    t,
    await saved(small([node('Add', ['x', 'ghost'], ['y'], {}, { name: 'adder' })])),
    'undefined-tensor',
    /node 'adder' reads 'ghost'/,
  );
  t.is(error.where.tensor, 'ghost');
  await refused(t, await saved(small([node('Relu', ['x'], ['z'])])), 'undefined-tensor', /the graph returns 'y'/);
});

test('shapes that do not fit', async (t) => {
  const error = await refused(
    t,
    await saved(
      small([node('MatMul', ['x', 'w'], ['y'], {}, { name: 'product' })], { initializer: [ramp('w', [4, 3])] }),
    ),
    'shape-mismatch',
    /product/,
  );
  t.is(error.where.node, 'product');
  const reshape = small([node('Reshape', ['x', 's'], ['y'], {}, { name: 'view' })], {
    initializer: [tensor('s', [2], [4, -1], 'int64')],
  });
  await refused(t, await saved(reshape), 'shape-mismatch', /view.*\[2, 3\] does not reshape to \[4, -1\]/);
});

test('operands and results that the operator does not have', async (t) => {
  const shape = { initializer: [tensor('s', [2], [3, 2], 'int64')] };
  const cases = [
    { made: small([node('Reshape', ['x', 's', 's'], ['y'], {}, { name: 'bad' })], shape), says: /no operand 2/ },
    { made: small([node('Relu', ['x', 'x'], ['y'], {}, { name: 'bad' })]), says: /takes 1 operands|no operand 1/ },
    { made: small([node('Softmax', ['x', 'x'], ['y'], {}, { name: 'bad' })]), says: /takes 1 operands|no operand 1/ },
    { made: small([node('Transpose', ['x', 'x'], ['y'], {}, { name: 'bad' })]), says: /takes 1 operands|no operand 1/ },
    { made: small([node('Tanh', ['x'], ['y', 'z'], {}, { name: 'bad' })]), says: /2 results, and Tanh makes 1/ },
    { made: small([node('MatMul', ['x'], ['y'], {}, { name: 'bad' })]), says: /operand 1 is missing/ },
  ];
  for (const { made, says } of cases) {
    const error = await refused(t, await saved(made), 'shape-mismatch', says);
    t.is(error.where.node, 'bad');
  }
});

test('a tensor whose bytes do not match its shape', async (t) => {
  const short: TensorProto = { ...ramp('w', [3]), dims: [4] };
  await refused(
    t,
    await saved(small([node('Add', ['x', 'w'], ['y'])], { initializer: [short] })),
    'tensor-size',
    /'w' is float32 \[4\], which takes 16 bytes, but 12 bytes/,
  );
});

test('unbound dimensions are listed with the places where they occur', async (t) => {
  const dynamic = model({
    node: [node('Add', ['x', 'z'], ['y'])],
    input: [value('x', ['N', 'S', 4]), value('z', ['N', 's0 + 1', 4])],
    output: [value('y', ['N', 'S', 4])],
  });
  const file = await saved(dynamic);
  const error = await refused(
    t,
    file,
    'unbound-dimension',
    /N \(x \[N, S, 4\] axis 0; z .* axis 0\), S .*, s0 .*--dim N=SIZE --dim S=SIZE --dim s0=SIZE/,
  );
  t.is(error.exit, 'input');
  const bound = await importModel(file, { dims: { N: 2, S: 5, s0: 4 } });
  t.deepEqual(bound.graph.tensors.get('y')?.shape, [2, 5, 4]);
  t.deepEqual(bound.dims, { N: 2, S: 5, s0: 4 });
  await refused(t, file, 'unknown-dimension', /no dimension 'M'.*N, S/, { dims: { M: 2 } });
  await refused(t, file, 'bad-dimension', /N=0.*positive/, { dims: { N: 0, S: 5, s0: 4 } });
});

test('shapes that depend on the data', async (t) => {
  const reshape = model({
    node: [node('Reshape', ['x', 's'], ['y'], {}, { name: 'view' })],
    input: [value('x', [6]), value('s', [2], 'int64')],
    output: [value('y', ['a', 'b'])],
  });
  await refused(
    t,
    await saved(reshape),
    'data-dependent-shape',
    /node 'view' \(Reshape\): its operand 'shape' depends on the data[\s\S]*--const s=FILE\.npy/,
  );
  const summed = model({
    node: [node('Add', ['b', 'c'], ['s']), node('Expand', ['x', 's'], ['y'], {}, { name: 'widen' })],
    input: [value('x', [1, 1]), value('c', [2], 'int64'), value('b', [2], 'int64')],
    output: [value('y', ['a', 'b'])],
  });
  await refused(t, await saved(summed), 'data-dependent-shape', /--const b=FILE\.npy --const c=FILE\.npy;/);
  const positions = model({
    node: [node('NonZero', ['x'], ['y'], {}, { name: 'where' })],
    input: [value('x', [6])],
    output: [value('y', [1, 'n'], 'int64')],
  });
  await refused(t, await saved(positions), 'data-dependent-shape', /node 'where' \(NonZero\)/);
});

test('control flow that stays', async (t) => {
  const branch = (op: string): NonNullable<ModelProto['graph']> => ({
    name: op,
    node: [node(op, ['x'], ['out'])],
    output: [value('out', [2, 3])],
  });
  const conditional = small(
    [node('If', ['c'], ['y'], { then_branch: branch('Exp'), else_branch: branch('Abs') }, { name: 'choose' })],
    { input: [value('x', [2, 3]), value('c', [], 'bool')] },
  );
  await refused(t, await saved(conditional), 'control-flow', /node 'choose' \(If\).*--const/);
  // A value of the input chooses the branch.
  for (const [c, op] of [
    [true, 'Exp'],
    [false, 'Abs'],
    [constant('bool', [1]), 'Exp'],
  ] as const) {
    const { graph } = await importModel(await saved(conditional), { constants: { c } });
    t.deepEqual(
      graph.nodes.map((own) => own.op),
      [op],
    );
  }
  const body = {
    name: 'body',
    node: [node('Relu', ['v'], ['w']), node('Identity', ['go'], ['on'])],
    input: [value('i', [], 'int64'), value('go', [], 'bool'), value('v', [2, 3])],
    output: [value('on', [], 'bool'), value('w', [2, 3])],
  };
  const loop = small([node('Loop', ['n', '', 'x'], ['y'], { body }, { name: 'again' })], {
    input: [value('x', [2, 3]), value('n', [], 'int64')],
  });
  await refused(t, await saved(loop), 'control-flow', /node 'again' \(Loop\).*unrolled/);
});

test('unknown operators are refused by name where nothing tells their shapes', async (t) => {
  const strange = model(
    small([node('Warp', ['x'], ['h'], {}, { name: 'w1', domain: 'my.ops' }), node('Relu', ['h'], ['y'])]).graph ?? {},
    18,
    {
      opset_import: [
        { domain: '', version: 18 },
        { domain: 'my.ops', version: 1 },
      ],
    },
  );
  await refused(t, await saved(strange), 'unknown-operator', /node 'w1' is my\.ops\.Warp.*value_info/);
  const told = { ...strange, graph: { ...strange.graph, value_info: [value('h', [2, 3])] } };
  const imported = await importModel(await saved(told));
  t.deepEqual(imported.graph.tensors.get('h')?.shape, [2, 3]);
  t.regex(imported.notes.join(), /my\.ops\.Warp is unknown/);
});

const external = (location: string, more: readonly { key: string; value: string }[] = []): TensorProto => ({
  name: 'w',
  dims: [3],
  data_type: 1,
  data_location: 1,
  external_data: [{ key: 'location', value: location }, ...more],
});
const withExternal = (...tensors: readonly TensorProto[]): ModelProto =>
  small([node('Add', ['x', 'w'], ['y'])], { initializer: tensors });

test('external data that leaves the folder is not read; beside data that is there it is a mistake', async (t) => {
  const there: TensorProto = { ...external('there.bin'), name: 'v' };
  const outside = async (location: string, prepare: (folder: string) => Promise<unknown> = async () => undefined) => {
    const alone = await saved(withExternal(external(location)));
    await prepare(dirname(alone));
    const { graph, notes } = await importModel(alone);
    t.deepEqual(graph.weights.get('w')?.source, { kind: 'absent', data: { location, problem: 'outside' } });
    t.true(notes.join().includes(`${location} is outside the model's folder`), notes.join());
    const file = await saved(withExternal(external(location), there));
    await prepare(dirname(file));
    await writeFile(join(dirname(file), 'there.bin'), new Uint8Array(12));
    await refused(t, file, 'external-data-outside', /outside the model's folder/);
  };
  for (const location of ['../secret.bin', '/etc/passwd', 'a/../../b.bin']) await outside(location);
  await outside('link.bin', (folder) => symlink('/etc/passwd', join(folder, 'link.bin')));
  await refused(t, await saved(withExternal(external(''))), 'external-data-outside', /outside the model's folder/);
});

test('external data that is there is found by offset and length', async (t) => {
  const file = await saved(
    withExternal(
      external('sub/data.bin', [
        { key: 'offset', value: '4' },
        { key: 'length', value: '12' },
      ]),
    ),
  );
  await mkdir(join(dirname(file), 'sub'));
  await writeFile(join(dirname(file), 'sub', 'data.bin'), new Uint8Array(16));
  const { graph, weightsPresent } = await importModel(file);
  t.true(weightsPresent);
  t.deepEqual(graph.weights.get('w')?.source, {
    kind: 'external',
    file: join(dirname(file), 'sub', 'data.bin'),
    offset: 4,
    length: 12,
  });
});

test('external data that is too short, or stated wrongly', async (t) => {
  const file = await saved(withExternal(external('data.bin', [{ key: 'offset', value: '8' }])));
  await writeFile(join(dirname(file), 'data.bin'), new Uint8Array(16));
  await refused(t, file, 'external-data-short', /bytes 8 to 20 of data\.bin, but that file has only 16 bytes/);
  const wrong = await saved(withExternal(external('data.bin', [{ key: 'length', value: '7' }])));
  await writeFile(join(dirname(wrong), 'data.bin'), new Uint8Array(16));
  await refused(t, wrong, 'external-data-range', /takes 12 bytes.*length 7/);
});

test('external data that is missing: an error where other data is there, weights without value where none is', async (t) => {
  const other: TensorProto = { ...external('there.bin'), name: 'v' };
  const file = await saved(withExternal(external('gone.bin'), other));
  await writeFile(join(dirname(file), 'there.bin'), new Uint8Array(12));
  await refused(t, file, 'external-data-missing', /'w' is in 'gone\.bin', which does not exist/);
  const planned = await importModel(await saved(withExternal(external('gone.bin'))));
  t.false(planned.weightsPresent);
  t.is(planned.graph.weights.get('w')?.source.kind, 'absent');
  t.regex(planned.notes.join(), /weights are absent: gone\.bin/);
});

test('absent weights are planned with; what needs their values is refused', async (t) => {
  const inputs = [value('x', [2, 3]), value('fc.weight', [4, 3]), value('input.1', [2, 4])];
  const graph = model({
    node: [node('Gemm', ['x', 'fc.weight'], ['h'], { transB: 1 }), node('Add', ['h', 'input.1'], ['y'])],
    input: inputs,
    output: [value('y', [2, 4])],
  });
  const imported = await importModel(await saved(graph));
  t.deepEqual(imported.graph.inputs, ['x', 'input.1']);
  t.is(imported.graph.weights.get('fc.weight')?.role, 'parameter');
  t.deepEqual(
    imported.graph.nodes.map((item) => item.op),
    ['Transpose', 'MatMul', 'Add'],
  );
  const shaped = model({
    node: [node('Cast', ['a.target'], ['s'], { to: 7 }), node('Reshape', ['x', 's'], ['y'])],
    input: [value('x', [6]), value('a.target', [2])],
    output: [value('y', [2, 3])],
  });
  const error = await t.throwsAsync(importModel(await saved(shaped)));
  t.true(error instanceof AutoparError);
  t.regex(error?.message ?? '', /depends on the data|does not hold it/);
});

test('inputs and options that do not go together', async (t) => {
  const file = await saved(fine);
  await refused(t, file, 'unknown-input', /--const z.*its inputs are x/, {
    constants: { z: constant('float32', [1]) },
  });
  await refused(t, file, 'constant-mismatch', /int64 \[2\].*float32 \[2, 3\]/, {
    constants: { x: constant('int64', [1, 2], [2]) },
  });
  const typed = small([node('Cast', ['n'], ['m'], { to: 1 }), node('Add', ['x', 'm'], ['y'])], {
    input: [value('x', [2, 3]), value('n', ['k'], 'uint8')],
  });
  // An open shape cannot be filled; numbers must be of the type.
  await refused(t, await saved(typed), 'constant-mismatch', /n=1, but the model wants uint8 \[k\].*an array/, {
    constants: { n: 1 },
  });
  const scalar = { ...typed, graph: { ...typed.graph, input: [value('x', [2, 3]), value('n', [3], 'uint8')] } };
  const large = small([node('Relu', ['n'], ['y'])], { input: [value('n', [2 ** 20, 2 ** 20])] });
  await refused(t, await saved(large), 'constant-mismatch', /n=1, but the model wants float32/, {
    constants: { n: 1 },
  });
  for (const n of [256, -1, 1.5, true])
    await refused(
      t,
      await saved(scalar),
      'constant-mismatch',
      /but the model wants uint8 \[3\].*a value of this type/,
      {
        constants: { n },
      },
    );
  const { constants } = await importModel(await saved(scalar), { constants: { n: 255 } });
  t.deepEqual([...(constants.n?.data ?? [])], [255, 255, 255]);
  await refused(t, file, 'unknown-weight', /--weights q\*/, { weights: ['q*'] });
});

test('a function that calls itself', async (t) => {
  const recursive = model(
    { node: [node('F', ['x'], ['y'], {}, { domain: 'local' })], input: [value('x', [2])], output: [value('y', [2])] },
    18,
    {
      opset_import: [
        { domain: '', version: 18 },
        { domain: 'local', version: 1 },
      ],
      functions: [
        {
          name: 'F',
          domain: 'local',
          input: ['a'],
          output: ['b'],
          opset_import: [{ domain: '', version: 18 }],
          node: [node('F', ['a'], ['b'], {}, { domain: 'local' })],
        },
      ],
    },
  );
  await refused(t, await saved(recursive), 'recursive-function', /'F' calls itself/);
});
