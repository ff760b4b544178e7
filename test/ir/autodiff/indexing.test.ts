/**
 * @file Gradients of lookups, scatters and operators along an axis: each against finite differences, and under the forward's
 * strategies, vocabulary-parallel tables among them.
 */
import test from 'ava';
import { selection } from '../../selection.js';
import { checkGradient, checkShardedGradient } from './check-gradient.js';
import { indexingSamples } from './samples/indexing.js';

for (const [number, [sample]] of selection(indexingSamples, ([{ op }]) => op)) {
  test(`${number} ${sample.op} ${sample.inputs.map((input) => `[${input?.shape}]`)} ${sample.attributes['reduction']}`, async (t) => {
    const error = await checkGradient(sample);
    t.log(`worst ${error.toExponential(1)}`);
    t.true((await checkShardedGradient(sample)) >= 0);
  });
}
