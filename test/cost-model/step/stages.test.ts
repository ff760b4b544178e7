/**
 * @file Which devices a stage has where nodes differ: those of the nodes that its ranks are on, in any order of the axes.
 */
import test from 'ava';
import fc from 'fast-check';
import { slowestOf } from '../../../src/cost-model/node-kinds.js';
import type { MeshOrder } from '../../../src/cost-model/step/configuration.js';
import { stageClusters } from '../../../src/cost-model/step/stages.js';
import { unlikeNodes } from '../../search/configurations/base.js';

const cluster = unlikeNodes(4, [{ count: 1, device: 'h100-sxm-80' }, { count: 2 }, { count: 1, speed: 0.5 }]);
const kindOfNode = [0, 1, 1, 2];
const orders = fc.shuffledSubarray<MeshOrder[number]>(['pp', 'dp', 'sp', 'tp'], { minLength: 4 });
const degrees = fc.constantFrom(
  ...[1, 2, 4, 8, 16].flatMap((pp) =>
    [1, 2, 4, 8, 16].flatMap((dp) =>
      [1, 2, 4].flatMap((tp) => {
        const sp = 16 / (pp * dp * tp);
        return Number.isInteger(sp) ? [{ pp, dp, sp, tp, ep: 1 }] : [];
      }),
    ),
  ),
);

test('a stage is as fast as the slowest node that a rank of it lies on', (t) => {
  fc.assert(
    fc.property(degrees, orders, (own, meshOrder) => {
      const kinds = Array.from({ length: own.pp }, () => new Set<number>());
      for (let rank = 0; rank < 16; rank++) {
        // The last axis is fastest.
        let rest = rank;
        const at = new Map<string, number>();
        for (const axis of [...meshOrder].reverse()) {
          at.set(axis, rest % own[axis]);
          rest = Math.floor(rest / own[axis]);
        }
        kinds[at.get('pp') ?? 0]?.add(kindOfNode[Math.floor(rank / 4)] ?? 0);
      }
      const found = stageClusters(cluster, { degrees: own, meshOrder });
      t.is(found.length, own.pp);
      found.forEach(({ device }, stage) => {
        const devices = [...(kinds[stage] ?? [])].sort().flatMap((kind) => cluster.kinds?.[kind]?.device ?? []);
        t.deepEqual(device, slowestOf(devices));
      });
      t.is(stageClusters(cluster, { degrees: own, meshOrder })[0], found[0]);
    }),
    { numRuns: 60 },
  );
});
