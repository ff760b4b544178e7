/**
 * @file Gradients of lookups, scatters and operators along an axis: each against finite differences.
 */
import test from 'ava';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { indexingSamples } from './samples/indexing.js';

for (const [number, [sample]] of selection(indexingSamples, ([{ op }]) => op)) {
  test(
    `${number} ${sample.op} ${sample.inputs.map((input) => `[${input?.shape}]`)} ` +
      `${sample.attributes['reduction']}`,
    async (t) => {
      const error = await checkGradient(sample);
      t.log(`worst ${error.toExponential(1)}`);
      t.true(error < 2e-2);
    },
  );
}
