/**
 * @file Meshes of stages as groupings of shared sub-axes: every rank has the place on each stage's axes that a mesh of the stage
 * alone gives it, and what is refused has no list of sub-axes at all.
 */
import test from 'ava';
import fc from 'fast-check';
import { coordinatesOf, indexOn, type Mesh, makeMesh, subAxes } from '../../src/sharding-propagation/mesh.js';
import {
  type AxisSizes,
  nameOn,
  sharedMesh,
  stageMeshes,
  stageMeshesProblem,
} from '../../src/sharding-propagation/stage-meshes.js';

const sizes: fc.Arbitrary<readonly AxisSizes[]> = fc
  .record({
    devices: fc.constantFrom(1, 2, 4, 6, 8, 12, 24),
    shares: fc.array(fc.nat(100), { minLength: 1, maxLength: 4 }),
  })
  .map(({ devices, shares }) => {
    const divisors = Array.from({ length: devices }, (_, index) => index + 1).filter((dp) => devices % dp === 0);
    return shares.map((share): AxisSizes => {
      const dp = divisors[share % divisors.length] ?? 1;
      return [
        ['dp', dp],
        ['tp', devices / dp],
      ];
    });
  });

function placesOn(mesh: Mesh, rank: number): readonly number[] {
  return mesh.axes.map((axis) =>
    indexOn(
      mesh,
      axis.subAxes.map(({ name }) => name),
      rank,
    ),
  );
}

test('ranks have the places that a mesh of the stage alone gives them', (t) => {
  fc.assert(
    fc.property(sizes, (stages) => {
      fc.pre(stageMeshesProblem(stages) === null);
      const { common, stages: meshes } = stageMeshes(stages);
      for (const [index, mesh] of meshes.entries()) {
        t.deepEqual(subAxes(mesh), subAxes(common));
        const alone = makeMesh(stages[index] ?? []);
        const devices = alone.axes.reduce((product, { size }) => product * size, 1);
        for (let rank = 0; rank < devices; rank++) {
          t.deepEqual(placesOn(mesh, rank), placesOn(alone, rank));
          t.deepEqual(coordinatesOf(mesh, rank), coordinatesOf(common, rank));
        }
      }
    }),
    { numRuns: 100, seed: 1 },
  );
});

/** Whether numbers of ranks can be counted in digits so that each stage's dp is the product of the first ones. */
function hasDigits(devices: number, wanted: ReadonlySet<number>): boolean {
  const reach = (product: number): boolean => {
    if (product === devices) return true;
    for (let next = product * 2; next <= devices; next += product) {
      const skips = [...wanted].some((dp) => dp > product && dp < next);
      if (devices % next === 0 && !skips && reach(next)) return true;
    }
    return false;
  };
  return reach(1);
}

test('meshes are refused exactly where no digits fit all of them', (t) => {
  fc.assert(
    fc.property(sizes, (stages) => {
      const [first = []] = stages;
      const devices = first.reduce((product, [, size]) => product * size, 1);
      const wanted = new Set(stages.map(([[, dp] = ['dp', 1] as const]) => dp));
      t.is(stageMeshesProblem(stages) === null, hasDigits(devices, wanted));
    }),
    { numRuns: 200, seed: 2 },
  );
});

test('unequal numbers of devices are refused', (t) => {
  t.is(stageMeshesProblem([[['tp', 2]], [['dp', 4]]]), 'stage 0 has 2 devices, stage 1 has 4');
});

test('sub-axes have the names of the axis that a stage groups them to', (t) => {
  const [first, second] = stageMeshes([
    [
      ['dp', 2],
      ['tp', 2],
    ],
    [
      ['dp', 1],
      ['tp', 4],
    ],
  ]).stages as readonly [Mesh, Mesh];
  t.deepEqual(
    subAxes(first).map(({ name }) => nameOn(first, name)),
    ['dp', 'tp'],
  );
  t.deepEqual(
    subAxes(second).map(({ name }) => nameOn(second, name)),
    ['tp.0', 'tp.1'],
  );
  t.is(sharedMesh([first, first]), first);
  t.deepEqual(subAxes(sharedMesh([first, second])), subAxes(first));
});
