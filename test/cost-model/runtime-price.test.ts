/**
 * @file Costs of the bundled runtime around operators, counted by hand.
 */
import test from 'ava';
import { generatedFile } from '../../src/api/models/generated.js';
import { importModel } from '../../src/api/models/import.js';
import { trainedModel } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { CPU_RANK, profileOf } from '../../src/cost-model/device.js';
import { runtimeSeconds } from '../../src/cost-model/runtime-price.js';
import { partition } from '../../src/partition/partition.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { megatron, mlp } from '../partition/mlp.js';

test('two segments and a collective: one call besides, and two results copied', (t) => {
  const assignment = megatron();
  const graph = partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
  const { segments, copies } = runtimeSeconds(graph, CPU_RANK);
  t.is(segments, 10e-6);
  // Shards of [4, 16] in float32, read and written at 10 GB/s.
  const copy = (2 * 4 * 4 * 16) / 1e10;
  t.true(Math.abs(copies - 2 * copy) < 1e-15);
  // State is swapped, which copies nothing.
  const state = [{ from: 'a', to: 'x' }];
  t.is(runtimeSeconds({ ...graph, state }, CPU_RANK).copies, copies);
});

test('measured: results at their own rate, and a price for each tensor besides one in and one out', (t) => {
  const assignment = megatron();
  const lowered = partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
  const graph = { ...lowered, outputs: [...lowered.outputs, { tensor: 'h', output: 'h' }] };
  const profile = { ...profileOf(CPU_RANK), resultBandwidth: 1e9, tensorSeconds: 1e-6 };
  const { segments, copies } = runtimeSeconds(graph, { ...CPU_RANK, profile });
  t.true(Math.abs(segments - 11e-6) < 1e-15, `${segments}`);
  t.true(Math.abs(copies - (3 * 4 * 4 * 16) / 1e9) < 1e-15, `${copies}`);
});

test('the work around operators of a pipeline is all in its step', async (t) => {
  const file = await generatedFile('mlp:layers=4,hidden=2048,batch=4');
  const at = (globalBatch = 4) => importModel(file, { globalBatch });
  const optimizer = { kind: 'sgd', learningRate: 0.1 } as const;
  const training = { loss: { kind: 'mse' }, optimizer, microBatches: 2 } as const;
  const trained = await trainedModel(await at(), training, (batch) => at(batch ?? undefined));
  const asked = {
    devices: 2,
    degrees: { dp: 1, tp: 1, pp: 2 },
    schedule: 'interleaved-1f1b',
    virtualStages: 2,
  } as const;
  const { stepSeconds, parts } = (await plan(trained, asked)).found.prediction;
  const sum = Object.values(parts).reduce((whole, seconds) => whole + seconds, 0);
  t.true(Math.abs(sum - stepSeconds) < 1e-9, `parts of ${sum} in a step of ${stepSeconds}`);
});
