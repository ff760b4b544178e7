/**
 * @file Factors of layers: measured ones are used as they are, others are near their neighbours'; without any, nothing changes.
 */
import test from 'ava';
import fc from 'fast-check';
import { layerFactors, type MeasuredLayer } from '../../../src/cost-model/measured-layers/layer-factors.js';
import { isSameLayer, layerShape } from '../../../src/cost-model/measured-layers/layer-shape.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceStep, priceStepExactly } from '../../../src/cost-model/step/step-price.js';
import { CLUSTER, configuration, layer, model } from './drawn-runs.js';

const measured = (width: number, tokens: number, tp: number, factor: number): MeasuredLayer => ({
  ...layerShape(layer(width, tokens, tp), configuration(tp, 1)),
  factor,
  runs: 1,
});

test('factors of 1 are the prices without, to the last bit', (t) => {
  const factors = layerFactors([measured(1024, 1024, 1, 1), measured(2048, 4096, 4, 1)]);
  for (const tp of [1, 2, 4]) {
    const work = model([{ count: 6, part: layer(2048, 4096, tp) }]);
    const own = configuration(tp, 2, { recompute: 'full' });
    t.deepEqual(
      priceStep(work, own, { ...CLUSTER, layerFactors: factors }, STEP_CONSTANTS),
      priceStep(work, own, CLUSTER, STEP_CONSTANTS),
    );
  }
});

test('a layer that was measured has its factor, in all its phases and nowhere else', (t) => {
  fc.assert(
    fc.property(
      fc.constantFrom(1, 2, 4),
      fc.double({ min: 0.4, max: 2.5, noNaN: true }),
      fc.constantFrom('none' as const, 'full' as const),
      (tp, factor, recompute) => {
        const own = configuration(tp, 1, { recompute });
        const cluster = { ...CLUSTER, layerFactors: layerFactors([measured(2048, 2048, tp, factor)]) };
        const part = layer(2048, 2048, tp);
        // The difference of two depths is layers alone: their micro-batches, and parameters updated once.
        const updated = (count: number) => model([{ count, part: { ...part, parameters: 0 } }]);
        const seconds = (on: typeof cluster | typeof CLUSTER, count: number) =>
          priceStepExactly(updated(count), own, on, STEP_CONSTANTS).stepSeconds;
        const [long, short] = [20, 10].map((count) => seconds(cluster, count));
        const [plainLong, plainShort] = [20, 10].map((count) => seconds(CLUSTER, count));
        const ratio = ((long ?? 0) - (short ?? 0)) / ((plainLong ?? 0) - (plainShort ?? 0));
        t.true(Math.abs(ratio - factor) < 1e-9, `${ratio} for ${factor}`);
      },
    ),
    { numRuns: 30 },
  );
});

test('of one measured layer, its neighbour takes part of the factor, and a layer far away less', (t) => {
  const factors = layerFactors([measured(2048, 2048, 1, 1.5)]);
  const at = (width: number, tokens: number) => factors.factorOf(layer(width, tokens, 1), configuration(1, 1));
  const [same, near, far, farther] = [at(2048, 2048), at(2048, 4096), at(16384, 65536), at(131072, 2 ** 21)];
  t.is(same, 1.5);
  t.true(1.5 > near && near > far && far > 1, `${near} ${far}`);
  // Far away only what all layers share is left: one part of six of the logarithm's variance (0.05², 0.05², 0.1²).
  t.true(Math.abs((farther ?? 0) - 1.5 ** (1 / 6)) < 1e-6, `${farther}`);
});

test('the factor between two layers is their geometric mean where it is as near to both', (t) => {
  const factors = layerFactors([measured(2048, 1024, 1, 1.3), measured(2048, 4096, 1, 1 / 1.3)]);
  t.true(Math.abs(factors.factorOf(layer(2048, 2048, 1), configuration(1, 1)) - 1) < 1e-9);
});

test('formats of one width are one layer, other software, attention and degrees are not', (t) => {
  const part = layer(2048, 2048, 1);
  const shape = layerShape(part, configuration(1, 1));
  t.true(isSameLayer(shape, layerShape(part, configuration(1, 1, { precision: 'fp16' }))));
  t.true(isSameLayer(shape, { ...shape, tokens: shape.tokens * (1 + 1e-9) }));
  // Neither how often a layer is there, nor what is done with its stage.
  t.true(isSameLayer(shape, layerShape(part, configuration(1, 4, { zero: 3, recompute: 'full', virtualStages: 2 }))));
  for (const also of [
    { precision: 'fp8' },
    { software: 'eager' },
    { attention: 'parts' },
    { tpSequence: true },
  ] as const)
    t.false(isSameLayer(shape, layerShape(part, configuration(1, 1, also))), JSON.stringify(also));
  t.false(isSameLayer(shape, layerShape(layer(2048, 2048, 2), configuration(2, 1))));
  t.false(isSameLayer(shape, layerShape(layer(2048, 2049, 1), configuration(1, 1))));
});
