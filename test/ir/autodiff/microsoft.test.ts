/**
 * @file Gradients of ONNX Runtime's own operators beside attention and normalisation, and of caches: against finite differences.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';
import { operatorEntries } from '../../../src/ir/ops/index.js';
import { selection } from '../../selection.js';
import { f, ms, of, positive } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';
import { differentiatedOf } from './sample-gradient.js';
import { bytes, microsoftSamples } from './samples/microsoft.js';

for (const [number, [sample, options]] of selection(microsoftSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const error = await checkGradient(sample, options);
    t.log(error.toExponential(1));
    t.true(error <= 1e-2);
  });
}

test('scales of quantised weights, and columns in another order, have no gradient, and it says so', (t) => {
  const gradient = gradientOperators(needEntry('MatMulNBits', 'com.microsoft'));
  const attributes = { K: 32, N: 8, bits: 4, block_size: 16 };
  const scales = ms('MatMulNBits', [f(4, 32), bytes(8, 2, 8), positive(8, 2)], attributes);
  const ordered = ms('MatMulNBits', [f(4, 32), bytes(8, 2, 8), positive(8, 2), null, of('int32', 2, 32)], attributes);
  if (!gradient) return t.fail();
  t.throws(() => gradient(differentiatedOf(scales, {})), { message: /scales and zero points .* are not trained/ });
  t.throws(() => gradient(differentiatedOf(ordered, { wanted: [true] })), { message: /another order/ });
});

test('every operator has a gradient, a reason why none passes, or one why it is refused', (t) => {
  const silent = operatorEntries.filter(({ gradient }) => gradient === undefined);
  t.deepEqual(
    silent.map(({ op }) => op),
    [],
  );
});

test('training through an operator without a gradient is refused with the reason', (t) => {
  const build = new GraphBuilder('rows', 1);
  const rows = build.operator('Identity', [build.parameter('data', [2, 4])]);
  build.output('loss', build.operator('ReduceSum', [rows], { axes: [0, 1], keepdims: 0 }));
  const graph = build.build();
  const scaled = { op: 'Normalizer', domain: 'ai.onnx.ml' };
  const nodes = graph.nodes.map((node) => (node.op === 'Identity' ? { ...node, ...scaled } : node));
  t.throws(() => differentiate({ ...graph, nodes }, 'loss', ['data']), {
    message: /Normalizer\) has no gradient \(it is made for tables before training/,
  });
});
