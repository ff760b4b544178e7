/**
 * @file Clusters from text, and the user's messages if the text is wrong.
 */
import test from 'ava';
import { clusterSize, deviceOf, parseCluster } from '../../src/cost-model/cluster.js';
import { HARDWARE } from '../../src/cost-model/hardware.js';
import { AutoparError } from '../../src/ir/error.js';

test('NxM:ID, M:ID and ID name a cluster', (t) => {
  for (const [text, nodes, perNode] of [
    ['2x8:h100-sxm-80', 2, 8],
    ['8:h100-sxm-80', 1, 8],
    ['H100-SXM-80', 1, 1],
  ] as const) {
    const cluster = parseCluster(text, undefined);
    t.deepEqual([cluster.nodes, cluster.perNode, cluster.device.id], [nodes, perNode, 'h100-sxm-80']);
    t.is(clusterSize(cluster), nodes * perNode);
    t.false(cluster.local);
  }
});

test('with nothing said, one rank per core between two and eight, or what pinned degrees need', (t) => {
  const ranks = (cores: number, degrees?: { dp?: number; tp?: number }) =>
    clusterSize(parseCluster(undefined, undefined, { cores, ...(degrees ? { degrees } : {}) }));
  t.is(ranks(1), 2);
  t.is(ranks(4), 4);
  t.is(ranks(64), 8);
  t.is(ranks(2, { tp: 4 }), 4);
  t.is(ranks(6, { dp: 4 }), 4);
  t.is(ranks(2, { dp: 3, tp: 3 }), 9);
  t.is(clusterSize(parseCluster('local', 5)), 5);
});

test('a wrong cluster is answered with what to write', (t) => {
  const failure = (text: string | undefined, devices?: number) =>
    t.throws(() => parseCluster(text, devices), { instanceOf: AutoparError });
  const cases = [
    [failure('2x8:h100-smx-80'), 'unknown-device', 'did you mean h100-sxm-80'],
    [failure('h100'), 'unknown-device', 'did you mean h100-sxm-80 or h100-pcie-80?'],
    [failure('2*8/h100'), 'bad-cluster', '--cluster 2x8:h100-sxm-80'],
    [failure('0x8:l40s'), 'bad-cluster', '1x1:ID'],
    [failure('0x8'), 'bad-cluster', '--cluster 2x8:h100-sxm-80'],
    [failure('8x'), 'bad-cluster', '--cluster 2x8:h100-sxm-80'],
    [failure('2x8:16'), 'bad-cluster', '--cluster 2x8:h100-sxm-80'],
    [failure('2x8:l40s', 4), 'devices-do-not-match', 'give one of the two'],
    [failure(undefined, 0), 'bad-devices', '--devices 4'],
  ] as const;
  for (const [error, code, hint] of cases) {
    t.is(error?.code, code);
    t.is(error?.exit, 'usage');
    t.true(error?.hint?.includes(hint), error?.hint);
  }
});

test('the catalogue: unique ids, a source for every group of figures, a peak to compute with', (t) => {
  t.is(HARDWARE.length, 21);
  t.is(new Set(HARDWARE.map((device) => device.id)).size, 21);
  for (const device of HARDWARE) {
    for (const group of ['flops', 'memory', 'scaleUp', 'scaleOut', 'latency'])
      t.truthy(device.source[group], device.id);
    t.is(device.host !== undefined, device.source['host'] !== undefined, device.id);
    t.true(device.memoryBytes > 1e9 && device.memoryBandwidth > 1e11 && device.scaleUp.bandwidth > 1e9, device.id);
    t.truthy(device.peakFlops.fp32 ?? device.peakFlops.bf16, device.id);
    t.is(deviceOf(device.id), device);
  }
});
