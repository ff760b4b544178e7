/**
 * @file Every rule is proved by brute force: each sample operator is run whole in ONNX Runtime and again in shards under
 * every assignment of one and of two axes to its factors; the joined shards must be the same.
 */
import test from 'ava';
import type { FactorRule } from '../../../src/ir/factor-rule.js';
import { operatorEntries } from '../../../src/ir/ops/index.js';
import { CASES, operatorOfCase } from './cases.js';
import { makeRun, type Values } from './one-node.js';
import type { Case, Sample } from './sample.js';
import { cut, join, ranksOf, type ShardCounts } from './shards.js';
import { needEntry, simulate } from './simulate.js';
import { difference, randomValues } from './values.js';

const run = makeRun();

const nameOf = ({ op, domain }: { readonly op: string; readonly domain: string }): string => `${domain}:${op}`;

test('every entry has a sample, or says why it has none', (t) => {
  const sampled = new Set(CASES.map(nameOf));
  for (const entry of operatorEntries)
    t.is(sampled.has(nameOf(entry)), entry.unproven === undefined, `${nameOf(entry)}: a sample or a reason`);
});

test('every entry that keeps a factor whole says why', (t) => {
  for (const sample of CASES) {
    const entry = needEntry(sample.op, sample.domain);
    const whole = [...entry.rule(operatorOfCase(sample)).factors.values()].some(
      ({ kind }) => kind === 'whole' || kind === 'halo',
    );
    t.true(!whole || entry.note !== undefined, sample.op);
  }
});

for (const [number, sample] of CASES.entries()) {
  test(`${number} ${nameOf(sample)} ${describe(sample)}`, async (t) => {
    const operator = operatorOfCase(sample);
    const entry = needEntry(sample.op, sample.domain);
    const inputs = sample.inputs.map((input, index) => (input ? randomValues(input, number * 16 + index) : null));
    const whole = await run(
      { op: sample.op, domain: sample.domain, attributes: sample.attributes },
      inputs,
      operator.outputs,
    );
    for (const [index, type] of operator.outputs.entries())
      if (type)
        t.deepEqual(
          { dtype: whole[index]?.dtype, shape: whole[index]?.shape },
          { dtype: type.dtype, shape: type.shape },
        );
    const rule = entry.rule(operator);
    const tolerance = sample.tolerance ?? 1e-4;

    if (entry.expansion && [...rule.factors.values()].some(({ kind }) => kind === 'expanded')) {
      // With nothing sharded the expansion alone must equal the operator.
      const expanded = {
        ...rule,
        factors: new Map([...rule.factors, ['', { name: '', size: 1, kind: 'expanded', reduction: 'sum' }]]),
      } as FactorRule;
      const results = await simulate(operator, inputs, { run, rule: expanded, shards: { '': 1 } });
      for (const [index, value] of whole.entries())
        if (value && results[index]?.[0]) t.is(difference(results[index][0], value, tolerance), null, 'expansion');
    }
    for (const shards of assignments(rule)) {
      const results = await simulate(operator, inputs, { run, rule, shards });
      for (const [index, value] of whole.entries()) {
        const [dims, got] = [rule.outputs[index], results[index]];
        if (!value || !dims || !got) continue;
        const words = `${rule.text}, ${JSON.stringify(shards)}, result ${index}`;
        t.is(difference(join(got, value.shape, dims, rule, shards), value, tolerance), null, words);
        for (const [position, rank] of ranksOf(shards).entries()) {
          const shard = got[position];
          if (shard)
            t.is(difference(shard, cut(value, dims, rule, shards, rank), tolerance), null, `${words}, replica`);
        }
      }
    }
    for (const set of entry.linear(operator)) {
      t.true(
        set.every((index) => inputs[index]),
        'a linear set names operands that are there',
      );
      const first = inputs.map((value, index) =>
        value && set.includes(index) ? randomValues(sample.inputs[index] as Sample, 999 + index) : value,
      );
      const second = inputs.map((value, index) =>
        value && set.includes(index) ? minus(value, first[index] as Values) : value,
      );
      const operation = { op: sample.op, domain: sample.domain, attributes: sample.attributes };
      const [a, b] = [await run(operation, first, operator.outputs), await run(operation, second, operator.outputs)];
      for (const [index, value] of whole.entries())
        if (value && a[index] && b[index])
          t.is(difference(plus(a[index], b[index]), value, tolerance), null, `linear in ${set}`);
    }
  });
}

function describe({ inputs, attributes }: Case): string {
  const shapes = inputs.map((input) => (input ? `[${input.shape}]` : '_')).join(' ');
  return `${shapes} ${JSON.stringify(attributes, (_, value) => (value instanceof Uint8Array ? '…' : value))}`;
}

/** One factor in two or four shards, or two factors in two shards each. */
function assignments(rule: FactorRule): readonly ShardCounts[] {
  const legal = [...rule.factors.values()].filter(
    // Results of windows are proved with the halo exchange, in partition/halo.test.ts.
    ({ name, kind, size }) =>
      kind !== 'whole' &&
      kind !== 'halo' &&
      size > 1 &&
      ![...rule.factors.values()].some(({ halo }) => halo?.of === name),
  );
  const halves = legal.filter(({ size }) => size % 2 === 0).map(({ name }) => name);
  const quarters = legal.filter(({ size }) => size % 4 === 0).map(({ name }) => name);
  const pairs = halves.flatMap((a, index) => halves.slice(index + 1).map((b) => ({ [a]: 2, [b]: 2 })));
  return [...halves.map((name) => ({ [name]: 2 })), ...quarters.map((name) => ({ [name]: 4 })), ...pairs];
}

function plus(a: Values, b: Values): Values {
  return { ...a, data: a.data.map((value, index) => value + (b.data[index] ?? 0)) };
}

function minus(a: Values, b: Values): Values {
  return { ...a, data: a.data.map((value, index) => value - (b.data[index] ?? 0)) };
}
