/**
 * @file Rules are proven: every sample of every entry, lowered by partition under assignments of one and of two axes, over
 * sub-axes, pieces, padded sizes and partial operands, is what the operator computes whole.
 */
import test from 'ava';
import { operatorEntries } from '../../src/ir/ops/index.js';
import { CASES } from '../ir/ops/cases.js';
import { makeRun } from '../ir/ops/one-node.js';
import { randomValues } from '../ir/ops/values.js';
import { missedShardings } from './missed.js';
import { MISSED } from './missed-reasons.js';
import { prove } from './prove.js';

const run = makeRun();
let tried = 0;

for (const [number, sample] of CASES.entries()) {
  test.serial(
    `${number} ${sample.domain}:${sample.op} ${JSON.stringify(sample.inputs.map((input) => input?.shape ?? null))}`,
    async (t) => {
      const inputs = sample.inputs.map((input, index) => (input ? randomValues(input, number * 16 + index) : null));
      const proof = await prove(sample, inputs, run);
      tried += proof.tried;
      t.deepEqual(proof.faults.slice(0, 5), []);
    },
  );
}

test.serial('what rules do not offer is listed with a reason, and is little', async (t) => {
  const found: Record<string, Set<string>> = {};
  for (const [number, sample] of CASES.entries()) {
    // Several, so that nothing holds by chance.
    const draws = [5000, 10000, 15000, 20000, 25000].map((draw) =>
      sample.inputs.map((input, index) => (input ? randomValues(input, number * 16 + index + draw) : null)),
    );
    const missed = await missedShardings(sample, draws, run);
    const name = `${sample.domain}:${sample.op}`;
    if (missed.length > 0) found[name] = new Set([...(found[name] ?? []), ...missed]);
  }
  const listed = MISSED.map(({ op, domain, shardings }) => [`${domain}:${op}`, [...shardings].sort()] as const);
  t.deepEqual(
    Object.fromEntries(Object.entries(found).map(([name, all]) => [name, [...all].sort()])),
    Object.fromEntries(listed),
  );
  t.true(Object.keys(found).length <= 0.05 * operatorEntries.length);
});

test.after(() => {
  console.log(`${CASES.length} samples, ${tried} assignments tried`);
});
