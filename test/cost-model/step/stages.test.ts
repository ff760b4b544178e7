/**
 * @file Stages of a pipeline that a caller cuts, and that lie on nodes of several kinds: what each costs is the sum of its
 * parts, on its own devices.
 */
import test from 'ava';
import { modelWork } from '../../../src/api/layer-classes.js';
import { type Cluster, parseCluster } from '../../../src/cost-model/cluster.js';
import { slowed, slowestOf } from '../../../src/cost-model/node-kinds.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceParts } from '../../../src/cost-model/step/part-price.js';
import { inFlightOn, stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep, priceStepExactly } from '../../../src/cost-model/step/step-price.js';
import { gptSizes } from './sizes.js';
import { trained } from './trained.js';

const cluster = parseCluster('4x8:a100-sxm-80', undefined);
const work = modelWork(gptSizes({ layers: 8, hidden: 1024, heads: 16, sequence: 512 }), 1, cluster);
const piped: StepConfiguration = { ...trained({ pp: 4, dp: 8 }), globalBatch: 64, zero: 1 };
const price = (configuration: StepConfiguration, on: Cluster = cluster) =>
  priceStep(work, configuration, on, STEP_CONSTANTS);

test('a cut into equal stages is the even cut, with one chunk a stage and with several', (t) => {
  for (const configuration of [piped, { ...piped, virtualStages: 2 }]) {
    const chunks = 4 * configuration.virtualStages;
    const cut = Array.from({ length: chunks }, () => 8 / chunks);
    t.deepEqual(price({ ...configuration, stageLayers: cut }), price(configuration));
    t.deepEqual(stageMemory(work, { ...configuration, stageLayers: cut }), stageMemory(work, configuration));
  }
});

test("a stage's seconds and bytes are those of its parts", (t) => {
  const configuration = {
    ...piped,
    recompute: 'full' as const,
    stageLayers: [1, 3, 3, 1],
    recomputedLayers: [1, 2, 0, 0],
  };
  const { first, layers, last } = priceParts(work, configuration, cluster, STEP_CONSTANTS);
  const { kept, recomputed } = layers[0] ?? { kept: first, recomputed: first };
  const close = (value: number | undefined, expected: number) =>
    t.true(Math.abs((value ?? 0) / expected - 1) < 1e-9, `${value} ${expected}`);
  const { stageSeconds } = price(configuration);
  close(stageSeconds[0]?.forward, first.forwardSeconds + kept.forwardSeconds);
  close(stageSeconds[0]?.backward, first.backwardSeconds + recomputed.backwardSeconds);
  close(stageSeconds[1]?.backward, 2 * recomputed.backwardSeconds + kept.backwardSeconds);
  close(stageSeconds[3]?.backward, last.backwardSeconds + kept.backwardSeconds);
  t.true(Math.abs(recomputed.backwardSeconds - kept.backwardSeconds - kept.forwardSeconds) < 1e-9);
  const memory = stageMemory(work, configuration);
  close(memory[1]?.activations, inFlightOn(1, configuration) * (2 * recomputed.bytes.saved + kept.bytes.saved));
  close(memory[3]?.parameters, last.bytes.parameters + kept.bytes.parameters);
  t.true(recomputed.bytes.saved < 0.1 * kept.bytes.saved);
});

test('layers of several classes lie where the model has them', (t) => {
  const [layer] = work.layers;
  if (!layer) return t.fail();
  const heavy = { ...layer.part, parameters: 3 * layer.part.parameters };
  const mixed = {
    ...work,
    layers: [
      { count: 4, part: layer.part },
      { count: 4, part: heavy },
    ],
  };
  const parameters = (order?: readonly number[]) =>
    stageMemory(order ? { ...mixed, order } : mixed, { ...piped, stageLayers: [2, 2, 2, 2] }).map(
      (stage) => Math.round((stage.parameters / 2 / layer.part.parameters) * 10) / 10,
    );
  const edge = Math.round((work.first.parameters / layer.part.parameters) * 10) / 10;
  t.deepEqual(parameters().slice(1, 3), [2, 6]);
  t.deepEqual(parameters([0, 1, 0, 1, 0, 1, 0, 1]).slice(1, 3), [4, 4]);
  t.true(Math.abs((parameters()[0] ?? 0) - 2 - edge) < 0.11);
});

test('a cut that is not of the model is refused', (t) => {
  for (const stageLayers of [
    [4, 4],
    [2, 2, 2, 3],
  ])
    t.throws(() => price({ ...piped, stageLayers }), { message: /are not 4 stages of a model of 8 layers/ });
});

test('a stage on a slower node takes as long as that node does, and fewer layers there make the step faster', (t) => {
  const half = slowed(cluster.device, 0.5);
  const mixed: Cluster = {
    ...cluster,
    device: slowestOf([cluster.device, half]),
    kinds: [
      { nodes: 3, device: cluster.device },
      { nodes: 1, device: half },
    ],
  };
  const even = price(piped, mixed);
  const alike = price(piped);
  t.deepEqual(even.stageSeconds.slice(0, 3), alike.stageSeconds.slice(0, 3));
  t.true((even.stageSeconds[3]?.forward ?? 0) > 1.3 * (alike.stageSeconds[3]?.forward ?? 0));
  t.true(even.stepSeconds > alike.stepSeconds);
  const moved = price({ ...piped, stageLayers: [2, 3, 2, 1] }, mixed);
  t.true(moved.stepSeconds < even.stepSeconds, `${moved.stepSeconds} ${even.stepSeconds}`);
});

test('a step in closed form is the simulated one within 5 %, for every schedule and for uneven stages', (t) => {
  for (const changes of [
    {},
    { virtualStages: 2 },
    { schedule: 'f-then-b' },
    { schedule: 'naive' },
    { schedule: 'zero-bubble' },
    { stageLayers: [1, 3, 2, 2] },
    { overlap: { ...piped.overlap, pipeline: true }, virtualStages: 2 },
  ] satisfies Partial<StepConfiguration>[]) {
    const configuration = { ...piped, ...changes };
    const exact = priceStepExactly(work, configuration, cluster, STEP_CONSTANTS);
    const ratio = price(configuration).stepSeconds / exact.stepSeconds;
    t.true(Math.abs(ratio - 1) < 0.05, `${JSON.stringify(changes)} ${ratio}`);
    const sum = Object.values(exact.parts).reduce((all, part) => all + part, 0);
    t.true(Math.abs(sum / exact.stepSeconds - 1) < 1e-9);
  }
});
