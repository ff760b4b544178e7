/**
 * @file The price of buckets and of halves of micro-batches on a named cluster: no cheaper than what cannot be hidden, no dearer
 * than one message after the other, and the parts with what is hidden are what all messages take.
 */
import test, { type ExecutionContext } from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { trainedModel } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { planAxes } from '../../src/api/reports/mesh-axes.js';
import type { Cluster } from '../../src/cost-model/cluster.js';
import { hiddenBehind } from '../../src/cost-model/data-overlap.js';
import { overlapOf } from '../../src/cost-model/overlap.js';
import { LAUNCHES, OUTSIDE } from '../../src/cost-model/predict.js';
import { communicatedBytes, priceNode } from '../../src/cost-model/price.js';
import { runsPerStep } from '../../src/ir/graph.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { unpipelinedActions } from '../../src/partition/placed-actions.js';
import type { ShardedGraph, ShardedNode } from '../../src/partition/sharded-graph.js';
import { walkStage } from '../../src/partition/stage-walk.js';

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

function allNanoseconds(graph: ShardedGraph, cluster: Cluster): number {
  const joined = hiddenBehind(graph, cluster)?.joined;
  const price = (node: ShardedNode) => joined?.get(node.name) ?? priceNode(node, graph, cluster);
  return graph.nodes.reduce((sum, node) => sum + runsPerStep(node.phase, graph) * price(node), 0);
}

/** Parts sum up to the step, which with what is hidden is all nodes, launches and what is outside the model. */
async function accounted(t: ExecutionContext, { found, cluster }: Awaited<ReturnType<typeof planned>>): Promise<void> {
  const { stepSeconds, parts, hiddenSeconds = Number.NaN } = found.prediction;
  const sum = Object.values(parts).reduce((whole, seconds) => whole + seconds, 0);
  t.true(Math.abs(sum - stepSeconds) < 1e-9);
  const around = (parts[LAUNCHES] ?? 0) + (parts[OUTSIDE] ?? 0);
  const all = allNanoseconds(onlyStage(found.lowered), cluster) / 1e9;
  t.true(
    Math.abs(stepSeconds + hiddenSeconds - all - around) < 1e-9,
    `${stepSeconds} ${hiddenSeconds} ${all} ${around}`,
  );
}

for (const [microBatches, zero] of [[1], [4], [4, 3]] as const)
  test(`${microBatches} micro-batches${zero ? ', ZeRO 3' : ''}`, async (t) => {
    const plain = await planned(microBatches, undefined, zero);
    const bare = onlyStage(plain.found.lowered);
    t.is(overlapOf(bare, plain.cluster), null);
    // Without buckets gradients run behind the backward and parameters behind the forward, as software for training has it.
    await accounted(t, plain);
    const latencies: number[] = [];
    for (const bucket of [1, 25e6]) {
      const own = await planned(microBatches, bucket, zero);
      const { found, cluster, plan: written } = own;
      const graph = onlyStage(found.lowered);
      const { stepSeconds, parts } = found.prediction;
      const all = allNanoseconds(graph, cluster);
      await accounted(t, own);
      // A message that is there with the last gradient has nothing left to run beside.
      t.true((found.prediction.hiddenSeconds ?? 0) > 0 || (bucket > 1 && microBatches > 1));
      t.true((parts.compute ?? 0) <= stepSeconds);
      t.is(bytesOf(graph), bytesOf(bare), 'buckets send no other bytes');
      t.is(written.schedule.bucketBytes, bucket);
      latencies.push(all);
    }
    const [alone = 0, joined = 0] = latencies;
    t.true(joined < alone, 'one message is cheaper than many');
    const assumed = allNanoseconds(bare, plain.cluster);
    const rounded = bare.nodes.length;
    // Under ZeRO 3 gradients of a layer are a message, in buckets those of all layers.
    t.true(joined - rounded <= assumed && assumed < alone, 'software joins, at most as one large bucket does');
    if (!zero) t.true(assumed <= joined + rounded, 'once a step all are one message');
  });

for (const pp of [1, 2])
  test(`halves of micro-batches on ${pp} stages`, async (t) => {
    const file = 'models/mlp.onnx';
    const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
    const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'sgd' as const, learningRate: 0.1 } };
    const trained = await trainedModel(await at(64), { ...training, microBatches: 4 }, at);
    const asked = { cluster: '4x1:v100-sxm2-32', degrees: { pp, dp: 1, tp: 4 / pp } };
    const plain = await plan(trained, asked);
    const halves = await plan(trained, { ...asked, interleave: 2 });
    const { stepSeconds, parts, hiddenSeconds = Number.NaN } = halves.found.prediction;
    t.is(halves.plan.schedule.interleave, 2);
    t.true(hiddenSeconds > 0);
    t.is(halves.found.prediction.bytesCommunicated, plain.found.prediction.bytesCommunicated);
    t.true(Math.abs(Object.values(parts).reduce((sum, seconds) => sum + seconds, 0) - stepSeconds) < 1e-9);
    t.true((parts.compute ?? 0) <= stepSeconds);
    // Strategies and kernels are those of four micro-batches that run alone.
    t.is(parts.compute, plain.found.prediction.parts.compute);
    const within = (step: typeof halves) =>
      step.found.prediction.stepSeconds -
      (step.found.prediction.parts[OUTSIDE] ?? 0) -
      (step.found.prediction.parts[LAUNCHES] ?? 0);
    if (pp === 1) {
      const { hiddenSeconds: behind = 0 } = plain.found.prediction;
      t.true(
        Math.abs(within(halves) + hiddenSeconds - within(plain) - behind) < 2e-9,
        `${within(halves)} ${within(plain)}`,
      );
    }
    if (pp === 1) {
      const axes = planAxes(onlyStage(halves.found.lowered), halves.cluster);
      const hidden = axes.reduce((sum, axis) => sum + axis.hiddenSeconds, 0);
      t.true(Math.abs(hidden - hiddenSeconds) < 1e-9, 'by axis');
    }
    const [own = 0] = halves.plan.predicted.peakBytes;
    const [one = 0] = plain.plan.predicted.peakBytes;
    t.true(own > one && own < 2 * one, `${own} of ${one}`);
  });

test('each half waits only for what is not behind the other', async (t) => {
  const file = 'models/mlp.onnx';
  const at = (globalBatch: number | undefined) => importModel(file, globalBatch === undefined ? {} : { globalBatch });
  const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'sgd' as const, learningRate: 0.1 } };
  const trained = await trainedModel(await at(64), { ...training, microBatches: 2 }, at);
  const { found, cluster } = await plan(trained, {
    cluster: '2x1:v100-sxm2-32',
    degrees: { dp: 1, tp: 2 },
    interleave: 2,
  });
  const graph = onlyStage(found.lowered);
  const [list] = walkStage(graph, unpipelinedActions(graph)).lists;
  t.is(list?.name, 'micro');
  // A line of each group by hand: when it is free, and when each collective ends.
  const price = (node: ShardedNode) => priceNode(node, graph, cluster);
  let [now, waited] = [0, 0];
  const free = new Map<string, number>();
  const ends = new Map<number, number>();
  for (const { instruction } of list?.instructions ?? []) {
    if (instruction.kind === 'segment') now += instruction.nodes.reduce((sum, node) => sum + price(node), 0);
    if (instruction.kind === 'accumulate') now += price(instruction.node);
    if (instruction.kind === 'start') {
      const line = instruction.node.axes.join();
      free.set(line, Math.max(now, free.get(line) ?? 0) + price(instruction.node));
      ends.set(instruction.id, free.get(line) as number);
    }
    if (instruction.kind !== 'wait') continue;
    const left = Math.max(0, (ends.get(instruction.id) as number) - now);
    waited += left;
    now += left;
  }
  const overlap = overlapOf(graph, cluster);
  t.is(overlap?.lists.get('micro'), now);
  const exposed = graph.nodes.flatMap((node) =>
    node.kind === 'communicate' && node.phase !== 'update' ? [overlap?.exposed.get(node.name) ?? Number.NaN] : [],
  );
  t.is(
    exposed.reduce((sum, each) => sum + each, 0),
    waited,
  );
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
