/**
 * @file Where elimination only bounds, the solver closes the gap.
 */
import test from 'ava';
import { cheapest } from '../../src/search/cheapest.js';
import { costOf } from '../../src/search/cost-problem.js';
import { eliminate } from '../../src/search/elimination.js';
import { TableAlgebra } from '../../src/search/table-algebra.js';
import { layered } from './solver/random-problems.js';

/** Tables of two variables only. */
const SMALL = { tableEntries: 36, tableWork: 216 };

test('with tables too small for elimination, the solver finds what large ones prove', (t) => {
  let [open, closed] = [0, 0];
  for (let seed = 1; seed <= 3; seed++) {
    const problem = layered(24, 6, seed);
    const exact = eliminate(problem);
    const bounded = eliminate(problem, new TableAlgebra(), SMALL);
    const found = cheapest(problem, new TableAlgebra(), SMALL, null);
    t.is(costOf(problem, found.states), found.cost);
    t.true(bounded.bound <= found.bound && found.bound <= exact.cost && exact.cost <= found.cost);
    t.true(found.cost <= bounded.cost);
    if (bounded.bound < bounded.cost) open += 1;
    if (found.bound === found.cost) closed += 1;
  }
  t.true(open > 0);
  t.is(closed, 3);
});
