/**
 * @file Batch statistics: values by hand, running ones as state that every module has for itself.
 */
import test from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { keepRunningStatistics, takeBatchStatistics } from '../../../src/ir/autodiff/batch-statistics.js';
import type { Graph } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { noise } from '../same-results.js';

const MOMENTUM = 0.75;

/** One normalisation of [samples, 2, 3], with running statistics 0.5 and 2. */
function one(attributes = {}, samples = 4): Graph {
  const builder = new GraphBuilder('one', 1);
  const x = builder.input('x', 'float32', [samples, 2, 3]);
  const vectors = ['scale', 'shift', 'mean', 'variance'].map((name, index) =>
    builder.constant(
      name,
      floats([[1, 3] as const, [0, 1] as const, [0.5, 0.5] as const, [2, 2] as const][index] ?? [], [2]),
    ),
  );
  const given = { momentum: MOMENTUM, epsilon: 1e-5, training_mode: 0, ...attributes };
  builder.output('y', builder.operator('BatchNormalization', [x, ...vectors], given));
  return builder.build();
}

test('the batch is normalised by its own statistics, and the running ones move as ONNX says', async (t) => {
  const { graph, taken } = takeBatchStatistics(one(), []);
  t.is(taken, 1);
  t.deepEqual(graph.state, [
    { input: 'mean', output: 'mean/next' },
    { input: 'variance', output: 'variance/next' },
  ]);
  const x = noise([4, 2, 3]);
  const results = await runGraph(graph, { x }, ['mean/next', 'variance/next']);
  const values = numbersOf(x);
  for (const channel of [0, 1]) {
    const own = values.filter((_, at) => Math.floor(at / 3) % 2 === channel);
    const mean = own.reduce((sum, value) => sum + value, 0) / own.length;
    const variance = own.reduce((sum, value) => sum + (value - mean) ** 2, 0) / own.length;
    const [scale, shift] = channel === 0 ? [1, 0] : [3, 1];
    const expected = own.map((value) => ((value - mean) / Math.sqrt(variance + 1e-5)) * scale + shift);
    const got = numbersOf(results['y'] as never).filter((_, at) => Math.floor(at / 3) % 2 === channel);
    t.true(got.every((value, at) => Math.abs(value - (expected[at] ?? Number.NaN)) < 1e-5));
    const next = (name: string) => numbersOf(results[name] as never)[channel] ?? Number.NaN;
    t.true(Math.abs(next('mean/next') - (MOMENTUM * 0.5 + (1 - MOMENTUM) * mean)) < 1e-6);
    t.true(Math.abs(next('variance/next') - (MOMENTUM * 2 + (1 - MOMENTUM) * variance)) < 1e-6);
  }
});

test('parts of a batch are normalised as if each were the batch, and move the running ones by their mean', async (t) => {
  const x = noise([4, 2, 3]);
  const halves = [0, 1].map((half) => ({ ...x, shape: [2, 2, 3], data: x.data.slice(half * 48, (half + 1) * 48) }));
  const alone = await Promise.all(
    halves.map(async (half) =>
      runGraph(takeBatchStatistics(one({}, 2), []).graph, { x: half }, ['mean/next', 'variance/next']),
    ),
  );
  const values = (results: Record<string, unknown> | undefined, name: string) => numbersOf(results?.[name] as never);
  const { graph } = takeBatchStatistics(one(), [], { here: 2, whole: 2 });
  const together = await runGraph(graph, { x }, ['mean/next', 'variance/next']);
  const expected = alone.flatMap((results) => values(results, 'y'));
  t.true(values(together, 'y').every((value, at) => Math.abs(value - (expected[at] ?? Number.NaN)) < 1e-5));
  for (const name of ['mean/next', 'variance/next']) {
    const [a = [], b = []] = alone.map((results) => values(results, name));
    t.true(
      values(together, name).every((value, at) => Math.abs(value - ((a[at] ?? 0) + (b[at] ?? 0)) / 2) < 1e-6),
      name,
    );
  }
  t.throws(() => takeBatchStatistics(one(), [], { here: 3, whole: 3 }), {
    message: /3 parts do not divide the 4 samples/,
  });
});

test('running statistics that are kept are used, in files of either form', async (t) => {
  const x = noise([4, 2, 3]);
  const evaluated = await runGraph(one(), { x });
  const kept = keepRunningStatistics(takeBatchStatistics(one(), []).graph);
  t.is(kept.nodes[0]?.outputs.length, 1);
  t.deepEqual(await runGraph({ ...kept, state: [] }, { x }), evaluated);
});

test('modules have statistics of their own however the file stores them; one that is called twice moves them twice', (t) => {
  const sizes = {
    batch: 4,
    channels: 3,
    size: 8,
    widths: [4, 4],
    classes: 2,
    dropout: 0.5,
    fresh: true,
    exported: true,
  };
  const { graph, taken } = takeBatchStatistics(normalisedCnn('cnn', sizes, 1), []);
  t.is(taken, 4);
  const inputs = graph.state.map(({ input }) => input);
  t.is(new Set(inputs).size, 6, 'three modules with a mean and a variance each');
  for (const module of ['stage1.bn', 'residual.bn'])
    for (const name of ['running_mean', 'running_var']) t.true(inputs.includes(`${module}.${name}`), inputs.join(' '));
  const [first, second] = graph.nodes.filter(({ module }) => module.join('.') === 'residual.bn');
  t.deepEqual(second?.inputs.slice(3), first?.outputs.slice(1));
  t.deepEqual(
    graph.state.filter(({ input }) => input.startsWith('residual')).map(({ output }) => output),
    second?.outputs.slice(1),
  );
});

test('statistics that are computed are no state: such an operator stays as it is', (t) => {
  const builder = new GraphBuilder('computed', 1);
  const x = builder.input('x', 'float32', [4, 2]);
  const [scale, shift] = [builder.parameter('scale', [2]), builder.parameter('shift', [2])];
  const mean = builder.operator('ReduceMean', [x], { axes: [0], keepdims: 0 });
  const variance = builder.operator('Exp', [mean]);
  builder.output('y', builder.operator('BatchNormalization', [x, scale, shift, mean, variance], { epsilon: 1e-5 }));
  const graph = builder.build();
  t.deepEqual(takeBatchStatistics(graph, []), { graph, taken: 0 });
});
