import test from 'ava';
import type { Factor, FactorRule } from '../../src/ir/factor-rule.js';
import type { Layout } from '../../src/sharding-propagation/layout.js';
import { layoutText } from '../../src/sharding-propagation/layout-text.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import {
  checkStrategy,
  operandLayouts,
  REPLICATED,
  reducedLayouts,
  resultLayouts,
  type Strategy,
} from '../../src/sharding-propagation/strategy.js';

const MESH = makeMesh([
  ['dp', 2],
  ['tp', 4],
]);

const TP = ['tp.0', 'tp.1'];

function rule(
  factors: readonly (readonly [
    name: string,
    size: number,
    kind: Factor['kind'],
    reduction?: Factor['reduction'] | '>',
  ])[],
  inputs: FactorRule['inputs'],
  outputs: FactorRule['outputs'],
): FactorRule {
  const entries = factors.map(([name, size, kind, mark = 'sum']): [string, Factor] =>
    mark === '>'
      ? [name, { name, size, kind, reduction: 'sum', streams: true }]
      : [name, { name, size, kind, reduction: mark }],
  );
  return { factors: new Map(entries), inputs, outputs, text: 'rule of a test' };
}

const MATMUL = rule(
  [
    ['b', 4, 'pass'],
    ['m', 8, 'pass'],
    ['k', 16, 'contracting'],
    ['n', 12, 'pass'],
  ],
  [[['b'], ['m'], ['k']], [['b'], ['k'], ['n']], null],
  [[['b'], ['m'], ['n']], null],
);

/** Scores with grouped heads: (h g) in one dimension, key heads fewer. */
const ATTENTION = rule(
  [
    ['b', 4, 'pass'],
    ['h', 2, 'pass'],
    ['g', 4, 'pass'],
    ['s', 8, 'pass'],
    ['t', 8, 'expanded', '>'],
    ['e', 16, 'whole'],
  ],
  [
    [['b'], ['h', 'g'], ['s'], ['e']],
    [['b'], ['h'], ['t'], ['e']],
  ],
  [[['b'], ['h', 'g'], ['s'], ['e']]],
);

const REDUCE_MAX = rule(
  [
    ['a', 8, 'pass'],
    ['r', 8, 'contracting', 'max'],
    ['s', 4, 'contracting'],
  ],
  [[['a'], ['r'], ['s']]],
  [[['a']]],
);

function strategy(axes: Strategy['axes'], rest: Partial<Strategy> = {}): Strategy {
  return { ...REPLICATED, axes, ...rest };
}

function texts(layouts: readonly (Layout | null)[]): readonly (string | null)[] {
  return layouts.map((layout) => (layout === null ? null : layoutText(layout, MESH)));
}

test('MatMul: operands, the partial result, and what is done about it', (t) => {
  const sharded = strategy({ b: ['dp'], k: TP });
  t.deepEqual(texts(operandLayouts(MATMUL, sharded, [])), ['[dp, -, tp]', '[dp, tp, -]', null]);
  t.deepEqual(texts(resultLayouts(MATMUL, sharded, [])), ['[dp, -, -] + partial(tp)', null]);
  t.deepEqual(texts(reducedLayouts(MATMUL, sharded, [])), ['[dp, -, -] + partial(tp)', null]);
  t.deepEqual(texts(reducedLayouts(MATMUL, { ...sharded, pending: { kind: 'all-reduce' } }, [])), ['[dp, -, -]', null]);
  const scattered = strategy({ m: ['dp'], k: TP }, { pending: { kind: 'scatter', factor: 'm' } });
  t.deepEqual(texts(reducedLayouts(MATMUL, scattered, [])), ['[-, (dp,tp), -]', null]);
});

test('carried sums arrive at the operands of their set, stay in the results, and are not pending', (t) => {
  const carrying = strategy({ k: ['dp'] }, { partialOperands: { set: 1, axes: TP }, pending: { kind: 'all-reduce' } });
  const linear = [[0], [1]];
  t.deepEqual(texts(operandLayouts(MATMUL, carrying, linear)), ['[-, -, dp]', '[-, dp, -] + partial(tp)', null]);
  t.deepEqual(texts(resultLayouts(MATMUL, carrying, linear)), ['[-, -, -] + partial(dp) + partial(tp)', null]);
  t.deepEqual(texts(reducedLayouts(MATMUL, carrying, linear)), ['[-, -, -] + partial(tp)', null]);
  t.is(checkStrategy(MATMUL, carrying, linear, MESH), null);
});

test('factors of one dimension become pieces, merged where the shards coincide', (t) => {
  const [query, key] = operandLayouts(ATTENTION, strategy({ h: ['tp.0'], g: ['tp.1'] }), [], MESH);
  t.deepEqual(texts([query ?? null, key ?? null]), ['[-, tp, -, -]', '[-, tp.0, -, -]']);
  t.deepEqual(query?.dims[1], [{ size: 8, axes: TP }]);
  t.deepEqual(texts(operandLayouts(ATTENTION, strategy({ g: ['tp.1'] }), [], MESH)), [
    '[-, (2 | 4:tp.1), -, -]',
    '[-, -, -, -]',
  ]);
});

test('other reductions', (t) => {
  t.deepEqual(texts(resultLayouts(REDUCE_MAX, strategy({ r: ['dp'] }), [])), ['[-] + partial(dp, max)']);
  const scattered = strategy({ r: ['dp'] }, { pending: { kind: 'scatter', factor: 'a' } });
  t.deepEqual(texts(reducedLayouts(REDUCE_MAX, scattered, [])), ['[dp]']);
});

test('what is legal, and why the rest is not', (t) => {
  const cases: readonly (readonly [FactorRule, Strategy, RegExp | null])[] = [
    [MATMUL, REPLICATED, null],
    [MATMUL, strategy({ b: ['dp'], n: TP }), null],
    [MATMUL, strategy({ q: ['dp'] }), /factor q: the operator has no such factor \(b, m, k, n\)/],
    [MATMUL, strategy({ b: ['sp'] }), /factor b: the mesh has no sub-axis sp/],
    [MATMUL, strategy({ m: ['dp', 'dp'] }), /axis dp is used twice/],
    [MATMUL, strategy({ b: [...TP, 'dp'] }), /factor b: its size 4 is less than 8 parts/],
    [MATMUL, strategy({ b: ['dp'], m: ['dp'] }), /axis dp shards both factor b and factor m/],
    [
      MATMUL,
      strategy({}, { partialOperands: { set: 3, axes: ['dp'] } }),
      /has 2 linear operand sets, none with number 3/,
    ],
    [MATMUL, strategy({}, { partialOperands: { set: 0, axes: [] } }), /no axes are named/],
    [MATMUL, strategy({ n: ['dp'] }, { partialOperands: { set: 0, axes: ['dp'] } }), /axis dp also shards a factor/],
    [MATMUL, strategy({ k: ['dp'] }, { pending: { kind: 'scatter', factor: 'n' } }), null],
    [MATMUL, strategy({ k: ['dp'] }, { pending: { kind: 'scatter', factor: 'k' } }), /factor k is contracted/],
    [MATMUL, strategy({}, { pending: { kind: 'scatter', factor: 'n' } }), /no reduction is pending/],
    [
      MATMUL,
      strategy({ b: ['dp'], k: TP }, { pending: { kind: 'scatter', factor: 'b' } }),
      /4 of factor b is not divisible by 8/,
    ],
    [ATTENTION, strategy({ e: ['dp'] }), /factor e: may not be sharded/],
    [ATTENTION, strategy({ s: ['dp'], t: ['dp'] }), null],
    [ATTENTION, strategy({ b: ['dp'], t: ['dp'] }), /factors t and b occur only together, so neither can stream/],
    [REDUCE_MAX, strategy({ r: ['dp'], s: TP }), /partial in two reductions/],
    [
      REDUCE_MAX,
      strategy({ r: ['dp'] }, { partialOperands: { set: 0, axes: TP } }),
      /cannot be combined with another reduction/,
    ],
  ];
  for (const [subject, candidate, reason] of cases) {
    const linear = subject === REDUCE_MAX ? [[0]] : [[0], [1]];
    const problem = checkStrategy(subject, candidate, linear, MESH);
    if (reason === null) t.is(problem, null);
    else t.regex(problem ?? 'legal', reason);
  }
});
