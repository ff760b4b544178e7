/**
 * @file Predicted memory of ranks of this machine is what the runtime counts; and what fills it is named.
 */
import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { withTraining } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { peakMemory } from '../../src/api/reports/peak-memory.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { tensorKinds } from '../../src/partition/tensor-kinds.js';
import { EVERYTHING } from '../selection.js';
import { CHOICES, predictedAndCounted } from './rank-memory.js';

for (const name of ['mlp', 'gpt-tiny']) {
  test(`the runtime counts the bytes that the plan says: ${name}`, async (t) => {
    for (const choice of CHOICES.filter((_, index) => EVERYTHING || index % (name === 'mlp' ? 2 : 4) === 0)) {
      const { predicted, counted } = await predictedAndCounted({ model: join('models', `${name}.onnx`), ...choice });
      t.is(counted, predicted, JSON.stringify(choice));
    }
  });
}

test('what is held at the peak has a name and a kind, and adds up', async (t) => {
  const imported = await importModel(join('models', 'mlp.onnx'), {});
  const trained = withTraining(imported, {
    loss: { kind: 'mse' },
    optimizer: { kind: 'adamw', learningRate: 1e-3 },
  });
  for (const cluster of ['1x2:h100-sxm-80', undefined]) {
    const {
      found: { lowered },
      cluster: on,
      plan: made,
    } = await plan(trained, {
      ...(cluster ? { cluster } : {}),
      devices: 2,
      degrees: { dp: 2, tp: 1 },
    });
    const [stage] = peakMemory({ lowered, schedule: null }, on);
    const [short] = peakMemory({ lowered, schedule: null }, on, 3);
    if (!stage || !short) throw new Error('no stage');
    t.is(stage.peakBytes, made.predicted.peakBytes[0] ?? Number.NaN);
    const sum = (list: readonly { readonly bytes: number }[]) => list.reduce((total, { bytes }) => total + bytes, 0);
    t.is(sum(stage.held), stage.peakBytes);
    t.is(sum(short.held) + short.others.bytes, stage.peakBytes);
    t.is(short.held.length + short.others.count, stage.held.length);
    t.is(sum(Object.values(stage.kinds).map((bytes) => ({ bytes }))), stage.peakBytes);
    t.deepEqual(short.held, stage.held.slice(0, 3));
    for (const [index, { bytes }] of stage.held.entries()) t.true(bytes <= (stage.held[index - 1]?.bytes ?? bytes));
    if (!on.local) continue;
    const kinds = new Map(stage.held.map(({ tensor, kind }) => [tensor, kind]));
    t.is(kinds.get('fc0.weight'), 'weight');
    t.is(kinds.get('fc0.weight/mean'), 'optimizer state');
  }
});

test('gradients, activations and temporaries are told apart', async (t) => {
  const imported = await importModel(join('models', 'mlp.onnx'), {});
  const trained = withTraining(imported, { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1e-3 } });
  const { found } = await plan(trained, { devices: 1, degrees: { dp: 1, tp: 1 } });
  const sharded = onlyStage(found.lowered);
  const kinds = tensorKinds(sharded);
  // Tensors that the gradients of matmuls and of Relu read are stored activations; the sum before the bias is not.
  t.is(kinds.get('/fc0/Relu_output'), 'activation');
  t.is(kinds.get('/fc1/MatMul_output'), 'temporary');
  t.is(kinds.get('/fc2/MatMul/gradient/d1'), 'gradient');
  t.is(kinds.get('/fc2/MatMul/gradient/d0'), 'temporary');
  t.is(kinds.get('x'), 'input');
  t.is(kinds.get('loss'), 'output');
});
