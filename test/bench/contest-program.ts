/**
 * @file A contest instance as one integer program without any reduction, for HiGHS alone.
 *
 *     x[v, s] in {0, 1}, Σ_s x[v, s] = 1;  y[e, s, t] ≥ 0, Σ_t y[e, s, t] = x[i, s], Σ_s y[e, s, t] = x[j, t]
 *     Σ usage · x over the nodes alive  ≤  limit, at every start of an interval
 */

import { type ContestInstance, FORBIDDEN } from '../../bench/contest/instance.js';
import type { IntegerProgram } from '../../src/solver/bounds/integer-program.js';

export function programOf({ costs, usages, intervals, edges, edgeCosts, limit }: ContestInstance): IntegerProgram {
  const prices: number[] = [];
  const rows: {
    readonly entries: readonly (readonly [number, number])[];
    readonly low: number;
    readonly high: number;
  }[] = [];
  const none: number[] = [];
  const column = (cost: number) => {
    if (cost >= FORBIDDEN) none.push(prices.length);
    return prices.push(cost >= FORBIDDEN ? 0 : cost) - 1;
  };
  const states = costs.map((row) => row.map(column));
  const integers = prices.length;
  for (const own of states) rows.push({ entries: own.map((at) => [at, 1]), low: 1, high: 1 });
  edges.forEach(([i, j], edge) => {
    const [own, other] = [states[i] ?? [], states[j] ?? []];
    const pairs = (edgeCosts[edge] ?? []).map(column);
    own.forEach((at, s) => {
      const entries = other.map((_, t) => [pairs[s * other.length + t] as number, 1] as const);
      rows.push({ entries: [...entries, [at, -1]], low: 0, high: 0 });
    });
    other.forEach((at, t) => {
      const entries = own.map((_, s) => [pairs[s * other.length + t] as number, 1] as const);
      rows.push({ entries: [...entries, [at, -1]], low: 0, high: 0 });
    });
  });
  for (const time of new Set(intervals.map(([from]) => from))) {
    const entries = states.flatMap((own, node) => {
      const [from, until] = intervals[node] as readonly [number, number];
      if (time < from || time >= until) return [];
      return own.map((at, s) => [at, (usages[node]?.[s] ?? 0) / limit] as const);
    });
    rows.push({ entries, low: -Infinity, high: 1 });
  }
  for (const at of none) rows.push({ entries: [[at, 1]], low: 0, high: 0 });
  const starts = [0];
  for (const { entries } of rows) starts.push((starts[starts.length - 1] as number) + entries.length);
  const flat = rows.flatMap(({ entries }) => entries);
  return {
    costs: Float64Array.from(prices),
    integers,
    starts: Int32Array.from(starts),
    columns: Int32Array.from(flat, ([at]) => at),
    values: Float64Array.from(flat, ([, value]) => value),
    lower: Float64Array.from(rows, ({ low }) => low),
    upper: Float64Array.from(rows, ({ high }) => high),
    offset: 0,
    scale: 1,
  };
}
