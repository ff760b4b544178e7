import test from 'ava';
import fc from 'fast-check';
import { evaluateDimension } from '../../../src/ir/passes/dims.js';

const names = ['N', 's0', 'batch_size'];
const sizes = new Map([
  ['N', 4],
  ['s0', 7],
  ['batch_size', 3],
]);

/** Random expressions over +, -, *, with parentheses, that JavaScript evaluates the same way. */
const expression = fc.letrec<{ expression: string; leaf: string }>((tie) => ({
  leaf: fc.oneof(fc.nat(20).map(String), fc.constantFrom(...names)),
  expression: fc.oneof(
    { depthSize: 'small' },
    tie('leaf'),
    fc
      .tuple(tie('expression'), fc.constantFrom(' + ', '+', ' - ', '*', ' * '), tie('expression'))
      .map(([left, operator, right]) => `${left}${operator}${right}`),
    tie('expression').map((inner) => `(${inner})`),
    fc.tuple(tie('expression'), tie('expression')).map(([left, right]) => `max(${left}, ${right})`),
  ),
})).expression;

test('expressions have the value that JavaScript gives them', (t) => {
  fc.assert(
    fc.property(expression, (text) => {
      const script = text.replaceAll('max(', 'Math.max(');
      const expected = new Function(...names, `return ${script}`)(...names.map((name) => sizes.get(name))) as number;
      t.is(evaluateDimension(text, sizes), Number.isSafeInteger(expected) && expected >= 0 ? expected : null);
    }),
    { numRuns: 300 },
  );
});

test('division, remainder and floor', (t) => {
  t.is(evaluateDimension('s0//2', sizes), 3);
  t.is(evaluateDimension('floor(s0/2) + 1', sizes), 4);
  t.is(evaluateDimension('s0 % 4', sizes), 3);
  t.is(evaluateDimension('s0/2', sizes), null, 'not an integer');
});

test('a whole text may be a name, however it looks', (t) => {
  t.is(evaluateDimension('past + present', new Map([['past + present', 9]])), 9);
});

test('free names and text that is no expression have no value', (t) => {
  for (const text of ['M', 'N + M', 'N +', '(N', 'N)', 'N N', '?', '', 'sqrt(N)'])
    t.is(evaluateDimension(text, sizes), null, text);
});
