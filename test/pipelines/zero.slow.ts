/**
 * @file ZeRO levels of every model under two sets of degrees: as
 * `zero.test.ts` for the first of each kind.
 */
import test from 'ava';
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
for (const [index, model] of MODELS.entries()) {
  for (const [place, levels] of [
    [index, LEVELS],
    [index + 2, [1, 3]],
  ] as const) {
    const [degrees, microBatches] = DEGREES[place % DEGREES.length] as (typeof DEGREES)[number];
    test.serial(`${model} in ${microBatches} ${JSON.stringify(degrees)}`, (t) =>
      checkLevels(t, { model, microBatches }, degrees, levels),
    );
  }
}
