/**
 * @file Parts of a cluster, against what one would rent by hand.
 */
import test from 'ava';
import { type Cluster, clusterSize, parseCluster } from '../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../src/cost-model/cluster-file.js';
import { clusterParts } from '../../src/cost-model/cluster-parts.js';

const textOf = ({ nodes, perNode }: Cluster) => `${nodes}x${perNode}`;

const placed = (cluster: Cluster) =>
  clusterParts(cluster).map((part) => `${textOf(part.cluster)} from ${part.firstNode}`);

test('of a named cluster devices of a node, then nodes, by powers of two and all', (t) => {
  const parts = clusterParts(parseCluster('6x8:h100-sxm-80', undefined));
  t.deepEqual(
    parts.map(({ cluster }) => textOf(cluster)),
    ['1x1', '1x2', '1x4', '1x8', '2x8', '4x8', '6x8'],
  );
});

test('of a file whole groups of nodes, on the links that they have there', (t) => {
  const levels = [
    { name: 'node', size: 2 },
    { name: 'rack', size: 3, bandwidth: '400Gbit/s', cards: 2 },
    { name: 'cluster', size: 2, bandwidth: '12.5GB/s' },
  ];
  const whole = clusterOfDescription({ version: 1, device: 'h100-sxm-80', levels });
  const parts = clusterParts(whole);
  t.deepEqual(
    parts.map(({ cluster }) => cluster.levels.map(({ size }) => size)),
    [
      [1, 1, 1],
      [2, 1, 1],
      [2, 2, 1],
      [2, 3, 1],
      [2, 3, 2],
    ],
  );
  t.deepEqual(parts.at(-1)?.cluster, whole);
  const [, , racked] = parts;
  t.is(racked?.cluster.levels[1]?.bandwidth, whole.levels[1]?.bandwidth);
});

test('of nodes that differ those of each kind too', (t) => {
  const described = (nodes: readonly object[]) =>
    clusterOfDescription({
      version: 1,
      device: 'h100-sxm-80',
      levels: [
        { name: 'node', size: 2 },
        { name: 'network', size: 4, bandwidth: '25GB/s' },
      ],
      nodes,
    });
  const mixed = described([{ count: 3, device: 'v100-sxm2-32' }, { count: 1 }]);
  t.deepEqual(placed(mixed), [
    '1x1 from 0',
    '1x1 from 3',
    '1x2 from 0',
    '1x2 from 3',
    '2x2 from 0',
    '2x2 from 2',
    '4x2 from 0',
  ]);
  t.deepEqual(
    clusterParts(mixed).map(({ cluster }) => cluster.device.id),
    [...['v100', 'h100', 'v100', 'h100', 'v100'].map((id) => (id === 'v100' ? 'v100-sxm2-32' : 'h100-sxm-80'))].concat([
      'v100-sxm2-32',
      'v100-sxm2-32',
    ]),
  );
  t.deepEqual(placed(described([{ count: 1 }, { count: 3 }])), [
    '1x1 from 0',
    '1x2 from 0',
    '2x2 from 0',
    '4x2 from 0',
  ]);
});

test('a piece of a ring or a torus is none', (t) => {
  const whole = clusterOfDescription({
    version: 1,
    device: 'tpu-v4',
    levels: [
      { name: 'board', size: 4, topology: 'mesh' },
      { name: 'pod', size: 16, topology: 'torus', bandwidth: '40GB/s' },
    ],
  });
  t.deepEqual(
    clusterParts(whole).map(({ cluster }) => clusterSize(cluster)),
    [1, 2, 4, 64],
  );
});
