/**
 * @file Clusters from files: prices use the values in the file, and errors are reported with file and line.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { devicesText } from '../../src/cli/cluster-text.js';
import { clusterSize, parseCluster } from '../../src/cost-model/cluster.js';
import { clusterOfDescription, readClusterFile } from '../../src/cost-model/cluster-file.js';
import { collectiveSeconds } from '../../src/cost-model/collective-price.js';
import { evenPlace, placeGroup } from '../../src/cost-model/group-place.js';
import { linkBound } from '../../src/cost-model/link-bound.js';
import { clustersOfStages } from '../../src/cost-model/node-kinds.js';
import { usableBytes } from '../../src/cost-model/predict.js';
import { quantityOf } from '../../src/cost-model/quantities.js';
import { AutoparError } from '../../src/ir/error.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-cluster-'));
let files = 0;

function file(text: string): string {
  const path = join(folder, `${files++}.yaml`);
  writeFileSync(path, text);
  return path;
}

const RACKS = `version: 1
name: two racks of four nodes
device: h100-sxm-80
levels:
  - {name: node, size: 8}
  - {name: rack, size: 4, bandwidth: 400Gbit/s, cards: 4, latency: 10us}
  - {name: cluster, size: 2, bandwidth: 12.5GB/s, latency: 30us}
`;

test('a file that says what the catalogue says is priced as the catalogue', async (t) => {
  const text = `version: 1\ndevice: a100-sxm-80\nlevels:\n  - {name: node, size: 8}\n  - {name: network, size: 2}\n`;
  const [read, named] = [await readClusterFile(file(text)), parseCluster('2x8:a100-sxm-80', undefined)];
  t.deepEqual(read.levels, named.levels);
  t.is(read.device, named.device);
  t.deepEqual([read.nodes, read.perNode, read.local], [2, 8, false]);
  const bytes = (
    await readClusterFile(file(text.replace('levels', 'levels').replace('size: 8', 'size: 8, bandwidth: 300GB/s')))
  ).levels[0];
  t.is(bytes?.bandwidth, 0.8 * 3e11);
});

test('three levels: groups cross the links that the mesh order puts between them, shared cards are shared', async (t) => {
  const cluster = await readClusterFile(file(RACKS));
  t.is(clusterSize(cluster), 64);
  t.deepEqual([cluster.nodes, cluster.perNode], [8, 8]);
  const mesh = makeMesh([
    ['pp', 2],
    ['dp', 4],
    ['tp', 8],
  ]);
  t.deepEqual(placeGroup(mesh, ['tp.0', 'tp.1', 'tp.2'], cluster).members, [8, 1, 1]);
  t.deepEqual(placeGroup(mesh, ['dp.0', 'dp.1'], cluster).members, [1, 4, 1]);
  t.deepEqual(placeGroup(mesh, ['pp'], cluster).members, [1, 1, 2]);
  // Four cards of 50 GB/s for eight devices.
  t.is(cluster.levels[1]?.bandwidth, 0.96 * 2.5e10);
  const seconds = (place: readonly number[]) => collectiveSeconds('all-reduce', 1e9, evenPlace(place), cluster);
  t.true(seconds([8, 1, 1]) < seconds([1, 4, 1]) && seconds([1, 4, 1]) < seconds([1, 1, 2]) * 2);
  t.true(seconds([8, 4, 2]) < seconds([1, 4, 2]), 'eight devices of a node have eight times the cards');
  const [devices, nodes, racks] = linkBound(cluster, mesh).units;
  t.deepEqual(
    [devices, nodes, racks].map((unit) => unit?.axes.join()),
    ['pp,dp.0,dp.1,tp.0,tp.1,tp.2', 'pp,dp.0,dp.1', 'pp'],
  );
  const least = (unit: typeof nodes, bytes: number) =>
    unit?.seconds({ fetched: bytes, grown: bytes, growthDoublings: 2, reduced: 0, reduceDoublings: 0 }) ?? 0;
  const gathered = collectiveSeconds('all-gather', 1e9, evenPlace([1, 4, 1]), cluster);
  t.true(least(devices, 0.75e9) < gathered, 'a device might be served over all the cards of its node');
  // Eight devices of a node, each with an eighth of its own to gather: all of it comes from other nodes or racks.
  t.true(least(nodes, 6e9) <= gathered && least(nodes, 6e9) > 0.45 * gathered);
});

test('topologies: a mesh has a link to each member, a ring takes n − 1 rounds, a torus two links a dimension', (t) => {
  const cluster = (level: object) =>
    clusterOfDescription({
      version: 1,
      device: 'h100-sxm-80',
      levels: [{ name: 'node', size: 16, bandwidth: '10GB/s', ...level }],
    });
  const large = (level: object, kind: 'all-reduce' | 'all-to-all' | 'permute' = 'all-reduce') =>
    collectiveSeconds(kind, 1e12, evenPlace([16]), cluster(level));
  const small = (level: object) =>
    collectiveSeconds('all-gather', 16, evenPlace([16]), cluster({ latency: '10us', ...level }));
  const near = (a: number, b: number) => t.true(Math.abs(a / b - 1) < 0.02, `${a} is not near ${b}`);
  near(large({ topology: 'switch' }) / large({ topology: 'mesh' }), 15);
  near(large({ topology: 'switch' }) / large({ topology: 'torus', dimensions: 2 }), 4);
  near(large({ topology: 'ring' }), large({ topology: 'switch' }));
  near(large({ topology: 'ring' }, 'all-to-all') / large({ topology: 'switch' }, 'all-to-all'), 4);
  near(large({ topology: 'ring' }, 'permute') / large({ topology: 'switch' }, 'permute'), 2);
  t.true(small({ topology: 'mesh' }) < small({ topology: 'switch' }));
  t.true(small({ topology: 'switch' }) < small({ topology: 'ring' }));
  near(large({ reducing: '20GB/s' }), large({ bandwidth: '46.875GB/s' }));
  near(large({ busBandwidth: { 'all-reduce': '16GB/s' } }), large({ bandwidth: '20GB/s' }));
});

test('a device of its own, and nodes that differ: the slowest bounds a step, a stage has its own nodes', (t) => {
  const cluster = clusterOfDescription({
    version: 1,
    device: {
      like: 'h100-sxm-80',
      memory: '64GiB',
      memoryBandwidth: '2TB/s',
      peak: { bf16: '800TFLOP/s' },
      constants: { launchSeconds: 1e-6 },
    },
    levels: [
      { name: 'node', size: 8 },
      { name: 'network', size: 4 },
    ],
    nodes: [{ count: 2 }, { count: 1, device: 'a100-sxm-40' }, { count: 1, speed: 0.5 }],
  });
  t.is(cluster.device.peakFlops.bf16, 312e12);
  t.is(cluster.device.memoryBytes, 4e10);
  t.is(cluster.device.memoryBandwidth, 1e12);
  t.true((usableBytes(cluster) ?? 0) < 4e10);
  t.deepEqual(
    cluster.kinds?.map(({ nodes, device }) => [nodes, device.peakFlops.bf16]),
    [
      [2, 800e12],
      [1, 312e12],
      [1, 400e12],
    ],
  );
  const [first, second] = clustersOfStages(cluster, 2, 16);
  t.is(first?.device.peakFlops.bf16, 800e12);
  t.is(second?.device.memoryBytes, 4e10);
  const single = clustersOfStages(cluster, 4, 8);
  t.is(single[3]?.device.peakFlops.bf16, 400e12);
  t.is(single[0]?.device.profile?.launchSeconds, 1e-6);
});

const WRONG: readonly (readonly [string, number | undefined, RegExp, RegExp])[] = [
  [
    RACKS.replace('device: h100-sxm-80', 'device: h100-smx-80'),
    3,
    /no device "h100-smx-80"/,
    /did you mean h100-sxm-80/,
  ],
  [RACKS.replace('bandwidth: 400Gbit/s', 'bandwidth: fast'), 6, /levels\[1\].bandwidth is "fast"/, /clusters.md/],
  [RACKS.replace('latency: 10us', 'latency: 10'), undefined, /^$/, /^$/],
  [RACKS.replace('latency: 10us', 'latency: 10kg'), 6, /latency is "10kg", where a time such as 8us/, /clusters.md/],
  [RACKS.replace('levels:', 'level:'), 1, /the file lacks the key 'levels'/, /./],
  [RACKS.replace('latency', 'latancy'), 6, /levels\[1\] has no key 'latancy'/, /did you mean latency/],
  [RACKS.replace('name: rack, ', ''), 6, /levels\[1\] lacks the key 'name'/, /./],
  [RACKS.replace('size: 8', 'size: 0'), 5, /levels\[0\].size is 0/, /./],
  [RACKS.replace('size: 8', 'size: 8, topology: star'), 5, /topology is "star"/, /switch/],
  [RACKS.replace('size: 8', 'size: 8, dimensions: 2'), 5, /has dimensions and is not a torus/, /topology: torus/],
  [RACKS.replace('size: 8', 'size: 8, cards: 2'), 5, /inside a node/, /joins nodes/],
  [RACKS.replace('bandwidth: 400Gbit/s, ', ''), 6, /cards without a bandwidth/, /one card's/],
  [`${RACKS}nodes: [{count: 3}]\n`, 8, /nodes describes 3 nodes, and the levels make 8/, /add up/],
  [RACKS.replace('size: 8', 'size: 1000000'), 4, /multiply to 8000000 devices/, /at most/],
  [RACKS.replace('version: 1', 'version: 2'), 1, /version is 2, where 1 is expected/, /./],
  [RACKS.replace('device: h100-sxm-80', 'device: {memory: 80GB}'), 3, /device lacks the key 'like'/, /./],
  [
    RACKS.replace('device: h100-sxm-80', 'device: {like: tpu, memory: 80GB}'),
    3,
    /no device "tpu"/,
    /did you mean tpu-v4 or tpu-v5e/,
  ],
  [RACKS.replace('device: h100-sxm-80', 'device: h100-sxm'), 3, /no device "h100-sxm"/, /did you mean h100-sxm-80\?/],
  [RACKS.replace('device: h100-sxm-80', 'device: ateminal-910b'), 3, /no device/, /did you mean ascend-910b\?/],
  [RACKS.replace('name: rack', 'name: node'), 6, /levels\[1\] repeats the name "node"/, /its own name/],
  [RACKS.replace('latency: 10us', 'latency: .inf'), 6, /latency is not a finite number, where a number or text/, /./],
  [RACKS.replace('size: 8', 'size: 8, topology: torus, dimensions: 9'), 5, /9, where a number of at most 6 is/, /./],
  [RACKS.replace('latency: 10us', 'latency: 1e300'), 6, /latency is 1e\+300, where a time such as 8us/, /./],
  [RACKS.replace('bandwidth: 400Gbit/s', 'bandwidth: 1e-99GB/s'), 6, /"1e-99GB\/s", where a rate such as/, /./],
  [`${RACKS}nodes: [{count: 8, speed: 1e-300}]\n`, 8, /speed is 1e-300, where a number of at least 1e-36/, /./],
  [`${RACKS}nodes: [{count: 8, speed: 0}]\n`, 8, /speed is 0, where a number of at least 1e-36 is expected/, /./],
  ['version: 1\n  device: [', 1, /neither YAML nor JSON/, /./],
];

test('what is wrong is said with file and line, and with what to write', async (t) => {
  for (const [text, line, message, hint] of WRONG) {
    const path = file(text);
    if (line === undefined) {
      await t.notThrowsAsync(readClusterFile(path), text);
      continue;
    }
    const error = await t.throwsAsync(readClusterFile(path), { instanceOf: AutoparError }, text);
    t.regex(error.message, message);
    t.regex(error.hint ?? '', hint);
    t.like(error, { exit: 'input', where: { file: path, line } }, text);
  }
  const unlined: readonly (readonly [string, string, RegExp])[] = [
    ['&a [*a]', 'bad-yaml', /an alias of the file contains itself/],
    [`${RACKS}nodes: &n [{count: 8, device: {like: *n}}]`, 'bad-yaml', /an alias of the file contains itself/],
    ['', 'bad-cluster-file', /the file is empty/],
    ['# nothing yet', 'bad-cluster-file', /the file is empty, or has only comments/],
  ];
  for (const [text, code, message] of unlined)
    await t.throwsAsync(readClusterFile(file(text)), { instanceOf: AutoparError, code, message }, text);
  const twice = await readClusterFile(
    file(`${RACKS}nodes: [{count: 4}, {count: 2, speed: &s 0.5}, {count: 2, speed: *s}]`),
  );
  t.deepEqual(
    twice.kinds?.map(({ nodes }) => nodes),
    [4, 4],
    'aliases that end are followed',
  );
  await t.throwsAsync(readClusterFile(join(folder, 'absent.yaml')), { code: 'file-missing' });
});

test('nodes that are alike are of one kind, and a cluster of one kind is as if they were not listed', async (t) => {
  const listed = await readClusterFile(file(`${RACKS}nodes: [{count: 3}, {count: 5, speed: 1}]\n`));
  const plain = await readClusterFile(file(RACKS));
  t.is(listed.kinds, undefined);
  t.deepEqual({ ...listed, description: null }, { ...plain, description: null });
  const slow = await readClusterFile(file(`${RACKS}nodes: [{count: 8, speed: 0.5}]\n`));
  t.is(slow.kinds, undefined);
  t.is(slow.device.peakFlops.bf16, (plain.device.peakFlops.bf16 ?? 0) / 2);
});

test('a report names every kind of device', async (t) => {
  t.is(devicesText(parseCluster('2x8:h100-sxm-80', undefined)), '16 × h100-sxm-80');
  const mixed = await readClusterFile(file(`${RACKS}nodes: [{count: 7}, {count: 1, device: v100-sxm2-32}]\n`));
  t.is(devicesText(mixed), '56 × h100-sxm-80 and 8 × v100-sxm2-32');
  const slower = await readClusterFile(file(`${RACKS}nodes: [{count: 7}, {count: 1, speed: 0.5}]\n`));
  t.is(devicesText(slower), '64 × h100-sxm-80, in unequal nodes');
});

test('degrees and --devices must fit the file', async (t) => {
  const cluster = await readClusterFile(file(RACKS));
  t.is(parseCluster('racks.yaml', 64, { file: cluster }), cluster);
  t.throws(() => parseCluster('racks.yaml', 16, { file: cluster }), {
    code: 'devices-do-not-match',
    message: '--devices 16 contradicts --cluster racks.yaml, which has 64 devices',
  });
});

test('quantities with units', (t) => {
  t.is(quantityOf('450GB/s', 'bytesPerSecond'), 450e9);
  t.is(quantityOf('400 Gbit/s', 'bytesPerSecond'), 50e9);
  t.is(quantityOf('16GiB', 'bytes'), 2 ** 34);
  t.is(quantityOf('1.5ms', 'seconds'), 0.0015);
  t.is(quantityOf('989TFLOP/s', 'flopsPerSecond'), 989e12);
  t.is(quantityOf(8e10, 'bytes'), 8e10);
  t.is(quantityOf('2e-6', 'seconds'), 2e-6);
  for (const text of ['', 'GB', '-3GB', '3 apples', '0GB', 'NaN', '1e999GB'])
    t.is(quantityOf(text, 'bytes'), null, text);
  t.is(quantityOf(Number.NaN, 'bytes'), null);
});
