/**
 * @file If options leave no step, the error names a smallest set of them: this set alone leaves none, and without any one of it
 * there is a step, by searches to the end.
 */
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import {
  prepareStep,
  type StepSearchOptions,
  searchPrepared,
  searchStep,
} from '../../../src/api/planning/search-step.js';
import { conflictingPins, pinsTyped } from '../../../src/api/requests/step-conflict.js';
import { AutoparError } from '../../../src/ir/error.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

const STEP: StepSearchOptions = {
  generate: 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024',
  cluster: '2x4:a100-sxm-80',
  loss: { kind: 'cross_entropy' },
  globalBatch: 24,
};

const zero = fc.constantFrom(0 as const, 1 as const);
const recompute = fc.constantFrom('none' as const, 'full' as const);
const schedule = fc.constantFrom('1f1b' as const, 'interleaved-1f1b' as const);
const some = { requiredKeys: [] };

/** Many options for degrees and batches, most of which are impossible together. */
const shapes = fc.record(
  {
    pp: fc.constantFrom(1, 2, 4, 8),
    dp: fc.constantFrom(1, 2, 3, 4, 8),
    sp: fc.constantFrom(1, 2),
    tp: fc.constantFrom(1, 2, 4),
    microBatch: fc.constantFrom(1, 3, 5, 12),
    microBatches: fc.constantFrom(2, 4, 6),
    virtualStages: fc.constantFrom(1, 2, 3),
    ...{ schedule, zero, recompute },
  },
  some,
);

/** Options that are possible together, and may need more memory than there is. */
const savings = fc.record(
  {
    dp: fc.constantFrom(4, 8),
    microBatch: fc.constantFrom(1, 3),
    offload: fc.constantFrom('none' as const, 'activations' as const),
    ...{ zero, recompute },
  },
  some,
);

slow('of degrees and batches what the error names leaves none, and all of it is needed for that', async (t) => {
  const sets = await named(t, shapes, STEP, 5, [
    { dp: 2, pp: 4, microBatch: 24, zero: 1 },
    { dp: 3, tp: 2 },
  ]);
  t.deepEqual(sets.slice(0, 2), [['dp', 'microBatch'], ['dp']]);
});

slow('of what takes memory too; where nothing fits whatever is said, nothing is named', async (t) => {
  for (const [memory, set] of [
    [3e9, ['dp', 'offload', 'zero']],
    [1e9, []],
  ] as const) {
    const sets = await named(t, savings, { ...STEP, memory }, 3, [{ dp: 8, zero: 0, offload: 'none' }]);
    t.deepEqual(sets[0]?.toSorted(), [...set]);
  }
});

test('each option is tried, in the words in which it is typed; what does not matter is left out', async (t) => {
  const options: StepSearchOptions = { ...STEP, pp: 2, zero: 1, microBatch: 5, tpSequence: 'auto', recompute: 'full' };
  const asked: StepSearchOptions[] = [];
  const set = await conflictingPins(options, async (some) => {
    asked.push(some);
    if (some.microBatch === 5 && some.recompute === 'full')
      throw new AutoparError('nothing-fits', 'noPlan', 'no', {}, 'no');
  });
  t.deepEqual(pinsTyped(options, set), ['--micro-batch 5', '--recompute full']);
  t.is(asked.length, 9);
  t.true(asked.every(({ generate, globalBatch }) => generate === STEP.generate && globalBatch === 24));
  const nothing = await conflictingPins(options, async () => {
    throw new AutoparError('nothing-fits', 'noPlan', 'no', {}, 'no');
  });
  t.deepEqual(nothing, []);
  await t.throwsAsync(
    conflictingPins(options, () => Promise.reject(new TypeError('a fault'))),
    { instanceOf: TypeError },
  );
});

type Said = Partial<StepSearchOptions>;

/** Options that errors name among drawn ones that leave no step, the examples first; checked by searches to the end. */
async function named(
  t: ExecutionContext,
  drawn: fc.Arbitrary<Said>,
  step: StepSearchOptions,
  numRuns: number,
  examples: readonly Said[],
): Promise<readonly (readonly string[])[]> {
  const { read } = await prepareStep(STEP);
  const sets: (readonly string[])[] = [];
  await fc.assert(
    fc.asyncProperty(drawn, async (said) => {
      const error = await searchStep({ ...step, ...said }).catch((error: unknown) => error);
      if (!(error instanceof AutoparError)) return;
      const isNone = async (options: Said): Promise<boolean> => {
        try {
          const prepared = await prepareStep({ ...step, ...options }, read);
          if (error.code === 'nothing-fits') await searchPrepared(prepared);
          return false;
        } catch (refusal) {
          t.true(refusal instanceof AutoparError, String(refusal));
          return true;
        }
      };
      const [, wider] = /^--tp (\d+), which spans nodes/.exec(error.hint ?? '') ?? [];
      // No given option has to go: there is a step with a tp that is only looked at if it is given.
      if (wider !== undefined) {
        await t.notThrowsAsync(searchStep({ ...step, ...said, tp: Number(wider) }));
        return;
      }
      const keys = namedIn(error.hint ?? '');
      const set = Object.fromEntries(keys.map((key) => [key, said[key]]));
      t.true(await isNone(set), `${keys}: ${error.hint}`);
      for (const key of keys) t.false(await isNone({ ...set, [key]: undefined }), `${key} of ${error.hint}`);
      sets.push(keys);
    }),
    { numRuns, examples: examples.map((example): [Said] => [example]) },
  );
  return sets;
}

const KEYS: Readonly<Record<string, keyof Said>> = {
  '--micro-batch': 'microBatch',
  '--micro-batches': 'microBatches',
  '--virtual-stages': 'virtualStages',
};

/** The options of which a hint says that they leave nothing. */
function namedIn(hint: string): readonly (keyof Said)[] {
  const [, list = ''] = /^(--.*?) leaves? no/.exec(hint) ?? [];
  return (list.match(/--[a-z-]+/g) ?? []).map((flag) => KEYS[flag] ?? (flag.slice(2) as keyof Said));
}

test('a hint speaks of degrees alone, and does not rule out the option that another hint offers', async (t) => {
  const refused = searchStep({ ...STEP, generate: 'gpt:layers=2,hidden=64,heads=4,seq=9,vocab=64', sp: 2 });
  const { hint = '' } = (await t.throwsAsync(refused)) as AutoparError;
  t.regex(hint, /^--sp 2 leaves no combination of degrees, whatever the other degrees are: leave it out/);
});
