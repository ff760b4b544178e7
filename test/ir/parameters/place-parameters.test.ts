/**
 * @file Parameters by place compute what the file's weights compute, and are what `inspect` says.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { gpt } from '../../../models/gpt.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { sharedLayers } from '../../../models/shared-layers.js';
import { linear } from '../../../models/transformer.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { inspect } from '../../../src/api/inspect.js';
import { importModel } from '../../../src/api/models/import.js';
import { trainingForm } from '../../../src/api/models/training-form.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { onnxOfDtype } from '../../../src/ir/dtype.js';
import { AutoparError } from '../../../src/ir/error.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import type { ParameterOptions } from '../../../src/ir/parameters/parameter.js';
import { compare } from '../same-results.js';

interface Placed {
  readonly graph: Graph;
  readonly trained: readonly string[];
}

/** The model in the form that it is trained in, once it is seen to compute the same and to be what inspect prints. */
async function placed(t: ExecutionContext, model: Graph, options: ParameterOptions = {}): Promise<Placed> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'model.onnx');
  writeFileSync(file, writeOnnx(model));
  const imported = await importModel(file);
  const { graph, trained } = trainingForm(imported, { ...options, trainMode: 'as-exported' });
  const inputs = randomInputs(imported.graph, 1);
  compare(t, await runGraph(flattenRegions(graph), inputs), await runGraph(flattenRegions(imported.graph), inputs));
  const { parameters } = (await inspect({ model: file, ...options })).parameters;
  t.deepEqual(
    trained,
    parameters.filter(({ trainable }) => trainable).map(({ name }) => name),
  );
  for (const name of trained) t.true(graph.weights.has(name), name);
  const read = new Set([...graph.outputs, ...graph.nodes.flatMap((node) => node.inputs)]);
  for (const name of graph.weights.keys()) t.true(read.has(name), `${name} is read`);
  return { graph, trained };
}

const SHARED = { batch: 2, sequence: 3, width: 4, vocabulary: 5, calls: 2 };

test('what an exporter merged is parted, what it stored twice is one: the parameters are those of the author', async (t) => {
  const author = await placed(t, sharedLayers('author', SHARED, 1));
  const exported = await placed(t, sharedLayers('exported', { ...SHARED, exported: true }, 1));
  t.deepEqual([...exported.trained].sort(), [...author.trained].sort());
  t.is(exported.trained.filter((name) => name.endsWith('bias')).length, 5);
  const turns = exported.graph.nodes.filter(({ op }) => op === 'Transpose');
  t.deepEqual(
    turns.map(({ inputs, module }) => [inputs, module]),
    [[['embedding.weight'], ['head']]],
  );
});

test('running statistics are none, though they share the values of scales and shifts', async (t) => {
  const sizes = { batch: 2, channels: 3, size: 8, widths: [4, 4], classes: 3, dropout: 0, fresh: true, exported: true };
  const { graph, trained } = await placed(t, normalisedCnn('cnn', sizes, 1));
  t.false(trained.some((name) => name.includes('running')));
  t.is(trained.filter((name) => name.includes('.bn.')).length, 6);
  t.is(graph.weights.get('residual.bn.running_var')?.role, 'buffer');
});

test('--untie parts a table and its head: the head takes its Transpose with it', async (t) => {
  const sizes = { batch: 2, sequence: 4, layers: 1, width: 4, heads: 2, vocabulary: 6 };
  const tied = await placed(t, gpt('tied', sizes, 1));
  const parted = await placed(t, gpt('parted', sizes, 1), { untie: ['wte.weight'] });
  t.deepEqual(
    parted.trained.filter((name) => !tied.trained.includes(name)),
    ['lm_head.weight'],
  );
  const head = parted.graph.nodes.find(({ module, op }) => module[0] === 'lm_head' && op === 'Transpose');
  t.deepEqual(head?.inputs, ['lm_head.weight']);
});

test('--tie makes two one, transposed where their shapes say so', async (t) => {
  const build = () => {
    const builder = new GraphBuilder('two', 1);
    const x = builder.input('x', 'float32', [2, 3]);
    const zeros = (name: string, shape: readonly number[]) =>
      builder.within(name, () => builder.uniformParameter('weight', shape, 0.25));
    const product = (name: string, input: string, weight: string) =>
      builder.within(name, () => builder.operator('MatMul', [input, weight]));
    const wide = product('up', x, zeros('up', [3, 5]));
    builder.output('y', product('down', wide, zeros('down', [5, 3])));
    return builder.build();
  };
  t.deepEqual((await placed(t, build())).trained, ['up.weight', 'down.weight']);
  const { graph, trained } = await placed(t, build(), { tie: ['up.weight=down.weight'] });
  t.deepEqual(trained, ['up.weight']);
  t.deepEqual(
    graph.nodes.map(({ op, inputs }) => [op, ...inputs]),
    [
      ['MatMul', 'x', 'up.weight'],
      ['Transpose', 'up.weight'],
      ['MatMul', '/up/MatMul_output', 'up.weight/transposed'],
    ],
  );
  const error = await t.throwsAsync(placed(t, build(), { tie: ['up.weight=across.weight'] }), {
    instanceOf: AutoparError,
  });
  t.is(error?.code, 'unknown-parameter');
});

test('weights inside of fused regions are renamed there too', async (t) => {
  const builder = new GraphBuilder('norms', 1, 'exported');
  let hidden = builder.input('x', 'float32', [2, 6]);
  for (const name of ['first', 'second']) {
    hidden = builder.within(name, () => {
      const mean = builder.operator('ReduceMean', [hidden], { axes: [-1], keepdims: 1 });
      const centred = builder.operator('Sub', [hidden, mean]);
      const square = builder.operator('Pow', [centred, builder.scalar(2)]);
      const variance = builder.operator('ReduceMean', [square], { axes: [-1], keepdims: 1 });
      const root = builder.operator('Sqrt', [builder.operator('Add', [variance, builder.scalar(1e-5)])]);
      const scaled = builder.operator('Mul', [
        builder.operator('Div', [centred, root]),
        builder.uniformParameter('weight', [6], 1),
      ]);
      return builder.operator('Add', [scaled, builder.uniformParameter('bias', [6], 0)]);
    });
    hidden = linear(builder, `${name}_fc`, hidden, 6);
  }
  builder.output('y', hidden);
  const { graph, trained } = await placed(t, builder.build());
  t.deepEqual(
    trained.filter((name) => !name.includes('fc')),
    ['first.weight', 'second.weight', 'first.bias', 'second.bias'],
  );
  const regions = graph.nodes.filter(({ body }) => body !== null);
  t.is(regions.length, 2);
  const [, second] = regions;
  const inner = new Set(second?.body?.nodes.flatMap(({ inputs }) => inputs));
  t.true(inner.has('second.weight') && !inner.has('first.weight'));
});

test('a weight that an output is made of directly keeps its value there', async (t) => {
  const builder = new GraphBuilder('given', 1, 'exported');
  const x = builder.input('x', 'float32', [2, 3]);
  const add = (name: string, input: string) =>
    builder.within(name, () => {
      const product = builder.operator('MatMul', [input, builder.parameter('weight', [3, 3])]);
      return builder.operator('Add', [product, builder.uniformParameter('bias', [3], 0.5)]);
    });
  const hidden = add('b', add('a', x));
  builder.output('y', hidden);
  builder.output('copy', builder.operator('Mul', ['a.bias', builder.constant('two', floats([2]))]));
  const { trained } = await placed(t, builder.build());
  t.true(trained.includes('a.bias') && trained.includes('b.bias'), trained.join(' '));
});

test('a parameter whose name something else has is called otherwise, and trained under that name', async (t) => {
  const builder = new GraphBuilder('taken', 1, 'exported');
  // Data with the name that the second bias would have.
  let hidden = builder.operator('Cast', [builder.input('b.bias', 'int64', [2, 3])], { to: onnxOfDtype('float32') });
  for (const name of ['a', 'b'])
    hidden = builder.within(name, () => {
      const product = builder.operator('MatMul', [hidden, builder.parameter('weight', [3, 3])]);
      return builder.operator('Add', [product, builder.uniformParameter('bias', [3], 0)]);
    });
  builder.output('y', hidden);
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'model.onnx');
  writeFileSync(file, writeOnnx(builder.build()));
  const { graph, trained } = trainingForm(await importModel(file), {});
  t.deepEqual(trained, ['a.weight', 'a.bias', 'b.bias.2', 'b.weight']);
  t.deepEqual(graph.nodes.at(-1)?.inputs[1], 'b.bias.2');
});
