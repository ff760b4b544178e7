/**
 * @file Symmetric positive definite equations, dense: A = L · Lᵀ. Matrices are rows of numbers; entries of L above the diagonal
 * are 0.
 */

export type Matrix = readonly Float64Array[];

/**
 * The lower triangle L of a symmetric positive definite matrix, of which only the lower triangle is read. @throws Error where
 * the matrix is not positive definite
 */
export function cholesky(matrix: Matrix): Matrix {
  const rows: Float64Array[] = [];
  for (const [i, given] of matrix.entries()) {
    const row = new Float64Array(matrix.length);
    for (let j = 0; j <= i; j++) {
      const other = j === i ? row : (rows[j] as Float64Array);
      let sum = given[j] as number;
      for (let k = 0; k < j; k++) sum -= (row[k] as number) * (other[k] as number);
      if (j < i) row[j] = sum / (other[j] as number);
      else if (sum > 0) row[j] = Math.sqrt(sum);
      else throw new Error(`row ${i} of the matrix makes it not positive definite`);
    }
    rows.push(row);
  }
  return rows;
}

/** x of L · Lᵀ · x = b. */
export function solveCholesky(lower: Matrix, b: Float64Array): Float64Array {
  const x = Float64Array.from(b);
  for (const [i, row] of lower.entries()) {
    let sum = x[i] as number;
    for (let k = 0; k < i; k++) sum -= (row[k] as number) * (x[k] as number);
    x[i] = sum / (row[i] as number);
  }
  for (let i = lower.length - 1; i >= 0; i--) {
    let sum = x[i] as number;
    for (let k = i + 1; k < lower.length; k++) sum -= ((lower[k] as Float64Array)[i] as number) * (x[k] as number);
    x[i] = sum / ((lower[i] as Float64Array)[i] as number);
  }
  return x;
}
