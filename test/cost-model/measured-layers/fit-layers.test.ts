/**
 * @file A fit to runs of a hidden law returns the law: for each shape, for smooth laws between shapes, for layers of two
 * kinds.
 */
import test from 'ava';
import { fitLayers, measuredLayers } from '../../../src/cost-model/measured-layers/fit-layers.js';
import { isSameLayer, type LayerShape, layerShape } from '../../../src/cost-model/measured-layers/layer-shape.js';
import { crossValidatedSeconds } from '../../../src/cost-model/measured-layers/left-out.js';
import type { MeasuredRun } from '../../../src/cost-model/measured-layers/linear-step.js';
import { configuration, layer, manyRuns, model, runUnder } from './drawn-runs.js';

/** Between 0.75 and 1.33, with nothing that neighbours have in common. */
const rugged = ({ products, tokens, tp }: LayerShape): number =>
  Math.exp(0.288 * Math.sin(7 * Math.log2(products) + 3 * Math.log2(tokens) + 5 * tp));

/** A quarter more, falling with the weights of a rank. */
const smooth = ({ products, tokens }: LayerShape): number => 1.25 * (products / tokens / 1e6) ** -0.04;

test('a factor of each shape returns from runs that have it', (t) => {
  for (const law of [rugged, smooth]) {
    const layers = measuredLayers(fitLayers(manyRuns(law)));
    t.is(layers.length, 24);
    for (const one of layers) {
      t.is(one.runs, 3);
      t.true(Math.abs(one.factor / law(one) - 1) < 0.02, `${one.factor} for ${law(one)}`);
    }
  }
});

test('runs that take what is predicted teach that', (t) => {
  for (const { factor } of measuredLayers(fitLayers(manyRuns(() => 1)))) t.is(factor, 1);
});

test('shapes that no run had are predicted better under a smooth law, and hardly worse under none', (t) => {
  for (const [law, most] of [
    [smooth, 0.7],
    [rugged, 1.15],
  ] as const) {
    const fit = fitLayers(manyRuns(law));
    const predicted = crossValidatedSeconds(fit, ({ layers }) => layers.join(' ')) ?? [];
    const without = fit.without(() => false);
    const none = crossValidatedSeconds({ ...fit, without: () => without }, ({ layers }) => layers.join(' ')) ?? [];
    const error = (seconds: readonly number[]) =>
      fit.runs.reduce((sum, run, index) => sum + Math.abs((seconds[index] as number) / run.seconds - 1), 0);
    t.true(error(predicted) < most * error(none), `${error(predicted)} ${error(none)}`);
  }
});

test('other models of the same shapes predict a model that was left out', (t) => {
  const fit = fitLayers(manyRuns(rugged));
  const predicted = crossValidatedSeconds(fit, ({ work }) => `${work.layers[0]?.count}`) ?? [];
  for (const [index, { seconds }] of fit.runs.entries())
    t.true(Math.abs((predicted[index] as number) / seconds - 1) < 0.05, `${predicted[index]} for ${seconds}`);
  t.is(
    crossValidatedSeconds(fit, () => 'all'),
    null,
  );
});

test('two kinds of layers are told apart by models with other numbers of them', (t) => {
  const [one, other] = [layer(2048, 2048, 1), layer(4096, 2048, 1)];
  const law = ({ products }: LayerShape) => (products > 1e11 ? 0.8 : 1.25);
  const runs = [
    [20, 2],
    [3, 12],
    [10, 10],
  ].map(([a = 0, b = 0]) =>
    runUnder(
      law,
      model([
        { count: a, part: one },
        { count: b, part: other },
      ]),
      configuration(1, 2),
    ),
  );
  const layers = measuredLayers(fitLayers(runs));
  t.is(layers.length, 2);
  for (const found of layers) t.true(Math.abs(found.factor / law(found) - 1) < 0.03, `${found.factor}`);
});

test(
  'the order of runs changes nothing, a run that is far off its like little, and a run that was made often ' +
    'counts as often',
  (t) => {
    const runs = manyRuns(rugged);
    const layers = measuredLayers(fitLayers(runs));
    t.deepEqual(measuredLayers(fitLayers([...runs].reverse())), layers);
    t.deepEqual(measuredLayers(fitLayers([...runs.slice(30), ...runs.slice(0, 30)])), layers);

    // 24 wide layers: most of their step.
    const first = runs.at(-10) as MeasuredRun;
    const rest = runs.filter((run) => run !== first);
    const shape = layerShape(first.work.layers[0]?.part ?? layer(1, 1, 1), first.configuration);
    const factorIn = (all: readonly MeasuredRun[]) =>
      measuredLayers(fitLayers(all)).find((own) => isSameLayer(own, shape))?.factor ?? 0;
    const hung = factorIn([{ ...first, seconds: 3 * first.seconds }, ...rest]);
    t.true(Math.abs(hung / rugged(shape) - 1) < 0.1, `${hung} for ${rugged(shape)}`);

    const alone = factorIn([first]);
    const often = factorIn([{ ...first, times: 50 }]);
    const off = (factor: number) => Math.abs(Math.log(factor / rugged(shape)));
    t.true(off(often) < off(alone) && off(often) < 0.02 && often !== 1, `${alone} ${often} ${rugged(shape)}`);
  },
);
