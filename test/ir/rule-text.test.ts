/**
 * @file Rule text: parsing and binding, with expected factors written out.
 */
import test from 'ava';
import type { Operator } from '../../src/ir/operator.js';
import { bindRule, dimensionSize } from '../../src/ir/rule-text.js';

type Shape = readonly number[] | null;

/** Binds and writes the result back: factors with sizes and kinds, then operands and results. */
function bound(
  text: string,
  inputs: readonly Shape[],
  outputs: readonly Shape[],
  sizes?: Record<string, number>,
): string {
  const types = (shapes: readonly Shape[]): Operator['inputs'] =>
    shapes.map((shape) => (shape ? { dtype: 'float32', shape } : null));
  const rule = bindRule(text, { name: 'node', inputs: types(inputs), outputs: types(outputs) }, sizes);
  const side = (operands: typeof rule.inputs) =>
    operands.map((dims) => (dims ? dims.map((names) => `(${names.join(' ')})`).join('') : '_')).join(', ');
  const factors = [...rule.factors.values()].map(
    ({ name, size, kind, reduction }) =>
      `${name}=${size}${kind === 'pass' ? '' : ` ${kind}`}${reduction === 'sum' ? '' : ` ${reduction}`}`,
  );
  return `${factors.join('; ')} | ${side(rule.inputs)} -> ${side(rule.outputs)}`;
}

const ROWS: readonly [string, readonly Shape[], readonly Shape[], string][] = [
  [
    '*b m k+, *b k+ n -> *b m n',
    [
      [2, 1, 4, 6],
      [5, 6, 8],
    ],
    [[2, 5, 4, 8]],
    'b0=2; b1=5; m=4; k=6 contracting; n=8 | (b0)()(m)(k), (b1)(k)(n) -> (b0)(b1)(m)(n)',
  ],
  ['*a, *a -> *a', [[4], [2, 1]], [[2, 4]], 'a1=4; a0=2 | (a1), (a0)() -> (a0)(a1)'],
  ['*a, *a -> *a', [[], []], [[]], ' | ,  -> '],
  [
    'v+mask d, *i -> *i d',
    [
      [10, 4],
      [2, 3],
    ],
    [[2, 3, 4]],
    'v=10 mask; d=4; i0=2; i1=3 | (v)(d), (i0)(i1) -> (i0)(i1)(d)',
  ],
  [
    'b (h g) s e!, b h t! e!, b h t! f -> b (h g) s f',
    [
      [2, 8, 3, 4],
      [2, 2, 5, 4],
      [2, 2, 5, 6],
    ],
    [[2, 8, 3, 6]],
    'b=2; h=2; g=4; s=3; e=4 whole; t=5 whole; f=6 | (b)(h g)(s)(e), (b)(h)(t)(e), (b)(h)(t)(f) -> (b)(h g)(s)(f)',
  ],
  [
    'b (h g) s, b h t -> b (h g) s',
    [
      [2, 8, 3],
      [2, 1, 5],
    ],
    [[2, 8, 3]],
    'b=2; h=1; g=8; s=3; t=5 | (b)(h g)(s), (b)(h)(t) -> (b)(h g)(s)',
  ],
  ['a r+max -> a 1', [[4, 6]], [[4, 1]], 'a=4; r=6 contracting max | (a)(r) -> (a)()'],
  ['a, _, b -> a', [[4], null, [6]], [[4]], 'a=4; b=6 | (a), _, (b) -> (a)'],
  ['a, b -> a', [[4], [6], [7]], [[4]], 'a=4; b=6 | (a), (b), _ -> (a)'],
  ['a, *z! -> a', [[4], [2, 3]], [[4]], 'a=4; z0=2 whole; z1=3 whole | (a), (z0)(z1) -> (a)'],
  [' -> r@', [], [[6]], 'r=6 indexed |  -> (r)'],
];

for (const [text, inputs, outputs, expected] of ROWS) {
  test(`${text} on ${JSON.stringify(inputs)}`, (t) => t.is(bound(text, inputs, outputs), expected));
}

test('sizes that shapes leave open can be handed in', (t) => {
  t.is(bound('(g c) -> (g c)', [[8]], [[8]], { g: 4 }), 'g=4; c=2 | (g c) -> (g c)');
  t.throws(() => bound('(g c) -> (g c)', [[8]], [[8]]), { message: /does not fit/ });
});

test('factors of size 1 are kept', (t) => {
  t.is(bound('n c -> n', [[1, 4]], [[1]]), 'n=1; c=4 | (n)(c) -> (n)');
});

test('texts that cannot be read', (t) => {
  for (const text of [
    'a b',
    'a -> b -> c',
    'a (b (c)) -> a',
    'a) -> a',
    '(a -> a',
    'a? -> a',
    'a+ , a! -> a',
    '(*a) -> b',
  ])
    t.throws(() => bound(text, [], []), { message: /rule/ }, text);
});

test('shapes that contradict the text', (t) => {
  t.throws(() => bound('a -> a', [[4]], [[5]]), { message: /node: rule "a -> a" does not fit \[4\] -> \[5\]/ });
  t.throws(() => bound('(a b) -> a b', [[7]], [[2, 3]]), { message: /does not fit/ });
  t.throws(() => bound('a b -> a', [[4]], [[4]]), { message: /dimensions/ });
});

test('dimension sizes multiply', (t) => {
  t.is(
    dimensionSize(['a', 'b'], (name) => (name === 'a' ? 2 : 3)),
    6,
  );
  t.is(
    dimensionSize([], () => 7),
    1,
  );
});
