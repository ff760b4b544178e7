/**
 * @file Prices against what must hold of any device: rooflines, identities of collectives, slower links further out.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { collectiveSeconds, wireBytes } from '../../src/cost-model/collective-price.js';
import { CPU_RANK, profileOf } from '../../src/cost-model/device.js';
import { evenPlace, placeGroup } from '../../src/cost-model/group-place.js';
import { HARDWARE } from '../../src/cost-model/hardware.js';
import { memorySeconds, operatorSeconds } from '../../src/cost-model/kernel-price.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';

const DEVICES = [...HARDWARE, CPU_RANK];

/** m × k times k × n in `dtype` elements of `width` bytes. */
function matmul(m: number, n: number, k: number, dtype: 'float32' | 'bfloat16' = 'bfloat16') {
  const width = dtype === 'float32' ? 4 : 2;
  return { flops: 2 * m * n * k, bytes: width * (m * k + k * n + m * n), dtype, result: [m, n] };
}

test('no operator beats the peak or the memory, and large matmuls come near the peak', (t) => {
  for (const device of DEVICES) {
    const peak = Math.max(...Object.values(device.peakFlops));
    for (const size of [64, 512, 4096, 16384]) {
      const work = matmul(size, size, size);
      const seconds = operatorSeconds(work, device);
      t.true(seconds >= work.flops / peak, `${device.id} ${size}`);
      t.true(seconds >= work.bytes / device.memoryBandwidth, `${device.id} ${size}`);
    }
    const large = matmul(16384, 16384, 16384);
    const bf16 = device.peakFlops.bf16 ?? device.peakFlops.fp16 ?? peak;
    t.true(large.flops / operatorSeconds(large, device) > 0.4 * bf16, device.id);
  }
});

test('a matrix that is no stored weight is packed first, where a device packs', (t) => {
  const work = { ...matmul(256, 1024, 1024, 'float32'), packed: 4 * 1024 * 1024 };
  const packing = { ...CPU_RANK, profile: { ...profileOf(CPU_RANK), packingBandwidth: 1e10 } };
  const { packed, ...stored } = work;
  const more = operatorSeconds(work, packing) - operatorSeconds(stored, packing);
  t.true(Math.abs(more / (packed / 1e10) - 1) < 1e-9, `${more}`);
  t.is(operatorSeconds(work, CPU_RANK), operatorSeconds(stored, CPU_RANK));
});

test('what fits a cache goes so many times as fast, the rest as memory does', (t) => {
  const profile = profileOf(CPU_RANK);
  const memory = { ...profile.memory, cacheBytes: 1e6, cacheGain: 4 };
  const cached = { ...CPU_RANK, profile: { ...profile, memory } };
  const near = (bytes: number, seconds: number) => t.true(Math.abs(memorySeconds(bytes, cached) / seconds - 1) < 1e-9);
  near(8e5, 8e5 / 4e10);
  near(3e6, 1e6 / 4e10 + 2e6 / 1e10);
  t.is(memorySeconds(0, cached), 0);
});

test('A100 and H100 reach the measured share of their peaks that holds for seconds', (t) => {
  for (const [id, share] of [
    ['a100-sxm-80', 0.87 * 0.925],
    ['h100-sxm-80', 0.8 * 0.797],
  ] as const) {
    const device = DEVICES.find((candidate) => candidate.id === id) ?? CPU_RANK;
    const work = matmul(16384, 16384, 16384);
    const reached = work.flops / operatorSeconds(work, device) / (device.peakFlops.bf16 ?? 1);
    t.true(reached > share * 0.93 && reached <= share * 1.01, `${id}: ${reached}`);
  }
});

test('one core runs a 1024³ fp32 matmul at the measured 110 to 141 GFLOP/s', (t) => {
  const work = matmul(1024, 1024, 1024, 'float32');
  const rate = work.flops / operatorSeconds(work, CPU_RANK);
  t.true(rate > 1.0e11 && rate < 1.41e11, `${rate}`);
});

test('more work, longer; half the columns, no more than half the time plus a launch', (t) => {
  for (const device of DEVICES) {
    const { launchSeconds } = profileOf(device);
    const [whole, half] = [matmul(2048, 4096, 1024), matmul(2048, 2048, 1024)].map((work) =>
      operatorSeconds(work, device),
    );
    t.true((half as number) < (whole as number), device.id);
    t.true((half as number) > (whole as number) / 2 - launchSeconds, device.id);
  }
  t.is(operatorSeconds({ flops: 0, bytes: 0, dtype: 'float32', result: [4] }, CPU_RANK), 0);
});

test('an operator that reads much and makes nothing takes as long as reading does', (t) => {
  for (const device of DEVICES) {
    const seconds = operatorSeconds({ flops: 2 ** 20, bytes: 2 ** 18, dtype: 'float32', result: [0, 8] }, device);
    t.true(seconds >= memorySeconds(2 ** 18, device), device.id);
    t.true(Number.isFinite(seconds), device.id);
  }
});

test('a reduction takes as long as reading does, whatever is left of it', (t) => {
  for (const device of DEVICES) {
    const seconds = (results: number) =>
      operatorSeconds({ flops: 2 ** 28, bytes: 4 * (2 ** 28 + results), dtype: 'float32', result: [results] }, device);
    const read = (4 * 2 ** 28) / device.memoryBandwidth;
    for (const results of [1, 64, 4096]) t.true(seconds(results) < 2 * read, `${device.id} ${results}`);
  }
});

test('long sums of few results use all processors: as a square product of as many FLOP, or as reading takes', (t) => {
  for (const id of ['a100-sxm-80', 'h100-sxm-80']) {
    const device = DEVICES.find((candidate) => candidate.id === id) ?? CPU_RANK;
    const work = matmul(256, 256, 2 ** 20);
    const long = operatorSeconds(work, device);
    const square = operatorSeconds(matmul(4096, 4096, 4096), device);
    t.true(long < 1.33 * Math.max(square, work.bytes / device.memoryBandwidth), `${id}: ${long} ${square}`);
    // Work that is too short to be split stays on the processors that its tiles take.
    const tiles = operatorSeconds(matmul(256, 256, 512), device);
    t.true(tiles * (device.peakFlops.bf16 ?? 0) > 10 * 2 * 256 * 256 * 512, id);
  }
});

test('images: a batch too small for a tile is none for a convolution, whose rows may be positions', (t) => {
  const device = DEVICES.find(({ id }) => id === 'a100-sxm-80') ?? CPU_RANK;
  const convolution = (batch: number, channels: number) => {
    const result = [batch, channels, 14, 14];
    const flops = 2 * batch * channels * 14 * 14 * 512 * 9;
    return operatorSeconds({ flops, bytes: 0, dtype: 'float32', result }, device);
  };
  t.true(convolution(32, 512) < 1.05 * convolution(256, 64));
});

test('an all-reduce of large arrays is a reduce-scatter and an all-gather; of small ones less than both', (t) => {
  const cluster = parseCluster('2x8:a100-sxm-80', undefined);
  for (const place of [
    [8, 1],
    [8, 2],
    [1, 2],
  ]) {
    const time = (kind: 'all-reduce' | 'all-gather' | 'reduce-scatter', bytes: number) =>
      collectiveSeconds(kind, bytes, evenPlace(place), cluster);
    const both = (bytes: number) => time('all-gather', bytes) + time('reduce-scatter', bytes);
    t.true(Math.abs(time('all-reduce', 1e12) / both(1e12) - 1) < 0.01, `${place}`);
    t.true(time('all-reduce', 1e5) < both(1e5) && time('all-reduce', 1e5) > both(1e5) / 2, `${place}`);
  }
});

test('groups: tp stays inside a node, dp crosses; crossing costs more', (t) => {
  const cluster = parseCluster('2x8:h100-sxm-80', undefined);
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 8],
  ]);
  const tp = placeGroup(mesh, ['tp.0', 'tp.1', 'tp.2'], cluster);
  const dp = placeGroup(mesh, ['dp'], cluster);
  t.deepEqual(tp.members, [8, 1]);
  t.deepEqual(dp.members, [1, 2]);
  t.deepEqual(placeGroup(mesh, ['dp', 'tp.0', 'tp.1', 'tp.2'], cluster).members, [8, 2]);
  t.deepEqual(placeGroup(mesh, ['tp.0'], parseCluster('4x4:h100-sxm-80', undefined)).members, [1, 2]);
  t.true(collectiveSeconds('all-reduce', 1e8, dp, cluster) > collectiveSeconds('all-reduce', 1e8, tp, cluster));
});

test('bytes on the wire: 2 (n−1)/n for an all-reduce, (n−1)/n for the others, nothing for one rank', (t) => {
  t.is(wireBytes('all-reduce', 1000, 4), 1500);
  t.is(wireBytes('all-gather', 1000, 4), 750);
  t.is(wireBytes('reduce-scatter', 1000, 4), 750);
  t.is(wireBytes('all-to-all', 1000, 4), 750);
  t.is(wireBytes('permute', 1000, 4), 1000);
  t.is(wireBytes('all-reduce', 1000, 1), 0);
});
