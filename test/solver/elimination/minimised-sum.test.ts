/**
 * @file Sums of tables minimised over a variable, and states that no other dominates: against plain loops over all
 * combinations.
 */
import test from 'ava';
import fc from 'fast-check';
import { type ComparedTable, comparedTable, Margins, undominated } from '../../../src/solver/elimination/dominance.js';
import { minimisedSum, type Summand } from '../../../src/solver/elimination/minimised-sum.js';

/** Tables over subsets of up to four variables; each has variable 0, and each variable is in one of them. */
const sums = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }).chain((sizes) =>
  fc.record({
    sizes: fc.constant(sizes),
    summands: fc
      .array(fc.shuffledSubarray([...sizes.keys()].slice(1)), { maxLength: 4 })
      .chain((subsets) =>
        fc.tuple(...[...subsets, [...sizes.keys()].slice(1)].map((others) => table([0, ...others], sizes))),
      ),
  }),
);

function table(variables: readonly number[], sizes: readonly number[]): fc.Arbitrary<Summand> {
  const order = fc.shuffledSubarray([...variables], { minLength: variables.length });
  const cost = fc.oneof(
    { weight: 9, arbitrary: fc.integer({ min: 0, max: 9 }) },
    { weight: 1, arbitrary: fc.constant(Infinity) },
  );
  const length = variables.reduce((product, variable) => product * (sizes[variable] ?? 1), 1);
  return fc.tuple(order, fc.array(cost, { minLength: length, maxLength: length })).map(([variables, values]) => ({
    variables,
    table: { sizes: variables.map((variable) => sizes[variable] ?? 1), values: Float64Array.from(values) },
  }));
}

test('a sum minimised over a variable is what all combinations say', (t) => {
  fc.assert(
    fc.property(sums, ({ sizes, summands }) => {
      const found = minimisedSum(summands, sizes);
      t.deepEqual(found.sizes, sizes.slice(1));
      for (const [place, states] of combinations(sizes.slice(1)).entries()) {
        const costs = Array.from({ length: sizes[0] ?? 1 }, (_, first) => sumAt(summands, [first, ...states]));
        t.is(found.values[place], Math.min(...costs));
      }
    }),
    { numRuns: 200 },
  );
});

test('margins above zero everywhere mean that no state is dominated, whatever came and went', (t) => {
  let shown = 0;
  fc.assert(
    fc.property(sums, sums, ({ sizes, summands }, { sizes: others, summands: gone }) => {
      const size = sizes[0] ?? 1;
      const compared = (list: readonly Summand[]): readonly ComparedTable[] =>
        list.map(({ table, variables }) => comparedTable(table, variables.indexOf(0)));
      const margins = new Margins(size);
      const passing = others[0] === size ? compared(gone) : [];
      for (const operand of [...passing, ...compared(summands)]) margins.add(operand);
      for (const operand of passing) margins.remove(operand);
      if (!margins.showNone()) return;
      shown += 1;
      t.is(undominated(compared(summands), size).length, size);
    }),
    { numRuns: 300 },
  );
  t.true(shown > 10);
});

function sumAt(summands: readonly Summand[], states: readonly number[]): number {
  return summands.reduce((sum, { table, variables }) => {
    const place = variables.reduce(
      (at, variable, index) => at * (table.sizes[index] ?? 1) + (states[variable] ?? 0),
      0,
    );
    return sum + (table.values[place] ?? Number.NaN);
  }, 0);
}

/** Row-major. */
function combinations(sizes: readonly number[]): readonly (readonly number[])[] {
  return sizes.reduce<readonly (readonly number[])[]>(
    (all, size) => all.flatMap((states) => Array.from({ length: size }, (_, state) => [...states, state])),
    [[]],
  );
}
