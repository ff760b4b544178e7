/**
 * @file VGG-16 in training, at its full size and a usual batch: as AlexNet (convolutions.test.ts).
 */
import test from 'ava';
import { cutAlong, operatorsLike, trainedPlan } from './trained-plan.js';

for (const batch of [256, 1024]) {
  test(`VGG-16, ${batch} images: convolutions data-parallel, fully connected layers model-parallel`, async (t) => {
    const found = await trainedPlan('vgg', { cluster: '1x8:a100-sxm-80', batch, dp: 8, tp: 1 });
    const convolutions = operatorsLike(found, /^\/features\.\d\.\d\/Conv$/);
    t.is(convolutions.length, 13);
    for (const name of convolutions) t.deepEqual(cutAlong(found, name), ['n'], name);
    for (const layer of [0, 1]) t.regex(cutAlong(found, `/classifier.${layer}/MatMul`).join(), /^[nk]$/);
  });
}
