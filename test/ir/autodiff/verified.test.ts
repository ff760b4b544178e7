/**
 * @file Every gradient of the registry is verified.
 */
import test from 'ava';
import { isDifferentiable } from '../../../src/ir/operator.js';
import { operatorEntries } from '../../../src/ir/ops/index.js';
import { NOT_IN_TORCH, verificationOf } from './gradient-samples.js';

const nameOf = ({ op, domain }: { readonly op: string; readonly domain: string }) =>
  domain === '' ? op : `${domain}.${op}`;

const differentiable = operatorEntries.filter(isDifferentiable);

test('every gradient is compared with differences on several shapes, and with PyTorch', (t) => {
  t.true(differentiable.length > 100);
  const lacking = differentiable.flatMap((entry) => {
    const verification = verificationOf(entry);
    const { samples, shapes, torch } = verification;
    const enough = samples >= 2 && shapes >= 2 && (torch || NOT_IN_TORCH.has(nameOf(entry)));
    return enough ? [] : [{ operator: nameOf(entry), ...verification }];
  });
  t.deepEqual(lacking, [], 'samples lie in test/ir/autodiff/samples/');
});

test('operators with attributes that shape their gradient are sampled with several', (t) => {
  const constant = differentiable.filter((entry) => verificationOf(entry).attributes < 2).map(nameOf);
  // Functions of their operands alone, or attributes that only give a size.
  t.deepEqual(
    constant.filter((name) => WITH_ATTRIBUTES.has(name)),
    [],
  );
});

const WITH_ATTRIBUTES: ReadonlySet<string> = new Set([
  ...['Conv', 'ConvTranspose', 'MaxPool', 'AveragePool', 'LpPool', 'Resize', 'Gemm', 'Einsum', 'Attention'],
  ...['LSTM', 'GRU', 'RNN', 'Softmax', 'LogSoftmax', 'LayerNormalization', 'BatchNormalization', 'Gather', 'Pad'],
  ...['ScatterElements', 'ScatterND', 'Slice', 'Split', 'Concat', 'Transpose', 'Expand', 'Reshape', 'TopK', 'CumSum'],
  ...['ReduceSum', 'ReduceMean', 'ReduceMax', 'ReduceMin', 'ReduceProd', 'ReduceL2', 'ReduceLogSumExp', 'Gelu'],
  ...['SoftmaxCrossEntropyLoss', 'NegativeLogLikelihoodLoss', 'GroupNormalization', 'LRN', 'RotaryEmbedding'],
]);
