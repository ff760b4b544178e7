/**
 * @file Small stage problems of every kind, for property tests: whole numbers, so that sums are exact; memory that binds.
 */
import fc from 'fast-check';
import type { LayerPoint, OnceCost, StageProblem } from '../../../src/search/stages/problem.js';

const anyPoint: fc.Arbitrary<LayerPoint> = fc
  .record({
    forward: fc.integer({ min: 1, max: 9 }),
    input: fc.integer({ min: 1, max: 9 }),
    weights: fc.integer({ min: 0, max: 9 }),
    step: fc.integer({ min: 0, max: 9 }),
    resident: fc.integer({ min: 0, max: 9 }),
    saved: fc.integer({ min: 0, max: 6 }),
    transient: fc.integer({ min: 0, max: 6 }),
  })
  .map(({ forward, input, weights, step, resident, saved, transient }) => ({
    forwardSeconds: forward,
    backwardSeconds: input + weights,
    weightGradientSeconds: weights,
    stepSeconds: step,
    residentBytes: resident,
    savedBytes: saved,
    transientBytes: transient,
  }));

/** Points of one layer as recomputation makes them: slower and smaller; the step costs all the same. */
const recomputed: fc.Arbitrary<readonly LayerPoint[]> = fc
  .tuple(anyPoint, fc.integer({ min: 1, max: 3 }))
  .map(([point, count]) =>
    Array.from({ length: count }, (_, again) => ({
      ...point,
      backwardSeconds: point.backwardSeconds + again * 2,
      savedBytes: Math.max(0, point.savedBytes - 2 * again),
      transientBytes: point.transientBytes + again,
    })),
  );

const anyTable = fc.oneof(
  { weight: 4, arbitrary: recomputed },
  { weight: 3, arbitrary: fc.array(anyPoint, { minLength: 1, maxLength: 3 }) },
  { weight: 1, arbitrary: fc.constant([]) },
);

const anyOnce: fc.Arbitrary<OnceCost> = fc.record(
  {
    forwardSeconds: fc.integer({ min: 0, max: 4 }),
    backwardSeconds: fc.integer({ min: 0, max: 4 }),
    stepSeconds: fc.integer({ min: 0, max: 4 }),
    residentBytes: fc.integer({ min: 0, max: 4 }),
    savedBytes: fc.integer({ min: 0, max: 2 }),
    transientBytes: fc.integer({ min: 0, max: 8 }),
  },
  { requiredKeys: [] },
);

export interface ProblemSizes {
  readonly layers: number;
  readonly kinds: readonly StageProblem['schedule']['kind'][];
}

/** Problems with up to so many layers, three classes, two groups of devices and four sub-meshes. */
export function anyProblem({ layers: most, kinds }: ProblemSizes): fc.Arbitrary<StageProblem> {
  return fc
    .record({
      layers: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: most }),
      groups: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 2 }),
      meshCount: fc.integer({ min: 1, max: 4 }),
      limits: fc.array(fc.oneof(fc.integer({ min: 5, max: 60 }), fc.constant(1000)), { minLength: 4, maxLength: 4 }),
      sizes: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 4, maxLength: 4 }),
      places: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 4, maxLength: 4 }),
      tables: fc.array(fc.array(anyTable, { minLength: 4, maxLength: 4 }), { minLength: 3, maxLength: 3 }),
      tensors: fc.array(fc.record({ from: fc.nat(7), length: fc.integer({ min: 1, max: 4 }), bytes: fc.nat(6) }), {
        maxLength: 6,
      }),
      linkSpeeds: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 2 }),
      linkTable: fc.array(fc.array(fc.nat(1), { minLength: 4, maxLength: 4 }), { minLength: 4, maxLength: 4 }),
      transfers: fc.constantFrom('overlapped' as const, 'exposed' as const),
      kind: fc.constantFrom(...kinds),
      microBatches: fc.integer({ min: 1, max: 6 }),
      training: fc.oneof({ weight: 5, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
      idleDevices: fc.boolean(),
      side: fc.option(
        fc.record({ readers: fc.array(fc.nat(most - 1), { minLength: 1, maxLength: 3 }), cost: anyOnce }),
        {
          freq: 3,
        },
      ),
      shared: fc.option(
        fc.record({ other: fc.nat(most - 1), home: fc.nat(most - 1), copy: anyOnce, exchange: anyOnce }),
        { freq: 3 },
      ),
      pinned: fc.option(fc.integer({ min: 1, max: 3 }), { freq: 4 }),
    })
    .map((drawn): StageProblem => {
      const count = drawn.layers.length;
      const meshes = Array.from({ length: drawn.meshCount }, (_, index) => index);
      const each = (cost: OnceCost) => meshes.map(() => cost);
      const inside = (layer: number) => layer % count;
      return {
        layers: drawn.layers,
        tables: drawn.tables.map((perMesh) => perMesh.slice(0, drawn.meshCount)),
        subMeshes: meshes.map((index) => ({
          name: `mesh ${index}`,
          devices: drawn.sizes[index] as number,
          group: (drawn.places[index] as number) % drawn.groups.length,
          memoryBytes: drawn.limits[index] as number,
        })),
        groups: drawn.groups.map((devices, index) => ({ name: `group ${index}`, devices })),
        tensors: drawn.tensors
          .filter(({ from }) => from < count)
          .map(({ from, length, bytes }) => ({
            producer: from,
            lastReader: Math.min(count - 1, from + length),
            bytes,
            gradientBytes: (bytes * 7) % 5,
          })),
        links: drawn.linkSpeeds.map((speed) => (bytes: number) => bytes * speed),
        linkOf: (from, to) => (drawn.linkTable[from]?.[to] as number) % drawn.linkSpeeds.length,
        transfers: drawn.transfers,
        sideInputs: drawn.side
          ? [{ name: 'mask', readers: drawn.side.readers.map(inside), cost: each(drawn.side.cost) }]
          : [],
        shared: drawn.shared
          ? [
              {
                name: 'embedding',
                users: [inside(drawn.shared.home), inside(drawn.shared.other)],
                home: inside(drawn.shared.home),
                copy: each(drawn.shared.copy),
                exchange: each(drawn.shared.exchange),
              },
            ]
          : [],
        schedule: { kind: drawn.kind, microBatches: drawn.microBatches, training: drawn.training },
        idleDevices: drawn.idleDevices,
        pins: drawn.pinned === null ? {} : { stages: Math.min(drawn.pinned, count) },
      };
    });
}
