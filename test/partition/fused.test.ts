import test from 'ava';
import { GraphBuilder } from '../../models/builder.js';
import { inMixedPrecision, type LowType } from '../../src/ir/autodiff/mixed-precision.js';
import type { RegionMatch } from '../../src/ir/fused-regions/fused-region.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { recogniseRegions } from '../../src/ir/passes/recognise-regions.js';
import type { Fragment, FragmentNode } from '../../src/partition/fragment.js';
import { contextOf, lowerOperator } from '../../src/partition/lower-operator.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';

const mesh = makeMesh([['tp', 2]]);
const FLOAT = 4;

/** softmax(q kᵀ) v over 2 · 4 heads of 16 queries, 32 keys, 8 features. */
function attention(axes: Readonly<Record<string, readonly string[]>>, low?: LowType): Fragment {
  const build = new GraphBuilder('attention', 1);
  const q = build.input('q', 'float32', [2, 4, 16, 8]);
  const k = build.input('k', 'float32', [2, 4, 8, 32]);
  const v = build.input('v', 'float32', [2, 4, 32, 8]);
  const weights = build.operator('Softmax', [build.operator('MatMul', [q, k])], { axis: -1 });
  build.output('result', build.operator('MatMul', [weights, v]));
  const plain = build.build();
  const match: RegionMatch = {
    kind: 'Attention',
    nodes: plain.nodes,
    inputs: [q, k, v],
    outputs: ['result'],
    attributes: {},
  };
  const recognised = recogniseRegions(plain, [match]);
  const graph = low ? inMixedPrecision(recognised, low) : recognised;
  const node = graph.nodes.find(({ body }) => body);
  if (!node) throw new Error('no region');
  const strategy = { axes, partialOperands: null, pending: { kind: 'none' } } as const;
  return lowerOperator(operatorOf(graph, node), strategy, mesh, contextOf(graph, node)).fragment;
}

type Operator = Extract<FragmentNode, { kind: 'compute' }>;

function operators(fragment: Fragment): readonly Operator[] {
  return fragment.nodes.filter((node): node is Operator => node.kind === 'compute');
}

test('an attention that needs no communication is one kernel that never writes its scores', (t) => {
  const fragment = attention({ h: ['tp'] });
  const nodes = operators(fragment);
  t.is(nodes.filter(({ fused }) => fused?.launches).length, 1);
  const local = 2 * 2 * (16 * 8 + 8 * 32 + 32 * 8 + 16 * 8) * FLOAT;
  t.is(
    nodes.reduce((sum, { fused }) => sum + (fused?.bytes ?? 0), 0),
    local,
  );
  const inside = [...fragment.tensors.values()].filter((tensor) => tensor.inside).map(({ localShape }) => localShape);
  t.deepEqual(inside, [
    [2, 2, 16, 32],
    [2, 2, 16, 32],
  ]);
});

test('an attention whose operands are cast inside is a kernel of the type of its products', (t) => {
  for (const low of [undefined, 'float16', 'bfloat16'] as const) {
    const [kernel, ...others] = operators(attention({ h: ['tp'] }, low)).flatMap(({ fused }) => fused?.attention ?? []);
    t.deepEqual(others, []);
    t.is(kernel?.dtype, low ?? 'float32');
    t.is(kernel?.batch, 1);
  }
});

test('what is communicated between its operators reaches memory, and parts them into kernels', (t) => {
  const fragment = attention({ t: ['tp'] });
  const communications = fragment.nodes.filter(({ kind }) => kind === 'communicate');
  t.true(communications.length >= 3, 'a maximum, a sum, and the weighted values');
  const kernels = operators(fragment).filter(({ fused }) => fused?.launches).length;
  t.is(kernels, communications.length);
  for (const node of communications) {
    if (node.kind !== 'communicate') continue;
    t.is(fragment.get(node.input).inside, undefined);
    t.is(fragment.get(node.output).inside, undefined);
  }
});
