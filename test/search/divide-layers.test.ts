/**
 * @file Layers over stages of unequal speed, against all divisions.
 */
import test from 'ava';
import fc from 'fast-check';
import { clusterOfDescription } from '../../src/cost-model/cluster-file.js';
import { nodeSpeeds } from '../../src/cost-model/node-kinds.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { simulate } from '../../src/schedule/simulate.js';
import { divideLayers } from '../../src/search/divide-layers.js';

test('no division has a faster slowest stage', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 4, maxLength: 9 }),
        fc.array(fc.constantFrom(0.5, 1, 2), { minLength: 1, maxLength: 4 }),
        (layers, speeds) => {
          const counts = divideLayers(layers, speeds);
          if (counts.some((count) => count < 1)) throw new Error(`a stage without layers: ${counts}`);
          if (counts.reduce((sum, count) => sum + count, 0) !== layers.length) throw new Error(`${counts}`);
          const least = Math.min(
            ...divisions(layers.length, speeds.length).map((other) => slowest(layers, other, speeds)),
          );
          if (slowest(layers, counts, speeds) > least + 1e-9) throw new Error(`${counts} is not the best`);
        },
      ),
    ),
  );
});

test("halving one node's speed moves layers away from it, and the step is shorter than with equal stages", (t) => {
  const cluster = (speed: number) =>
    clusterOfDescription({
      version: 1,
      device: 'a100-sxm-80',
      levels: [
        { name: 'node', size: 8 },
        { name: 'network', size: 4 },
      ],
      nodes: [{ count: 2 }, { count: 1, speed }, { count: 1 }],
    });
  const speeds = (speed: number) =>
    nodeSpeeds(cluster(speed)).flatMap((run) => Array(run.nodes).fill(run.speed) as number[]);
  const layers = Array<number>(32).fill(1);
  t.deepEqual(divideLayers(layers, speeds(1)), [8, 8, 8, 8]);
  const moved = divideLayers(layers, speeds(0.5));
  t.true((moved[2] as number) <= 5, `${moved}`);

  const schedule = makeSchedule({ kind: '1f1b', stages: 4, microBatches: 16 });
  const step = (counts: readonly number[]) =>
    simulate(schedule, {
      compute: (stage, _chunk, phase) =>
        ((counts[stage] as number) / (speeds(0.5)[stage] as number)) * (phase === 'forward' ? 1 : 2),
    }).makespan;
  t.true(step(moved) < 0.7 * step([8, 8, 8, 8]), `${step(moved)}`);
});

function slowest(layers: readonly number[], counts: readonly number[], speeds: readonly number[]): number {
  let from = 0;
  return Math.max(
    ...counts.map((count, stage) => {
      const seconds = layers.slice(from, from + count).reduce((sum, value) => sum + value, 0);
      from += count;
      return seconds / (speeds[stage] as number);
    }),
  );
}

/** All ways to write a number as a sum of so many positive ones, in order. */
function divisions(total: number, parts: number): readonly (readonly number[])[] {
  if (parts === 1) return [[total]];
  return Array.from({ length: total - parts + 1 }, (_, index) => index + 1).flatMap((first) =>
    divisions(total - first, parts - 1).map((rest) => [first, ...rest]),
  );
}
