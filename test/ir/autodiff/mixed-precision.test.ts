/**
 * @file Operators computed in 16 bit and operators that are not, by the registry; bfloat16 held in float32; losses near those of
 * float32. Against PyTorch's autocast: torch-training.slow.ts.
 */
import test, { type ExecutionContext } from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { importModel } from '../../../src/api/models/import.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { takeBatchStatistics } from '../../../src/ir/autodiff/batch-statistics.js';
import { canBeHeldInFloat32, heldInFloat32 } from '../../../src/ir/autodiff/held-in-float32.js';
import { inMixedPrecision, type LowType } from '../../../src/ir/autodiff/mixed-precision.js';
import { trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Graph } from '../../../src/ir/graph.js';
import { makersOf, readersOf } from '../../../src/ir/makers-and-readers.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { operatorEntries, ruleOf } from '../../../src/ir/ops/index.js';
import { randomValues } from '../ops/values.js';
import { takeSteps } from './take-steps.js';

const [ROWS, INNER, CLASSES] = [6, 8, 4];

const drawn = (shape: readonly number[], seed: number) =>
  constant('float32', randomValues({ shape, dtype: 'float32', low: -1, high: 1 }, seed).data, shape);

/** A layer of a transformer in small: normalised, multiplied, biased, scaled, activated, added to what came in, multiplied. */
function layer(): Graph {
  const build = new GraphBuilder('layer', 1);
  const x = build.input('x', 'float32', [ROWS, INNER]);
  const scale = build.constant('scale', drawn([INNER], 1));
  const normal = build.operator('LayerNormalization', [x, scale], { axis: -1 });
  const product = build.operator('MatMul', [normal, build.parameter('a.weight', [INNER, INNER])]);
  const biased = build.operator('Add', [product, build.parameter('a.bias', [INNER])]);
  const half = build.operator('Mul', [biased, build.constant('half', constant('float32', [0.5]))]);
  const huge = build.operator('Add', [half, build.constant('huge', constant('float32', [-1e9]))]);
  const back = build.operator('Sub', [huge, build.constant('huge-too', constant('float32', [-1e9]))]);
  const active = build.operator('Relu', [biased]);
  const sum = build.operator('Add', [active, x]);
  build.output('y', build.operator('MatMul', [sum, build.parameter('b.weight', [INNER, CLASSES])]));
  build.output('z', back);
  return build.build();
}

const dtypes = (graph: Graph) => (name: string) => graph.tensors.get(name)?.dtype;

for (const low of ['float16', 'bfloat16'] as const)
  test(`products are ${low}, statistics and sums with float32 are not, weights and outputs stay`, (t) => {
    const graph = inMixedPrecision(layer(), low);
    const dtype = dtypes(graph);
    const made = (op: string) =>
      graph.nodes.filter((node) => node.op === op).map(({ outputs }) => dtype(outputs[0] ?? ''));
    t.deepEqual(made('LayerNormalization'), ['float32']);
    t.deepEqual(made('MatMul'), [low, low]);
    t.deepEqual(made('Relu'), [low]);
    t.deepEqual(made('Mul'), [low], 'a number takes the type of what it scales');
    // A bias is cast too; an operand in float32 is not; a number that 16 bit cannot hold is not, but bfloat16 can hold it.
    const shifted = low === 'float16' ? 'float32' : low;
    t.deepEqual(made('Add'), [low, shifted, 'float32']);
    for (const name of ['a.weight', 'a.bias', 'b.weight', 'y', 'z']) t.is(dtype(name), 'float32', name);
    t.deepEqual(graph.outputs, ['y', 'z']);
    t.deepEqual(
      [...graph.weights.values()].map((weight) => weight.dtype).filter((name) => name !== 'float32'),
      [],
    );
  });

test('what is moved only to be multiplied is cast first, where that casts no more', (t) => {
  const build = new GraphBuilder('moved', 1);
  const x = build.input('x', 'float32', [ROWS, INNER]);
  const normal = build.operator('LayerNormalization', [x, build.constant('scale', drawn([INNER], 1))], { axis: -1 });
  const rows = (name: string, data: string, count: number) => {
    const places = Array.from({ length: count }, (_, row) => row % ROWS);
    const indices = build.constant(name, constant('int64', places, [count]));
    return build.operator('Gather', [data, indices], { axis: 0 });
  };
  const multiplied = (data: string) => build.operator('MatMul', [data, build.parameter(`${data}.w`, [INNER, CLASSES])]);
  const twice = rows('twice', normal, 2 * ROWS);
  const fewer = rows('fewer', normal, 2);
  const both = rows('both', normal, 3 * ROWS);
  for (const data of [twice, fewer, both]) build.output(`${data}.y`, multiplied(data));
  build.output('soft', build.operator('Softmax', [both], { axis: -1 }));
  const graph = inMixedPrecision(build.build(), 'bfloat16');
  t.deepEqual([twice, fewer, both].map(dtypes(graph)), ['bfloat16', 'float32', 'float32']);
  const cast = graph.nodes.filter(({ op }) => op === 'Cast').map(({ inputs }) => inputs[0]);
  t.true([normal, fewer, both].every((name) => cast.includes(name)) && !cast.includes(twice));
});

test('each reader of a weight has a cast of its own, readers of an activation share one', (t) => {
  const build = new GraphBuilder('shared', 1);
  const w = build.parameter('w', [INNER, INNER]);
  const x = build.input('x', 'float32', [ROWS, INNER]);
  build.output('y', build.operator('Add', [build.operator('MatMul', [x, w]), build.operator('MatMul', [x, w])]));
  const graph = inMixedPrecision(build.build(), 'float16');
  const casts = graph.nodes.filter(({ op }) => op === 'Cast').map(({ inputs }) => inputs[0] ?? '');
  t.deepEqual(casts.filter((name) => name === 'w').length, 2);
  t.deepEqual(casts.filter((name) => name === 'x').length, 1);
});

for (const low of ['float16', 'bfloat16'] as const)
  test(`an image stays ${low} through a normalisation of the batch, whose vectors stay float32`, async (t) => {
    const sizes = { batch: 4, channels: 3, size: 8, widths: [8], classes: 4, dropout: 0 };
    const whole = takeBatchStatistics(normalisedCnn('norms', sizes, 1), []).graph;
    const graph = inMixedPrecision(whole, low);
    const dtype = dtypes(graph);
    const norms = graph.nodes.filter(({ op }) => op === 'BatchNormalization');
    t.is(norms.length, 3);
    const vectors = ['float32', 'float32', 'float32', 'float32'];
    for (const { inputs, outputs } of norms) {
      t.deepEqual(
        inputs.map((name) => dtype(name ?? '')),
        [low, ...vectors],
      );
      t.deepEqual(
        outputs.map((name) => dtype(name ?? '')),
        [low, 'float32', 'float32'],
      );
    }
    const makers = makersOf(graph.nodes);
    const widened = graph.nodes.filter(({ op, outputs }) => op === 'Cast' && dtype(outputs[0] ?? '') === 'float32');
    const made = widened.map(({ inputs }) => makers.get(inputs[0] ?? '')?.op);
    t.deepEqual(made, ['Add', 'Add'], 'the image before its mean, and the logits');
    const image = { image: randomInputs(whole, 3)['image'] as ConstantTensor };
    const [exact, got] = [await runGraph(whole, image), await runGraph(heldInFloat32(graph, low), image)];
    const [wanted, rounded] = [exact, got].map((all) => numbersOf(all['logits'] as ConstantTensor));
    const away = Math.max(...(wanted ?? []).map((value, index) => Math.abs(value - (rounded?.[index] ?? Number.NaN))));
    t.true(away < (low === 'float16' ? 5e-3 : 4e-2), `${away}`);
    t.true(away > 0);
  });

test('the registry says it of every operator', (t) => {
  const of = (op: string) => operatorEntries.find((entry) => entry.op === op && entry.domain === '')?.precision;
  t.deepEqual(['MatMul', 'Conv', 'Einsum', 'Attention'].map(of), ['low', 'low', 'low', 'low']);
  for (const op of [
    'Softmax',
    'LayerNormalization',
    'ReduceSum',
    'Exp',
    'Pow',
    'SoftmaxCrossEntropyLoss',
    'LSTM',
    'CumSum',
  ])
    t.is(of(op), 'full', op);
  for (const op of ['Add', 'Relu', 'Transpose', 'Gather', 'MaxPool', 'RotaryEmbedding', 'ReduceMax'])
    t.is(of(op), 'follow', op);
  t.is(of('BatchNormalization'), 'data');
});

for (const low of ['float16', 'bfloat16'] as const)
  test(`${low} held in float32 is rounded wherever an operator makes it`, async (t) => {
    const narrow = inMixedPrecision(layer(), low);
    const graph = heldInFloat32(narrow, low);
    t.true(canBeHeldInFloat32(narrow, low));
    t.false([...graph.tensors.values()].some(({ dtype }) => dtype === low));
    const rounded = narrow.nodes.flatMap(({ outputs }) =>
      outputs.filter((name) => name !== null && narrow.tensors.get(name)?.dtype === low),
    );
    t.true(rounded.length > 6);
    let held = 0;
    const values = await runGraph(graph, { x: drawn([ROWS, INNER], 2) }, rounded as readonly string[]);
    for (const name of rounded) {
      const value = values[name ?? ''];
      t.is(value?.dtype, 'float32');
      const numbers = value ? numbersOf(value) : [];
      if (numbers.some((number) => number !== 0)) held++;
      t.deepEqual(numbers, numbersOf(constant(low, numbers, [numbers.length])), `${name} is what ${low} holds`);
    }
    t.true(held > 6);
  });

for (const name of ['gpt-tiny', 'llama-tiny'])
  test(`regions stay regions, and the same is computed: ${name}`, async (t) => {
    const { graph } = await importModel(`models/${name}.onnx`);
    const regions = graph.nodes.filter(({ body }) => body).length;
    t.true(regions > 0);
    for (const low of ['float16', 'bfloat16'] as const) {
      const lowered = inMixedPrecision(graph, low);
      t.is(lowered.nodes.filter(({ body }) => body).length, regions);
      for (const node of lowered.nodes) if (node.body) t.notThrows(() => ruleOf(operatorOf(lowered, node)), node.name);
      const kept = heldInFloat32(lowered, low);
      const opened = heldInFloat32(inMixedPrecision(flattenRegions(graph), low), low);
      const inputs = randomInputs(graph, 1);
      const [ours, theirs] = [await runGraph(kept, inputs), await runGraph(opened, inputs)];
      for (const output of graph.outputs)
        t.deepEqual(ours[output] && numbersOf(ours[output]), theirs[output] && numbersOf(theirs[output]), output);
    }
  });

test('queries and keys of attention are cast in front of it, and before views of them', async (t) => {
  const { graph } = await importModel('models/llama-tiny.onnx');
  const lowered = inMixedPrecision(graph, 'bfloat16');
  const attention = lowered.nodes.filter(({ op, body }) => op === 'Attention' && body);
  t.true(attention.length > 0);
  for (const { name, inputs, body } of attention) {
    t.deepEqual(
      inputs.slice(0, 3).map((input) => dtypes(lowered)(input ?? '')),
      ['bfloat16', 'bfloat16', 'bfloat16'],
      name,
    );
    t.deepEqual(body?.inputs, inputs);
    t.is(body?.nodes.filter((node) => node.op === 'Cast' && inputs.includes(node.inputs[0] ?? null)).length, 0);
  }
  const rotated = lowered.nodes.filter(({ op }) => op === 'RotaryEmbedding').map(({ outputs }) => outputs[0]);
  for (const name of rotated)
    t.deepEqual(
      readersOf(lowered.nodes)
        .get(name ?? '')
        ?.map(({ op }) => op),
      ['Cast'],
      name ?? '',
    );
});

test('a model with bfloat16 of its own is left alone', (t) => {
  const build = new GraphBuilder('own', 1);
  build.output('y', build.operator('Neg', [build.input('x', 'bfloat16', [2])]));
  t.false(canBeHeldInFloat32(build.build(), 'bfloat16'));
});

const feeds = { x: drawn([ROWS, INNER], 2), labels: constant('int64', [0, 1, 2, 3, -100, 1], [ROWS]) };

async function losses(t: ExecutionContext, low: LowType | null): Promise<readonly number[]> {
  const { graph } = trainingGraph(layer(), {
    loss: { kind: 'cross_entropy', output: 'y' },
    optimizer: { kind: 'adamw', learningRate: 0.02 },
    ...(low === null ? {} : { precision: low === 'float16' ? 'fp16' : 'bf16', isHeldInFloat32: true }),
  });
  for (const [name, weight] of graph.initial ?? []) t.true(['float32', 'int64'].includes(weight.dtype), name);
  return (await takeSteps(graph, [feeds], 8)).losses;
}

test('losses in 16 bit are near those in float32', async (t) => {
  const exact = await losses(t, null);
  for (const [low, tolerance] of [
    ['float16', 2e-3],
    ['bfloat16', 2e-2],
  ] as const) {
    const got = await losses(t, low);
    for (const [step, loss] of exact.entries()) {
      const away = Math.abs((got[step] ?? Number.NaN) - loss);
      t.true(away <= tolerance * loss, `${low}, step ${step}: ${got[step]} / ${loss}`);
    }
    t.notDeepEqual(got, exact, 'it is computed otherwise');
  }
});

test('weights that a file holds in float16 take steps of Adam whose gradients have squares too small for it', async (t) => {
  const build = new GraphBuilder('half', 1);
  const x = build.input('x', 'float16', [2, 3]);
  const weight = constant('float16', [0.5, -0.25, 0.125], [3, 1]);
  build.output('y', build.operator('MatMul', [x, build.constant('w', weight)]));
  const optimizer = { kind: 'adam', learningRate: 1 / 64 } as const;
  const loss = { kind: 'mse', output: 'y' } as const;
  const { graph } = trainingGraph(build.build(), { loss, optimizer, trained: ['w'] });
  // Gradients of about 1e-4, and none in the last row.
  const batch = {
    x: constant('float16', [1e-4, 2e-4, 0, 2e-4, -1e-4, 0], [2, 3]),
    target: constant('float16', [1, 1], [2, 1]),
  };
  const { state } = await takeSteps(graph, [batch], 1);
  // The first step of Adam is the rate, away from the gradient's sign, and none where there is no gradient.
  t.deepEqual(state['w'] && numbersOf(state['w']).map((value) => Math.round(value * 1024) / 1024), [
    0.5 + 1 / 64,
    -0.25 + 1 / 64,
    0.125,
  ]);
  t.is(state['w/square']?.dtype, 'float32');
});
