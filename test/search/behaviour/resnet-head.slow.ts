/**
 * @file ResNet-50 in training on eight devices: its head is data-parallel with few classes and model-parallel with many, its
 * convolutions data-parallel with both. The flip is where docs/choosing-a-strategy.md states it.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../../cli/autopar.js';
import { thinned } from '../../selection.js';
import { cutAlong, operatorsLike, trainedPlan } from './trained-plan.js';

/** Rows of the page's table: images of a step, classes at which the head is still data-parallel, and no longer. */
const ROWS = [
  ...readFileSync(join(ROOT, 'docs/choosing-a-strategy.md'), 'utf8').matchAll(
    /^\| ([\d,]+) images \| ([\d,]+) \| ([\d,]+) \|$/gm,
  ),
].map((row) => row.slice(1).map((figure) => Number(figure.replaceAll(',', ''))));

test('the page has the flip at two batches', (t) => t.is(ROWS.length, 2));

for (const [batch = 0, few = 0, many = 0] of thinned(ROWS, 2)) {
  test(`${batch} images: data-parallel with ${few} classes, model-parallel with ${many}`, async (t) => {
    for (const [classes, factor] of [
      [few, 'm'],
      [many, 'n'],
    ] as const) {
      const asked = { cluster: '1x8:a100-sxm-80', batch, dp: 8, tp: 1 };
      const found = await trainedPlan(`resnet:layers=50,classes=${classes}`, asked);
      t.deepEqual(cutAlong(found, '/head/MatMul'), [factor], `${classes}`);
      const convolutions = operatorsLike(found, /Conv$/);
      t.is(convolutions.length, 53);
      for (const name of convolutions) t.deepEqual(cutAlong(found, name), ['n'], name);
    }
  });
}
