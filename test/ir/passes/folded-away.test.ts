/**
 * @file Import's notes on things that an exporter folded away: those that the file shows, and none where it shows nothing.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import type { ModelProto, NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';

/** An image through a convolution with these names of kernel and bias, and a classifier with a module's name. */
function net(
  kernel: string,
  bias: string,
  more: {
    readonly record?: string;
    readonly before?: readonly NodeProto[];
    readonly weights?: readonly TensorProto[];
  } = {},
): ModelProto {
  const { record, before = [], weights = [] } = more;
  const entry = { key: 'pkg.torch.export.ExportedProgram.graph_signature', value: record ?? '' };
  return model({
    node: [
      ...before,
      node(
        'Conv',
        [before.length > 0 ? 'kept' : 'x', kernel, bias],
        ['c'],
        { kernel_shape: [1, 1] },
        { name: '/conv/Conv' },
      ),
      node('GlobalAveragePool', ['c'], ['p']),
      node('Flatten', ['p'], ['f']),
      node('MatMul', ['f', 'fc.weight'], ['y'], {}, { name: '/fc/MatMul' }),
    ],
    initializer: [ramp(kernel, [4, 3, 1, 1]), ramp(bias, [4]), ramp('fc.weight', [4, 2]), ...weights],
    input: [value('x', [2, 3, 4, 4])],
    output: [value('y', [2, 2])],
    ...(record === undefined ? {} : { metadata_props: [entry] }),
  });
}

async function said(graph: ModelProto): Promise<string | null> {
  return (await importModel(await saved(graph))).folded;
}

const RECORD = [
  '',
  '# inputs',
  "p_conv_weight: PARAMETER target='conv.weight'",
  "p_bn_weight: PARAMETER target='bn.weight'",
  "b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True",
  "b_bn_running_var: BUFFER target='bn.running_var' persistent=True",
  'x: USER_INPUT',
].join('\n');

test("running statistics in the exporter's record that the file does not have", async (t) => {
  t.is(
    await said(net('conv.weight', 'conv.bias', { record: RECORD })),
    'the file lacks the running statistics of one module that was exported (bn): BatchNormalization was folded ' +
      'into other weights or removed; training starts from the values of the file ' +
      '(torch.onnx.export(…, optimize=False) keeps the parameters)',
  );
  const weights = [ramp('bn.running_mean', [4]), ramp('bn.running_var', [4])];
  t.is(await said(net('conv.weight', 'conv.bias', { record: RECORD, weights })), null);
});

test("kernels and biases that have the exporter's own names, beside those of modules", async (t) => {
  t.is(
    await said(net('onnx::Conv_17', 'onnx::Conv_18')),
    'kernel and bias of one convolution were computed by the exporter (onnx::Conv_17), for example by folding ' +
      'BatchNormalization; training starts from the values of the file',
  );
  t.is(await said(net('conv.weight', 'onnx::Conv_18')), null);
  t.is(await said(net('conv.weight', 'conv.bias')), null);
});

test('Identity operators that are called dropout', async (t) => {
  const identity = (name: string) => [node('Identity', ['x'], ['kept'], {}, { name })];
  t.is(
    await said(net('conv.weight', 'conv.bias', { before: identity('model/dropout_1/Identity') })),
    'one Identity called dropout (model/dropout_1/Identity) has no ratio; training starts from the values of the file',
  );
  t.is(await said(net('conv.weight', 'conv.bias', { before: identity('model/dropouts/Identity') })), null);
});

const KIND = 'pkg.torch.export.graph_signature.InputSpec.kind';

/** The file whose values the exporter computed from these, each added to the data or multiplied with it. */
async function computedFrom(
  values: readonly TensorProto[],
  from: Readonly<Record<string, string>>,
  parameters: string,
) {
  const record = parameters.split(' ').map((name) => `p_${name}: PARAMETER target='${name}'`);
  return importModel(
    await saved(
      model({
        node: values.map(({ name = '' }, index) =>
          node(index === 0 ? 'Mul' : 'Add', [index === 0 ? 'x' : `y${index - 1}`, name], [`y${index}`]),
        ),
        initializer: values,
        input: [{ ...value('x', [2, 6, 8]), metadata_props: [{ key: KIND, value: 'USER_INPUT' }] }],
        output: [value(`y${values.length - 1}`, [2, 6, 8])],
        value_info: Object.entries(from).map(([name, list]) => ({
          ...value(name, []),
          metadata_props: [{ key: 'pkg.onnxscript.optimizer.folded_from', value: list }],
        })),
        metadata_props: [
          {
            key: 'pkg.torch.export.ExportedProgram.graph_signature',
            value: ['', ...record, 'x: USER_INPUT'].join('\n'),
          },
        ],
      }),
    ),
    importedFor({}),
  );
}

test('a parameter that the file has only as a value computed from it, which is trained in its place', async (t) => {
  const values = [tensor('exp', [], [2.7]), tensor('expand', [2, 1, 1], [0.3, 0.3])];
  const from = { exp: "['logit_scale']", expand: "['token', 'val_1']" };
  const imported = await computedFrom(values, from, 'logit_scale token');
  t.is(
    imported.folded,
    'the file has only values computed from one parameter of the module (logit_scale); training starts from the values of ' +
      'the file (torch.onnx.export(…, optimize=False) keeps the parameters)',
  );
  t.true(trainingForm(imported, {}).trained.includes('exp'));
});

test('a value computed from a parameter is trained where it looks like a table of sines, each row once', async (t) => {
  const angles = Array.from({ length: 48 }, (_, index) => Math.floor(index / 8) * 100 ** (-(index % 4) / 4));
  const table = angles.map((angle, index) => (index % 8 < 4 ? Math.sin(angle) : Math.cos(angle)));
  const values = [tensor('scale', [], [2]), tensor('add_31', [2, 6, 8], [...table, ...table])];
  const made = await computedFrom(values, { add_31: "['add_30', 'queries']" }, 'queries');
  const { graph, trained } = trainingForm(made, {});
  t.deepEqual(
    trained.map((name) => graph.tensors.get(name)?.shape),
    [[6, 8]],
  );
  const plain = await computedFrom(values, {}, 'queries');
  t.deepEqual(trainingForm(plain, {}).trained, []);
});
