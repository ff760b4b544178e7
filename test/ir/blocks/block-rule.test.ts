import test from 'ava';
import { floats, GraphBuilder } from '../../../models/builder.js';
import type { BlockKind } from '../../../src/ir/blocks/block.js';
import { flattenBlocks } from '../../../src/ir/blocks/flatten-blocks.js';
import type { ConstantTensor, Graph, Node } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { recogniseBlocks } from '../../../src/ir/passes/recognise-blocks.js';
import { ruleOf, viewOf } from '../../../src/ir/view.js';
import { lowerOperator } from '../../../src/partition/lower-operator.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { checkStrategy, type Strategy } from '../../../src/sharding-propagation/strategy.js';
import { simulateFragment } from '../../partition/simulate-fragment.js';
import { makeRun, type Values } from '../ops/one-node.js';

const run = makeRun();

/** Grouped attention with a mask and PyTorch's guard against rows that see nothing; keys repeated by Expand. */
function groupedAttention(): Graph {
  const build = new GraphBuilder('attention', 1);
  const q = build.input('q', 'float32', [2, 8, 4, 6]);
  const k = build.input('k', 'float32', [2, 2, 4, 6]);
  const v = build.input('v', 'float32', [2, 2, 4, 10]);
  const mask = build.input('mask', 'float32', [2, 1, 4, 4]);
  const repeated = (tensor: string, width: number) => {
    const apart = build.operator('Unsqueeze', [tensor], { axes: [2] });
    const spread = build.operator('Expand', [apart], { shape: [2, 2, 4, 4, width] });
    return build.operator('Reshape', [spread], { shape: [2, 8, 4, width] });
  };
  const turned = build.operator('Transpose', [repeated(k, 6)], { perm: [0, 1, 3, 2] });
  const scaled = build.operator('Mul', [q, build.constant('scale', floats([0.4]))]);
  const scores = build.operator('Add', [build.operator('MatMul', [scaled, turned]), mask]);
  const weights = build.operator('Softmax', [scores], { axis: -1 });
  const guarded = build.operator('Where', [
    build.operator('IsNaN', [weights]),
    build.constant('zero', floats([0])),
    weights,
  ]);
  build.output('result', build.operator('MatMul', [guarded, repeated(v, 10)]));
  return build.build();
}

function layerNormalization(): Graph {
  const build = new GraphBuilder('norm', 2);
  const x = build.input('x', 'float32', [2, 4, 8]);
  const mean = build.operator('ReduceMean', [x], { axes: [-1], keepdims: 1 });
  const centred = build.operator('Sub', [x, mean]);
  const variance = build.operator('ReduceMean', [build.operator('Mul', [centred, centred])], {
    axes: [-1],
    keepdims: 1,
  });
  const shifted = build.operator('Add', [variance, build.constant('epsilon', floats([1e-5]))]);
  const unit = build.operator('Div', [centred, build.operator('Sqrt', [shifted])]);
  const scaled = build.operator('Mul', [unit, build.parameter('weight', [8])]);
  build.output('result', build.operator('Add', [scaled, build.parameter('bias', [8])]));
  return build.build();
}

/** Labels are looked up in the sharded vocabulary. */
function crossEntropy(): Graph {
  const build = new GraphBuilder('loss', 3);
  const logits = build.input('logits', 'float32', [4, 8]);
  const labels = build.input('labels', 'int64', [4, 1]);
  const logs = build.operator('LogSoftmax', [logits], { axis: -1 });
  const picked = build.operator('GatherElements', [logs, labels], { axis: 1 });
  const mean = build.operator('ReduceMean', [picked], { axes: [0, 1], keepdims: 0 });
  build.output('result', build.operator('Neg', [mean]));
  return build.build();
}

/** An activation over heads that are split inside: one dimension is one factor here and two there. */
function splitInside(): Graph {
  const build = new GraphBuilder('split', 4);
  const x = build.input('x', 'float32', [4, 8]);
  const two = build.operator('Reshape', [x], { shape: [4, 2, 4] });
  const half = build.operator('Mul', [two, build.parameter('scale', [2, 1])]);
  build.output('result', build.operator('Tanh', [build.operator('Reshape', [half], { shape: [4, 8] })]));
  return build.build();
}

/** The whole graph as one block. */
function asBlock(graph: Graph, kind: BlockKind): Graph {
  const weights = [...graph.weights].flatMap(([name, { shape }]) => (shape.length > 0 && shape[0] !== 1 ? [name] : []));
  const match = {
    kind,
    nodes: graph.nodes,
    inputs: [...graph.inputs, ...weights],
    outputs: graph.outputs,
    attributes: {},
  };
  return recogniseBlocks(graph, [match]);
}

const MESHES = [
  makeMesh([['dp', 2]]),
  makeMesh([['tp', 4]]),
  makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]),
];

/** Every assignment of the mesh's axes (and of the first half of a large one) to the factors that may be sharded. */
function strategies(graph: Graph, node: Node, mesh: Mesh): readonly Strategy[] {
  const view = viewOf(graph, node);
  const rule = ruleOf(view);
  const names = [...rule.factors.values()].filter(({ kind }) => kind !== 'whole').map(({ name }) => name);
  let all: readonly Record<string, readonly string[]>[] = [{}];
  for (const axis of mesh.axes) {
    const subs = axis.subAxes.map(({ name }) => name);
    all = all.flatMap((axes) => [
      axes,
      ...names.flatMap((name) =>
        [subs, subs.slice(0, 1)].map((part) => ({ ...axes, [name]: [...(axes[name] ?? []), ...part] })),
      ),
    ]);
  }
  return all
    .map((axes): Strategy => ({ axes, carried: null, owed: { kind: 'none' } }))
    .filter((strategy) => checkStrategy(rule, strategy, [], mesh) === null);
}

async function provesRight(graph: Graph, seed: number): Promise<number> {
  const [node] = graph.nodes;
  if (!node) throw new Error('no block');
  const view = viewOf(graph, node);
  const values = node.inputs.map((name, index): Values => {
    const type = graph.tensors.get(name ?? '');
    if (!type) throw new Error('no type');
    const weight = graph.weights.get(name ?? '');
    if (weight?.source.kind === 'inline') return { ...type, data: numbersOf({ ...type, data: weight.source.data }) };
    const count = type.shape.reduce((product, size) => product * size, 1);
    const data = Array.from({ length: count }, (_, at) => Math.sin(seed + 7 * index + 1.7 * at));
    return { ...type, data: type.dtype === 'int64' ? data.map((value) => Math.floor(3.9 + 3.9 * value)) : data };
  });
  const feeds = Object.fromEntries(
    node.inputs.flatMap((name, index): (readonly [string, ConstantTensor])[] => {
      const value = values[index];
      return name !== null && value && graph.inputs.includes(name)
        ? [[name, constant(value.dtype, value.data, value.shape)]]
        : [];
    }),
  );
  const expected = numbersOf((await evaluate(writeOnnx(graph), feeds))['result'] as ConstantTensor);
  let tried = 0;
  for (const mesh of MESHES) {
    for (const strategy of strategies(graph, node, mesh)) {
      const { fragment } = lowerOperator(view, strategy, mesh);
      const operands = new Map(values.map((value, index) => [`in${index}`, value]));
      const [got] = await simulateFragment(fragment, operands, ['out0'], run);
      const wrong = expected.findIndex((value, at) => Math.abs(value - (got?.data[at] ?? Number.NaN)) > 1e-4);
      if (wrong >= 0)
        throw new Error(`${JSON.stringify(strategy.axes)}: ${got?.data[wrong]} is not ${expected[wrong]}`);
      tried++;
    }
  }
  return tried;
}

test('the factors of an attention are those of the field', (t) => {
  const graph = asBlock(groupedAttention(), 'Attention');
  const [node] = graph.nodes;
  t.is(graph.nodes.length, 1);
  if (node) t.is(ruleOf(viewOf(graph, node)).text, 'b (h g) s e%, b h t% e%, b h t% f, b 1 s t% -> b (h g) s f');
});

test('a normalised dimension is expanded, the others pass', (t) => {
  const graph = asBlock(layerNormalization(), 'LayerNormalization');
  const [node] = graph.nodes;
  if (node) t.is(ruleOf(viewOf(graph, node)).text, 'b s d%, d%, d% -> b s d%');
});

test('an attention is right under every strategy', async (t) => {
  t.true((await provesRight(asBlock(groupedAttention(), 'Attention'), 1)) > 60);
});

test('a normalisation is right under every strategy', async (t) => {
  t.true((await provesRight(asBlock(layerNormalization(), 'LayerNormalization'), 2)) > 15);
});

test('a loss is right under every strategy: the labels are looked up in vocabulary shards', async (t) => {
  t.true((await provesRight(asBlock(crossEntropy(), 'CrossEntropy'), 3)) > 10);
});

test('a dimension that is two inside is two outside', async (t) => {
  const graph = asBlock(splitInside(), 'Gelu');
  const [node] = graph.nodes;
  if (node) t.is(ruleOf(viewOf(graph, node)).text, 's (n n2), n 1 -> s (n n2)');
  t.true((await provesRight(graph, 4)) > 10);
});

test('dimensions that do not nest leave the operators as they are', (t) => {
  const build = new GraphBuilder('uneven', 5);
  const x = build.input('x', 'float32', [6, 4]);
  const y = build.operator('Reshape', [build.operator('Reshape', [x], { shape: [2, 3, 4] })], { shape: [6, 4] });
  const z = build.operator('Reshape', [build.operator('Reshape', [y], { shape: [3, 2, 4] })], { shape: [6, 4] });
  build.output('result', z);
  const graph = build.build();
  t.is(asBlock(graph, 'Gelu').nodes.length, 4);
});

test('a graph with its blocks put back is the graph that it was', (t) => {
  const graph = groupedAttention();
  const back = flattenBlocks(asBlock(graph, 'Attention'));
  const plain = ({ name, op, inputs, outputs }: Node) => ({ name, op, inputs, outputs });
  t.deepEqual(back.nodes.map(plain), graph.nodes.map(plain));
  t.deepEqual([...back.weights.keys()].sort(), [...graph.weights.keys()].sort());
});
