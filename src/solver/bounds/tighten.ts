/**
 * @file Exact fixing: a core without states and pairs that no assignment better than the best known can contain.
 *
 * bound + reduced cost of a state, or of a pair of states, above the best cost less one ⇒ no better assignment has it. The
 * remaining core goes through the reduction again: fewer pairs make followers and dominated states.
 *
 * Costs that messages have moved from edges to variables stay moved, rounded to whole costs: every assignment keeps its exact
 * cost, and the bound of the remaining core begins where this one's ended.
 */

import type { LimitedProblem, MemoryUse } from '../problem.js';
import type { Core } from './core.js';
import type { Dual } from './dual.js';

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
  const moved = Float64Array.from(core.unary);
  const pairs = core.tables.map((table, e) => {
    const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
    const [na, nb] = [sizes[a] as number, sizes[b] as number];
    const above = dual.pairMarginals(e);
    const { toA, toB } = dual.passed(e);
    const [own, other] = [toA.map(Math.round), toB.map(Math.round)];
    own.forEach((cost, i) => {
      moved[(core.offsets[a] as number) + i] = (moved[(core.offsets[a] as number) + i] as number) + cost;
    });
    other.forEach((cost, j) => {
      moved[(core.offsets[b] as number) + j] = (moved[(core.offsets[b] as number) + j] as number) + cost;
    });
    const values = new Float64Array(table.length);
    for (let i = 0, at = 0; i < na; i++) {
      for (let j = 0; j < nb; j++, at++) {
        const isOut = (above[at] as number) > room;
        values[at] = isOut ? Infinity : (table[at] as number) - (own[i] as number) - (other[j] as number);
      }
    }
    return { variables: [a, b], table: { sizes: [na, nb], values } };
  });
  const unaries = sizes.map((size, v) => ({
    variables: [v],
    table: {
      sizes: [size],
      values: Float64Array.from({ length: size }, (_, s) => {
        const at = (core.offsets[v] as number) + s;
        return (marginals[at] as number) > room ? Infinity : (moved[at] as number);
      }),
    },
  }));
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

/** Capacities differ from row to row: decided bytes are stated as spans of constant use. */
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
