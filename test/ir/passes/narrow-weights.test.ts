/**
 * @file Which weights of an inference are in 16 bit: those that no reader needs in float32, and tables that are looked up. The
 * results are those of the graph with a cast at each reader.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { heldInFloat32 } from '../../../src/ir/autodiff/held-in-float32.js';
import { inMixedPrecision } from '../../../src/ir/autodiff/mixed-precision.js';
import { elementCount, type Graph, type Weight } from '../../../src/ir/graph.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { withNarrowWeights } from '../../../src/ir/passes/narrow-weights.js';

/** Numbers that float16 has, so that rounding a table changes nothing. */
const exact = (count: number) => Array.from({ length: count }, (_, index) => ((index * 7) % 32) / 16 - 1);

/** A graph whose weights are read in several ways; `buffers`: weights that are no parameters. */
function graphOf(build: (builder: GraphBuilder) => string, buffers: readonly string[] = []): Graph {
  const builder = new GraphBuilder('weights', 5);
  builder.output('y', build(builder));
  const graph = builder.build();
  const weights = [...graph.weights].map(([name, weight]): readonly [string, Weight] => {
    const { data } = constant('float32', exact(elementCount(weight.shape)), weight.shape);
    const isFloat = weight.dtype === 'float32';
    const source = isFloat ? ({ kind: 'inline', data } as const) : weight.source;
    return [name, { ...weight, source, role: buffers.includes(name) ? 'buffer' : weight.role }];
  });
  return { ...graph, weights: new Map(weights) };
}

const INPUT = { dtype: 'float32', shape: [2, 8], data: constant('float32', exact(16), [2, 8]).data } as const;
const IDS = { dtype: 'int64', shape: [3], data: constant('int64', [2, 0, 2], [3]).data } as const;

const input = (builder: GraphBuilder) => builder.input('x', 'float32', INPUT.shape);
const ids = (builder: GraphBuilder) => builder.input('ids', 'int64', IDS.shape);

const CASES: readonly {
  readonly title: string;
  readonly graph: Graph;
  /** The weights of the graph that are in 16 bit. */
  readonly narrow: readonly string[];
  /** Casts that are left. */
  readonly casts: number;
}[] = [
  {
    title: 'a weight of two matmuls',
    graph: graphOf((builder) => {
      const w = builder.parameter('w', [8, 8]);
      return builder.operator('MatMul', [builder.operator('MatMul', [input(builder), w]), w]);
    }),
    narrow: ['w'],
    casts: 2,
  },
  {
    title: 'a weight that is transposed for its matmul',
    graph: graphOf((builder) => {
      const turned = builder.operator('Transpose', [builder.parameter('w', [4, 8])], { perm: [1, 0] });
      return builder.operator('MatMul', [input(builder), turned]);
    }),
    narrow: ['w'],
    casts: 2,
  },
  {
    title: 'a weight that is also read in float32',
    graph: graphOf((builder) => {
      const w = builder.parameter('w', [8, 8]);
      const product = builder.operator('MatMul', [input(builder), w]);
      return builder.operator('MatMul', [product, builder.operator('Softmax', [w], { axis: -1 })]);
    }),
    narrow: [],
    casts: 4,
  },
  {
    title: 'a table that is a head too',
    graph: graphOf((builder) => {
      const table = builder.parameter('table', [4, 8]);
      const rows = builder.operator('Gather', [table, ids(builder)], { axis: 0 });
      const head = builder.operator('Transpose', [table], { perm: [1, 0] });
      const hidden = builder.operator('Softmax', [rows], { axis: -1 });
      return builder.operator('MatMul', [hidden, head]);
    }),
    narrow: ['table'],
    casts: 3,
  },
  {
    title: 'a weight whose rows a matmul reads',
    graph: graphOf((builder) => {
      const rows = builder.operator('Gather', [builder.parameter('w', [4, 8, 8]), ids(builder)], { axis: 0 });
      return builder.operator('MatMul', [input(builder), rows]);
    }),
    narrow: ['w'],
    casts: 2,
  },
  {
    title: 'a table that is no parameter',
    graph: graphOf(
      (builder) => {
        const rows = builder.operator('Gather', [builder.parameter('table', [4, 8]), ids(builder)], { axis: 0 });
        return builder.operator('Softmax', [rows], { axis: -1 });
      },
      ['table'],
    ),
    narrow: [],
    casts: 0,
  },
];

for (const { title, graph, narrow, casts } of CASES)
  test(title, async (t) => {
    const mixed = inMixedPrecision(graph, 'float16');
    const made = withNarrowWeights(mixed, 'float16');
    const low = [...made.weights].flatMap(([name, { dtype }]) => (dtype === 'float16' ? [name] : []));
    t.deepEqual(low, narrow);
    for (const [name, { dtype }] of made.weights) t.is(made.tensors.get(name)?.dtype, dtype);
    t.is(made.nodes.filter(({ op }) => op === 'Cast').length, casts);
    const given = Object.fromEntries(graph.inputs.map((name) => [name, name === 'ids' ? IDS : INPUT]));
    const results = async (of: Graph) => runGraph(heldInFloat32(of, 'float16'), given);
    t.deepEqual(await results(made), await results(mixed));
  });

test('a weight that is an output stays as it is', (t) => {
  const graph = graphOf((builder) => builder.operator('MatMul', [input(builder), builder.parameter('w', [8, 8])]));
  const mixed = inMixedPrecision({ ...graph, outputs: [...graph.outputs, 'w'] }, 'bfloat16');
  t.is(withNarrowWeights(mixed, 'bfloat16').weights.get('w')?.dtype, 'float32');
});
