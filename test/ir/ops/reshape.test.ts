/**
 * @file Reshape's generated rules: some written out, and for random pairs of shapes the property that every factor of
 * the rule shards the same elements on both sides.
 */
import test from 'ava';
import fc from 'fast-check';
import { elementCount } from '../../../src/ir/graph.js';
import type { Operator } from '../../../src/ir/operator.js';
import { cut } from './shards.js';
import { needEntry } from './simulate.js';

function reshape(from: readonly number[], to: readonly number[]): Operator {
  const dtype = 'float32';
  return {
    name: 'reshape',
    op: 'Reshape',
    domain: '',
    attributes: { shape: to },
    inputs: [{ dtype, shape: from }],
    outputs: [{ dtype, shape: to }],
    outputCount: 1,
  };
}

const ROWS: readonly [readonly number[], readonly number[], string][] = [
  [[2, 6, 64], [2, 6, 4, 16], 'a b (c d) -> a b c d'],
  [[2, 6, 64], [12, 64], 'a b c -> (a b) c'],
  [[2, 4, 6, 16], [8, 6, 16], 'a b c d -> (a b) c d'],
  [[4, 12], [8, 6], 'a (b c) -> (a b) c'],
  [[6, 4], [4, 6], '(a c!) (d! b) -> (a e!) (f! b)'],
  [[3, 4], [4, 3], 'a! b! -> c! d!'],
  [[3, 8], [2, 12], 'b! (c! a) -> d! (e! a)'],
  [[1, 6], [6, 1], '1 a -> a 1'],
  [[1, 6], [1, 2, 3], 'a (b c) -> a b c'],
];

for (const [from, to, text] of ROWS) {
  test(`[${from}] → [${to}]`, (t) => t.is(needEntry('Reshape').rule(reshape(from, to)).text, text));
}

test('factors cut the same elements on both sides', (t) => {
  const size = fc.constantFrom(1, 2, 3, 4, 6, 8);
  const shapes = fc
    .tuple(fc.array(size, { maxLength: 4 }), fc.nat())
    .map(([from, seed]) => [from, regroup(from, seed)] as const);
  fc.assert(
    fc.property(shapes, ([from, to]) => {
      const operator = reshape(from, to);
      const entry = needEntry('Reshape');
      const rule = entry.rule(operator);
      const data = Array.from({ length: elementCount(from) }, (_, index) => index);
      for (const { name, size: count, kind } of rule.factors.values()) {
        if (kind === 'whole' || count === 1) continue;
        const shards = { [name]: count };
        for (let index = 0; index < count; index++) {
          const rank = { [name]: index };
          const source = cut({ dtype: 'float32', shape: from, data }, rule.inputs[0] ?? [], rule, shards, rank);
          const target = cut({ dtype: 'float32', shape: to, data }, rule.outputs[0] ?? [], rule, shards, rank);
          t.deepEqual(source.data, target.data);
          const resized = entry.resize?.(operator, rule, (factor) =>
            factor === name ? 1 : (rule.factors.get(factor)?.size ?? 1),
          );
          t.deepEqual(resized?.['shape'], target.shape);
        }
      }
    }),
    { numRuns: 300 },
  );
});

/** Another shape of as many elements: primes of the first dealt out to new dimensions by `seed`. */
function regroup(from: readonly number[], seed: number): readonly number[] {
  const primes = from.flatMap((size) => {
    const found: number[] = [];
    let rest = size;
    for (const prime of [2, 3]) for (; rest % prime === 0; rest /= prime) found.push(prime);
    return found;
  });
  const to = new Array<number>(1 + (seed % 4)).fill(1);
  let state = seed;
  for (const prime of primes) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    const place = (state >>> 8) % to.length;
    to[place] = (to[place] ?? 1) * prime;
  }
  return to;
}
