/**
 * @file Gradients of matmuls and Einsum: against finite differences.
 */
import test from 'ava';
import { selection } from '../../selection.js';
import { checkGradient } from './check-gradient.js';
import { seedAwayFromKinks } from './kinks.js';
import { contractionSamples } from './samples/contraction.js';

for (const [number, [sample, options]] of selection(contractionSamples, ([{ op }]) => op)) {
  const shapes = sample.inputs.map((input) => `[${input?.shape ?? ''}]`).join(' ');
  test(`${number} ${sample.op} ${shapes} ${JSON.stringify(sample.attributes)}`, async (t) => {
    const rough = options.tolerance !== undefined;
    const seed = rough ? 1 : await seedAwayFromKinks(sample);
    const error = await checkGradient(sample, { ...options, seed });
    t.log(error.toExponential(1));
    t.true(error <= (rough ? 5e-2 : 2e-3));
  });
}
