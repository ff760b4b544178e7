import test from 'ava';
import fc from 'fast-check';
import { globMatcher, isGlob } from '../../../src/sharding-propagation/annotations/name-glob.js';

const fits = (glob: string, name: string): boolean => globMatcher(glob)(name);

test('stars end at dots and slashes, double stars do not', (t) => {
  t.true(fits('h.*.mlp', 'h.3.mlp'));
  t.false(fits('h.*.mlp', 'h.3.attn.mlp'));
  t.false(fits('h.*.mlp', 'h.3/x.mlp'));
  t.true(fits('h.**.mlp', 'h.3.attn.mlp'));
  t.true(fits('**.mlp', 'm.h.0.mlp'));
  t.true(fits('/h.*/mlp/*', '/h.11/mlp/MatMul'));
  t.true(fits('*', ''));
});

test('sets, alternatives and quoted characters', (t) => {
  t.true(fits('h.[0-3].x', 'h.2.x'));
  t.false(fits('h.[!0-3].x', 'h.2.x'));
  t.false(fits('h[!a]x', 'h.x'));
  t.true(fits('{q,k,{v,o}}_proj', 'o_proj'));
  t.false(fits('{q,k}_proj', 'v_proj'));
  t.true(fits('a\\*b', 'a*b'));
  t.false(fits('a\\*b', 'axb'));
  t.true(fits('layer?', 'layer1'));
  t.false(fits('layer?', 'layer.'));
});

test('a name fits itself, whatever characters it has', (t) => {
  for (const name of ['a[0', 'x{y', 'w*', 'onnx::MatMul_1', '{a,b}', '[ab]']) t.true(fits(name, name), name);
  t.true(isGlob('a*'));
  t.false(isGlob('onnx::MatMul_1'));
});

test('the same names as a regular expression fits', (t) => {
  const letters = fc.constantFrom('a', 'b', '.', '/', '*', '**', '?', '{a,b.}', '[ab]');
  const names = fc.string({ unit: fc.constantFrom('a', 'b', '.', '/'), maxLength: 8 });
  const written: Readonly<Record<string, string>> = {
    '*': '[^./]*',
    '**': '.*',
    '?': '[^./]',
    '{a,b.}': '(a|b\\.)',
    '[ab]': '[ab]',
    '.': '\\.',
  };
  fc.assert(
    fc.property(fc.array(letters, { maxLength: 6 }), names, (parts, name) => {
      const separate = parts.flatMap((part, index) =>
        part.startsWith('*') && parts[index - 1]?.startsWith('*') ? [] : [part],
      );
      const pattern = new RegExp(`^${separate.map((part) => written[part] ?? part).join('')}$`, 's');
      t.is(fits(separate.join(''), name), pattern.test(name) || separate.join('') === name);
    }),
    { numRuns: 2000 },
  );
});

test('no glob takes exponential time', (t) => {
  fits('**a'.repeat(60), 'a'.repeat(300));
  fits('{'.repeat(900), 'a'.repeat(300));
  fits('{a,'.repeat(300), 'a'.repeat(300));
  fits('{a,b}'.repeat(200), 'ab'.repeat(100));
  t.pass();
});
