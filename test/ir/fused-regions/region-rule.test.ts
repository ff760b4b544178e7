import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import { composeRule } from '../../../src/ir/fused-regions/region-rule.js';
import { rememberedRule } from '../../../src/ir/fused-regions/remembered-rule.js';
import type { Graph, Node } from '../../../src/ir/graph.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { operatorEntry, ruleOf } from '../../../src/ir/ops/index.js';
import { slowTests } from '../../selection.js';
import { provesRight } from './every-strategy.js';
import { asRegion, crossEntropy, groupedAttention, layerNormalization } from './region-graphs.js';

const slow = slowTests(test);

/** An activation over heads that are split inside: one dimension is one factor here and two there. */
function splitInside(): Graph {
  const build = new GraphBuilder('split', 4);
  const x = build.input('x', 'float32', [4, 8]);
  const two = build.operator('Reshape', [x], { shape: [4, 2, 4] });
  const half = build.operator('Mul', [two, build.parameter('scale', [2, 1])]);
  build.output('result', build.operator('Tanh', [build.operator('Reshape', [half], { shape: [4, 8] })]));
  return build.build();
}

test('the factors of an attention are those of the field', (t) => {
  const graph = asRegion(groupedAttention(), 'Attention');
  const [node] = graph.nodes;
  t.is(graph.nodes.length, 1);
  if (node) t.is(ruleOf(operatorOf(graph, node)).text, 'b (h g) s e%, b h t%> e%, b h t%> f, b 1 s t%> -> b (h g) s f');
});

test('a normalised dimension is expanded, the others pass', (t) => {
  const graph = asRegion(layerNormalization(), 'LayerNormalization');
  const [node] = graph.nodes;
  if (node) t.is(ruleOf(operatorOf(graph, node)).text, 'b s d%, d%, d% -> b s d%');
});

slow('an attention is right under every strategy', async (t) => {
  t.true((await provesRight(asRegion(groupedAttention(), 'Attention'), 1)) > 60);
});

test('a normalisation is right under every strategy', async (t) => {
  t.true((await provesRight(asRegion(layerNormalization(), 'LayerNormalization'), 2)) > 15);
});

test('a loss is right under every strategy: the labels are looked up in vocabulary shards', async (t) => {
  t.true((await provesRight(asRegion(crossEntropy(), 'CrossEntropy'), 3)) > 10);
});

test('a dimension that is two inside is two outside', async (t) => {
  const graph = asRegion(splitInside(), 'Gelu');
  const [node] = graph.nodes;
  if (node) t.is(ruleOf(operatorOf(graph, node)).text, 's (n n2), n 1 -> s (n n2)');
  t.true((await provesRight(graph, 4)) > 10);
});

test('dimensions that do not nest leave the operators as they are', (t) => {
  const build = new GraphBuilder('uneven', 5);
  const x = build.input('x', 'float32', [6, 4]);
  const y = build.operator('Reshape', [build.operator('Reshape', [x], { shape: [2, 3, 4] })], { shape: [6, 4] });
  const z = build.operator('Reshape', [build.operator('Reshape', [y], { shape: [3, 2, 4] })], { shape: [6, 4] });
  build.output('result', z);
  const graph = build.build();
  t.is(asRegion(graph, 'Gelu').nodes.length, 4);
});

test('a graph with its regions put back is the graph that it was', (t) => {
  const graph = groupedAttention();
  const back = flattenRegions(asRegion(graph, 'Attention'));
  const plain = ({ name, op, inputs, outputs }: Node) => ({ name, op, inputs, outputs });
  t.deepEqual(back.nodes.map(plain), graph.nodes.map(plain));
  t.deepEqual([...back.weights.keys()].sort(), [...graph.weights.keys()].sort());
});

test('bodies that differ in names have one rule, each by its own names; other sizes have another', (t) => {
  const body = (layer: string, width: number): Graph => {
    const build = new GraphBuilder(layer, 4);
    const x = build.input(`x${layer}`, 'float32', [4, width]);
    const scaled = build.operator('Mul', [x, build.input(`s${layer}`, 'float32', [width])]);
    build.output(`result${layer}`, build.operator('Tanh', [scaled]));
    return build.build();
  };
  const find = (op: string, domain: string) => operatorEntry({ op, domain });
  const remembered = rememberedRule(find);
  const [first, second, wider] = [body('a', 8), body('b', 8), body('a', 16)];
  const rule = remembered('Gelu', first)?.rule;
  t.is(remembered('Gelu', second)?.rule, rule);
  t.not(remembered('Gelu', wider)?.rule, rule);
  for (const graph of [first, second, wider]) t.deepEqual(remembered('Gelu', graph), composeRule('Gelu', graph, find));
});
