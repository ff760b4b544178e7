/**
 * @file Equations of drawn matrices: the results solve them.
 */
import test from 'ava';
import fc from 'fast-check';
import { cholesky, solveCholesky } from '../../../src/cost-model/measured-layers/cholesky.js';

const numbers = fc.double({ min: -3, max: 3, noNaN: true });

test('x solves A x = b, where A = M Mᵀ + 1', (t) => {
  fc.assert(
    fc.property(
      fc
        .integer({ min: 1, max: 8 })
        .chain((size) =>
          fc.tuple(
            fc.array(fc.array(numbers, { minLength: size, maxLength: size }), { minLength: size, maxLength: size }),
            fc.array(numbers, { minLength: size, maxLength: size }),
          ),
        ),
      ([factors, b]) => {
        const matrix = factors.map((row, i) =>
          Float64Array.from(factors, (other, j) =>
            row.reduce((sum, value, k) => sum + value * (other[k] as number), i === j ? 1 : 0),
          ),
        );
        const x = solveCholesky(cholesky(matrix), Float64Array.from(b));
        for (const [i, row] of matrix.entries()) {
          const left = row.reduce((sum, value, k) => sum + value * (x[k] as number), 0);
          t.true(Math.abs(left - (b[i] as number)) < 1e-8, `${left} for ${b[i]}`);
        }
      },
    ),
    { numRuns: 100 },
  );
});

test('a matrix that is not positive definite is refused with its row', (t) => {
  const matrix = [
    [1, 2],
    [2, 1],
  ].map((row) => Float64Array.from(row));
  t.throws(() => cholesky(matrix), { message: /row 1/ });
});
