import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import type { AutoparError } from '../../../src/ir/error.js';
import type { GraphProto, ModelProto, NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { float, model, node, ramp, recordOf, saved, tensor, traced, value } from '../model-maker.js';
import { listed, parametersOf } from './analyse.js';

/** x · w + b as TorchScript exports the module at `path`. */
function linear(path: string, input: string, output: string, weight: string, bias: string): readonly NodeProto[] {
  const place = `/${path.replaceAll('.', '/')}`;
  return [
    node('MatMul', [input, weight], [`${output}.product`], {}, { name: `${place}/MatMul` }),
    node('Add', [`${output}.product`, bias], [output], {}, { name: `${place}/Add` }),
  ];
}

function zeros(name: string, size: number): TensorProto {
  return tensor(
    name,
    [size],
    Array.from({ length: size }, () => 0),
  );
}

/** The transpose of ramp(name, [columns, rows]). */
function turned(name: string, rows: number, columns: number): TensorProto {
  const at = (row: number, column: number) => (((column * rows + row) % 23) - 11) / 10;
  const values = Array.from({ length: rows * columns }, (_, index) => at(Math.floor(index / columns), index % columns));
  return tensor(name, [rows, columns], values);
}

function net(nodes: readonly NodeProto[], initializer: readonly TensorProto[], output = 'y'): ModelProto {
  return model({
    node: [...nodes],
    initializer: [...initializer],
    input: [value('x', [2, 4])],
    output: [value(output, [2, 4])],
  });
}

/** Two layers whose matrices and biases the exporter has merged; `parted` by Identity or not. */
function encoder(parted: boolean, weight = 'layers.0.fc.weight'): ModelProto {
  const own = (name: string) => (parted ? `layers.1.fc.${name}` : name === 'weight' ? weight : 'layers.0.fc.bias');
  return net(
    [
      ...linear('layers.0/fc', 'x', 'h', weight, 'layers.0.fc.bias'),
      ...(parted
        ? [
            node('Identity', [weight], [own('weight')], {}, { name: 'Identity_0' }),
            node('Identity', ['layers.0.fc.bias'], [own('bias')], {}, { name: 'Identity_1' }),
          ]
        : []),
      ...linear('layers.1/fc', 'h', 'y', own('weight'), own('bias')),
    ],
    [ramp(weight, [4, 4]), ramp('layers.0.fc.bias', [4])],
  );
}

test('one zero bias serves many places: each has its own', async (t) => {
  const graph = net(
    [
      ...linear('a', 'x', 'h', 'a.weight', 'a.bias'),
      ...linear('b', 'h', 'i', 'b.weight', 'a.bias'),
      ...linear('c', 'i', 'y', 'c.weight', 'a.bias'),
    ],
    [ramp('a.weight', [4, 4]), turned('b.weight', 4, 4), ramp('c.weight', [4, 4]), zeros('a.bias', 4)],
  );
  const found = await parametersOf(graph);
  t.deepEqual(
    listed(found).filter((line) => line.includes('bias')),
    ['a.bias 4', 'b.bias 4', 'c.bias 4'],
  );
  const [decision] = found.decisions.filter(({ kind }) => kind === 'separated');
  t.like(decision, { weights: ['a.bias'], parameters: ['a.bias', 'b.bias', 'c.bias'] });
  t.regex(decision?.why ?? '', /initial value/);
});

test('a bias that is no initial value and serves two modules is one', async (t) => {
  const graph = net(
    [...linear('a', 'x', 'h', 'a.weight', 'a.bias'), ...linear('b', 'h', 'y', 'b.weight', 'a.bias')],
    [ramp('a.weight', [4, 4]), ramp('b.weight', [4, 4]), ramp('a.bias', [4])],
  );
  t.deepEqual(listed(await parametersOf(graph)), ['a.bias 4', 'a.weight 16', 'b.weight 16']);
});

test('what the exporter parted by Identity is parted, under its own names', async (t) => {
  const { parameters, decisions } = await parametersOf(encoder(true));
  const names = parameters.map(({ name }) => name).sort();
  t.deepEqual(names, ['layers.0.fc.bias', 'layers.0.fc.weight', 'layers.1.fc.bias', 'layers.1.fc.weight']);
  t.like(decisions[0], { kind: 'separated', weights: ['layers.0.fc.weight'] });
  const imported = await importModel(await saved(encoder(true)));
  t.is([...imported.graph.weights].filter(([, { shape }]) => shape.length === 2).length, 1, 'computing shares it');
});

test('corresponding places of repeated layers are separate, unless the name lies outside of them', async (t) => {
  const apart = await parametersOf(encoder(false));
  t.deepEqual(apart.parameters.map(({ name }) => name).sort(), [
    'layers.0.fc.bias',
    'layers.0.fc.weight',
    'layers.1.fc.bias',
    'layers.1.fc.weight',
  ]);
  t.regex(apart.decisions[0]?.why ?? '', /layers/);
  const shared = await parametersOf(encoder(false, 'shared.weight'));
  const [weight] = shared.parameters.filter(({ shape }) => shape.length === 2);
  t.is(weight?.name, 'shared.weight');
  t.is(weight?.places.length, 2);
});

test('iterations of a loop read one weight, whatever its values, and so does what reads it elsewhere', async (t) => {
  const body: GraphProto = {
    name: 'body',
    node: [
      node('MatMul', ['h', 'w'], ['product']),
      node('Add', ['product', 'b'], ['sum']),
      node('Tanh', ['sum'], ['next']),
      node('Identity', ['keep'], ['still']),
    ],
    input: [value('i', [], 'int64'), value('keep', [], 'bool'), value('h', [2, 4])],
    output: [value('still', [], 'bool'), value('next', [2, 4])],
  };
  const loop = (name: string, input: string) =>
    node('Loop', ['trips', 'on', input], [`${name}.out`], { body }, { name });
  const constants = [tensor('trips', [], [3], 'int64'), tensor('on', [], [1], 'bool')];
  const weights = [ramp('w', [4, 4]), zeros('b', 4), ...constants];
  const one = net([loop('first', 'x'), node('MatMul', ['first.out', 'w'], ['y'])], weights);
  t.deepEqual(listed(await parametersOf(one)), ['b 4', 'w 16']);
  const two = net(
    [loop('first', 'x'), loop('second', 'first.out')],
    [ramp('b', [4]), ramp('w', [4, 4]), ...constants],
    'second.out',
  );
  t.deepEqual(listed(await parametersOf(two)), ['b 4', 'w 16']);
});

/** Embedding and head; the head's matrix is the table, transposed by the exporter. */
function language(head: TensorProto, more: readonly NodeProto[] = [], operand = head.name ?? ''): ModelProto {
  return model({
    node: [
      node('Gather', ['wte.weight', 'ids'], ['h'], { axis: 0 }, { name: '/wte/Gather' }),
      ...more,
      node('MatMul', ['h', operand], ['y'], {}, { name: '/head/MatMul' }),
    ],
    initializer: [ramp('wte.weight', [7, 4]), head],
    input: [value('ids', [2, 3], 'int64')],
    output: [value('y', [2, 3, 7])],
  });
}

test('an embedding and its head are one, stored twice or once, transposed or not', async (t) => {
  const copied = await parametersOf(language(turned('onnx::MatMul_9', 4, 7)));
  t.deepEqual(listed(copied), ['wte.weight 28']);
  t.like(copied.parameters[0], { shape: [7, 4], weights: ['wte.weight', 'head.weight'] });
  t.deepEqual(
    copied.parameters[0]?.places.map(({ op, transposed }) => [op, transposed]),
    [
      ['Gather', false],
      ['MatMul', true],
    ],
  );
  const turn = node('Transpose', ['head.weight'], ['t'], { perm: [1, 0] }, { name: '/head/Transpose' });
  const straight = await parametersOf(language(ramp('head.weight', [7, 4]), [turn], 't'));
  t.deepEqual(listed(straight), ['wte.weight 28']);
  const once = node('Transpose', ['wte.weight'], ['t'], { perm: [1, 0] }, { name: '/head/Transpose' });
  t.deepEqual(listed(await parametersOf(language(zeros('unused', 4), [once], 't'))), ['wte.weight 28']);
  const identity = [node('Identity', ['wte.weight'], ['head.weight']), { ...once, input: ['head.weight'] }];
  t.deepEqual(listed(await parametersOf(language(zeros('unused', 4), identity, 't'))), ['wte.weight 28']);
  const other = await parametersOf(language(ramp('head.weight', [4, 7])));
  t.deepEqual(listed(other), ['head.weight 28', 'wte.weight 28'], 'other values are another parameter');
});

test('equal values of two modules are two parameters', async (t) => {
  const graph = net(
    [...linear('a', 'x', 'h', 'a.weight', 'a.bias'), ...linear('b', 'h', 'y', 'b.weight', 'b.bias')],
    [ramp('a.weight', [4, 4]), ramp('b.weight', [4, 4]), ramp('a.bias', [4]), ramp('b.bias', [4])],
  );
  t.is((await parametersOf(graph)).parameters.length, 4);
});

test('--tie and --untie overrule it', async (t) => {
  const graph = language(turned('head.weight', 4, 7));
  const tied = (await parametersOf(graph)).parameters;
  t.deepEqual(
    tied.map(({ name }) => name),
    ['wte.weight'],
  );
  const untied = await parametersOf(graph, { untie: ['head.weight'] });
  t.deepEqual(listed(untied), ['head.weight 28', 'wte.weight 28']);
  const again = await parametersOf(graph, { untie: ['wte.weight'], tie: ['wte.weight=head.weight'] });
  t.like(again.parameters[0], { name: 'wte.weight', weights: ['wte.weight', 'head.weight'] });
  t.deepEqual(
    again.parameters[0]?.places.map(({ transposed }) => transposed),
    [false, true],
  );
  t.regex(again.decisions[0]?.why ?? '', /--tie/);
  const layers = await parametersOf(encoder(true), { tie: ['layers.0.fc.weight=layers.1.fc.weight'] });
  t.is(layers.parameters.length, 3);
  const biases = await parametersOf(encoder(false), { untie: ['layers.1.fc.bias'] }).catch(
    (error: AutoparError) => error,
  );
  t.is((biases as AutoparError).code, 'tie-mismatch');
});

const REFUSALS = [
  { options: { tie: ['wte.weigth=head.weight'] }, code: 'unknown-parameter', hint: /wte\.weight\?/ },
  { options: { untie: ['nothing'] }, code: 'unknown-parameter', hint: /wte\.weight/ },
  { options: { tie: ['wte.weight'] }, code: 'bad-option', hint: undefined },
  { options: { tie: ['wte.weight=norm.weight'] }, code: 'tie-mismatch', hint: /shape/ },
  { options: { trainable: ['*.wieght'] }, code: 'unknown-parameter', hint: /weight|inspect/ },
  { options: { frozen: ['zzz*'] }, code: 'unknown-parameter', hint: /inspect/ },
] as const;

for (const { options, code, hint } of REFUSALS) {
  test(`refused: ${JSON.stringify(options)}`, async (t) => {
    const scale = node('LayerNormalization', ['h', 'norm.weight'], ['n'], {}, { name: '/norm/LayerNormalization' });
    const graph = language(ramp('head.weight', [4, 7]), [scale]);
    const used = {
      ...graph.graph,
      node:
        graph.graph?.node?.map((item) =>
          item.op_type === 'MatMul' ? { ...item, input: ['n', 'head.weight'] } : item,
        ) ?? [],
    };
    const whole = {
      ...graph,
      graph: { ...used, initializer: [...(used.initializer ?? []), ramp('norm.weight', [4])] },
    };
    const error = (await t.throwsAsync(parametersOf(whole, options))) as AutoparError;
    t.is(error.code, code);
    t.is(error.exit, 'usage');
    if (hint) t.regex(error.hint ?? '', hint);
  });
}

test('what is trained: weights by their places, not masks, tables, statistics and what is frozen', async (t) => {
  const image = model({
    node: [
      node('Conv', ['x', 'conv.weight', 'conv.bias'], ['c'], { kernel_shape: [1, 1] }, { name: '/conv/Conv' }),
      node('BatchNormalization', ['c', 's', 'b', 'mean', 'var'], ['n'], { epsilon: float(1e-5) }, { name: '/bn/BN' }),
      node('Add', ['n', 'positions.table'], ['p'], {}, { name: '/Add' }),
      node('MaxPool', ['p'], ['q'], { kernel_shape: [1, 1] }, { name: '/pool/MaxPool' }),
      node('Add', ['q', 'attention.mask'], ['m'], {}, { name: '/mask/Add' }),
      node('Softmax', ['m'], ['y'], { axis: -1 }, { name: '/Softmax' }),
    ],
    initializer: [
      ramp('conv.weight', [3, 2, 1, 1]),
      ramp('conv.bias', [3]),
      ...['s', 'b', 'mean', 'var'].map((name) => tensor(name, [3], [1, 2, 3])),
      ramp('positions.table', [3, 4, 4]),
      tensor(
        'attention.mask',
        [4, 4],
        Array.from({ length: 16 }, (_, at) => (at % 4 > at / 4 ? Number.NEGATIVE_INFINITY : 0)),
      ),
    ],
    input: [value('x', [2, 2, 4, 4])],
    output: [value('y', [2, 3, 4, 4])],
  });
  const found = await parametersOf(image);
  const trained = found.parameters.filter(({ trainable }) => trainable).map(({ name }) => name);
  t.deepEqual(trained.sort(), ['b', 'conv.bias', 'conv.weight', 'positions.table', 's']);
  t.deepEqual(found.buffers.map(({ name }) => name).sort(), ['attention.mask', 'mean', 'var']);
  t.regex(found.buffers.find(({ name }) => name === 'mean')?.why ?? '', /statistics/);
  const told = await parametersOf(image, { frozen: ['*'], trainable: ['conv.*', 'attention.mask'] });
  t.deepEqual(
    told.parameters
      .filter(({ trainable }) => trainable)
      .map(({ name }) => name)
      .sort(),
    ['attention.mask', 'conv.bias', 'conv.weight'],
  );
});

test('a state with a row for each sample is data, and one for all samples may be trained', async (t) => {
  const recurrence = (rows: number) =>
    model({
      node: [
        node('Mul', ['x', 'start'], ['s'], {}, { name: '/cell/Mul' }),
        node('MatMul', ['s', 'cell.weight'], ['y'], {}, { name: '/cell/MatMul' }),
      ],
      initializer: [ramp('start', [rows, 4]), ramp('cell.weight', [4, 4])],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 4])],
    });
  for (const [rows, isTrained] of [
    [2, false],
    [1, true],
  ] as const) {
    const found = (await parametersOf(recurrence(rows))).parameters.find(({ name }) => name === 'start');
    t.is(found?.trainable, isTrained);
    if (!isTrained) t.is(found?.why, 'it has a row for each sample');
  }
  const told = await parametersOf(recurrence(2), { trainable: ['start'] });
  t.true(told.parameters.find(({ name }) => name === 'start')?.trainable);
});

test('weights that the graph makes itself are told apart', async (t) => {
  const light = model({
    node: [
      node('ConstantOfShape', ['shape'], ['w'], { value: tensorValue(0.5) }),
      node('MatMul', ['x', 'w'], ['h']),
      node('MatMul', ['h', 'w'], ['y']),
    ],
    initializer: [tensor('shape', [2], [4, 4], 'int64')],
    input: [value('x', [2, 4])],
    output: [value('y', [2, 4])],
  });
  const { parameters, generated } = await parametersOf(light);
  t.is(parameters.length, 0);
  t.deepEqual(
    generated.map(({ elements }) => elements),
    [16, 16],
  );
});

function tensorValue(number: number) {
  const data = new Uint8Array(Float32Array.of(number).buffer);
  return { dtype: 'float32' as const, shape: [1], data };
}

test('weights without values are what the file says', async (t) => {
  const graph = language(
    zeros('unused', 4),
    [node('Transpose', ['wte.weight'], ['t'], { perm: [1, 0] }, { name: '/head/Transpose' })],
    't',
  );
  const stripped: ModelProto = {
    ...graph,
    graph: {
      ...graph.graph,
      initializer: [],
      input: [...(graph.graph?.input ?? []), value('wte.weight', [7, 4])],
    },
  };
  const { parameters } = await parametersOf(stripped);
  t.like(parameters[0], { name: 'wte.weight', present: false, trainable: true });
  t.is(parameters[0]?.places.length, 2);
});

test("the exporter's record says which parameter an operator reads: stored once, transposed, or dropped as zeros", async (t) => {
  const names = [
    'norms.0',
    'norms.1',
    'fc.0.weight',
    'fc.0.bias',
    'fc.1.weight',
    'fc.1.bias',
    'up.weight',
    'down.weight',
  ];
  const parameter = { key: 'pkg.torch.export.graph_signature.InputSpec.kind', value: 'PARAMETER' };
  const file = await saved(
    model({
      node: [
        traced('Mul', ['x', 'norms.0'], 'a', 'norms.0'),
        traced('Gemm', ['a', 'fc.0.weight'], 'b', 'fc.0.weight fc.0.bias', { transB: 1 }),
        traced('Mul', ['b', 'norms.0'], 'c', 'norms.1'),
        traced('Gemm', ['c', 'fc.0.weight'], 'd', 'fc.1.weight fc.1.bias', { transB: 1 }),
        traced('MatMul', ['d', 'val_3'], 'e', 'up.weight'),
        traced('MatMul', ['e', 'val_3'], 'y', 'down.weight'),
      ],
      initializer: [
        { ...ramp('norms.0', [4]), metadata_props: [parameter] },
        { ...ramp('fc.0.weight', [4, 4]), metadata_props: [parameter] },
        tensor(
          'val_3',
          [4, 4],
          Array.from({ length: 16 }, (_, index) => Math.sin(index)),
        ),
      ],
      input: [value('x', [2, 4])],
      output: [value('y', [2, 4])],
      metadata_props: [recordOf(names)],
    }),
  );
  const { trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), [...names].sort());
});
