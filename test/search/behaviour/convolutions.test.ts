/**
 * @file Networks of convolutions under fully connected layers, in training: the search shards the samples of the former and the
 * features of the latter (Krizhevsky 2014), without a hint.
 */
import test from 'ava';
import { cutAlong, operatorsLike, trainedPlan } from './trained-plan.js';

test('AlexNet: convolutions data-parallel, fully connected layers model-parallel', async (t) => {
  const asked = { cluster: '1x8:a100-sxm-80', batch: 256, dp: 8, tp: 1 };
  const found = await trainedPlan('alexnet', asked);
  t.is(found.boundNanoseconds, found.costNanoseconds);
  const convolutions = operatorsLike(found, /^\/features\.\d\/Conv$/);
  const connected = operatorsLike(found, /^\/classifier\.\d\/MatMul$/);
  t.deepEqual([convolutions.length, connected.length], [5, 3]);
  for (const name of convolutions) t.deepEqual(cutAlong(found, name), ['n'], name);
  for (const name of connected) t.regex(cutAlong(found, name).join(), /^[nk]$/, name);
});
