/**
 * @file Where a group lies that is told by its size and stride, against where the same group of a mesh lies.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { placeGroup, placeRanks } from '../../src/cost-model/collective-price.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';

test('groups of a mesh lie where their size and stride say', (t) => {
  for (const text of ['1x8:h100-sxm-80', '4x8:h100-sxm-80', '8x4:h100-sxm-80', '16x1:h100-sxm-80']) {
    const cluster = parseCluster(text, undefined);
    const devices = cluster.nodes * cluster.perNode;
    for (let tp = 1; tp <= devices; tp *= 2) {
      const mesh = makeMesh([
        ['dp', devices / tp],
        ['tp', tp],
      ]);
      for (const [axis, ranks, stride] of [
        ['dp', devices / tp, tp],
        ['tp', tp, 1],
      ] as const) {
        const own = mesh.axes.find(({ name }) => name === axis)?.subAxes.map(({ name }) => name) ?? [];
        t.deepEqual(placeRanks(ranks, stride, cluster), placeGroup(mesh, own, cluster), `${text} ${axis} of tp ${tp}`);
      }
    }
  }
});

test('a group fills nodes first, and every second rank of a node if its stride is two', (t) => {
  const cluster = parseCluster('16x8:h100-sxm-80', undefined);
  t.deepEqual(placeRanks(64, 1, cluster), [8, 8]);
  t.deepEqual(placeRanks(64, 2, cluster), [4, 16]);
  t.deepEqual(placeRanks(16, 8, cluster), [1, 16]);
  t.deepEqual(placeRanks(2, 64, cluster), [1, 2]);
  t.deepEqual(placeRanks(1, 1, cluster), [1, 1]);
  // Twelve ranks are a node and a half: the fuller node has eight.
  t.deepEqual(placeRanks(12, 1, cluster), [8, 2]);
});
