/**
 * @file Places of groups, against groups written out rank by rank; and the effect of the order of the axes on a step.
 */
import test from 'ava';
import fc from 'fast-check';
import { type SimulateOptions, simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { groupPlace } from '../../../src/cost-model/group-place.js';
import type { MeshOrder } from '../../../src/cost-model/step/configuration.js';
import { type GroupName, groupRuns } from '../../../src/cost-model/step/mesh-order.js';
import { groupsOn, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { slowTests, thinned } from '../../selection.js';

const slow = slowTests(test);

const AXES = ['pp', 'dp', 'sp', 'tp'] as const;
const degree = fc.constantFrom<number>(1, 2, 4);
const asked = fc.record({
  degrees: fc.record({ pp: degree, dp: degree, sp: degree, tp: degree }),
  order: fc.shuffledSubarray([...AXES], { minLength: 4 }),
  perNode: fc.constantFrom(2, 4, 8),
});

/** The largest number of members that share a node, and the nodes of a group, counted on written-out groups. */
function counted(
  degrees: Readonly<Record<string, number>>,
  order: MeshOrder,
  axes: readonly string[],
  perNode: number,
) {
  const mesh = makeMesh(order.map((axis) => [axis, degrees[axis] ?? 1]));
  const names = mesh.axes.flatMap(({ name, subAxes }) => (axes.includes(name) ? subAxes.map((sub) => sub.name) : []));
  const [first = []] = groupsOn(mesh, names);
  const nodes = first.map((rank) => Math.floor(rank / perNode));
  const across = new Set(nodes).size;
  return { inside: first.length / across, across };
}

test('a group lies where its ranks do, in any order of the axes', (t) => {
  const groups: readonly (readonly [GroupName, readonly string[]])[] = [
    ['tp', ['tp']],
    ['sp', ['sp']],
    ['pp', ['pp']],
    ['dp', ['dp', 'sp']],
  ];
  fc.assert(
    fc.property(asked, ({ degrees, order, perNode }) => {
      const runs = groupRuns({ ...degrees, ep: 1 }, order);
      const devices = Object.values(degrees).reduce((product, size) => product * size, 1);
      const levels = parseCluster(`${Math.ceil(devices / perNode) + 1}x${perNode}:a100-sxm-80`, undefined).levels;
      for (const [group, axes] of groups) {
        const expected = counted(degrees, order, axes, perNode);
        const { members: place } = groupPlace(runs[group], levels);
        t.deepEqual(place, [expected.inside, expected.across], `${group} ${order} ${JSON.stringify(degrees)}`);
      }
    }),
  );
});

test('ep and the replicas of an expert make up dp · sp', (t) => {
  fc.assert(
    fc.property(asked, fc.constantFrom<number>(1, 2, 4, 8), ({ degrees, order, perNode }, ep) => {
      fc.pre((degrees.dp * degrees.sp) % ep === 0);
      const runs = groupRuns({ ...degrees, ep }, order);
      const size = (group: GroupName) => runs[group].runs.reduce((product, { ranks }) => product * ranks, 1);
      t.is(size('ep'), ep);
      t.is(size('ep') * size('replicas'), size('dp'));
      const levels = parseCluster(`64x${perNode}:a100-sxm-80`, undefined).levels;
      const [{ members: whole }, { members: inner }] = [groupPlace(runs.dp, levels), groupPlace(runs.ep, levels)];
      t.true((inner[1] ?? 1) <= (whole[1] ?? 1));
    }),
  );
});

test('levels of a described cluster: pairs in a node in a rack', (t) => {
  const [level] = parseCluster('1x2:a100-sxm-80', undefined).levels;
  if (!level) return t.fail();
  const levels = ['pair', 'node', 'rack'].map((name, index) => ({ ...level, name, size: [2, 4, 2][index] ?? 1 }));
  const runs = groupRuns({ pp: 2, dp: 4, sp: 1, tp: 2, ep: 1 });
  t.deepEqual(groupPlace(runs.tp, levels).members, [2, 1, 1]);
  t.deepEqual(groupPlace(runs.dp, levels).members, [1, 4, 1]);
  t.deepEqual(groupPlace(runs.pp, levels).members, [1, 1, 2]);
});

const STEP: SimulateOptions = {
  generate: 'gpt:layers=24,hidden=2048,heads=16,seq=2048',
  cluster: '2x8:a100-sxm-80',
  loss: { kind: 'cross_entropy' },
  globalBatch: 32,
};

/** Every order of the axes that have ranks; the others do not matter. */
function orders(degrees: Readonly<Partial<Record<(typeof AXES)[number], number>>>): readonly MeshOrder[] {
  const used = AXES.filter((axis) => degrees[axis] !== undefined);
  return permutations(used).map((order) => [...AXES.filter((axis) => !used.includes(axis)), ...order]);
}

function permutations(axes: MeshOrder): readonly MeshOrder[] {
  if (axes.length < 2) return [axes];
  return axes.flatMap((axis) =>
    permutations(axes.filter((other) => other !== axis)).map((rest): MeshOrder => [axis, ...rest]),
  );
}

// With 512 samples the pipeline belongs inside and dp across (docs/choosing-a-strategy.md): sends of activations grow, gradients
// do not.
slow(
  'on 2x8 with pp 4 · dp 2 · tp 2 only pp crosses nodes, with tp 8 · dp 2 only dp; with 32 samples no other order ' +
    'is cheaper',
  async (t) => {
    for (const [degrees, crossing] of [
      [{ pp: 4, dp: 2, tp: 2 }, ['pp']],
      [{ dp: 2, tp: 8 }, ['dp']],
    ] as const) {
      const usual = await simulate({ ...STEP, ...degrees });
      const across = usual.axes.filter(({ link }) => link?.level === 'network');
      t.deepEqual(
        across.map(({ axis }) => axis),
        crossing,
      );
      for (const axis of across) t.true(axis.sentBytes > 0 && axis.seconds > 0);
      const others = await Promise.all(
        orders(degrees).map((meshOrder) => simulate({ ...STEP, ...degrees, meshOrder })),
      );
      const steps = others.map(({ stepSeconds }) => stepSeconds);
      t.is(steps.length, crossing[0] === 'pp' ? 6 : 2);
      t.true(Math.min(...steps) >= usual.stepSeconds - 1e-12);
      // An order that takes tp out of the node costs a sixth more at least.
      t.true(Math.max(...steps) > 1.16 * usual.stepSeconds);
    }
  },
);

slow(
  'tensor parallelism that leaves the node is dearer for these models, whichever of these degrees are with it',
  async (t) => {
    for (const generate of ['gpt:layers=24,hidden=2048,heads=16', 'llama:layers=16,seq=8192'])
      for (const degrees of thinned(
        [
          { pp: 2, dp: 4, tp: 2 },
          { pp: 4, tp: 4 },
          { dp: 2, sp: 2, tp: 4 },
          { pp: 2, tp: 8 },
        ],
        2,
      )) {
        const inside: number[] = [];
        const outside: number[] = [];
        for (const meshOrder of orders(degrees)) {
          const { axes, stepSeconds } = await simulate({ ...STEP, generate, ...degrees, meshOrder });
          const tp = axes.find(({ axis }) => axis === 'tp');
          (tp?.link?.level === 'node' ? inside : outside).push(stepSeconds);
        }
        t.true(inside.length > 0 && outside.length > 0);
        t.true(Math.min(...outside) > Math.min(...inside), `${generate} ${JSON.stringify(degrees)}`);
      }
  },
);
