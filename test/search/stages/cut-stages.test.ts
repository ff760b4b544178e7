/**
 * @file Stage cuts against brute force: over every cut, sub-mesh and point of thousands of small problems.
 */
import test from 'ava';
import fc from 'fast-check';
import { cutStages } from '../../../src/search/stages/cut-stages.js';
import { anyProblem } from './any-problem.js';
import { bruteForce } from './brute-force.js';

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
      { numRuns: 1500, seed: 7 },
    );
    t.true(found > 300, `${found} problems have a cut`);
  });
}
