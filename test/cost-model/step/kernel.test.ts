/**
 * @file Attention in parts: the cost of its softmax and of its rows' lengths, against counts and published runs.
 */
import test from 'ava';
import { deviceOf } from '../../../src/cost-model/cluster.js';
import {
  attentionLaunches,
  attentionSeconds,
  matmulSeconds,
  memorySeconds,
} from '../../../src/cost-model/kernel-price.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import type { StepAttentionWork } from '../../../src/cost-model/step/work.js';

const device = deviceOf('a100-sxm-80');
const parts = { attention: 'parts', precision: 'fp16' } as const;

/** A head's work over 2,048 tokens, as many heads as make 1,024 columns or what is left of them. */
const heads = (width: number, count: number, backward = false): StepAttentionWork => ({
  kind: 'attention',
  backward,
  batch: 1,
  heads: count,
  keyHeads: count,
  queries: 2048,
  keys: 2048,
  width,
  valueWidth: width,
  causal: true,
});
const seconds = (
  work: StepAttentionWork,
  configuration: Pick<StepConfiguration, 'attention' | 'precision' | 'plainSoftmax'>,
) => attentionSeconds(work, device, configuration, STEP_CONSTANTS);

test('heads of 108 and 150 cost several times what heads of 112 and 144 cost, as BigScience measured', (t) => {
  for (const [odd, even] of [
    [108, 112],
    [150, 144],
    [225, 224],
  ] as const)
    t.true(seconds(heads(odd, 8), parts) > 3 * seconds(heads(even, 8), parts));
  // One kernel for attention pads its heads.
  const fused = { attention: 'fused', precision: 'fp16' } as const;
  t.true(seconds(heads(108, 8), fused) < 1.1 * seconds(heads(112, 8), fused));
});

test('a softmax operator by operator moves 20 bytes a score more, in five kernels more', (t) => {
  const plain = { ...parts, plainSoftmax: true };
  for (const backward of [false, true]) {
    const work = heads(128, 16, backward);
    const scores = 16 * 2048 * 2048;
    const more = seconds(work, plain) - seconds(work, parts);
    t.true(more > 0.9 * memorySeconds(20 * scores, device) && more < 1.01 * memorySeconds(20 * scores, device));
    t.is(attentionLaunches(plain, backward) - attentionLaunches(parts, backward), 5);
  }
});

test(
  'attention written for a Hopper reaches what FlashAttention 3 does at most on long sequences, and half of it on ' +
    '2,048 keys',
  (t) => {
    const hopper = deviceOf('h100-sxm-80');
    const flopsPerSecond = (keys: number, attention: 'fused' | 'portable' | 'early', on = hopper) => {
      const work = { ...heads(128, 16), queries: keys, keys };
      const needed = 2 * 16 * keys * keys * 128;
      return needed / attentionSeconds(work, on, { attention, precision: 'bf16' }, STEP_CONSTANTS);
    };
    // Shah et al. 2024: up to 740 TFLOP/s forward in 16 bits.
    const long = flopsPerSecond(131072, 'fused');
    t.true(long < 7.4e14 && long > 0.75 * 7.4e14, `${long}`);
    t.true(flopsPerSecond(2048, 'fused') < 0.6 * long);
    t.true(flopsPerSecond(131072, 'portable') < 0.5 * long);
    t.is(flopsPerSecond(131072, 'early'), flopsPerSecond(131072, 'portable'));
    // Dao 2023: FlashAttention 2 reaches 50 to 73 % of an A100's 312 TFLOP/s forward, FlashAttention 1 25 to 40 %.
    const ampere = deviceOf('a100-sxm-80');
    for (const keys of [2048, 16384]) {
      const share = flopsPerSecond(keys, 'portable', ampere) / 3.12e14;
      t.true(share > 0.5 && share < 0.73, `${share}`);
      t.true(Math.abs(flopsPerSecond(keys, 'early', ampere) / 3.12e14 / share - 0.5) < 1e-9);
    }
    // No device attends faster than it multiplies.
    const instinct = deviceOf('mi300x-192');
    t.true(flopsPerSecond(131072, 'fused', instinct) < 6.684e14);
  },
);

test("a query's own cost in attention is the same in 32 bits as in 16, in which its matmuls are faster", (t) => {
  const own = (precision: 'fp32' | 'bf16') => {
    const at = (keys: number) => seconds({ ...heads(128, 16), causal: false, keys }, { attention: 'fused', precision });
    return 2 * at(1024) - at(2048);
  };
  t.true(own('fp32') > 0);
  t.true(Math.abs(own('fp32') / own('bf16') - 1) < 1e-9);
});

test('large products in 4 bits are faster than in 8 by the same factor on every Blackwell, and the Ultra is the fastest', (t) => {
  const work = {
    kind: 'matmul',
    batch: 1,
    rows: 16384,
    columns: 16384,
    depth: 16384,
    experts: false,
    tokens: 'rows',
  } as const;
  const rate = (id: string, precision: StepConfiguration['precision']) =>
    1 / matmulSeconds(work, deviceOf(id), precision, STEP_CONSTANTS);
  for (const id of ['b200-sxm-180', 'gb200-nvl72', 'gb300-nvl72'])
    t.true(Math.abs(rate(id, 'fp4') / rate(id, 'fp8') / STEP_CONSTANTS.fp4Gain - 1) < 1e-9, id);
  // Llama 405B of Megatron-Bridge 26.02 on 256 devices: 61.98 s on GB200, 49.75 s on GB300, in 8 bits both.
  const ratio = rate('gb300-nvl72', 'fp8') / rate('gb200-nvl72', 'fp8');
  t.true(ratio > 1.15 && ratio < 1.35, `${ratio}`);
});
