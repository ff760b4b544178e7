/**
 * @file Fits give back the figures of machines that were made up, and the cost model then predicts what was measured.
 */
import test from 'ava';
import fc from 'fast-check';
import { sweep } from '../../src/api/profile/sweep.js';
import { clusterOfDescription } from '../../src/cost-model/cluster-file.js';
import { collectiveSeconds } from '../../src/cost-model/collective-price.js';
import { fitProfile, leastSquares, type Measurement } from '../../src/cost-model/fit-profile.js';
import { evenPlace } from '../../src/cost-model/group-place.js';
import { operatorSeconds } from '../../src/cost-model/kernel-price.js';
import { passesOf } from '../../src/cost-model/levels.js';

/** A machine that follows the model exactly. */
const TRUE = {
  rate: 8e10,
  halfDepth: 20,
  packing: 3e10,
  memory: 1.2e10,
  cacheBytes: 2 ** 21,
  cacheGain: 4,
  results: 9e9,
  segment: 2e-5,
  operator: 5e-7,
  tensor: 2e-6,
  launch: 3e-5,
  latency: 4e-6,
  bus: 5e9,
  /** Slowdown of a rank alone, and of ranks that share cores. */
  alone: 1.5,
  crowded: 0.8,
  aloneMemory: 1.7,
  crowdedMemory: 0.6,
};

function measured(of: typeof TRUE, noise: (index: number) => number = () => 1, cores = 4): readonly Measurement[] {
  return sweep(cores, false).map(({ subject, ranks }, index) => {
    const handed = (elements: number) => of.segment + (4 * elements) / of.results;
    const turns = Math.max(1, ranks / cores);
    const own = (bytes: number) => {
      const cached = Math.min(bytes, of.cacheBytes);
      return of.operator + (bytes - cached + cached / of.cacheGain) / of.memory;
    };
    const seconds = () => {
      if (subject.kind === 'chain') return of.segment + subject.operators * of.operator;
      const shared = (alone: number, crowded: number) => (ranks === 1 ? 1 / alone : turns > 1 ? turns / crowded : 1);
      const moving = shared(of.aloneMemory, of.crowdedMemory);
      if (subject.kind === 'add')
        return moving * (handed(subject.elements) + subject.operators * own(12 * subject.elements));
      if (subject.kind === 'wide') {
        const { tensors, elements } = subject;
        return moving * (handed(tensors * elements) + tensors * own(8 * elements) + 2 * (tensors - 1) * of.tensor);
      }
      if (subject.kind === 'matmul') {
        const { rows, side, operators, stored } = subject;
        const packed = stored ? 0 : (4 * side * side) / of.packing;
        const each = ((2 * rows * side * side) / of.rate) * (1 + of.halfDepth / side) + packed;
        return (handed(rows * side) + operators * each) * shared(of.alone, of.crowded);
      }
      const { collective, elements } = subject;
      const doublings = collective === 'permute' ? 1 : Math.log2(ranks) * (collective === 'all-reduce' ? 2 : 1);
      return turns * (of.launch + doublings * of.latency + (passesOf(collective, ranks) * elements * 4) / of.bus);
    };
    return { ...subject, ranks, seconds: seconds() * noise(index) };
  });
}

for (const cores of [2, 4]) {
  test(`a machine of ${cores} cores that follows the model is found again`, (t) => {
    const { cluster, alone, crowded, errors } = fitProfile(measured(TRUE, () => 1, cores));
    const { device, levels } = clusterOfDescription(cluster);
    const near = (found: number | undefined, truth: number) =>
      t.true(Math.abs((found ?? 0) / truth - 1) < 1e-3, `${found} is not ${truth}`);
    near(device.peakFlops.fp32, TRUE.rate);
    near(device.profile?.packingBandwidth, TRUE.packing);
    near(device.profile?.resultBandwidth, TRUE.results);
    near(device.profile?.memory.cacheBytes, TRUE.cacheBytes);
    near(device.profile?.memory.cacheGain, TRUE.cacheGain);
    near(alone.compute, TRUE.alone);
    near(alone.memory, TRUE.aloneMemory);
    near(crowded.memorySpeed, TRUE.crowdedMemory);
    near(crowded.speed, TRUE.crowded);
    near(crowded.collectiveSeconds, 2 * (TRUE.launch + TRUE.segment));
    near(crowded.latency, 2 * TRUE.latency);
    near(crowded.busBandwidth['reduce-scatter'], TRUE.bus / 2);
    near(device.memoryBandwidth, TRUE.memory);
    near(device.profile?.halfDepth, TRUE.halfDepth);
    near(device.profile?.launchSeconds, TRUE.operator);
    near(device.profile?.segmentSeconds, TRUE.segment);
    near(device.profile?.collectiveSeconds, TRUE.launch + TRUE.segment);
    near(device.profile?.tensorSeconds, TRUE.tensor);
    near(levels[0]?.latencySeconds, TRUE.latency);
    near(levels[0]?.busBandwidth['all-to-all'], TRUE.bus);
    for (const error of Object.values(errors)) t.true(error < 1e-6);
  });
}

test('the fitted device predicts what was measured, noise aside', (t) => {
  const all = measured(TRUE, (index) => 1 + 0.1 * Math.sin(index * 12.9898));
  const cluster = clusterOfDescription(fitProfile(all).cluster);
  const errors = all.flatMap((entry) => {
    if (entry.kind === 'collective') {
      if (entry.ranks > 4) return [];
      const levels = cluster.levels.map((level) => ({ ...level, size: entry.ranks }));
      const seconds = collectiveSeconds(entry.collective, entry.elements * 4, evenPlace([entry.ranks]), {
        ...cluster,
        levels,
      });
      return [Math.abs((seconds - TRUE.segment) / entry.seconds - 1)];
    }
    if (entry.kind !== 'matmul' || entry.ranks !== 4 || !entry.stored || entry.rows * entry.side < 2 ** 17) return [];
    const { rows, side, operators } = entry;
    const work = { flops: 2 * rows * side * side, bytes: 0, dtype: 'float32' as const, result: [rows, side] };
    return [Math.abs((operators * operatorSeconds(work, cluster.device)) / entry.seconds - 1)];
  });
  t.true(errors.reduce((sum, error) => sum + error, 0) / errors.length < 0.12, `${errors}`);
});

test('least squares: exact where a solution without negative figures exists, never negative', (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 99 })),
          {
            minLength: 3,
            maxLength: 12,
          },
        ),
        fc.tuple(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 1, max: 9 })),
        (samples, [a, b]) => {
          const rows = samples.map(([x, y]) => [x, y]);
          const exact = leastSquares(
            rows,
            rows.map(([x = 0, y = 0]) => a * x + b * y),
          );
          if (exact.error > 1e-6) throw new Error(`${exact.figures} for ${a}, ${b}`);
          const { figures } = leastSquares(
            rows,
            samples.map(([, , seconds]) => seconds),
          );
          if (figures.some((figure) => !(figure >= 0))) throw new Error(`${figures}`);
        },
      ),
    ),
  );
});

test('a kind that was not measured is a fault', (t) => {
  const all = measured(TRUE);
  t.throws(() => fitProfile(all.filter(({ kind }) => kind !== 'add')), { message: 'no add was measured' });
});
