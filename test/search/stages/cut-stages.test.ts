/**
 * @file Stage cuts against brute force over every cut, sub-mesh and point of thousands of small problems, and against Alpa's
 * plain sweep on larger ones.
 */
import test from 'ava';
import fc from 'fast-check';
import { cutStages } from '../../../src/search/stages/cut-stages.js';
import type { StageProblem } from '../../../src/search/stages/problem.js';
import { anyProblem } from './any-problem.js';
import { bruteForce } from './brute-force.js';
import { plainSweep } from './plain-sweep.js';

for (const kind of ['1f1b', 'f-then-b', 'naive', 'zero-bubble'] as const) {
  test(`no cut is faster: ${kind}`, (t) => {
    let found = 0;
    fc.assert(
      fc.property(anyProblem({ layers: 4, kinds: [kind] }), (problem) => {
        const answer = cutStages(problem, { simulate: 0 });
        const least = bruteForce(problem);
        if (answer.kind !== 'cut') return least === Number.POSITIVE_INFINITY;
        found++;
        const { closedFormSeconds, boundSeconds, best } = answer;
        if (Math.abs(closedFormSeconds - least) > 1e-9 * least) throw new Error(`${closedFormSeconds}, not ${least}`);
        if (boundSeconds > closedFormSeconds || answer.gap > 1e-9) throw new Error(`bound ${boundSeconds}`);
        return best.stages.every(({ peakBytes, limitBytes }) => peakBytes <= limitBytes);
      }),
      { numRuns: kind === '1f1b' ? 900 : 700, seed: 7 },
    );
    t.true(found > 150, `${found} problems have a cut`);
  });
}

test('no cut is faster: 1f1b on up to 32 devices, against the plain sweep over every bound', (t) => {
  let found = 0;
  fc.assert(
    fc.property(
      fc.record({
        layers: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 3, maxLength: 9 }),
        devices: fc.integer({ min: 4, max: 32 }),
        seconds: fc.array(fc.integer({ min: 5, max: 60 }), { minLength: 3, maxLength: 3 }),
        loss: fc.integer({ min: 0, max: 8 }),
        memoryBytes: fc.integer({ min: 4, max: 60 }),
        microBatches: fc.integer({ min: 1, max: 12 }),
      }),
      ({ layers, devices, seconds, loss, memoryBytes, microBatches }) => {
        const sizes = [1, 2, 4, 8, 16].filter((size) => size <= devices);
        const problem: StageProblem = {
          layers,
          // Twice the devices, somewhat more than half the time.
          tables: seconds.map((each) =>
            sizes.map((size) => [
              {
                forwardSeconds: Math.ceil(each / size) + loss * Math.log2(size),
                backwardSeconds: 0,
                residentBytes: Math.ceil(16 / size),
                savedBytes: Math.ceil(8 / size),
                transientBytes: 1,
              },
            ]),
          ),
          subMeshes: sizes.map((size) => ({ name: `${size}`, devices: size, group: 0, memoryBytes })),
          groups: [{ name: 'all', devices }],
          tensors: [],
          links: [() => 0],
          schedule: { kind: '1f1b', microBatches },
        };
        const answer = cutStages(problem, { simulate: 0 });
        const least = plainSweep(problem);
        if (answer.kind !== 'cut') return least === Number.POSITIVE_INFINITY;
        found++;
        return answer.closedFormSeconds === least && answer.gap === 0;
      },
    ),
    { numRuns: 200, seed: 11 },
  );
  t.true(found > 100, `${found} problems have a cut`);
});
