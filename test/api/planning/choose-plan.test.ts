/**
 * @file compile plans everything that programs know: where dp and tp alone do not fit it finds what does, and nothing that it
 * chooses is slower, as lowered, than dp and tp alone.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { languageModel } from '../../../models/language-model.js';
import { mlp } from '../../../models/mlp.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { type CompileResult, compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, trainedModel } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import { plan } from '../../../src/api/plan.js';
import { proposalOptions } from '../../../src/api/planning/proposals.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';
import { gptSizes } from '../../cost-model/step/sizes.js';
import { EVERYTHING, slowTests } from '../../selection.js';

const slow = slowTests(test);

const TRAINING: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } };

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function saved(t: ExecutionContext, graph: Graph): Pick<NestedCompileOptions, 'model' | 'output'> {
  const folder = folderOf(t);
  const model = join(folder, 'model.onnx');
  writeFileSync(model, writeOnnx(graph));
  return { model, output: join(folder, 'out') };
}

/** dp and tp alone, as they are planned where nothing is proposed. */
async function alone(options: NestedCompileOptions): Promise<CompileResult> {
  return compile({ ...options, axes: 'roles' });
}

const SIZES = { hidden: 16, heads: 2, sequence: 8, vocabulary: 32 };

function gpt(layers: number, batch: number): Graph {
  return languageModel('gpt', gptSizes({ ...SIZES, layers, batch }), 1);
}

const GPT = gpt(2, 8);

for (const [memory, refused] of [
  [120_000, /needs .* as lowered/],
  [100_000, /needs at least .* however sharded/],
] as const)
  slow(
    `in ${memory} bytes, where dp and tp alone do not fit, compile finds what does, and the program is right`,
    async (t) => {
      const options: NestedCompileOptions = {
        ...saved(t, GPT),
        training: TRAINING,
        cluster: '1x2:a100-sxm-80',
        force: true,
        memory,
      };
      const error = await t.throwsAsync(alone(options), { instanceOf: AutoparError, code: 'nothing-fits' });
      t.regex(error?.message ?? '', /needs/);
      const { plan: found, compared, verification } = await compile({ ...options, verify: true });
      t.true(Math.max(...found.predicted.peakBytes) <= memory);
      t.true(verification?.passed);
      t.true(Object.keys(found.operators).length > 0);
      t.truthy(found.requested?.zero ?? found.requested?.recompute ?? found.requested?.offload);
      t.is(compared?.[0]?.reason, null);
      const reasons = compared?.filter(({ proposed }) => proposed === null).map(({ reason }) => reason ?? '');
      t.true(reasons?.some((reason) => refused.test(reason)));
    },
  );

slow(
  'ranks of this machine are planned in micro-batches where their limit binds, without what an accelerator keeps',
  async (t) => {
    const options: NestedCompileOptions = {
      ...saved(t, gpt(2, 16)),
      devices: 2,
      degrees: { dp: 2, tp: 1 },
      training: TRAINING,
      planOnly: true,
    };
    const free = await compile(options);
    const memory = Math.floor((free.plan.predicted.peakBytes[0] ?? 0) * 0.6);
    const { plan: found, compared } = await compile({ ...options, output: join(folderOf(t), 'out'), memory });
    t.true(Math.max(...found.predicted.peakBytes) <= memory);
    t.true(found.schedule.microBatches > 1);
    t.true(compared?.some(({ proposed }) => proposed === null));
  },
);

slow('ranks of this machine are planned over all axes, and the program is right', async (t) => {
  const options = { ...saved(t, GPT), training: TRAINING, devices: 2, force: true };
  const { plan: plain } = await alone(options);
  const { plan: found, compared, verification } = await compile({ ...options, verify: true });
  t.true(found.predicted.stepSeconds < plain.predicted.stepSeconds);
  t.is(found.degrees.pp, 2);
  t.true(compared?.some(({ degrees, proposed, reason }) => degrees.pp === 1 && proposed === null && reason !== null));
  t.true(verification?.passed);
});

slow(
  'stages are proposed where a batch can be cut into micro-batches, and not where statistics are taken of all of it',
  async (t) => {
    const sizes = { channels: 3, size: 8, widths: [8, 8], classes: 4, dropout: 0 };
    const options = {
      ...saved(t, normalisedCnn('cnn', { ...sizes, batch: 8 }, 1)),
      cluster: '1x2:a100-sxm-80',
      force: true,
    };
    const planned = async (training: Training) => {
      const { compared, plan: found } = await compile({ ...options, training, planOnly: true });
      return { found, stages: compared?.filter(({ degrees }) => degrees.pp > 1) ?? [] };
    };
    const whole = await planned(TRAINING);
    t.deepEqual(whole.stages, []);
    t.is(whole.found.degrees.dp * whole.found.degrees.tp, 2);
    const frozen = await planned({ ...TRAINING, freezeBatchStatistics: true });
    t.not(frozen.stages.length, 0);
    // Stages that are asked for are planned all the same.
    const { plan: asked } = await compile({ ...options, training: TRAINING, degrees: { pp: 2 }, planOnly: true });
    t.is(asked.degrees.pp, 2);
  },
);

test('a number of stages that is given is kept, whatever else is proposed', async (t) => {
  const { plan: found } = await compile({
    ...saved(t, GPT),
    training: TRAINING,
    cluster: '1x2:a100-sxm-80',
    degrees: { pp: 2 },
    memory: 120_000,
  });
  t.is(found.degrees.pp, 2);
  t.true(Math.max(...found.predicted.peakBytes) <= 120_000);
});

test('more stages than layers are planned as given, and the note of what was not proposed names them', async (t) => {
  const options = { ...saved(t, GPT), training: TRAINING, devices: 4, degrees: { pp: 4 }, planOnly: true };
  const { plan: found, notes } = await compile(options);
  t.is(found.degrees.pp, 4);
  const [note = ''] = notes.filter((line) => line.includes('could be proposed'));
  t.regex(note, /^pp 4 was planned as given, .* pp 4 needs 4 layers, and the model has 2$/);
});

test('devices that repeat the work of others are named, with the number that is as fast', async (t) => {
  const noted = async (devices: number, degrees?: NestedCompileOptions['degrees']) => {
    const { notes, plan: found } = await compile({
      ...saved(t, GPT),
      ...{ devices, planOnly: true },
      ...(degrees ? { degrees } : {}),
    });
    return { found, repeating: notes.filter((note) => note.includes('repeat the work of others')) };
  };
  const { found, repeating } = await noted(8 * 121);
  t.is(found.degrees.tp, 121);
  t.deepEqual(repeating, [
    '960 of 968 devices repeat the work of others, as tp 121 shards no operator: 8 devices are as fast',
  ]);
  t.deepEqual((await noted(2, { dp: 2, tp: 1 })).repeating, []);
});

test('a time limit that is over leaves proposals as they are estimated', async (t) => {
  const { compared } = await compile({
    ...saved(t, GPT),
    training: TRAINING,
    cluster: '1x2:a100-sxm-80',
    timeLimit: 0,
  });
  t.is(compared?.[0]?.reason, null);
  t.true(compared?.slice(1).every(({ reason }) => reason === 'not lowered before the time limit'));
});

test('a plan of drawn models and clusters is lowered, fits, and is no slower than the best of dp and tp', async (t) => {
  const drawn = fc.record({
    layers: fc.integer({ min: 1, max: 3 }),
    batch: fc.constantFrom(4, 8),
    where: fc.constantFrom({ cluster: '1x2:a100-sxm-80' }, { cluster: '2x2:v100-sxm2-32' }, { devices: 4 }),
    isPerceptron: fc.boolean(),
    trains: fc.boolean(),
  });
  const property = fc.asyncProperty(drawn, async ({ layers, batch, where, isPerceptron, trains }) => {
    const graph = isPerceptron ? mlp('mlp', { batch, widths: [32, 64, 64, 16] }, 1) : gpt(layers, batch);
    const training: Training = isPerceptron ? { ...TRAINING, loss: { kind: 'mse' } } : TRAINING;
    const asked = { ...saved(t, graph), ...where, planOnly: true, prefer: 'fastest', headroom: 0 } as const;
    const options = { ...asked, ...(trains ? { training } : {}) };
    const read = await importModel(options.model, importedFor(options.training));
    const imported = trains ? await trainedModel(read, training, async () => read) : read;
    const plain = await plan(imported, options);
    const found = await compile(options);
    t.true(Object.keys(found.plan.operators).length > 0);
    t.true(found.plan.predicted.stepSeconds <= plain.plan.predicted.stepSeconds);
  });
  await t.notThrowsAsync(fc.assert(property, { numRuns: EVERYTHING ? 12 : 2 }));
});

test('a given tp shards what its role says: a plan with the batch over it would repeat the weights', async (t) => {
  const options = {
    ...saved(t, GPT),
    cluster: '1x4:h100-sxm-80',
    degrees: { tp: 4 },
    planOnly: true,
    force: true,
  } as const;
  const { plan: found } = await compile(options);
  t.deepEqual(found.operators, (await compile({ ...options, axes: 'roles' })).plan.operators);
});

slow('a ZeRO level that is given makes no step faster', async (t) => {
  const sizes = gptSizes({ hidden: 256, heads: 4, sequence: 64, vocabulary: 512, layers: 2, batch: 16 });
  const options: NestedCompileOptions = {
    ...saved(t, languageModel('gpt', sizes, 1)),
    training: TRAINING,
    cluster: '1x8:h100-sxm-80',
    degrees: { dp: 8, tp: 1, pp: 1, sp: 1 },
    planOnly: true,
    prefer: 'fastest',
    headroom: 0,
    force: true,
  };
  const seconds = async (given: Partial<NestedCompileOptions>) =>
    (await compile({ ...options, ...given })).plan.predicted.stepSeconds;
  const found = await seconds({});
  for (const zero of [0, 1] as const) t.true(found <= (await seconds({ zero })), `--zero ${zero}`);
});

const CONFIGURATION: StepConfiguration = {
  degrees: { pp: 2, dp: 2, sp: 1, tp: 1, ep: 1 },
  virtualStages: 2,
  stageLayers: [1, 2, 1, 2],
  microBatch: 1,
  globalBatch: 8,
  tpSequence: false,
  zero: 1,
  recompute: 'full',
  recomputedLayers: [1, 4],
  offload: 'optimizer',
  attention: 'fused',
  precision: 'fp32',
  software: 'megatron-core',
  overlap: { tensor: false, data: true, pipeline: true, experts: false },
  fusedNorms: true,
  scatteredSends: true,
  loss: 'parallel',
  gradientBytes: 4,
};

test('a proposal is asked for in the words of options, its stages and layers by name', (t) => {
  const graph = findLayers(gpt(6, 8));
  t.deepEqual(proposalOptions(CONFIGURATION, graph, {}, false), {
    degrees: { dp: 2, tp: 1, pp: 2 },
    schedule: 'interleaved-1f1b',
    virtualStages: 2,
    stages: 'E t | t*2 | t | t*2 H',
    zero: 1,
    recompute: 'full:0-2,4-5',
    offload: 'optimizer:host',
  });
  const inferring: StepConfiguration = {
    ...CONFIGURATION,
    inference: true,
    zero: 0,
    recompute: 'none',
    offload: 'none',
  };
  t.deepEqual(proposalOptions({ ...inferring, virtualStages: 1, stageLayers: [2, 4] }, graph, {}, false), {
    degrees: { dp: 2, tp: 1, pp: 2 },
    stages: 'E t*2 | t*4 H',
  });
  const cut = proposalOptions(CONFIGURATION, graph, {}, true);
  t.deepEqual([cut.stages, cut.recompute], [undefined, 'full:0-2,4-5']);
  const { stageLayers: _, ...even } = CONFIGURATION;
  const one = { ...even, degrees: { ...even.degrees, pp: 1, dp: 4 }, virtualStages: 1, recomputedLayers: [2], zero: 0 };
  t.deepEqual(proposalOptions(one as StepConfiguration, graph, { zero: 3 }, false), {
    degrees: { dp: 4, tp: 1 },
    zero: 3,
    recompute: 'full:0-1',
    offload: 'optimizer:host',
  });
});
