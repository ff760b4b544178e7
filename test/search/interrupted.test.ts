/**
 * @file Elimination gives way: an interruption and the end of the time are noticed while it works, on the thread that waits.
 */
import test from 'ava';
import { solveApart } from '../../src/solver/bounds/solve-apart.js';
import { Deadline, OutOfTime } from '../../src/solver/deadline.js';
import { eliminate, eliminateInTurns } from '../../src/solver/elimination/elimination.js';
import { TableAlgebra } from '../../src/solver/elimination/table-algebra.js';
import { generator } from '../../src/solver/generator.js';
import type { CostProblem } from '../../src/solver/problem.js';

/** A grid of variables of eight states each: tables of up to 8^width entries, one for each variable. */
function grid(width: number, length: number): CostProblem {
  const numbers = generator(7);
  const table = (count: number) => ({
    sizes: Array.from({ length: count }, () => 8),
    values: Float64Array.from({ length: 8 ** count }, () => numbers.below(1000)),
  });
  const at = (row: number, column: number) => row * width + column;
  const factors = Array.from({ length: width * length }, (_, index) => {
    const [row, column] = [Math.floor(index / width), index % width];
    return [
      { variables: [index], table: table(1) },
      ...(column + 1 < width ? [{ variables: [index, at(row, column + 1)], table: table(2) }] : []),
      ...(row + 1 < length ? [{ variables: [index, at(row + 1, column)], table: table(2) }] : []),
    ];
  });
  return { sizes: Array.from({ length: width * length }, () => 8), factors: factors.flat() };
}

const LIMITS = { tableEntries: 8 ** 6, tableWork: 8 ** 7 };

test('an interruption ends an elimination that has far to go', async (t) => {
  const interruption = new AbortController();
  // If the thread did not yield, the timer would run only when all is done.
  setTimeout(() => interruption.abort(new Error('told to end')), 1);
  const deadline = new Deadline(undefined, interruption.signal);
  const eliminated = eliminateInTurns(grid(5, 120), new TableAlgebra(), LIMITS, deadline);
  await t.throwsAsync(eliminated, { message: 'told to end' });
});

test('the end of the time ends it', async (t) => {
  const eliminated = eliminateInTurns(grid(5, 120), new TableAlgebra(), LIMITS, new Deadline(0.06));
  await t.throwsAsync(eliminated, { instanceOf: OutOfTime });
});

test('in turns it finds what it finds at once', async (t) => {
  const problem = grid(3, 6);
  const found = await eliminateInTurns(problem, new TableAlgebra(), LIMITS, new Deadline(600));
  t.deepEqual(found, eliminate(problem, new TableAlgebra(), LIMITS));
});

test('a solver that is interrupted before it starts, at once or at its end, answers each time', async (t) => {
  const task = {
    problem: { ...grid(3, 6), uses: [], limit: Infinity },
    effort: { work: 1e6 },
    solver: 'none',
  } as const;
  for (const milliseconds of [null, 0, 5, 20, 50, 100, 200]) {
    const interruption = new AbortController();
    if (milliseconds === null) interruption.abort();
    else setTimeout(() => interruption.abort(), milliseconds);
    const { cost, bound, states } = await solveApart(task, { signal: interruption.signal });
    t.true(states === null ? cost === Infinity : bound <= cost);
  }
});
