import test from 'ava';
import type { Graph, Node } from '../../../src/ir/graph.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';

/** A chain of nodes with these module paths. */
function chain(...paths: readonly string[]): Graph {
  const nodes = paths.map(
    (path, index): Node => ({
      name: `n${index}`,
      op: 'Relu',
      domain: '',
      attributes: {},
      inputs: [`t${index}`],
      outputs: [`t${index + 1}`],
      module: path === '' ? [] : path.split('/'),
      layer: null,
      forward: null,
      phase: 'forward',
      group: `n${index}`,
      body: null,
    }),
  );
  return {
    name: 'g',
    nodes,
    tensors: new Map(),
    inputs: ['t0'],
    outputs: [`t${paths.length}`],
    weights: new Map(),
    state: [],
    batch: [],
  };
}

const layers = (...paths: readonly string[]): readonly (string | null)[] =>
  findLayers(chain(...paths)).nodes.map((node) => node.layer);

test('the shallowest indexed step with a sibling is the layer', (t) => {
  t.deepEqual(layers('m/embed', 'm/layers.0/attn/head.0', 'm/layers.0/attn/head.1', 'm/layers.1/mlp', 'm/norm'), [
    null,
    'm.layers.0',
    'm.layers.0',
    'm.layers.1',
    null,
  ]);
});

test('an index without sibling is no layer', (t) => {
  t.deepEqual(layers('stage.0/block.0', 'stage.0/block.1', 'conv1/x'), ['stage.0.block.0', 'stage.0.block.1', null]);
});

test('where stages are unlike and hold chains of equal blocks, the blocks are the layers', (t) => {
  const block = (stage: number, index: number) => [`s.${stage}/b.${index}/conv1`, `s.${stage}/b.${index}/conv2`];
  t.deepEqual(
    layers('stem', ...block(0, 0), ...block(0, 1), ...block(0, 2), 's.1/down', ...block(1, 0), ...block(1, 1)),
    [
      null,
      's.0.b.0',
      's.0.b.0',
      's.0.b.1',
      's.0.b.1',
      's.0.b.2',
      's.0.b.2',
      null,
      's.1.b.0',
      's.1.b.0',
      's.1.b.1',
      's.1.b.1',
    ],
  );
});

test('equal modules side by side are no layers, nor are unlike ones behind one another', (t) => {
  const graph = chain('l.0/e.0', 'l.0/e.1', 'l.0/sum', 'l.1/e.0', 'l.1/e.1', 'l.1/e.2', 'l.1/sum');
  const beside = graph.nodes.map((node) =>
    node.module.at(-1)?.startsWith('e.') ? { ...node, inputs: [node.module[0] === 'l.0' ? 't0' : 't3'] } : node,
  );
  t.deepEqual(
    findLayers({ ...graph, nodes: beside }).nodes.map(({ layer }) => layer),
    ['l.0', 'l.0', 'l.0', 'l.1', 'l.1', 'l.1', 'l.1'],
  );
  const unlike = chain('l.0/c.0', 'l.0/c.1', 'l.0/c.1', 'l.1/c.0', 'l.1/c.1', 'l.1/c.1', 'l.1/c.1', 'l.1/c.1');
  t.deepEqual([...new Set(findLayers(unlike).nodes.map(({ layer }) => layer))], ['l.0', 'l.1']);
});

test('a graph that has layers keeps their depth, whatever is made of it', (t) => {
  const block = (stage: number, index: number) => [`s.${stage}/b.${index}/conv1`, `s.${stage}/b.${index}/conv2`];
  const placed = findLayers(chain(...block(0, 0), ...block(0, 1), ...block(0, 2), ...block(1, 0), ...block(1, 1)));
  const grown = placed.nodes.flatMap((node, place) =>
    place % 3 === 0 ? [node, { ...node, name: `${node.name}/more`, layer: null, outputs: [`more${place}`] }] : [node],
  );
  t.deepEqual(
    findLayers({ ...placed, nodes: grown }, placed).nodes.map(({ layer }) => layer),
    grown.map(({ module }) => module.slice(0, 2).join('.')),
  );
});

test('siblings have one parent and one stem', (t) => {
  t.deepEqual(layers('a/l.0', 'b/l.1', 'a/k.1'), [null, null, null]);
});

test('names as TorchScript writes them', (t) => {
  t.deepEqual(layers('encoder/encoder_layer_0/ln', 'encoder/encoder_layer_1/ln'), [
    'encoder.encoder_layer_0',
    'encoder.encoder_layer_1',
  ]);
  t.deepEqual(layers('n/n.0', 'n/n.2'), ['n.0', 'n.2']);
});

test('a node without a path lies where its neighbours lie', (t) => {
  const graph = findLayers(chain('m/h.0/attn/qkv', '', 'm/h.0/attn', 'm/h.1/attn', ''));
  t.deepEqual(
    graph.nodes.map((node) => node.layer),
    ['m.h.0', 'm.h.0', 'm.h.0', 'm.h.1', 'm.h.1'],
  );
  t.deepEqual(graph.nodes[1]?.module, ['m', 'h.0', 'attn']);
});

test('a node beside an unrolled loop is in none of its iterations', (t) => {
  t.deepEqual(layers('', 'loop#0', 'loop#0/mlp', 'loop#1', 'loop#1/mlp', ''), [
    null,
    'loop.0',
    'loop.0',
    'loop.1',
    'loop.1',
    null,
  ]);
});
