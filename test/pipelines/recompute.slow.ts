/**
 * @file Every kind of recompute on every mesh and under every schedule of a small GPT, over 20 steps; and of other models a kind on
 * each.
 */
import test from 'ava';
import { checkRecompute, KINDS, MESHES } from './recomputing.js';

const STEPS = 20;
const OTHERS = ['llama', 'dropout', 'encoder-decoder'] as const;

for (const [index, [name, mesh]] of Object.entries(MESHES).entries()) {
  test.serial(`gpt, ${name}`, async (t) => {
    await checkRecompute(t, { model: 'gpt', microBatches: 4 }, mesh, KINDS, STEPS);
  });

  for (const [place, model] of OTHERS.entries())
    test.serial(`${model}, ${name}`, async (t) => {
      const kind = KINDS[(index + place) % KINDS.length] ?? 'full';
      await checkRecompute(t, { model, microBatches: 4 }, mesh, [kind], STEPS);
    });
}

test.serial('two chunks a stage', async (t) => {
  const mesh = { stages: 2, chunks: 2, kind: 'interleaved-1f1b' } as const;
  await checkRecompute(t, { model: 'gpt', microBatches: 4 }, mesh, KINDS, STEPS);
});
