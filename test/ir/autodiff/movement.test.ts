/**
 * @file Gradients of the operators that move elements: each against finite differences.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile, type Training } from '../../../src/api/index.js';
import { selection } from '../../selection.js';
import { savedModel } from '../fused-regions/written.js';
import { c, f } from '../ops/sample.js';
import { checkGradient } from './check-gradient.js';
import { movementSamples } from './samples/movement.js';

for (const [number, [sample]] of selection(movementSamples, ([{ op }]) => op)) {
  test(`${number} ${sample.op} ${sample.inputs.map((input) => `[${input?.shape}]`)}`, async (t) => {
    const error = await checkGradient(sample);
    t.log(`worst ${error.toExponential(1)}`);
    t.true(error < 2e-2);
  });
}

test('a Split whose parts do not all have a gradient', async (t) => {
  const equal = c('Split', [f(4, 12)], { split: [4, 4, 4], axis: 1 }, 3);
  const unequal = c('Split', [f(4, 12)], { split: [2, 7, 3], axis: 1 }, 3);
  for (const sample of [equal, unequal])
    for (const given of [
      [true, false, false],
      [true, false, true],
    ]) {
      t.true((await checkGradient(sample, { given })) < 1e-5);
    }
});

test('a Concat of which one operand is wanted', async (t) => {
  const sample = c('Concat', [f(4, 2), f(4, 6)], { axis: 1 });
  t.true((await checkGradient(sample, { wanted: [false, true] })) < 1e-5);
});

test('a part of a dimension between two Transposes, which ONNX Runtime moves over its gradient', async (t) => {
  const model = await savedModel({
    inputs: { x: [2, 6, 16] },
    weights: { 'layer.weight': [16, 32] },
    lines: `
      h = MatMul(x, layer.weight)
      r = Reshape(h, [2, 6, 4, 8])
      heads = Transpose(r) {"perm": [0, 2, 1, 3]}
      part = Slice(heads, [0], [3], [3])
      back = Transpose(part) {"perm": [0, 2, 1, 3]}
      y = Tanh(back)`,
  });
  const training: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } };
  const directory = join(mkdtempSync(join(tmpdir(), 'autopar-part-')), 'out');
  const { verification } = await compile({
    model,
    training,
    devices: 1,
    degrees: { dp: 1, tp: 1 },
    output: directory,
    verify: true,
  });
  t.true(verification?.passed);
});
