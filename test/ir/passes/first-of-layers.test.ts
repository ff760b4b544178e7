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
    const { graph, runs } = firstOfLayers(built(`${family},layers=5`));
    t.is(runs.length, 1);
    t.is(runs[0]?.instances.length, 5);
    t.deepEqual(shapeOf(graph), shapeOf(built(`${family},layers=1`)));
  });
}

test('dense layers before experts are a run of their own', (t) => {
  const { graph, runs } = firstOfLayers(
    built('moe:layers=5,dense=2,hidden=64,heads=4,kv_heads=2,ffn=64,seq=16,vocab=64,experts=2,topk=1'),
  );
  t.deepEqual(
    runs.map(({ instances }) => instances.length),
    [2, 3],
  );
  t.is(new Set(graph.nodes.flatMap(({ layer }) => layer ?? [])).size, 2);
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
  const { runs } = firstOfLayers(skipping);
  t.true(runs.every(({ instances }) => !instances.includes('layers.2')));
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
