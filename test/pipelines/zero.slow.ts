/**
 * @file ZeRO levels of every model under two sets of degrees: as
 * `zero.test.ts` for the first of each kind.
 */
import test from 'ava';
import { thinned } from '../selection.js';
import { checkLevels, type Degrees, LEVELS } from './zero-levels.js';

const MODELS = ['gpt', 'llama', 'mlp', 'cnn', 'skips', 'encoder-decoder', 'same-weight-twice', 'shared-layer'] as const;

const DEGREES: readonly (readonly [degrees: Degrees, microBatches: number])[] = [
  [{ dp: 2 }, 1],
  [{ dp: 4 }, 2],
  [{ dp: 2, tp: 2 }, 4],
  [{ kind: '1f1b', stages: 2, dp: 2 }, 4],
  [{ kind: 'zero-bubble', stages: 2, dp: 2 }, 2],
];

// Pairwise: each model under two of the degrees, in turn; the second time with optimizer states sharded, and with everything.
const CASES = MODELS.flatMap((model, index) => [
  { model, place: index, levels: LEVELS },
  { model, place: index + 2, levels: [1, 3] as const },
]);

for (const { model, place, levels } of thinned(CASES, 2)) {
  const [degrees, microBatches] = DEGREES[place % DEGREES.length] as (typeof DEGREES)[number];
  test.serial(`${model} in ${microBatches} ${JSON.stringify(degrees)}`, (t) =>
    checkLevels(t, { model, microBatches }, degrees, levels),
  );
}
