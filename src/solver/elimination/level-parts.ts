/**
 * @file Parts of a sum, evened out: elimination minimises a variable out of parts where the whole would be too large, and the
 * nearer the parts are to each other, the nearer is the sum of their minima to the minimum of the sum.
 *
 *     part_r + level_r,   level_r[x] = mean of all parts' least costs at x − part r's own,   Σ level_r = 0
 *
 * (Max-marginal matching of mini-buckets: Ihler, Flerova, Dechter and Otten, UAI 2012.) Costs are whole numbers, so part r takes
 * ⌊(T + r) / parts⌋ of a total T: these sum to T (Hermite's identity), and each grows with T, so that all parts cost least
 * together where the total does.
 */
import type { CostTable } from '../problem.js';
import type { Summand } from './minimised-sum.js';

/**
 * The table that is added to one part; entries may be negative, and are Infinity where some part forbids.
 * @param parts each one's least costs, as a sum of tables over the variables 0 … d
 * @param sizes states of these variables
 */
export function levelled(parts: readonly (readonly Summand[])[], index: number, sizes: readonly number[]): CostTable {
  const sums = parts.map((part) => summed(part, sizes));
  const own = sums[index] as Float64Array;
  const values = own.map((cost, at) => {
    let total = 0;
    for (const sum of sums) total += sum[at] as number;
    // A state that one part forbids may be forbidden in all.
    return total === Infinity ? Infinity : Math.floor((total + index) / parts.length) - cost;
  });
  return { sizes, values };
}

function summed(summands: readonly Summand[], sizes: readonly number[]): Float64Array {
  const strides = new Array<number>(sizes.length).fill(1);
  for (let index = sizes.length - 2; index >= 0; index--)
    strides[index] = (strides[index + 1] as number) * (sizes[index + 1] as number);
  const values = new Float64Array((strides[0] ?? 1) * (sizes[0] ?? 1));
  for (const { table, variables } of summands) {
    for (let at = 0; at < values.length; at++) {
      let place = 0;
      variables.forEach((variable, position) => {
        const state = Math.floor(at / (strides[variable] as number)) % (sizes[variable] as number);
        place = place * (table.sizes[position] as number) + state;
      });
      values[at] = (values[at] as number) + (table.values[place] as number);
    }
  }
  return values;
}
