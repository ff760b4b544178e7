/**
 * @file Gradients of fused regions: the same numbers as those of the operators inside, right under every strategy, and
 * nothing of what is inside alive between forward and backward.
 */
import test from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';

import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { Attributes, ConstantTensor, Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import type { RegionKind } from '../../../src/ir/operator.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import { recogniseRegions } from '../../../src/ir/passes/recognise-regions.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { provesRight } from '../fused-regions/every-strategy.js';
import {
  asRegion,
  crossEntropy,
  gelu,
  groupedAttention,
  layerNormalization,
  rotary,
  swiglu,
} from '../fused-regions/region-graphs.js';
import { gradientAlone, gradientNode, scored, wave } from './scored-region.js';

/** Whether the numbers are the same but for rounding. */
function isNear(got: readonly number[], expected: readonly number[], tolerance: number): boolean {
  const error = Math.hypot(...expected.map((value, place) => value - (got[place] ?? Number.NaN)));
  return error <= tolerance * Math.hypot(...expected) + 1e-7;
}

async function gradientsOf(graph: Graph, wanted: readonly string[], feeds: Record<string, ConstantTensor>) {
  const found = differentiate(graph, 'total', wanted);
  const outputs = wanted.map((name) => found.gradients.get(name) ?? '');
  const results = await evaluate(writeOnnx({ ...found.graph, outputs }), feeds);
  return { graph: found.graph, values: outputs.map((name) => numbersOf(results[name] as ConstantTensor)) };
}

function feedsOf(graph: Graph, mask?: readonly number[]): Record<string, ConstantTensor> {
  return Object.fromEntries(
    graph.inputs.map((name, index) => {
      const { dtype, shape } = graph.tensors.get(name) ?? floats([0]);
      const data = wave(
        shape.reduce((product, size) => product * size, 1),
        index,
      );
      const numbers = dtype === 'int64' ? data.map((value) => Math.floor(3.9 + 3.9 * value)) : data;
      return [name, constant(dtype, name === 'mask' && mask ? mask : numbers, shape)];
    }),
  );
}

const REGIONS: readonly (readonly [RegionKind, () => Graph, string])[] = [
  [
    'Attention',
    groupedAttention,
    'b (h g+) s+ e%, b h t+> e%, b h t+> f%, b 1 s+ t+>, b (h g+) s+ f%, b (h g+) s+ 1, b (h g+) s+ 1, b (h g+) s+ f% -> ' +
      'b (h g+) s+ e%, b h t+> e%, b h t+> f%',
  ],
  ['LayerNormalization', layerNormalization, 'b+ s+ d%, d%, b+ s+ d% -> b+ s+ d%, d%, d%'],
  ['CrossEntropy', crossEntropy, 's v%, s 1,  -> s v%'],
  ['Gelu', gelu, 'b s n, b s n -> b s n'],
  ['SwiGLU', swiglu, 'b s n, b s n, b s n -> b s n, b s n'],
  // Angles that are read are data as well: their gradient is summed over samples and heads.
  [
    'RotaryEmbedding',
    rotary,
    'b+ b2+ b3 (e! e2), 1 1 b3 (e! e2), 1 1 b3 (e! e2), b+ b2+ b3 (e! e2) -> ' +
      'b+ b2+ b3 (e! e2), 1 1 b3 (e! e2), 1 1 b3 (e! e2)',
  ],
];

for (const [kind, make, text] of REGIONS) {
  test(`the gradient of ${kind} is one node with the numbers of its operators`, async (t) => {
    const { graph, wanted } = scored(asRegion(make(), kind));
    const feeds = feedsOf(graph);
    const [regions, plain] = [
      await gradientsOf(graph, wanted, feeds),
      await gradientsOf(flattenRegions(graph), wanted, feeds),
    ];
    const inside = gradientNode(regions.graph);
    t.is(inside.op, `${kind}Gradient`);
    t.is(ruleOf(operatorOf(regions.graph, inside)).text, text);
    for (const [at, expected] of plain.values.entries()) {
      t.true(isNear(regions.values[at] ?? [], expected, 1e-5), `${wanted[at]}`);
      t.true(Math.hypot(...expected) > 0);
    }
  });

  test(`the gradient of ${kind} is right under strategies of all kinds`, async (t) => {
    t.true((await provesRight(gradientAlone(make(), kind), 1, 12)) >= 12);
  });
}

test('sums inside of a gradient and around it have names of their own', async (t) => {
  const build = new GraphBuilder('shared', 1);
  const x = build.input('x', 'float32', [2, 3, 4]);
  const attended = (scale: number) => {
    const scores = build.operator('MatMul', [x, build.operator('Transpose', [x], { perm: [0, 2, 1] })]);
    const scaled = build.operator('Mul', [scores, build.constant(`scale.${scale}`, floats([scale]))]);
    return build.operator('MatMul', [build.operator('Softmax', [scaled], { axis: -1 }), x]);
  };
  const parts = [attended(0.5), build.operator('Tanh', [x]), build.operator('Sin', [x]), attended(0.3)];
  const sum = parts.reduce((left, right) => build.operator('Add', [left, right]));
  const total = build.operator('ReduceSum', [build.operator('Mul', [sum, x])], { axes: [0, 1, 2], keepdims: 0 });
  build.output('total', total);
  const plain = build.build();
  const found = recogniseRegions(plain);
  t.is(found.nodes.filter(({ op }) => op === 'Attention').length, 2);
  const names = flattenRegions(differentiate(found, 'total', ['x']).graph).nodes.flatMap(({ name, outputs }) => [
    `node ${name}`,
    ...outputs,
  ]);
  t.deepEqual(
    names.filter((name, at) => names.indexOf(name) !== at),
    [],
  );
  const feeds = feedsOf(plain);
  const [regions, expected] = [await gradientsOf(found, ['x'], feeds), await gradientsOf(plain, ['x'], feeds)];
  t.true(isNear(regions.values[0] ?? [], expected.values[0] ?? [], 1e-5));
});

/** Scores of the second query of each sample are all masked by `value`. */
function masked(value: number): readonly number[] {
  return Array.from({ length: 32 }, (_, at) => (Math.floor(at / 4) % 4 === 1 ? value : 0));
}

test('a query that a finite mask leaves nothing to sees all keys alike, in the gradient as in the result', async (t) => {
  const { graph, wanted } = scored(asRegion(groupedAttention(), 'Attention'));
  const feeds = feedsOf(graph, masked(-3.4e38));
  const [regions, plain] = [
    await gradientsOf(graph, wanted, feeds),
    await gradientsOf(flattenRegions(graph), wanted, feeds),
  ];
  for (const [at, expected] of plain.values.entries()) t.true(isNear(regions.values[at] ?? [], expected, 1e-5));
});

test('a query that is masked by infinity, and guarded, hands nothing back and spoils nothing', async (t) => {
  const { graph, wanted } = scored(asRegion(groupedAttention(), 'Attention'));
  const { values } = await gradientsOf(graph, wanted, feedsOf(graph, masked(-Infinity)));
  t.true(values.flat().every(Number.isFinite));
  const queries = values[wanted.indexOf('q')] ?? [];
  t.true(queries.every((value, at) => (Math.floor(at / 6) % 4 === 1 ? value === 0 : true)));
  t.true(queries.some((value) => value !== 0));
});

test('what is alive between an attention and its gradient is linear in the sequence', (t) => {
  const { graph, wanted } = scored(asRegion(groupedAttention(), 'Attention'));
  const { graph: whole } = differentiate(graph, 'total', wanted);
  const [forward, backward] = [whole.nodes.find(({ op }) => op === 'Attention'), gradientNode(whole)];
  const kept = (forward?.outputs ?? []).filter((name) => name !== null && backward.inputs.includes(name));
  t.deepEqual(
    kept.map((name) => whole.tensors.get(name ?? '')?.shape),
    [
      [2, 8, 4, 10],
      [2, 8, 4, 1],
      [2, 8, 4, 1],
    ],
  );
});

/** A normalisation of images, which is one operator: its gradient alone. */
function imagesGradient(op: string, attributes: Attributes): Graph {
  const build = new GraphBuilder('images', 9);
  const x = build.input('x', 'float32', [4, 8, 2, 2]);
  const vectors = ['scale', 'bias', 'mean', 'variance'].map((name) => build.input(name, 'float32', [8]));
  build.output('result', build.operator(op, [x, ...vectors], attributes));
  const { graph, wanted } = scored(build.build());
  const whole = differentiate(graph, 'total', wanted).graph;
  const node = gradientNode(whole);
  const outputs = node.outputs.flatMap((name) => name ?? []);
  // A variance is positive.
  const { data, ...type } = constant('float32', [1, 2, 3, 4, 5, 6, 7, 8], [8]);
  const variance = { ...type, role: 'buffer', source: { kind: 'inline', data } } as const;
  const weights: Graph['weights'] = node.inputs.includes('variance') ? new Map([['variance', variance]]) : new Map();
  const inputs = node.inputs.flatMap((name) => (name === null || weights.has(name) ? [] : [name]));
  return { ...whole, nodes: [node], inputs, outputs, weights };
}

for (const [says, training_mode, text] of [
  // Statistics that are given: the gradient of the vectors is summed over samples and positions last.
  ['of a run', 0, 'a0+ a1 a2+ a3+, a1, a1, a1, a0+ a1 a2+ a3+ -> a0+ a1 a2+ a3+, a1, a1, a1, a1'],
  ['of the batch', 1, 'a0% a1 a2% a3%, a1, a0% a1 a2% a3% -> a0% a1 a2% a3%, a1, a1, x, x2'],
] as const)
  test(`the gradient of a BatchNormalization with statistics ${says} is one node, right under every strategy`, async (t) => {
    const graph = imagesGradient('BatchNormalization', { training_mode });
    const [node] = graph.nodes;
    t.is(node?.op, 'BatchNormalizationGradient');
    t.is(node && ruleOf(operatorOf(graph, node)).text, text);
    t.true((await provesRight(graph, 1, 12)) >= 12);
  });
