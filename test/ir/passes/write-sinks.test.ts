/**
 * @file An attention whose sink is a column of its scores gives the same with the sink as a term of each row's sum, forward and
 * backward, and becomes a fused region that can take its keys in chunks.
 */
import test from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Graph } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import { recogniseRegions } from '../../../src/ir/passes/recognise-regions.js';
import { writeSinks } from '../../../src/ir/passes/write-sinks.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { compare, noise } from '../same-results.js';

const [HEADS, POSITIONS, WIDTH] = [3, 4, 2];
const SHAPE = [2, HEADS, POSITIONS, WIDTH];

/** softmax([q · kᵀ + mask, sink]) without its last column · v, and the sum of its elements times those of `weights`. */
function sunk({ isLowered, isDropped = true }: { readonly isLowered: boolean; readonly isDropped?: boolean }): Graph {
  const build = new GraphBuilder('sunk', 1);
  const [query, key, value, weights] = ['q', 'k', 'v', 'weights'].map((name) => build.input(name, 'float32', SHAPE));
  const sink = build.input('sink', 'float32', [1, HEADS, 1, 1]);
  const turned = build.operator('Transpose', [key as string], { perm: [0, 1, 3, 2] });
  const hidden = Array.from({ length: POSITIONS ** 2 }, (_, at) => (at % POSITIONS > at / POSITIONS ? -1e9 : 0));
  const mask = build.constant('mask', floats(hidden, [1, 1, POSITIONS, POSITIONS]));
  const scores = build.operator('Add', [build.operator('MatMul', [query as string, turned]), mask]);
  const column = build.operator('Expand', [sink], { shape: [2, HEADS, POSITIONS, 1] });
  const all = build.operator('Concat', [scores, column], { axis: 3 });
  const lowered = isLowered
    ? build.operator('Sub', [all, build.operator('ReduceMax', [all], { axes: [3], keepdims: 1 })])
    : all;
  const shares = build.operator('Softmax', [lowered], { axis: 3 });
  const first = isDropped ? 0 : 1;
  const cut = { starts: [first], ends: [first + POSITIONS], axes: [3], steps: [1] };
  const result = build.operator('MatMul', [build.operator('Slice', [shares], cut), value as string]);
  const weighted = build.operator('Mul', [result, weights as string]);
  build.output('total', build.operator('ReduceSum', [weighted], { axes: [0, 1, 2, 3], keepdims: 0 }));
  return build.build();
}

const WANTED = ['q', 'k', 'v', 'sink'];

/** The result and the gradients of the operands. */
async function computed(graph: Graph): Promise<Readonly<Record<string, ConstantTensor>>> {
  const feeds = Object.fromEntries(
    graph.inputs.map((name, seed) => [name, noise(graph.tensors.get(name)?.shape ?? [], seed + 3)]),
  );
  const [total = ''] = graph.outputs;
  const { graph: whole, gradients } = differentiate(graph, total, WANTED);
  const outputs = [total, ...WANTED.map((name) => gradients.get(name) ?? '')];
  const values = await evaluate(writeOnnx({ ...flattenRegions(whole), outputs }), feeds);
  return Object.fromEntries(
    ['total', ...WANTED].map((name, at) => [name, values[outputs[at] ?? ''] as ConstantTensor]),
  );
}

for (const isLowered of [true, false])
  test(`a sink as a term of the sum${isLowered ? ', of scores without their maximum' : ''}`, async (t) => {
    const plain = sunk({ isLowered });
    const written = recogniseRegions(writeSinks(plain));
    const expected = await computed(plain);
    compare(t, await computed(written), expected, 1e-5, 1e-6);
    t.true(numbersOf(expected['sink'] as ConstantTensor).every((value) => Math.abs(Number(value)) > 1e-4));
    const region = written.nodes.find(({ op }) => op === 'Attention');
    t.true(region !== undefined && ruleOf(operatorOf(written, region)).factors.get('t')?.streams);
    t.false(written.nodes.some(({ op }) => op === 'Concat' || op === 'Expand'));
  });

test('a softmax that drops another column is none', (t) => {
  const graph = sunk({ isLowered: false, isDropped: false });
  t.is(writeSinks(graph), graph);
});
