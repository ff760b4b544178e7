import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { Graph } from '../../../src/ir/graph.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import type { PinRecord } from '../../../src/sharding-propagation/annotations/annotation.js';
import { annotationsOf } from '../../../src/sharding-propagation/annotations/read-annotations.js';
import { resolveAnnotations } from '../../../src/sharding-propagation/annotations/resolve-annotations.js';
import { makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { type OperatorPin, satisfies } from '../../../src/sharding-propagation/pin.js';
import { REPLICATED } from '../../../src/sharding-propagation/strategy.js';
import { ROOT } from '../../cli/autopar.js';
import { GraphBuilder } from '../../search/small-graphs.js';
import { refused } from './file.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 2],
]);

const shipped = async (name: string) => (await importModel(join(ROOT, `models/${name}.onnx`))).graph;

function operators(graph: Graph, pin: PinRecord, mesh = MESH): readonly OperatorPin[] {
  const pins = resolveAnnotations(annotationsOf({ version: 1, pins: [pin] }), graph, mesh);
  return pins.filter((found) => found.kind === 'operator');
}

const written = (pins: readonly OperatorPin[]) =>
  Object.fromEntries(
    pins.map(({ node, axes, reduced }) => [node, `${Object.keys(axes ?? {}).join()}${reduced ? ' reduced' : ''}`]),
  );

test('pairwise on an MLP is its column/row pair, with the bias of the columns', async (t) => {
  const graph = await shipped('gpt-tiny');
  const pins = operators(graph, { match: { module: 'h.0.mlp' }, style: 'pairwise' });
  t.deepEqual(written(pins), {
    '/h.0/mlp/c_fc/MatMul': 'n',
    '/h.0/mlp/c_fc/Add': 'a2',
    '/h.0/mlp/c_proj/MatMul': 'k reduced',
  });
  for (const { axes } of pins) t.deepEqual(Object.values(axes ?? {}), [['tp']]);
});

test('pairwise on attentions: projections to heads, output summed; each layer is a pair of its own', async (t) => {
  const graph = await shipped('llama-tiny');
  const names = graph.nodes.flatMap(({ module }) => module.join('.'));
  t.true(names.some((name) => name.startsWith('model.layers.1')));
  const pins = operators(graph, { match: { module: '**.self_attn' }, style: 'pairwise' });
  const products = written(pins);
  const of = (letter: string) =>
    Object.keys(products)
      .filter((node) => products[node]?.startsWith(letter))
      .map((node) => /(\w+)\/MatMul/.exec(node)?.[1])
      .sort();
  t.deepEqual([...new Set(of('n'))], ['k_proj', 'q_proj', 'v_proj']);
  t.deepEqual([...new Set(of('k'))], ['o_proj']);
  t.is(of('n').length, 3 * of('k').length);
});

test('colwise and rowwise of an embedding are its features and its vocabulary', async (t) => {
  const graph = await shipped('gpt-tiny');
  t.deepEqual(written(operators(graph, { match: { module: 'wte' }, style: 'colwise' })), { '/wte/Gather': 'a1' });
  t.deepEqual(written(operators(graph, { match: { module: 'wte' }, style: 'rowwise' })), {
    '/wte/Gather': 'v reduced',
  });
});

test('colwise and rowwise of a convolution are its channels', async (t) => {
  const graph = await shipped('cnn-tiny');
  const [convolution] = graph.nodes.filter((node) => node.op === 'Conv');
  const module = convolution?.module.join('.') ?? '';
  const pins = operators(graph, { match: { module }, style: 'colwise' });
  const pin = pins.find(({ node }) => node === convolution?.name);
  const [factor = ''] = Object.keys(pin?.axes ?? {});
  const rule = convolution && ruleOf(operatorOf(graph, convolution));
  t.is(
    rule?.outputs[0]?.findIndex((names) => names.includes(factor)),
    1,
  );
});

test('sequence puts norms and element-wise operators along the sequence', async (t) => {
  const graph = await shipped('gpt-tiny');
  const pins = operators(graph, { match: { module: 'h.*.ln_*' }, style: 'sequence' });
  t.is(pins.length, 4);
  for (const { axes } of pins) t.deepEqual(axes, { a1: ['tp'] });
});

test('a sequence that a Reshape joined with the batch is a piece', (t) => {
  const builder = new GraphBuilder();
  const x = builder.input('x', [4, 12, 64]);
  const flat = builder.add('flat', 'Reshape', [x], { shape: [48, 64] });
  const graph = builder.build([builder.add('act', 'Relu', [flat])]);
  const inModule = { ...graph, nodes: graph.nodes.map((node) => ({ ...node, module: ['block'] })) };
  const pins = operators(inModule, { match: { module: 'block' }, style: 'sequence' });
  t.deepEqual(
    pins.map(({ node, axes, pieces }) => ({ node, axes, pieces })),
    [{ node: 'act', axes: { 'a0.1': ['tp'] }, pieces: { a0: [4, 12] } }],
  );
});

test('replicate keeps tp off every operator of the module, and dp free', async (t) => {
  const graph = await shipped('gpt-tiny');
  const pins = operators(graph, { match: { module: 'h.0.mlp' }, style: 'replicate' });
  const inside = graph.nodes.filter((node) => node.module.join('.').startsWith('h.0.mlp'));
  t.deepEqual(
    pins.map(({ node }) => node),
    inside.map(({ name }) => name),
  );
  const [product] = inside.filter((node) => node.op === 'MatMul');
  const pin = pins.find(({ node }) => node === product?.name);
  if (!product || !pin) throw new Error('the module has a product');
  const rule = ruleOf(operatorOf(graph, product));
  const meets = (axes: Readonly<Record<string, readonly string[]>>) =>
    satisfies(pin, { ...REPLICATED, axes }, rule, [], MESH);
  t.true(meets({}));
  t.true(meets({ m: ['dp'] }));
  t.false(meets({ n: ['tp'] }));
});

test('a fused projection may have its axis on a piece', async (t) => {
  const graph = await shipped('gpt-tiny');
  const [pin] = operators(graph, { match: { module: 'h.0.attn.c_attn' }, style: 'colwise' });
  const product = graph.nodes.find(({ name }) => name === pin?.node);
  if (!product || !pin) throw new Error('the module has a product');
  const rule = ruleOf(operatorOf(graph, product));
  const size = rule.factors.get('n')?.size ?? 0;
  const pieces = { n: [3, size / 3] };
  t.true(satisfies(pin, { ...REPLICATED, axes: { n: ['tp'] } }, rule, [], MESH));
  t.true(satisfies(pin, { ...REPLICATED, axes: { 'n.1': ['tp'] }, pieces }, rule, [], MESH));
  t.false(satisfies(pin, { ...REPLICATED, axes: { 'n.0': ['dp'] }, pieces }, rule, [], MESH));
  t.false(satisfies(pin, REPLICATED, rule, [], MESH));
});

test('a rowwise product reduces its pending sums at once', async (t) => {
  const graph = await shipped('gpt-tiny');
  const [pin] = operators(graph, { match: { module: 'h.0.mlp.c_proj' }, style: 'rowwise' });
  const product = graph.nodes.find(({ name }) => name === pin?.node);
  if (!product || !pin) throw new Error('the module has a product');
  const rule = ruleOf(operatorOf(graph, product));
  const axes = { k: ['tp'] };
  t.false(satisfies(pin, { ...REPLICATED, axes }, rule, [], MESH));
  t.true(satisfies(pin, { ...REPLICATED, axes, pending: { kind: 'all-reduce' } }, rule, [], MESH));
});

test('without tp a style asks nothing', async (t) => {
  const graph = await shipped('gpt-tiny');
  const alone = makeMesh([
    ['dp', 4],
    ['tp', 1],
  ]);
  t.deepEqual(operators(graph, { match: { module: 'h.0.mlp' }, style: 'pairwise' }, alone), []);
});

test('styles that mean nothing are refused', async (t) => {
  const graph = await shipped('gpt-tiny');
  const refusal = async (module: string, style: NonNullable<PinRecord['style']>, tp = 2) => {
    const mesh = makeMesh([
      ['dp', 1],
      ['tp', tp],
    ]);
    const error = await refused(t, () => operators(graph, { match: { module }, style }, mesh));
    t.is(error.code, 'pin-does-not-fit');
    return error.message;
  };
  t.regex(await refusal('h.0.ln_1', 'colwise'), /module h\.0\.ln_1 has no matmul/);
  t.regex(await refusal('h.0.mlp.c_fc', 'pairwise'), /one operator with a weight, and pairwise needs an even number/);
  t.regex(await refusal('wte', 'sequence'), /no norm or pointwise operator/);
  t.regex(await refusal('h.0.mlp.c_fc', 'colwise', 1024), /1024 parts, and the n of/);
});
