/**
 * @file Losses that are means over what data decide: the sums that they are quotients of add up over micro-batches, and value and
 * gradient are what the formula says. Against PyTorch: torch-training.slow.ts.
 */
import test, { type ExecutionContext } from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { appendLoss, type LossOptions } from '../../../src/ir/autodiff/append-loss.js';
import { trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { Graph } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { recogniseRegions } from '../../../src/ir/passes/recognise-regions.js';
import { randomValues } from '../ops/values.js';
import { takeSteps } from './take-steps.js';

const [INNER, CLASSES] = [5, 4];

/** y = x · w, and further outputs of that shape. */
function linear(rows: number, others: readonly string[] = []): Graph {
  const build = new GraphBuilder('linear', 1);
  const x = build.input('x', 'float32', [rows, INNER]);
  const y = build.operator('MatMul', [x, build.parameter('w', [INNER, CLASSES])]);
  for (const name of others) build.output(name, build.operator('Neg', [y]));
  build.output('y', y);
  return build.build();
}

const drawn = (shape: readonly number[], seed: number) =>
  constant('float32', randomValues({ shape, dtype: 'float32', low: -1, high: 1 }, seed).data, shape);
const labelled = (...labels: readonly number[]) => constant('int64', labels, [labels.length]);

const LABELS = [2, -100, 0, 3, 3, -100, 1, 2];
const WEIGHTS = [0.5, 2, 1, 3];
const OPTIONS: readonly LossOptions[] = [
  { kind: 'cross_entropy' },
  { kind: 'cross_entropy', classWeights: WEIGHTS },
  { kind: 'cross_entropy', ignoreIndex: 3, labelSmoothing: 0.1 },
  { kind: 'cross_entropy', classWeights: WEIGHTS, labelSmoothing: 0.3 },
];

/** The loss and its gradient by the scores, from the definition: targets (1 − ε) at the label and ε/C everywhere. */
function byHand(scores: readonly number[], labels: readonly number[], options: LossOptions) {
  const { ignoreIndex = -100, labelSmoothing = 0, classWeights } = options;
  const weights = classWeights ?? new Array<number>(CLASSES).fill(1);
  let [loss, total] = [0, 0];
  const slopes = scores.map(() => 0);
  labels.forEach((label, row) => {
    if (label === ignoreIndex) return;
    const own = scores.slice(row * CLASSES, (row + 1) * CLASSES);
    const sum = own.reduce((all, score) => all + Math.exp(score), 0);
    const targets = own.map(
      (_, c) => ((c === label ? 1 - labelSmoothing : 0) + labelSmoothing / CLASSES) * (weights[c] ?? 0),
    );
    const mass = targets.reduce((all, target) => all + target, 0);
    total += weights[label] ?? 0;
    own.forEach((score, c) => {
      loss -= (targets[c] ?? 0) * (score - Math.log(sum));
      slopes[row * CLASSES + c] = (mass * Math.exp(score)) / sum - (targets[c] ?? 0);
    });
  });
  return { loss: loss / total, slopes: slopes.map((slope) => slope / total) };
}

function near(t: ExecutionContext, got: readonly number[], wanted: readonly number[], tolerance = 1e-5): void {
  t.is(got.length, wanted.length);
  for (const [index, value] of wanted.entries())
    t.true(Math.abs((got[index] ?? Number.NaN) - value) <= tolerance, `${index}: ${got[index]} / ${value}`);
}

for (const options of OPTIONS) {
  const { classWeights, ...rest } = options;
  const labels = options.ignoreIndex === undefined ? LABELS : LABELS.map((label) => Math.max(label, 0));
  test(`value and gradient: ${JSON.stringify(rest)}${classWeights ? ' by weights' : ''}`, async (t) => {
    const model = linear(LABELS.length);
    const { graph } = trainingGraph(model, { loss: options, optimizer: { kind: 'sgd', learningRate: 1 } });
    const x = drawn([LABELS.length, INNER], 3);
    const feeds = { x, labels: labelled(...labels) };
    const before = numbersOf(((await runGraph(model, { x })) as Record<string, typeof x>)['y'] ?? x);
    const expected = byHand(before, labels, options);
    const w = model.weights.get('w');
    const values = w?.source.kind === 'inline' ? numbersOf({ ...w, data: w.source.data }) : [];
    const { losses, state } = await takeSteps(graph, [feeds], 1);
    near(t, losses, [expected.loss]);
    const wanted = values.map((value, place) => {
      const [i, c] = [Math.floor(place / CLASSES), place % CLASSES];
      return LABELS.reduce(
        (sum, _, row) => sum - (numbersOf(x)[row * INNER + i] ?? 0) * (expected.slopes[row * CLASSES + c] ?? 0),
        value,
      );
    });
    near(t, state['w'] ? numbersOf(state['w']) : [], wanted);
  });

  test(`sums of halves add up: ${JSON.stringify(rest)}${classWeights ? ' by weights' : ''}`, async (t) => {
    const sums = async (from: number, to: number): Promise<readonly number[]> => {
      const { graph, ratio } = appendLoss(linear(to - from), options);
      if (!ratio) throw new Error('no ratio');
      const { nodes } = graph;
      const maker = (tensor: string) => nodes.find(({ outputs }) => outputs.includes(tensor));
      t.is(maker(ratio.numerator)?.phase, 'forward');
      t.is(maker(ratio.denominator)?.phase, 'forward');
      t.is(maker('loss')?.phase, 'update');
      const x = numbersOf(drawn([LABELS.length, INNER], 3)).slice(from * INNER, to * INNER);
      const feeds = { x: constant('float32', x, [to - from, INNER]), labels: labelled(...labels.slice(from, to)) };
      const results = await runGraph(graph, feeds, [ratio.numerator, ratio.denominator]);
      return [ratio.numerator, ratio.denominator].map((name) => numbersOf(results[name] as never)[0] ?? Number.NaN);
    };
    const [whole, first, second] = [await sums(0, 8), await sums(0, 3), await sums(3, 8)];
    near(
      t,
      first.map((sum, index) => sum + (second[index] ?? 0)),
      whole,
    );
  });
}

test('where no label counts the loss is not a number and weights stay, as in PyTorch', async (t) => {
  for (const clip of [{}, { clipNorm: 1 }]) {
    const optimizer = { kind: 'sgd', learningRate: 1, ...clip } as const;
    const { graph } = trainingGraph(linear(2), { loss: { kind: 'cross_entropy' }, optimizer });
    const { losses, state } = await takeSteps(graph, [{ x: drawn([2, INNER], 1), labels: labelled(-100, -100) }], 1);
    t.deepEqual(losses, [Number.NaN]);
    const w = graph.initial?.get('w');
    t.deepEqual(state['w'] && [...state['w'].data], w?.source.kind === 'inline' ? [...w.source.data] : undefined);
  }
});

test("a model's own mean over labels that count is divided once per step too", async (t) => {
  const build = new GraphBuilder('own', 1);
  const scores = build.operator('MatMul', [
    build.input('x', 'float32', [8, INNER]),
    build.parameter('w', [INNER, CLASSES]),
  ]);
  const labels = build.input('labels', 'int64', [8]);
  const attributes = { reduction: 'mean', ignore_index: -100 };
  build.output('nll', build.operator('SoftmaxCrossEntropyLoss', [scores, labels], attributes));
  const { graph, loss, ratio, classes } = appendLoss(build.build(), { kind: 'model-output' });
  t.deepEqual([loss, ratio?.samples], ['nll', 8]);
  t.deepEqual(classes, { input: 'labels', classes: CLASSES, ignoreIndex: -100 });
  t.is(graph.nodes.find(({ outputs }) => outputs.includes('nll'))?.phase, 'update');
  const feeds = { x: drawn([8, INNER], 3), labels: labelled(...LABELS) };
  const own = await runGraph(build.build(), feeds);
  near(t, numbersOf((await runGraph(graph, feeds))['nll'] as never), numbersOf(own['nll'] as never));
});

test("labels of a model's own loss are known where the loss is recognised as a region", (t) => {
  const build = new GraphBuilder('own', 1);
  const x = build.input('x', 'float32', [8, INNER]);
  const scores = build.operator('MatMul', [x, build.parameter('w', [INNER, CLASSES])]);
  const labels = build.input('labels', 'int64', [8]);
  build.output('nll', build.operator('SoftmaxCrossEntropyLoss', [scores, labels], { reduction: 'mean' }));
  const loss: LossOptions = { kind: 'model-output' };
  const { classes } = trainingGraph(recogniseRegions(build.build()), {
    loss,
    optimizer: { kind: 'sgd', learningRate: 1 },
  });
  t.deepEqual(classes, { input: 'labels', classes: CLASSES, ignoreIndex: null });
});

test('losses that cannot be appended are refused', (t) => {
  const refused = (graph: Graph, options: LossOptions) => {
    const error = t.throws(() => appendLoss(graph, options), { instanceOf: AutoparError });
    return `${error?.code}: ${error?.message}`;
  };
  const two = linear(2, ['z']);
  t.is(refused(two, { kind: 'mse' }), 'ambiguous-loss: the model has 2 floating-point outputs: z, y');
  t.is(refused(two, { kind: 'mse', output: 'q' }), "no-loss-output: the model has no output 'q' to take a loss of");
  const twice = { ...linear(2), outputs: ['y', 'y'] };
  t.is(refused(twice, { kind: 'mse', output: 'y' }), "ambiguous-loss: several outputs of the model have the name 'y'");
  t.is(refused(twice, { kind: 'mse' }), "ambiguous-loss: several outputs of the model have the name 'y'");
  t.regex(refused(linear(2), { kind: 'model-output' }), /^loss-not-scalar: output 'y' is float32 \[2, 4\]/);
  t.is(
    refused(linear(2), { kind: 'cross_entropy', classWeights: [1, 2, 3] }),
    'class-weights: there are 3 weights of classes, and the loss has 4 classes',
  );
  const flat = new GraphBuilder('flat', 1);
  flat.output('y', flat.operator('Neg', [flat.input('x', 'float32', [3])]));
  t.regex(refused(flat.build(), { kind: 'cross_entropy' }), /no dimension of classes/);
});

test('classes are last where an image has its channels last, and second where it has them second', (t) => {
  const build = new GraphBuilder('images', 2);
  const weight = build.parameter('w', [CLASSES, 3, 1, 1]);
  const scores = (image: string) => build.operator('Conv', [image, weight], { kernel_shape: [1, 1] });
  const channelsLast = build.input('last', 'float32', [2, 8, 6, 3]);
  const image = build.operator('Transpose', [channelsLast], { perm: [0, 3, 1, 2] });
  build.output('y', build.operator('Transpose', [scores(image)], { perm: [0, 2, 3, 1] }));
  build.output('z', scores(build.input('second', 'float32', [2, 3, 8, 6])));
  for (const output of ['y', 'z']) {
    const { graph, classes } = appendLoss(build.build(), { kind: 'cross_entropy', output });
    t.is(classes?.classes, CLASSES);
    t.deepEqual(graph.tensors.get('labels')?.shape, [2, 8, 6]);
  }
});
