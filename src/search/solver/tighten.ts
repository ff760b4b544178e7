/**
 * @file Exact fixing: a core without what cannot be part of anything better than the best known.
 *
 * bound + reduced cost of a state, or of a pair of states, above the best cost less one ⇒ no better assignment has it. What is
 * left goes through the reduction again: fewer pairs make followers and dominated states.
 */
import type { Core } from './core.js';
import type { Dual } from './dual.js';
import type { LimitedProblem, MemoryUse } from './limited-problem.js';

/**
 * The core as a problem of its own, of the assignments that may cost less than `best`.
 * @param limit that the capacities of the core are part of
 * @param bound what `dual` proves (its safeBound) in the costs of the core
 */
export function tightened(core: Core, dual: Dual, bound: number, best: number, limit: number): LimitedProblem {
  // Costs are whole; a thousandth more than needed keeps errors of rounding out.
  const room = best - 1 - bound + 1e-3 + Math.abs(best) * 1e-12;
  const marginals = dual.minMarginals();
  const sizes = Array.from(
    { length: core.count },
    (_, v) => (core.offsets[v + 1] as number) - (core.offsets[v] as number),
  );
  const unaries = sizes.map((size, v) => ({
    variables: [v],
    table: {
      sizes: [size],
      values: Float64Array.from({ length: size }, (_, s) => {
        const at = (core.offsets[v] as number) + s;
        return (marginals[at] as number) > room ? Infinity : (core.unary[at] as number);
      }),
    },
  }));
  const pairs = core.tables.map((table, e) => {
    const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
    const above = dual.pairMarginals(e);
    return {
      variables: [a, b],
      table: {
        sizes: [sizes[a] as number, sizes[b] as number],
        values: table.map((cost, at) => ((above[at] as number) > room ? Infinity : cost)),
      },
    };
  });
  const uses: MemoryUse[] = [];
  for (let v = 0; v < core.count; v++) {
    for (let u = core.useStarts[v] as number; u < (core.useStarts[v + 1] as number); u++) {
      uses.push({
        variable: v,
        start: core.useFrom[u] as number,
        end: core.useTo[u] as number,
        bytes: core.useBytes[u] as Float64Array,
      });
    }
  }
  return { sizes, factors: [...unaries, ...pairs], uses, limit, decided: decidedOf(core, limit) };
}

/** Capacities differ from row to row: bytes that are decided are told as spans of constant use. */
function decidedOf(core: Core, limit: number): NonNullable<LimitedProblem['decided']> {
  const decided: { start: number; end: number; bytes: number }[] = [];
  for (let row = 0; row < core.rows; row++) {
    const bytes = limit - (core.capacity[row] as number);
    const last = decided[decided.length - 1];
    if (last && last.bytes === bytes) last.end = row + 1;
    else decided.push({ start: row, end: row + 1, bytes });
  }
  return decided;
}
