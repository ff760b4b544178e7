import test from 'ava';
import { type ListedNames, listed } from '../../../src/codegen/torch/listed.js';

/** Names as in a function whose lists are a and b, and whose n is a tensor without dimensions. */
function names(): ListedNames & { readonly lists: Set<string> } {
  return { lists: new Set(['a', 'b']), scalars: new Set(['n']), rebound: new Set() };
}

/** A statement over one tensor, and over lists. */
const STATEMENTS: readonly (readonly [one: string, all: string])[] = [
  ['c = a * n', 'c = torch._foreach_mul(a, n)'],
  ['c = n * a', 'c = torch._foreach_mul(a, n)'],
  ['c = a - b', 'c = torch._foreach_sub(a, b)'],
  ['c = a - n', 'c = torch._foreach_add(a, n, alpha=-1)'],
  ['c = 1.0 - a', 'c = [1.0 - a for a in a]'],
  ['c = n / a', 'c = [n / a for a in a]'],
  ['a *= 0.9', 'torch._foreach_mul_(a, 0.9)'],
  ['a += b', 'torch._foreach_add_(a, b)'],
  ['a -= m', 'a = [a - m for a in a]'],
  ['c = torch.sqrt(a)', 'c = torch._foreach_sqrt(a)'],
  ['a.sqrt_()', 'torch._foreach_sqrt_(a)'],
  ['a.lerp_(b, 0.1)', 'torch._foreach_lerp_(a, b, 0.1)'],
  ['a.add_(b, alpha=0.5)', 'torch._foreach_add_(a, b, alpha=0.5)'],
  ['a.addcmul_(b, b, value=1e-3)', 'torch._foreach_addcmul_(a, b, b, value=1e-3)'],
  ['c = torch.addcdiv(a, b, n)', 'c = [torch.addcdiv(a, b, n) for a, b in zip(a, b, strict=True)]'],
  ['c = torch.where(m, a, b)', 'c = [torch.where(m, a, b) for a, b in zip(a, b, strict=True)]'],
  ['c = a.to(torch.bfloat16)', 'c = [a.to(torch.bfloat16) for a in a]'],
  ['m = n + 1.0', 'm = n + 1.0'],
];

for (const [one, all] of STATEMENTS)
  test(`over lists: ${one}`, (t) => {
    t.is(listed(one, names()), all);
  });

test('what a statement makes of a list is a list, and a name that another list gets is known', (t) => {
  const known = names();
  t.is(listed('c = a * b', known), 'c = torch._foreach_mul(a, b)');
  t.is(listed('c *= n', known), 'torch._foreach_mul_(c, n)');
  t.deepEqual([...known.rebound], []);
  listed('a = torch.where(m, a, b)', known);
  t.deepEqual([...known.rebound], ['a']);
});
