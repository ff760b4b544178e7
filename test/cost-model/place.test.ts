/**
 * @file Nodes of the groups of an axis, against all groups written out rank by rank: the slowest counts.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { collectiveSeconds } from '../../src/cost-model/collective-price.js';
import { evenPlace, type GroupPlace, groupPlace, levelOfAxis, placeGroup } from '../../src/cost-model/group-place.js';
import { COLLECTIVE_KINDS } from '../../src/cost-model/levels.js';
import { groupRuns } from '../../src/cost-model/step/mesh-order.js';
import { deviceCount, groupsOn, makeMesh, subAxes } from '../../src/sharding-propagation/mesh.js';

/** The place of one group on nodes, counted: the most ranks in a node, the nodes, and the fewest in one of these. */
function counted(ranks: readonly number[], perNode: number): GroupPlace {
  const nodes = new Map<number, number>();
  for (const rank of ranks) {
    const node = Math.floor(rank / perNode);
    nodes.set(node, (nodes.get(node) ?? 0) + 1);
  }
  const [most, fewest] = [Math.max(...nodes.values()), Math.min(...nodes.values())];
  return { ranks: ranks.length, members: [most, nodes.size], cards: [1, fewest], others: [], key: '' };
}

/** Meshes of four axes that fill clusters, powers of two or not. */
const drawn = fc
  .record({
    perNode: fc.constantFrom(4, 6, 8, 12),
    nodes: fc.constantFrom(3, 4, 6, 12),
    device: fc.constantFrom('a100-sxm-80', 'h100-sxm-80', 'mi300x-192'),
    cuts: fc.array(fc.integer({ min: 0, max: 7 }), { minLength: 3, maxLength: 3 }),
    axes: fc.subarray(['pp', 'dp', 'sp', 'tp'], { minLength: 1 }),
  })
  .map(({ perNode, nodes, device, cuts, axes }) => {
    let left = perNode * nodes;
    const sizes = cuts.map((cut) => {
      const divisors = Array.from({ length: left }, (_, index) => index + 1).filter((size) => left % size === 0);
      const size = divisors[cut % divisors.length] ?? 1;
      left /= size;
      return size;
    });
    const mesh = makeMesh(['pp', 'dp', 'sp', 'tp'].map((name, index) => [name, sizes[index] ?? left]));
    const named = parseCluster(`${nodes}x8:${device}`, undefined);
    const cluster = {
      ...named,
      levels: named.levels.map((level, at) => (at === 0 ? { ...level, size: perNode } : level)),
    };
    const over = mesh.axes.flatMap(({ name, subAxes: own }) => (axes.includes(name) ? own.map((sub) => sub.name) : []));
    return { mesh, cluster, over, perNode };
  });

test('a collective takes as long as the slowest of its groups, counted rank by rank', (t) => {
  let [even, uneven] = [0, 0];
  fc.assert(
    fc.property(drawn, ({ mesh, cluster, over, perNode }) => {
      const place = placeGroup(mesh, over, cluster);
      const groups = groupsOn(mesh, over).map((ranks) => counted(ranks, perNode));
      if (new Set(groups.map(({ members, cards }) => `${members}/${cards}`)).size > 1) uneven++;
      else even++;
      for (const kind of COLLECTIVE_KINDS)
        for (const bytes of [0, 1e3, 1e6, 1e9]) {
          const slowest = Math.max(...groups.map((own) => collectiveSeconds(kind, bytes, own, cluster)));
          const own = collectiveSeconds(kind, bytes, place, cluster);
          t.true(Math.abs(own - slowest) <= 1e-9 * slowest, `${kind} ${bytes} over ${over}: ${place.key}`);
        }
    }),
    { numRuns: 500 },
  );
  t.true(even > 10 && uneven > 10, `${even} and ${uneven}`);
});

test('the places of a step are those of its mesh, in whatever order the axes are', (t) => {
  fc.assert(
    fc.property(drawn, fc.shuffledSubarray(['pp', 'dp', 'sp', 'tp'] as const, { minLength: 4 }), (own, order) => {
      const size = (name: string) => own.mesh.axes.find((axis) => axis.name === name)?.size ?? 1;
      const degrees = { pp: size('pp'), dp: size('dp'), sp: size('sp'), tp: size('tp'), ep: 1 };
      const mesh = makeMesh(order.map((name) => [name, degrees[name]]));
      const over = (...names: readonly string[]) =>
        mesh.axes.flatMap(({ name, subAxes: parts }) => (names.includes(name) ? parts.map((part) => part.name) : []));
      const runs = groupRuns(degrees, order);
      for (const [group, names] of [
        ['tp', ['tp']],
        ['sp', ['sp']],
        ['dp', ['dp', 'sp']],
        ['pp', ['pp']],
      ] as const)
        t.deepEqual(groupPlace(runs[group], own.cluster.levels), placeGroup(mesh, over(...names), own.cluster), group);
    }),
  );
});

test(
  'tp 6 on nodes of eight: the group of ranks 6 to 11 has two devices in a node, and crosses the network over ' +
    'their cards',
  (t) => {
    const { levels } = parseCluster('12x8:a100-sxm-80', undefined);
    const place = (stride: number, ranks: number) => groupPlace({ runs: [{ stride, ranks }], devices: 96 }, levels);
    t.deepEqual(place(1, 6), { ...place(1, 6), ranks: 6, members: [4, 2], cards: [1, 2] });
    t.deepEqual(place(1, 8), evenPlace([8, 1]));
    t.deepEqual(place(1, 24), evenPlace([8, 3]));
    t.deepEqual(place(8, 12), evenPlace([1, 12]));
    t.deepEqual(place(4, 3), { ...place(4, 3), ranks: 3, members: [2, 2], cards: [1, 1] });
  },
);

test('the level of a sub-axis is the innermost that no group of it straddles', (t) => {
  fc.assert(
    fc.property(drawn, ({ mesh, cluster, perNode }) => {
      for (const { name } of subAxes(mesh)) {
        const groups = groupsOn(mesh, [name]).map((ranks) => counted(ranks, perNode));
        const { level, isEven } = levelOfAxis(mesh, name, cluster);
        const crossing = groups.filter(({ members }) => (members[1] ?? 1) > 1).length;
        t.is(level === 0, crossing === 0, `${name} of ${deviceCount(mesh)}`);
        if (isEven) t.true(crossing === 0 || crossing === groups.length);
      }
    }),
    { numRuns: 60 },
  );
});
