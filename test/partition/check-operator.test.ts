/**
 * @file The checker accepts every lowering: each sample operator under every assignment of axes to its factors, with its
 * pending reduction left, done or scattered, and with partial operands; sizes that the axes do not divide included. Other tests
 * prove that these lowerings compute the right values (test/ir/ops/rules.test.ts, test/ir/autodiff/).
 */
import test from 'ava';
import type { FactorRule } from '../../src/ir/factor-rule.js';
import { lowerIfLegal } from '../../src/partition/lower-operator.js';
import { makeMesh, type SubAxis } from '../../src/sharding-propagation/mesh.js';
import { checkStrategy, type PendingReduction, type Strategy } from '../../src/sharding-propagation/strategy.js';
import { CASES, operatorOfCase } from '../ir/ops/cases.js';
import { needEntry } from '../ir/ops/simulate.js';
import { selection } from '../selection.js';
import { findingsOf } from './fragment-types.js';

const MESH = makeMesh([
  ['x', 2],
  ['y', 3],
]);

const byFamily = new Map<string, [number, (typeof CASES)[number]][]>();
for (const [number, sample] of CASES.entries()) {
  const { family } = needEntry(sample.op, sample.domain);
  byFamily.set(family, [...(byFamily.get(family) ?? []), [number, sample]]);
}

for (const [family, samples] of byFamily)
  test(`lowered operators have the types that they say: ${family}`, (t) => {
    const wrong: string[] = [];
    let count = 0;
    for (const [, [number, sample]] of selection(samples, ([, { op }]) => op, 1)) {
      const operator = operatorOfCase(sample);
      const entry = needEntry(sample.op, sample.domain);
      const rule = entry.rule(operator);
      const linear = entry.linear(operator);
      for (const strategy of strategies(rule, linear.length)) {
        if (checkStrategy(rule, strategy, linear, MESH) !== null) continue;
        const lowered = lowerIfLegal(operator, strategy, MESH);
        if (!lowered) continue;
        count++;
        for (const finding of findingsOf(lowered.fragment))
          wrong.push(`${number} ${sample.op} ${JSON.stringify(strategy)}: ${finding}`);
      }
    }
    t.log(`${count} lowerings`);
    t.deepEqual(wrong.slice(0, 8), []);
  });

/** Each axis on one factor or on none, partial operands over an axis that is on none. */
function* strategies(rule: FactorRule, sets: number): Generator<Strategy> {
  const names = [...rule.factors.values()].filter(({ size }) => size > 1).map(({ name }) => name);
  const pending: readonly PendingReduction[] = [
    { kind: 'none' },
    { kind: 'all-reduce' },
    ...names.map((factor) => ({ kind: 'scatter', factor }) as const),
  ];
  for (const x of [null, ...names])
    for (const y of [null, ...names]) {
      const axes: Record<string, readonly SubAxis[]> = {};
      if (x !== null) axes[x] = ['x'];
      if (y !== null) axes[y] = [...(axes[y] ?? []), 'y'];
      const free = [...(x === null ? ['x'] : []), ...(y === null ? ['y'] : [])];
      const carries = [
        null,
        ...free.flatMap((axis) => Array.from({ length: sets }, (_, set) => ({ set, axes: [axis] }))),
      ];
      for (const carried of carries)
        for (const what of pending) yield { axes, partialOperands: carried, pending: what };
    }
}
