/**
 * @file Import's notes on things that an exporter folded away: those that the file shows, and none where it shows nothing.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { ModelProto, NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, value } from '../model-maker.js';

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
      'into other weights or removed; training starts from the values of the file',
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
