/**
 * @file Bytes that no plan does without: counted by hand for a small network, no more than what searched plans need, and refused
 * before a search where they exceed the memory.
 */
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel } from '../../src/api/models/training.js';
import { importedFor } from '../../src/api/models/training-form.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { Graph } from '../../src/ir/graph.js';
import { leastBytes } from '../../src/search/least-bytes.js';
import { NothingFits } from '../../src/search/nothing-fits.js';
import { plan } from '../../src/search/plan.js';
import type { PlanRequest } from '../../src/strategy/request.js';
import { thinned } from '../selection.js';

async function stepOf(file: string, training: Partial<Training>): Promise<Graph> {
  const whole: Training = {
    ...{ loss: { kind: 'model-output' }, optimizer: { kind: 'adamw', learningRate: 0.001 }, microBatches: 1 },
    ...training,
  };
  const read = await importModel(file, importedFor(whole));
  const at = (globalBatch: number) => importModel(file, { ...importedFor(whole), globalBatch });
  return (await trainedModel(read, whole, at)).graph;
}

test('an MLP holds weights, two moments, its input, results of ReLUs and, for its loss, the differences', async (t) => {
  const inference = (await importModel('models/mlp.onnx')).graph;
  const parameters = [...inference.weights.keys()].reduce((sum, name) => sum + bytesOf(inference, name), 0);
  t.is(leastBytes(inference), parameters);
  const graph = await stepOf('models/mlp.onnx', { loss: { kind: 'mse' } });
  const activations = 4 * 8 * (32 + 64 + 64 + 16);
  const least = leastBytes(graph) - 3 * parameters - activations;
  // The number of the step, and constants.
  t.true(least >= 0 && least < 100, `${least} bytes besides`);
});

function bytesOf({ tensors }: Graph, name: string): number {
  return 4 * (tensors.get(name)?.shape ?? []).reduce((product, size) => product * size, 1);
}

const CROSS_ENTROPY = { loss: { kind: 'cross_entropy' } } as const;
const STEPS: readonly (readonly [string, Partial<Training>, PlanRequest])[] = [
  ['mlp', { loss: { kind: 'mse' } }, {}],
  ['cnn-tiny', CROSS_ENTROPY, { zero: 1 }],
  ['gpt-tiny', { ...CROSS_ENTROPY, precision: 'bf16', microBatches: 2 }, { zero: 3 }],
];

for (const [name, training, request] of thinned(STEPS, 2)) {
  test(`no plan needs less: ${name} ${JSON.stringify({ ...training, ...request })}`, async (t) => {
    const graph = await stepOf(`models/${name}.onnx`, training);
    const least = leastBytes(graph) / 4;
    const cluster = parseCluster('1x4:h100-sxm-80', undefined);
    for (const degrees of [
      { dp: 2, tp: 2 },
      { dp: 1, tp: 4 },
    ]) {
      const { prediction } = await plan(graph, cluster, { degrees, request });
      t.true(
        prediction.peakBytes.every((bytes) => bytes >= least),
        `${prediction.peakBytes} below ${least}`,
      );
    }
    const refused = await t.throwsAsync(plan(graph, cluster, { memory: 'checked', memoryBytes: least - 1 }), {
      instanceOf: NothingFits,
      message: /^each of 4 devices needs at least .*, however the model is sharded$/,
    });
    t.true(refused?.figures.isBound);
    t.is(refused?.figures.leastBytes, least);
  });
}
