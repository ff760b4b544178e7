/**
 * @file The price of buckets on a named cluster: no cheaper than what cannot be hidden, no dearer than one message after the
 * other, and the parts with what is hidden are what all messages take.
 */
import test from 'ava';
import { importModel } from '../../src/api/import.js';
import { plan } from '../../src/api/plan.js';
import { trainedModel } from '../../src/api/training.js';
import { overlapOf } from '../../src/cost-model/overlap.js';
import { communicatedBytes, priceNode } from '../../src/cost-model/price.js';
import { runsPerStep } from '../../src/ir/graph.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import type { ShardedGraph } from '../../src/partition/sharded-graph.js';

async function planned(microBatches: number, bucket?: number, zero?: 3) {
  const file = 'models/mlp.onnx';
  const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
  const training = {
    loss: { kind: 'mse' as const },
    optimizer: { kind: 'sgd' as const, learningRate: 0.1 },
    ...(microBatches > 1 ? { microBatches } : {}),
  };
  const trained = await trainedModel(await at(64), training, at);
  const degrees = { dp: 4, tp: 1 };
  const asked = { ...(bucket === undefined ? {} : { bucket }), ...(zero === undefined ? {} : { zero }) };
  return plan(trained, { cluster: '4x1:a100-sxm-80', degrees, ...asked });
}

const bytesOf = (graph: ShardedGraph) =>
  graph.nodes.reduce((sum, node) => sum + runsPerStep(node.phase, graph) * communicatedBytes(node, graph), 0);

for (const [microBatches, zero] of [[1], [4], [4, 3]] as const)
  test(`${microBatches} micro-batches${zero ? ', ZeRO 3' : ''}`, async (t) => {
    const plain = await planned(microBatches, undefined, zero);
    const bare = onlyStage(plain.found.lowered);
    t.is(overlapOf(bare, plain.cluster), null);
    t.is(plain.found.prediction.hiddenSeconds, undefined);
    const latencies: number[] = [];
    for (const bucket of [1, 25e6]) {
      const { found, cluster, plan: written } = await planned(microBatches, bucket, zero);
      const graph = onlyStage(found.lowered);
      const { stepSeconds, parts, hiddenSeconds = Number.NaN } = found.prediction;
      const all = graph.nodes.reduce(
        (sum, node) => sum + runsPerStep(node.phase, graph) * priceNode(node, graph, cluster),
        0,
      );
      const sum = Object.values(parts).reduce((whole, seconds) => whole + seconds, 0);
      t.true(Math.abs(sum - stepSeconds) < 1e-9);
      t.true(Math.abs(stepSeconds + hiddenSeconds - all / 1e9) < 1e-9);
      t.true(hiddenSeconds > 0);
      t.true((parts.compute ?? 0) <= stepSeconds);
      t.is(bytesOf(graph), bytesOf(bare), 'buckets send no other bytes');
      t.is(written.schedule.bucketBytes, bucket);
      latencies.push(all);
    }
    const [alone = 0, joined = 0] = latencies;
    t.true(joined < alone, 'one message is cheaper than many');
  });

test('on ranks of this machine a bucket hides nothing', async (t) => {
  const file = 'models/mlp.onnx';
  const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
  const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'sgd' as const, learningRate: 0.1 } };
  const trained = await trainedModel(await at(8), training, at);
  const { found, cluster } = await plan(trained, { devices: 2, degrees: { dp: 2, tp: 1 }, bucket: 1e6 });
  t.is(overlapOf(onlyStage(found.lowered), cluster), null);
  t.is(found.prediction.hiddenSeconds, undefined);
});
