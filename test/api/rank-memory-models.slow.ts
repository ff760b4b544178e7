/**
 * @file Predicted memory against counted memory, on models as PyTorch's exporters write them: every third choice of each model,
 * starting at another one each time.
 */
import test from 'ava';
import { missing } from '../missing.js';
import { CHOICES, predictedAndCounted } from './rank-memory.js';
import { ABSENT, dimsOf, sharedCases } from './shared-models.js';

const NAMES = ['gpt2_d64_l2', 'llama_d64_l2_gqa', 'resnet18_w16', 'vit_d64_l2', 'hf_llama_gqa', 'moe_top2_dense'];

const cases = sharedCases().filter(({ name }) => NAMES.some((end) => name.endsWith(end)));
if (missing(cases.length === 0, `memory of ${ABSENT}`) !== null) test.skip(`memory of ${ABSENT}`, () => undefined);

for (const [place, shared] of cases.entries()) {
  test(`the runtime counts the bytes that the plan says: ${shared.name}`, async (t) => {
    const dims = await dimsOf(shared);
    for (const choice of CHOICES.filter((_, index) => (index + place) % 3 === 0)) {
      const { predicted, counted } = await predictedAndCounted({ model: shared.file, dims, ...choice });
      t.is(counted, predicted, JSON.stringify(choice));
    }
  });
}
