/**
 * @file Offload to the host's memory: bytes and seconds by hand, and properties that hold for any host.
 */
import test from 'ava';
import fc from 'fast-check';
import { modelWork } from '../../../src/api/planning/step-works.js';
import { type SimulateOptions, simulate } from '../../../src/api/simulate.js';
import { type Cluster, parseCluster } from '../../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../../src/cost-model/cluster-file.js';
import type { HostSpec } from '../../../src/cost-model/device.js';
import type { MeshOrder, Offload, StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { fullestHost } from '../../../src/cost-model/step/offload.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';
import { priceStep, priceStepExactly } from '../../../src/cost-model/step/step-price.js';
import { gptSizes } from './sizes.js';
import { trained } from './trained.js';

const cluster = parseCluster('1x8:a100-sxm-80', undefined);
const LAYERS = 8;
const work = await modelWork(gptSizes({ layers: LAYERS, hidden: 1024, heads: 16, sequence: 1024 }), 1, cluster);
const PARAMETERS = work.first.parameters + work.last.parameters + LAYERS * (work.layers[0]?.part.parameters ?? 0);
/** Stored activations of a layer (Korthikanti et al. 2022): s·b·h·32 bytes without dropout and attention's scores. */
const KEPT = 1024 * 1024 * 32;

const withHost = (host: Partial<HostSpec>): Cluster => {
  const { device } = cluster;
  return { ...cluster, device: { ...device, host: { ...(device.host as HostSpec), ...host } } };
};
const base: StepConfiguration = { ...trained({ dp: 8 }), globalBatch: 32 };
const seconds = (offload: Offload, configuration = base, on = cluster) =>
  priceStep(work, { ...configuration, offload }, on, STEP_CONSTANTS);
const memory = (offload: Offload, configuration = base) => stageMemory(work, { ...configuration, offload })[0];

test('optimizer state by hand: twelve bytes a parameter leave the device, and the host updates them', (t) => {
  const [device, host] = [memory('none'), memory('optimizer')];
  t.is(device?.optimizer, 12 * PARAMETERS);
  t.is(host?.optimizer, 0);
  t.is(host?.parameters, device?.parameters);
  // Beside fp32 masters and moments the gradients and parameters that come and go, in 16 bits.
  t.is(host?.host, (12 + 2 + 2) * PARAMETERS);
  const { parts, bytes, hidden } = seconds('optimizer');
  // 32 bytes a parameter through half of 51 GB/s; gradients at 12.5 GB/s, and nothing overlaps in this configuration.
  t.true(Math.abs(parts.optimizer / ((32 * PARAMETERS) / 25.5e9) - 1) < 1e-12);
  t.true(Math.abs(parts.host / ((2 * PARAMETERS) / 12.5e9) - 1) < 1e-12);
  t.is(bytes.host, 4 * PARAMETERS);
  t.is(hidden.host, 0);
});

test('ZeRO shares out what the host holds and updates; where the run overlaps, gradients leave under backward', (t) => {
  const zero = { ...base, zero: 1 as const };
  t.is(memory('optimizer', zero)?.host, (16 * PARAMETERS) / 8);
  const [whole, shared] = [seconds('optimizer'), seconds('optimizer', zero)];
  t.true(Math.abs(shared.parts.optimizer / (whole.parts.optimizer / 8) - 1) < 1e-12);
  const overlapped = seconds('optimizer', { ...base, overlap: { ...base.overlap, data: true } });
  t.true(overlapped.hidden.host > 0 && overlapped.parts.host < whole.parts.host);
  // Hidden communication slows compute by a share of its time.
  const moved = overlapped.parts.host + (1 - STEP_CONSTANTS.contention) * overlapped.hidden.host;
  t.true(Math.abs(moved / whole.parts.host - 1) < 1e-12);
  // On the host, fp32 masters are stored beside 16-bit shards, where FSDP keeps fp32 shards on the device.
  const fully = { ...base, zero: 3 as const };
  t.is(memory('none', fully)?.parameters, (4 * PARAMETERS) / 8);
  t.is(memory('optimizer', fully)?.parameters, (2 * PARAMETERS) / 8);
});

test("activations by hand: a layer's 32 s·b·h go and come once per micro-batch, two layers' stay", (t) => {
  const [device, host] = [memory('none'), memory('activations')];
  const embedding = (device?.activations ?? 0) - LAYERS * KEPT;
  t.is(host?.activations, embedding + 2 * KEPT);
  t.is(host?.host, LAYERS * KEPT);
  t.is(host?.optimizer, device?.optimizer);
  const [before, after] = [seconds('none'), seconds('activations')];
  t.is(after.bytes.host, 2 * 4 * LAYERS * KEPT);
  const link = KEPT / 12.5e9;
  t.true(
    Math.abs((after.parts.host + (1 - STEP_CONSTANTS.contention) * after.hidden.host) / (2 * 4 * LAYERS * link) - 1) <
      1e-12,
  );
  t.true(after.parts.host > 0 && after.stepSeconds > before.stepSeconds);
  // Recomputed layers keep their input alone: 2 s·b·h.
  const full = { ...base, recompute: 'full' as const };
  t.is(memory('activations', full)?.host, LAYERS * 1024 * 1024 * 2);
});

test('where nothing is offloaded nothing moves, and an infinite link costs nothing', (t) => {
  for (const configuration of [base, { ...trained({ pp: 4, dp: 2 }), globalBatch: 32 }]) {
    const none = seconds('none', configuration);
    t.is(none.parts.host + none.hidden.host + none.bytes.host, 0);
    t.is(
      stageMemory(work, configuration).reduce((sum, { host }) => sum + host, 0),
      0,
    );
    const fast = withHost({ linkBandwidth: Number.POSITIVE_INFINITY });
    t.is(seconds('activations', configuration, fast).stepSeconds, none.stepSeconds);
    const update = seconds('optimizer', configuration, fast);
    t.is(update.parts.host, 0);
    const { stepSeconds } = seconds(
      'optimizer',
      configuration,
      withHost({ linkBandwidth: 1e30, memoryBandwidth: 1e30 }),
    );
    t.true(stepSeconds <= none.stepSeconds);
  }
});

test('time falls with the link and with the memory of the host, bytes do not depend on them', (t) => {
  fc.assert(
    fc.property(
      fc.constantFrom<Offload>('optimizer', 'activations', 'all'),
      fc.double({ min: 1e9, max: 1e12, noNaN: true }),
      fc.double({ min: 1, max: 10, noNaN: true }),
      fc.constantFrom(trained({ dp: 8 }), trained({ pp: 4, dp: 2 }), trained({ pp: 2, tp: 1, sp: 2, dp: 2 })),
      fc.constantFrom<0 | 1 | 2 | 3>(0, 1, 2, 3),
      (offload, rate, factor, plain, zero) => {
        const configuration = { ...plain, globalBatch: 16, zero };
        for (const key of ['linkBandwidth', 'memoryBandwidth'] as const) {
          const slow = seconds(offload, configuration, withHost({ [key]: rate }));
          const fast = seconds(offload, configuration, withHost({ [key]: rate * factor }));
          t.true(fast.stepSeconds <= slow.stepSeconds * (1 + 1e-12));
          t.is(fast.bytes.host, slow.bytes.host);
        }
        t.true(seconds(offload, configuration).stepSeconds >= seconds('none', configuration).stepSeconds);
        const [own, all] = [offload, 'all' as const].map((one) =>
          stageMemory(work, { ...configuration, offload: one }),
        );
        for (const [stage, { total }] of (own ?? []).entries()) t.true((all?.[stage]?.total ?? 0) <= total);
      },
    ),
    { numRuns: 60 },
  );
});

test('the parts of a step still add up to it, by the closed form and simulated', (t) => {
  for (const offload of ['optimizer', 'activations', 'all'] as const) {
    const configuration = { ...trained({ pp: 4, dp: 2 }), globalBatch: 32, offload };
    for (const { stepSeconds, parts } of [
      priceStep(work, configuration, cluster, STEP_CONSTANTS),
      priceStepExactly(work, configuration, cluster, STEP_CONSTANTS),
    ]) {
      const sum = Object.values(parts).reduce((total, part) => total + part, 0);
      t.true(Math.abs(sum / stepSeconds - 1) < 1e-9, `${sum} ${stepSeconds}`);
    }
  }
});

test("CPU-Adam's published seconds on a DGX-2 are met within a third (Ren et al. 2021, table 4)", (t) => {
  // Billions of parameters, seconds of one process that has the host for itself: 16 shares of it.
  const measured = [
    [1, 0.22],
    [2, 0.51],
    [4, 1.03],
    [8, 2.41],
    [10, 2.57],
  ] as const;
  const { host } = parseCluster('1x16:v100-sxm2-32', undefined).device;
  const errors = measured.map(([billions, seconds]) => {
    const own =
      (billions * 1e9 * STEP_CONSTANTS.optimizerBytes) / (16 * (host?.memoryBandwidth ?? 0) * STEP_CONSTANTS.hostShare);
    return own / seconds - 1;
  });
  t.true(Math.max(...errors.map(Math.abs)) < 1 / 3, errors.join(' '));
  t.true(Math.abs(errors.reduce((sum, error) => sum + error, 0) / errors.length) < 0.1, errors.join(' '));
});

test('the fullest host is that of the node whose ranks hold most, counted rank by rank', (t) => {
  const AXES = ['pp', 'dp', 'sp', 'tp'] as const;
  const degree = fc.constantFrom<number>(1, 2, 3, 4);
  fc.assert(
    fc.property(
      fc.record({ pp: degree, dp: degree, sp: degree, tp: degree }),
      fc.shuffledSubarray([...AXES], { minLength: 4 }),
      fc.array(fc.integer({ min: 0, max: 100 }), { minLength: 4, maxLength: 4 }),
      fc.constantFrom(1, 2, 3, 4, 6, 8),
      (degrees, order: MeshOrder, perStage, perNode) => {
        const ranks = degrees.pp * degrees.dp * degrees.sp * degrees.tp;
        fc.pre(ranks % perNode === 0);
        const held = Array.from({ length: ranks / perNode }, () => 0);
        for (let rank = 0; rank < ranks; rank++) {
          let rest = rank;
          let stage = 0;
          for (const axis of [...order].reverse()) {
            if (axis === 'pp') stage = rest % degrees.pp;
            rest = Math.floor(rest / degrees[axis]);
          }
          held[Math.floor(rank / perNode)] = (held[Math.floor(rank / perNode)] ?? 0) + (perStage[stage] ?? 0);
        }
        const on = parseCluster(`${ranks / perNode}x${perNode}:a100-sxm-80`, undefined);
        const found = fullestHost(perStage, { degrees: { ...degrees, ep: 1 }, meshOrder: order }, on);
        t.is(found.bytes, Math.max(...held));
        t.is(held[found.node], found.bytes);
        t.is(found.memoryBytes, perNode * 2.5e11);
      },
    ),
  );
});

const STEP: SimulateOptions = {
  generate: 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024',
  cluster: '1x2:a100-sxm-80',
  loss: { kind: 'cross_entropy' },
  globalBatch: 8,
};

test('a host that is too small is a verdict with figures, and offload is named where it is the remedy', async (t) => {
  const small = await simulate({ ...STEP, offload: 'optimizer' });
  t.true(small.fits);
  const device = { like: 'a100-sxm-80', host: { bandwidth: '25GB/s', memory: '100MB', memoryBandwidth: '50GB/s' } };
  const on = clusterOfDescription({ version: 1, device, levels: [{ name: 'node', size: 2 }] });
  t.is(on.device.host?.memoryBytes, 1e8);
  const held = small.host?.bytes ?? 0;
  t.true(held > 2e8 && small.host?.memoryBytes === 5e11);
  const need = small.stages[0]?.total ?? 0;
  const whole = await simulate({ ...STEP, memory: need * 1.01 });
  t.false(whole.fits);
  t.regex(whole.remedy?.change ?? '', /offload|zero|recompute/);
});

test('what cannot be offloaded is refused', async (t) => {
  const refusal = async (options: Partial<SimulateOptions>) => {
    const error = await t.throwsAsync(simulate({ ...STEP, offload: 'all', ...options }));
    return error?.message ?? '';
  };
  const { loss: _, ...inference } = STEP;
  const error = await t.throwsAsync(simulate({ ...inference, offload: 'all' }));
  t.regex(error?.message ?? '', /applies to training only/);
  t.regex(await refusal({ cluster: '1x2:tpu-v4' }), /device tpu-v4 has no host data/);
  t.regex(await refusal({ cluster: 'local', devices: 2 }), /are its host already/);
});
