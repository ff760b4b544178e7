import { chmodSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import onnxProto from 'onnx-proto';
import { compile } from '../../src/api/compile.js';
import { importModel } from '../../src/api/models/import.js';
import { encodeModel, type GraphProto, type ModelProto, type TensorProto } from '../../src/ir/onnx/schema.js';
import { autopar } from '../cli/autopar.js';
import { model, node, ramp, small, tensor, value } from '../ir/model-maker.js';
import { missing, runsAsRoot } from '../missing.js';
import { type Refusal, refused, refusedCommand, workplace } from './refusal.js';

const { onnx } = onnxProto;
const relu = small([node('Relu', ['x'], ['y'])]);
const text = (words: string): Uint8Array => new TextEncoder().encode(words);
const bytesOf = (content: ModelProto | Uint8Array): Uint8Array =>
  content instanceof Uint8Array ? content : encodeModel(content);

/** Through the command line, one for each way in which a file can be wrong. */
const FILES: Readonly<Record<string, Refusal & { readonly content: ModelProto | Uint8Array }>> = {
  'not a protobuf': {
    content: text('this is no model\n'.repeat(50)),
    code: 'not-onnx',
    exit: 'input',
    says: /not an ONNX model.*\n\s+in .*m\.onnx\n\s+hint: give an \.onnx file/,
  },
  truncated: {
    content: bytesOf(small([node('MatMul', ['x', 'w'], ['y'])], { initializer: [ramp('w', [8, 8])] })).slice(0, 200),
    code: 'truncated-model',
    exit: 'input',
    says: /truncated.*\n.*m\.onnx\n.*copy it again/,
  },
  empty: { content: new Uint8Array(0), code: 'empty-file', exit: 'input', says: /the file is empty/ },
  cyclic: {
    content: small([node('Add', ['x', 'b'], ['y'], {}, { name: 'p' }), node('Neg', ['y'], ['b'], {}, { name: 'q' })]),
    code: 'cyclic-graph',
    exit: 'input',
    says: /(p → q → p|q → p → q)/,
  },
  'duplicate names': {
    content: small([node('Relu', ['x'], ['y']), node('Neg', ['x'], ['y'])]),
    code: 'duplicate-name',
    exit: 'input',
    says: /name 'y'/,
  },
  'an undefined tensor': {
    content: small([node('Add', ['x', 'ghost'], ['y'], {}, { name: 'sum' })]),
    code: 'undefined-tensor',
    exit: 'input',
    says: /node 'sum' reads 'ghost'/,
  },
  'shapes that do not fit': {
    content: small([node('MatMul', ['x', 'w'], ['y'], {}, { name: 'product' })], { initializer: [ramp('w', [5, 8])] }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /product: the contracted sizes differ.*\[4, 8\].*\[5, 8\]/,
  },
  'an opset too new': {
    content: model(relu.graph ?? {}, 99),
    code: 'opset-too-new',
    exit: 'input',
    says: /opset 99; autopar knows opsets 1 to 28/,
  },
  'external data outside': {
    content: small([node('Add', ['x', 'w'], ['y'])], {
      initializer: [
        {
          name: 'w',
          dims: [8],
          data_type: 1,
          data_location: 1,
          external_data: [{ key: 'location', value: '../secret' }],
        },
      ],
    }),
    code: 'external-data-outside',
    exit: 'input',
    says: /outside the model's folder/,
  },
  'an unbound dimension': {
    content: small([node('Relu', ['x'], ['y'])], { input: [value('x', ['N', 8])], output: [value('y', ['N', 8])] }),
    code: 'unbound-dimension',
    exit: 'input',
    says: /N \(x \[N, 8\] axis 0\)[\s\S]*--dim N=SIZE/,
  },
};

for (const [name, { content, ...refusal }] of Object.entries(FILES)) {
  test.serial(`command: ${name}`, async (t) => {
    const folder = workplace(t);
    writeFileSync(join(folder, 'm.onnx'), bytesOf(content));
    await refusedCommand(t, folder, ['compile', 'm.onnx', '--devices', '2'], refusal);
  });
}

test.serial('command: more than 2 GiB, in a sparse file', async (t) => {
  const folder = workplace(t);
  writeFileSync(join(folder, 'm.onnx'), '');
  truncateSync(join(folder, 'm.onnx'), 2 ** 31 + 5);
  const refusal = { code: 'model-too-large', exit: 'input', says: /2\.0 GiB[\s\S]*external data/ } as const;
  await refusedCommand(t, folder, ['compile', 'm.onnx'], refusal);
});

test.serial('command: no file, a folder', async (t) => {
  const folder = workplace(t);
  await refusedCommand(t, folder, ['compile', 'gone.onnx'], {
    code: 'file-missing',
    exit: 'input',
    says: /no such file\n\s+in .*gone\.onnx\n\s+hint: check the path/,
  });
  await refusedCommand(t, folder, ['compile', 'models'], { code: 'not-a-file', exit: 'input', says: /not a file/ });
});

const typed = (element: number): NonNullable<GraphProto['input']> => [
  { name: 'x', type: { tensor_type: { elem_type: element, shape: { dim: [{ dim_value: 4 }] } } } },
];

/** x + w, with w in another file. */
const elsewhere = (...external_data: NonNullable<TensorProto['external_data']>): ModelProto =>
  small([node('Add', ['x', 'w'], ['y'])], {
    initializer: [{ name: 'w', dims: [8], data_type: 1, data_location: 1, external_data }],
  });

/** Models that can be read and are wrong inside. */
const GRAPHS: Readonly<Record<string, Refusal & { readonly content: ModelProto }>> = {
  'no outputs': {
    content: small([node('Relu', ['x'], ['y'])], { output: [] }),
    code: 'no-outputs',
    exit: 'input',
    says: /the graph has no outputs/,
  },
  'an input of strings': {
    content: small([node('Identity', ['x'], ['y'])], { input: typed(8), output: [value('y', [4])] }),
    code: 'unsupported-input',
    exit: 'input',
    says: /'x' has the element type string, which autopar does not handle/,
  },
  'an element type that does not exist': {
    content: small([node('Identity', ['x'], ['y'])], { input: typed(99) }),
    code: 'unsupported-input',
    exit: 'input',
    says: /'x' has the element type number 99/,
  },
  'an element type of four bits that has no kernel anywhere': {
    content: small([node('Identity', ['x'], ['y'])], { input: typed(23) }),
    code: 'unsupported-input',
    exit: 'input',
    says: /'x' has the element type float4e2m1/,
  },
  'a cast to strings': {
    content: small([node('Cast', ['x'], ['y'], { to: 8 }, { name: 'c' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Cast c: element type string is not handled/,
  },
  'a cast to nothing': {
    content: small([node('Cast', ['x'], ['y'], {}, { name: 'c' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Cast c: attribute 'to' is missing/,
  },
  'an order of axes that is none': {
    content: small([node('Transpose', ['x'], ['y'], { perm: [0, 0] }, { name: 'turn' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Transpose turn: perm \[0, 0\] is not an order of 2 axes/,
  },
  'an axis out of range': {
    content: small([node('Softmax', ['x'], ['y'], { axis: 9 }, { name: 's' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Softmax s: axis 9 is outside/,
  },
  'too few operands': {
    content: small([node('MatMul', ['x'], ['y'], {}, { name: 'm' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /MatMul m: operand 1 is missing/,
  },
  'too many operands': {
    content: small([node('Relu', ['x', 'x'], ['y'], {}, { name: 'r' })]),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Relu r: it takes 1 operands/,
  },
  'mixed types': {
    content: small([node('Add', ['x', 'w'], ['y'], {}, { name: 'a' })], {
      initializer: [tensor('w', [1], [1], 'int64')],
    }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /Add a: its operands must have one type.*float32.*int64/,
  },
  'a node without operator': {
    content: small([node('', ['x'], ['y'], {}, { name: 'n' })]),
    code: 'unknown-operator',
    exit: 'input',
    says: /node 'n' has no operator/,
  },
  'a weight of negative size': {
    content: small([node('Add', ['x', 'w'], ['y'])], { initializer: [{ name: 'w', dims: [-3], data_type: 1 }] }),
    code: 'tensor-size',
    exit: 'input',
    says: /'w' has the shape \[-3\]/,
  },
  'a weight of impossible size': {
    content: small([node('Add', ['x', 'w'], ['y'])], {
      initializer: [{ name: 'w', dims: [2 ** 40, 2 ** 40], data_type: 1 }],
    }),
    code: 'tensor-size',
    exit: 'input',
    says: /'w' is float32 \[1099511627776, 1099511627776\]/,
  },
  'a weight with fewer bytes than its shape': {
    content: small([node('Add', ['x', 'w'], ['y'])], {
      initializer: [{ name: 'w', dims: [8], data_type: 1, raw_data: new Uint8Array(28) }],
    }),
    code: 'tensor-size',
    exit: 'input',
    says: /takes 32 bytes, but 28 bytes are stored/,
  },
  'a weight with more values than its shape': {
    content: small([node('Add', ['x', 'w'], ['y'])], {
      initializer: [{ name: 'w', dims: [2], data_type: 1, float_data: [1, 2, 3] }],
    }),
    code: 'tensor-size',
    exit: 'input',
    says: /takes 8 bytes, but 12 bytes are stored/,
  },
  'a text where a list of integers belongs': {
    content: small([node('Transpose', ['x'], ['y'], { perm: 'abc' }, { name: 'turn' })]),
    code: 'unsupported-attribute',
    exit: 'input',
    says: /Transpose turn: its attribute 'perm' is "abc", where a list of integers is expected/,
  },
  'a tensor of strings as an attribute': {
    content: small([
      node(
        'ConstantOfShape',
        ['x'],
        ['y'],
        {},
        {
          attribute: [{ name: 'value', type: 4, t: { dims: [1], data_type: 8, string_data: [text('a')] } }],
        },
      ),
    ]),
    code: 'unsupported-dtype',
    exit: 'input',
    says: /tensor 'value' has the element type string/,
  },
  'an operator of nobody, without the shapes of its results': {
    content: small([node('Warp', ['x'], ['h'], {}, { name: 'w', domain: 'my.ops' }), node('Relu', ['h'], ['y'])]),
    code: 'unknown-operator',
    exit: 'input',
    says: /node 'w' is my\.ops\.Warp, an unknown operator.*ONNX Runtime does not run it.*value_info/,
  },
  'external data at a negative offset': {
    content: elsewhere({ key: 'location', value: 'w.data' }, { key: 'offset', value: '-4' }),
    code: 'external-data-range',
    exit: 'input',
    says: /'w' takes 32 bytes, but its external data entry has offset -4/,
  },
  'external data at an offset that is no number': {
    content: elsewhere({ key: 'location', value: 'w.data' }, { key: 'offset', value: 'first' }),
    code: 'external-data-range',
    exit: 'input',
    says: /offset first/,
  },
  'external data at an offset that no file has': {
    content: elsewhere({ key: 'location', value: 'w.data' }, { key: 'offset', value: '9007199254740993000' }),
    code: 'external-data-range',
    exit: 'input',
    says: /offset 9007199254740993000/,
  },
  'external data without a place': {
    content: elsewhere(),
    code: 'external-data-outside',
    exit: 'input',
    says: /the value of tensor .* is in ''/,
  },
  'an output of another type than computed': {
    content: small([node('Relu', ['x'], ['y'])], { output: [value('y', [4, 8], 'int64')] }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /output 'y' is int64, but it is computed as float32/,
  },
  'an input without a name': {
    content: small([node('Relu', ['x'], ['y'])], { input: [value('', [4]), value('x', [4, 8])] }),
    code: 'bad-name',
    exit: 'input',
    says: /input of the graph has no name/,
  },
  ...Object.fromEntries(
    ['__proto__', 'constructor', 'toString'].map((name) => [
      `a tensor called ${name}`,
      {
        content: small([node('Relu', ['x'], [name]), node('Neg', [name], ['y'])]),
        code: 'bad-name',
        exit: 'input',
        says: /JavaScript reserves.*rename it/,
      } as const,
    ]),
  ),
};

for (const [name, { content, ...refusal }] of Object.entries(GRAPHS)) {
  test(`import: ${name}`, async (t) => {
    const folder = workplace(t);
    writeFileSync(join(folder, 'm.onnx'), encodeModel(content));
    await refused(t, folder, () => importModel(join(folder, 'm.onnx')), refusal);
  });
}

const root = missing(runsAsRoot(), 'a model that may not be read (root may read every file)');
(root ? test.skip : test)('a file that may not be read', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  writeFileSync(file, encodeModel(relu));
  chmodSync(file, 0);
  await refused(t, folder, () => importModel(file), { code: 'file-unreadable', exit: 'input', says: /permission/ });
});

test('a file that may only be read is fine', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  writeFileSync(file, encodeModel(relu));
  chmodSync(file, 0o444);
  const { programWritten } = await compile({ model: file, devices: 2, output: join(folder, 'd') });
  t.true(programWritten);
  t.deepEqual(readFileSync(file), Buffer.from(encodeModel(relu)));
});

test('an output of another shape than computed is remarked upon', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  writeFileSync(file, encodeModel(small([node('Relu', ['x'], ['y'])], { output: [value('y', [4, 9])] })));
  const { notes } = await importModel(file);
  t.regex(notes.join(), /output y is \[4, 9\], but it is computed as \[4, 8\]/);
});

/** Not nice, and right all the same: compiled, run and verified. */
const ODD: Readonly<Record<string, ModelProto>> = {
  'no inputs': model({
    node: [node('Relu', ['w'], ['y'])],
    initializer: [ramp('w', [4, 8])],
    output: [value('y', [4, 8])],
  }),
  'an input that is an output': small([node('Relu', ['x'], ['y'])], {
    output: [value('x', [4, 8]), value('y', [4, 8])],
  }),
  'a weight that is an output': small([node('Relu', ['x'], ['y'])], {
    initializer: [ramp('w', [3])],
    output: [value('w', [3]), value('y', [4, 8])],
  }),
  'an output twice': small([node('Relu', ['x'], ['y'])], { output: [value('y', [4, 8]), value('y', [4, 8])] }),
  'nodes of one name, of reserved names': small([
    node('Relu', ['x'], ['a'], {}, { name: 'n' }),
    node('Neg', ['a'], ['b'], {}, { name: 'n' }),
    node('Exp', ['b'], ['y'], {}, { name: '__proto__' }),
  ]),
  'slashes, blanks, other scripts': named('in/../x', '/w e/ight', '../../no de/ü', '日本/語 y'),
  'long names': named('x'.repeat(5000), 'w'.repeat(5000), 'n'.repeat(5000), 'y'.repeat(5000)),
  'line feeds, escapes, quotes': named('x\ny\u001b[31m', 'w\u0000', '"\\\'', '{k}%s$&'),
  digits: named('1', '2', '3', '4'),
  'an operator of nobody, with the shapes of its results, never run': small([node('Relu', ['x'], ['y'])], {
    value_info: [value('h', [4, 8])],
    node: [node('Relu', ['x'], ['y']), node('Warp', ['x'], ['h'], {}, { domain: 'my.ops' })],
  }),
};

function named(x: string, w: string, n: string, y: string): ModelProto {
  return model({
    node: [node('MatMul', [x, w], ['h'], {}, { name: n }), node('Relu', ['h'], [y], {}, { name: `${n}2` })],
    input: [value(x, [4, 8])],
    initializer: [ramp(w, [8, 8])],
    output: [value(y, [4, 8])],
  });
}

for (const [name, content] of Object.entries(ODD)) {
  test.serial(`odd but right: ${name}`, async (t) => {
    const folder = workplace(t);
    const file = join(folder, 'm.onnx');
    writeFileSync(file, encodeModel(content));
    const degrees = { tp: 2 };
    const { verification } = await compile({ model: file, degrees, output: join(folder, 'd'), verify: true });
    t.true(verification?.passed);
  });
}

test('names that no file can have are data files that are not there', async (t) => {
  const folder = workplace(t);
  for (const name of ['w\u0000', 'w'.repeat(10_000), 'm.onnx/w']) {
    const file = join(folder, 'm.onnx');
    writeFileSync(file, encodeModel(elsewhere({ key: 'location', value: name })));
    t.false((await importModel(file)).weightsPresent);
  }
});

test('an operator of nobody whose results have a stated shape is computed whole on every rank', async (t) => {
  const folder = workplace(t);
  const content = small([node('Warp', ['x'], ['h'], {}, { name: 'w', domain: 'my.ops' }), node('Relu', ['h'], ['y'])], {
    value_info: [value('h', [4, 8])],
  });
  writeFileSync(join(folder, 'm.onnx'), encodeModel(content));
  const { notes, graph } = await importModel(join(folder, 'm.onnx'));
  t.deepEqual(graph.tensors.get('h'), { dtype: 'float32', shape: [4, 8] });
  t.regex(notes.join(), /my\.ops\.Warp is unknown to autopar: its node is replicated on every rank/);
});

test.serial('dimensions of size zero', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  const type = { tensorType: { elemType: 1, shape: { dim: [{ dimValue: 0 }, { dimValue: 8 }] } } };
  const graph = {
    name: 'empty',
    node: [
      { opType: 'MatMul', input: ['x', 'w'], output: ['h'] },
      { opType: 'Relu', input: ['h'], output: ['y'] },
    ],
    input: [{ name: 'x', type }],
    initializer: [{ name: 'w', dims: [8, 8], dataType: 1, rawData: new Uint8Array(256) }],
    output: [{ name: 'y', type }],
  };
  const proto = { irVersion: 8, opsetImport: [{ domain: '', version: 18 }], graph };
  writeFileSync(file, onnx.ModelProto.encode(onnx.ModelProto.fromObject(proto)).finish());
  const { verification } = await compile({ model: file, devices: 2, output: join(folder, 'd'), verify: true });
  t.true(verification?.passed);
});

test.serial('control characters in names do not reach the terminal', async (t) => {
  const folder = workplace(t);
  const content = small([node('MatMul', ['x', 'w'], ['y'], {}, { name: 'red\u001b[31m\u0007' })], {
    initializer: [ramp('w', [5, 8])],
  });
  writeFileSync(join(folder, 'm.onnx'), encodeModel(content));
  const { code, stderr } = await autopar(['compile', 'm.onnx'], { cwd: folder });
  t.is(code, 3);
  t.false(stderr.includes('\u001b') || stderr.includes('\u0007'), stderr);
  t.true(stderr.includes('red\\x1b[31m\\x07'), stderr);
});

test.serial('element types that the cpu backend lacks are planned, and refused when they are to run', async (t) => {
  const folder = workplace(t);
  const halves = small([node('Relu', ['x'], ['y'])], {
    input: [value('x', [4, 8], 'bfloat16')],
    output: [value('y', [4, 8], 'bfloat16')],
  });
  writeFileSync(join(folder, 'm.onnx'), encodeModel(halves));
  t.is((await autopar(['compile', 'm.onnx', '--devices', '2'], { cwd: folder })).code, 0);
  await refusedCommand(t, folder, ['run', 'm.autopar'], {
    code: 'unsupported-operator',
    exit: 'backendAbsent',
    says: /backend cpu has no kernel for node '.+' \(Relu of bfloat16\)/,
  });
});

test.serial('weights without values: a plan, the reason in a line, a program with --init random', async (t) => {
  const folder = workplace(t);
  const graph = small([node('MatMul', ['x', 'fc.weight'], ['y'])], {
    input: [value('x', [4, 8]), value('fc.weight', [8, 8])],
  });
  writeFileSync(join(folder, 'm.onnx'), encodeModel(graph));
  const planned = await autopar(['compile', 'm.onnx', '--devices', '2'], { cwd: folder });
  t.is(planned.code, 0);
  t.regex(planned.stdout, /no program was written: 1 weights? .*m\.onnx \(--init random/);
  const refusal = {
    code: 'no-program',
    exit: 'input',
    says: /holds a plan but no program[\s\S]*--init random/,
  } as const;
  await refusedCommand(t, folder, ['run', 'm.autopar'], refusal);
  const made = await autopar(['compile', 'm.onnx', '--tp', '2', '--init', 'random', '--verify'], { cwd: folder });
  t.is(made.code, 0, made.stderr);
  t.regex(made.stdout, /verified/);
});
