/**
 * @file Pareto fronts of many layers: nothing better is left out, and where points stand for others, no more than is said.
 */
import test from 'ava';
import fc from 'fast-check';
import { type Combination, compose, type Front, frontOf, pointsOf } from '../../../src/search/stages/front.js';

const anyLayer = fc.array(
  fc.record({
    fill: fc.integer({ min: 1, max: 1000 }),
    pace: fc.integer({ min: 1, max: 1000 }),
    held: fc.integer({ min: 0, max: 1000 }),
    transient: fc.integer({ min: 0, max: 100 }),
  }),
  { minLength: 2, maxLength: 4 },
);

const leaves = (points: readonly Omit<Combination, 'leaf'>[], layerClass: number) =>
  points.map((each, point) => ({ ...each, leaf: { layerClass, point } }));

for (const most of [10_000, 12]) {
  for (const proportional of [false, true]) {
    test(`at most ${most} points${proportional ? ', pace in proportion' : ''}: one for every combination`, (t) => {
      fc.assert(
        fc.property(
          fc.array(anyLayer, { minLength: 1, maxLength: 5 }),
          fc.integer({ min: 500, max: 4000 }),
          (drawn, memoryBytes) => {
            const layers = drawn.map((points) =>
              points.map((each) => (proportional ? { ...each, pace: 3 * each.fill } : each)),
            );
            const limits = { memoryBytes, most, proportional };
            const fronts = layers.map((points, layerClass) => frontOf(leaves(points, layerClass), limits));
            const front = fronts.reduce((left, right) => compose(left, right, limits));
            if (most > 1000 && front.slack !== 1) return false;
            return (
              everyCombination(layers).every((sum) => sum.held + sum.transient > memoryBytes || covered(sum, front)) &&
              front.points.every((found) => rebuilt(found, layers))
            );
          },
        ),
        { numRuns: 200, seed: 5 },
      );
      t.pass();
    });
  }
}

type Sums = Omit<Combination, 'leaf' | 'parts'>;

function everyCombination(layers: readonly (readonly Sums[])[]): readonly Sums[] {
  return layers.reduce<readonly Sums[]>(
    (starts, points) =>
      starts.flatMap((start) =>
        points.map((each) => ({
          fill: start.fill + each.fill,
          pace: start.pace + each.pace,
          held: start.held + each.held,
          transient: Math.max(start.transient, each.transient),
        })),
      ),
    [{ fill: 0, pace: 0, held: 0, transient: 0 }],
  );
}

function covered(sum: Sums, { points, slack }: Front): boolean {
  return points.some(
    ({ fill, pace, held, transient }) =>
      fill <= sum.fill * slack * (1 + 1e-12) &&
      pace <= sum.pace * slack * (1 + 1e-12) &&
      held <= sum.held &&
      transient <= sum.transient,
  );
}

/** Whether the points that a combination names add up to it. */
function rebuilt(found: Combination, layers: readonly (readonly Sums[])[]): boolean {
  const chosen = pointsOf(found);
  const rows = layers.map((points, layerClass) => points[chosen.get(layerClass)?.[0] ?? -1]);
  const total = (of: (row: Sums) => number) => rows.reduce((sum, row) => sum + (row ? of(row) : Number.NaN), 0);
  return total(({ fill }) => fill) === found.fill && total(({ held }) => held) === found.held;
}
