/**
 * @file One layer for each run of equal layers: the result is the model with fewer layers, and layers outside of runs stay.
 */
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import type { Graph } from '../../../src/ir/graph.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';
import { firstOfLayers } from '../../../src/ir/passes/first-of-layers.js';

const built = (text: string): Graph => findLayers(generatedModel(text).build(2));

/** A graph by its operators, wiring and weights, names left out. */
function shapeOf(graph: Graph): unknown {
  const numbers = new Map<string, number>();
  const number = (name: string | null) => {
    if (name === null) return null;
    const known = numbers.get(name) ?? numbers.size;
    numbers.set(name, known);
    return known;
  };
  return {
    inputs: graph.inputs.map(number),
    nodes: graph.nodes.map(({ op, attributes, inputs, outputs }) => [
      op,
      attributes,
      inputs.map(number),
      outputs.map(number),
    ]),
    outputs: graph.outputs.map(number),
    tensors: [...graph.tensors.values()].map(({ dtype, shape }) => `${dtype}${shape}`).sort(),
    weights: graph.weights.size,
  };
}

const FAMILIES = [
  'gpt:hidden=64,heads=4,seq=16,vocab=64',
  'llama:hidden=64,heads=4,seq=16,vocab=64,kv_heads=2',
  'bert:hidden=64,heads=4,seq=16,vocab=64',
  'vit:hidden=64,heads=4,image=32,patch=16,classes=8',
];

for (const family of FAMILIES) {
  test(`five layers of ${family} are those of one`, (t) => {
    const { graph, standIns } = firstOfLayers(built(`${family},layers=5`));
    t.is(standIns.size, 5);
    t.is(new Set(standIns.values()).size, 1);
    t.deepEqual(shapeOf(graph), shapeOf(built(`${family},layers=1`)));
  });
}

test('dense layers before experts are a run of their own', (t) => {
  const { graph, standIns } = firstOfLayers(
    built('moe:layers=5,dense=2,hidden=64,heads=4,kv_heads=2,ffn=64,seq=16,vocab=64,experts=2,topk=1'),
  );
  t.deepEqual([...standIns.values()], ['layers.0', 'layers.0', 'layers.2', 'layers.2', 'layers.2']);
  t.is(new Set(graph.nodes.flatMap(({ layer }) => layer ?? [])).size, 2);
});

const SMALL = 'hidden=64,heads=4,kv_heads=2,ffn=64,seq=16,vocab=64';

test('kinds of layers that alternate are those of one round', (t) => {
  const windows = `moe:${SMALL},window=8,experts=2,topk=1,layers=`;
  const { graph, standIns } = firstOfLayers(built(`${windows}6`));
  t.deepEqual(
    [...standIns.values()],
    [0, 1, 0, 1, 0, 1].map((layer) => `layers.${layer}`),
  );
  t.deepEqual(shapeOf(graph), shapeOf(built(`${windows}2`)));
});

test('rounds of several equal layers, and parts of a round behind them', (t) => {
  const pattern = 'MM*-MMM*-MM*-M';
  const { graph, standIns } = firstOfLayers(
    built(`hybrid:${SMALL},head_width=16,state_heads=2,groups=1,state=16,pattern=${pattern}`),
  );
  const alone = [...standIns].map(([layer, own]) => [pattern[Number(layer.slice(7))], pattern[Number(own.slice(7))]]);
  t.is(alone.length, pattern.length);
  t.true(alone.every(([letter, own]) => letter === own));
  t.deepEqual(
    shapeOf(graph),
    shapeOf(built(`hybrid:${SMALL},head_width=16,state_heads=2,groups=1,state=16,pattern=M*-M`)),
  );
});

test('layers that hand on past their neighbour stay', (t) => {
  const graph = built('gpt:layers=3,hidden=64,heads=4,seq=16,vocab=64');
  const first = graph.nodes.findLast(({ layer }) => layer === 'layers.0')?.outputs[0] ?? '';
  const skipping: Graph = {
    ...graph,
    nodes: graph.nodes.map((node) =>
      node.layer === 'layers.2' && node.op === 'Add' && node.outputs[0] === lastOf(graph, 'layers.2')
        ? { ...node, inputs: [first, node.inputs[1] ?? null] }
        : node,
    ),
  };
  const { standIns } = firstOfLayers(skipping);
  t.is(standIns.get('layers.2'), 'layers.2');
  t.true([...standIns].every(([layer, own]) => own !== 'layers.2' || layer === 'layers.2'));
});

function lastOf(graph: Graph, layer: string): string {
  return graph.nodes.findLast((node) => node.layer === layer)?.outputs[0] ?? '';
}

test('graphs without repetition, or with state, stay as they are', (t) => {
  const one = built('gpt:layers=1,hidden=64,heads=4,seq=16,vocab=64');
  t.is(firstOfLayers(one).graph, one);
  const many = built('gpt:layers=3,hidden=64,heads=4,seq=16,vocab=64');
  const stateful = { ...many, state: [{ input: many.inputs[0] ?? '', output: many.outputs[0] ?? '' }] };
  t.is(firstOfLayers(stateful).graph, stateful);
});
