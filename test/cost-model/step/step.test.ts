/**
 * @file Whole steps against published runs, and against what must hold of any price.
 */
import test from 'ava';
import fc from 'fast-check';
import { modelWork } from '../../../src/api/planning/step-works.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { type StepConfiguration, usualGradientBytes } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { inFlightOn, stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep, scheduleRequest } from '../../../src/cost-model/step/step-price.js';
import { inFlight } from '../../../src/schedule/in-flight.js';
import { makeSchedule } from '../../../src/schedule/make-schedule.js';
import { fewestChunks, interleaves, SCHEDULE_KINDS } from '../../../src/schedule/schedule.js';
import { draws } from '../../selection.js';
import { gptSizes } from './sizes.js';
import { trained } from './trained.js';

/** Megatron-LM on A100 (Narayanan et al. 2021, table 1): seconds from the FLOP/s they print. */
const NARAYANAN = [
  {
    layers: 24,
    hidden: 2304,
    heads: 24,
    tp: 1,
    pp: 1,
    dp: 32,
    virtualStages: 1,
    microBatch: 16,
    globalBatch: 512,
    seconds: 3.528,
  },
  {
    layers: 40,
    hidden: 6144,
    heads: 48,
    tp: 8,
    pp: 1,
    dp: 32,
    virtualStages: 1,
    microBatch: 8,
    globalBatch: 1024,
    seconds: 9.399,
  },
  {
    layers: 96,
    hidden: 16384,
    heads: 128,
    tp: 8,
    pp: 16,
    dp: 15,
    virtualStages: 2,
    microBatch: 1,
    globalBatch: 2160,
    seconds: 37.614,
  },
] as const;

const cluster = parseCluster('4x8:a100-sxm-80', undefined);
const work = await modelWork(gptSizes({ layers: 8, hidden: 1024, heads: 16, sequence: 512 }), 1, cluster);

test('published steps of Megatron-LM are met within 10 %', async (t) => {
  for (const { layers, hidden, heads, tp, pp, dp, seconds, ...batches } of NARAYANAN) {
    const cluster = parseCluster(`${(tp * pp * dp) / 8}x8:a100-sxm-80`, undefined);
    const work = await modelWork(
      gptSizes({ layers, hidden, heads, batch: batches.microBatch, causal: true }),
      tp,
      cluster,
    );
    const configuration: StepConfiguration = {
      ...trained({ tp, pp, dp }),
      ...batches,
      recompute: 'full',
      attention: 'parts',
      precision: 'fp16',
      software: 'megatron',
      scatteredSends: true,
    };
    const { stepSeconds } = priceStep(work, configuration, cluster, STEP_CONSTANTS);
    t.true(Math.abs(stepSeconds / seconds - 1) < 0.1, `${hidden}: ${stepSeconds} for ${seconds}`);
  }
});

const price = (configuration: StepConfiguration) => priceStep(work, configuration, cluster, STEP_CONSTANTS);

test('the parts of a step add up to it', (t) => {
  for (const configuration of [
    trained({ dp: 32 }),
    trained({ pp: 4, dp: 8 }),
    { ...trained({ dp: 32 }), zero: 3 as const },
  ]) {
    const { stepSeconds, parts } = price(configuration);
    const sum = Object.values(parts).reduce((total, part) => total + part, 0);
    t.true(Math.abs(sum / stepSeconds - 1) < 1e-9);
    for (const part of Object.values(parts)) t.true(part >= 0);
  }
});

test('ZeRO 3 gathers the ends of a model whose layers have no parameters, or that has none, as messages of their own', (t) => {
  const configuration = { ...trained({ dp: 32 }), zero: 3 as const };
  const [{ part, count } = { part: work.first, count: 1 }] = work.layers;
  const bare = { ...part, parameters: 0, expertParameters: 0 };
  for (const layers of [[], [{ part: bare, count }]]) {
    const { stepSeconds } = priceStep({ ...work, layers }, configuration, cluster, STEP_CONSTANTS);
    t.true(stepSeconds > 0 && stepSeconds < price(configuration).stepSeconds, `${stepSeconds}`);
  }
});

test('a pipeline waits (p − 1) / m of its work, an interleaved one a v-th of that, a naive one for all others', (t) => {
  const even = {
    ...work,
    first: { ...work.first, forward: [], backward: [] },
    last: { ...work.last, forward: [], backward: [] },
  };
  const bubble = (changes: Partial<StepConfiguration>) => {
    const configuration = { ...trained({ pp: 4, dp: 1 }), globalBatch: 8, ...changes };
    const { parts, stageSeconds } = priceStep(even, configuration, cluster, STEP_CONSTANTS);
    const { forward = 0, backward = 0, weightGradient = 0 } = stageSeconds[0] ?? {};
    const busy = parts.matmul + parts.attention + parts.memory + parts.launch;
    return { share: parts.bubble / busy, weights: weightGradient / (forward + backward) };
  };
  const close = (value: number, expected: number) => t.true(Math.abs(value - expected) < 1e-9, `${value} ${expected}`);
  close(bubble({}).share, 3 / 8);
  close(bubble({ virtualStages: 2 }).share, 3 / 16);
  close(bubble({ schedule: 'naive' }).share, 3);
  // Weight gradients fill the bubble twice: those that are put off, and those of the stages that wait for them.
  const { share, weights } = bubble({ schedule: 'zero-bubble' });
  close(share, (3 / 8) * (1 - 2 * weights));
});

test('state takes 16 bytes a parameter with 16-bit gradients, and 4 + 12/d, 2 + 14/d, 16/d with ZeRO 1 to 3', (t) => {
  const parameters = work.first.parameters + work.last.parameters + 8 * (work.layers[0]?.part.parameters ?? 0);
  const state = (zero: 0 | 1 | 2 | 3, d: number) => {
    const configuration = { ...trained({ dp: d }), zero, precision: 'fp16' as const };
    const [stage] = stageMemory(work, configuration);
    return ((stage?.parameters ?? 0) + (stage?.gradients ?? 0) + (stage?.optimizer ?? 0)) / parameters;
  };
  t.is(state(0, 4), 16);
  t.is(state(1, 4), 4 + 12 / 4);
  t.is(state(2, 4), 2 + 14 / 4);
  t.is(state(3, 4), 16 / 4);
});

test('the first stage of 1F1B holds p micro-batches, the last one one, F-then-B all of them', (t) => {
  const configuration = { ...trained({ pp: 4 }), globalBatch: 16 };
  t.deepEqual(
    stageMemory(work, configuration).map(({ inFlight }) => inFlight),
    [4, 3, 2, 1],
  );
  t.deepEqual(
    stageMemory(work, { ...configuration, schedule: 'f-then-b' }).map(({ inFlight }) => inFlight),
    [16, 16, 16, 16],
  );
});

test('a stage holds as many micro-batches as the order of its schedule does', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.constantFrom(...SCHEDULE_KINDS),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 2, max: 4 }),
        (schedule, pp, groups, chunks) => {
          // Every stage of a single one gives back what it took before it takes the next.
          if (pp === 1 && schedule !== 'f-then-b') return;
          const virtualStages = interleaves(schedule) ? chunks : fewestChunks(schedule);
          const configuration = { ...trained({ pp }), schedule, virtualStages, globalBatch: groups * pp };
          const order = makeSchedule(scheduleRequest(configuration));
          const held = Array.from({ length: pp }, (_, stage) => inFlightOn(stage, configuration) * virtualStages);
          if (held.some((pairs, stage) => Math.abs(pairs - (inFlight(order)[stage] ?? 0)) > 1e-9))
            throw new Error(`${schedule} ${pp} stages: ${held} is not ${inFlight(order)}`);
        },
      ),
      { numRuns: draws(200) },
    ),
  );
});

test('gradients take as many bytes in memory as on the wire', (t) => {
  const configuration = { ...trained({ dp: 4 }), globalBatch: 16 };
  const [two] = stageMemory(work, configuration);
  const [four] = stageMemory(work, { ...configuration, gradientBytes: 4 });
  t.is(four?.gradients, 2 * (two?.gradients ?? 0));
  t.is(price({ ...configuration, gradientBytes: 4 }).bytes.dp, 2 * price(configuration).bytes.dp);
  for (const [precision, software, bytes] of [
    ['bf16', 'megatron-core', 4],
    ['fp16', 'megatron', 2],
    ['fp8', 'megatron-core', 2],
    ['bf16', 'eager', 2],
    ['fp32', 'eager', 4],
  ] as const)
    t.is(usualGradientBytes(precision, software), bytes);
});

test('recomputation costs time and saves memory', (t) => {
  const levels = (['none', 'selective', 'full'] as const).map((recompute) => ({
    ...trained({ dp: 8 }),
    recompute,
    attention: 'parts' as const,
    software: 'megatron' as const,
  }));
  const [none = 0, selective = 0, full = 0] = levels.map((level) => price(level).stepSeconds);
  t.true(none < selective && selective < full && full < 1.5 * none);
  const [keptNone = 0, keptSelective = 0, keptFull = 0] = levels.map(
    (level) => stageMemory(work, level)[0]?.activations ?? 0,
  );
  t.true(keptNone > keptSelective && keptSelective > 5 * keptFull);
});
