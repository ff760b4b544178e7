/**
 * @file A cluster of the catalogue in a file's words, and the first devices of a cluster.
 */
import test from 'ava';
import { clusterSize, parseCluster } from '../../src/cost-model/cluster.js';
import { clusterOfDescription } from '../../src/cost-model/cluster-file.js';
import { collectiveSeconds } from '../../src/cost-model/collective-price.js';
import { descriptionOf, firstDevices } from '../../src/cost-model/describe-named.js';
import { groupPlace } from '../../src/cost-model/group-place.js';
import { HARDWARE } from '../../src/cost-model/hardware.js';

test('what is written of a named cluster is read as that cluster, for every device of the catalogue', (t) => {
  for (const { id } of HARDWARE)
    for (const size of ['1x1', '1x8', '2x8', '4x1', '3x4']) {
      const named = parseCluster(`${size}:${id}`, undefined);
      const read = clusterOfDescription(descriptionOf(named));
      t.deepEqual([read.nodes, read.perNode, read.device], [named.nodes, named.perNode, named.device]);
      for (const stride of [1, named.perNode]) {
        const ranks = clusterSize(named) / stride;
        for (const kind of ['all-reduce', 'all-to-all', 'permute'] as const) {
          const seconds = (on: typeof named) =>
            collectiveSeconds(
              kind,
              1e7,
              groupPlace({ runs: [{ stride, ranks }], devices: ranks * stride }, on.levels),
              on,
            );
          t.is(seconds(read), seconds(named), `${size}:${id} ${kind}`);
        }
      }
      const described = clusterOfDescription({ ...descriptionOf(named), name: 'mine' });
      t.is(descriptionOf(described).name, 'mine');
    }
});

test('the first devices of a cluster are those of whole nodes, or of one', (t) => {
  const whole = clusterOfDescription({
    version: 1,
    device: 'h100-sxm-80',
    levels: [
      { name: 'node', size: 8 },
      { name: 'rack', size: 4 },
      { name: 'cluster', size: 2, bandwidth: '12.5GB/s' },
    ],
  });
  const found = (devices: number) => {
    const own = firstDevices(whole, devices);
    return own && [own.nodes, own.perNode, ...own.levels.map(({ size }) => size)];
  };
  t.deepEqual(found(1), [1, 1, 1, 1, 1]);
  t.deepEqual(found(6), [1, 6, 6, 1, 1]);
  t.deepEqual(found(8), [1, 8, 8, 1, 1]);
  t.deepEqual(found(24), [3, 8, 8, 3, 1]);
  t.deepEqual(found(64), [8, 8, 8, 4, 2]);
  for (const devices of [12, 40, 65, 128]) t.is(found(devices), null, `${devices}`);
});
