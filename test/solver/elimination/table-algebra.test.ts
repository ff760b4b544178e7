/**
 * @file Tables made anew when those change of which they were made.
 */
import test from 'ava';
import { eliminate } from '../../../src/solver/elimination/elimination.js';
import { TableAlgebra } from '../../../src/solver/elimination/table-algebra.js';
import type { CostTable } from '../../../src/solver/problem.js';

const table = (sizes: readonly number[], values: readonly number[]): CostTable => ({
  sizes,
  values: Float64Array.from(values),
});
/** Tables of two states and of three: one dominates the others, or two are best somewhere. */
const ONE = [0, 1, 0, 1];
const BOTH = [0, 1, 1, 0];
const ONE_OF_THREE = [0, 0, 1, 1, 1, 1];
const TWO_OF_THREE = [0, 1, 1, 0, 1, 1];

test('equal values of another shape are another table', (t) => {
  const algebra = new TableAlgebra();
  const whole = algebra.term(table([2, 3], [0, 0, 0, 0, 0, 0]));
  const rows = algebra.term(table([2, 2], ONE));
  const columns = algebra.term(table([3, 2], TWO_OF_THREE));
  const fewer = algebra.restrict(whole, 0, algebra.undominated([{ term: rows, position: 0 }]));
  const least = algebra.restrict(fewer, 1, algebra.undominated([{ term: columns, position: 0 }]));
  const made = algebra.eliminate([{ term: least, variables: [0, 1] }]);
  t.deepEqual([algebra.table(least).sizes, algebra.table(made).sizes], [[1, 2], [2]]);
  const changed = new Map([
    [rows, table([2, 2], BOTH)],
    [columns, table([3, 2], ONE_OF_THREE)],
  ]);
  t.not(
    algebra.replace(changed, () => true),
    null,
  );
  t.deepEqual([algebra.table(least).sizes, algebra.table(made).sizes], [[2, 1], [1]]);
});

test('factors that shared a table and no longer do are not solved by the record', (t) => {
  const algebra = new TableAlgebra();
  const shared = table([2], [3, 1]);
  const sizes = [2, 2];
  const factors = [
    { variables: [0], table: shared },
    { variables: [1], table: shared },
  ];
  t.is(eliminate({ sizes, factors }, algebra).cost, 2);
  const other = { variables: factors[1]?.variables ?? [], table: table([2], [5, 9]) };
  const { cost, bound } = eliminate({ sizes, factors: [factors[0] ?? other, other] }, algebra);
  t.deepEqual([cost, bound], [6, 6]);
});
