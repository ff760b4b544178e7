/**
 * @file Memory over time as rows: the times at which the limit can be passed at all.
 *
 * Between two neighbouring starts and ends nothing changes, and where nothing ends before the next start, the later time has
 * all that the earlier has: only such latest times are rows. Rows whose limit even the largest states keep are dropped.
 */

import { NoAssignment } from '../problem.js';
import type { CoreGraph, TimedBytes } from './core-graph.js';

/**
 * Times renamed to rows 0 … count−1; uses that meet no row that matters are removed, and bytes that all states take are charged
 * to the fixed uses. Returns the variables that lost a use, and the row that has all that a moment has, or a later one.
 */
export function memoryRows(
  graph: CoreGraph,
  limit: number,
): { readonly freed: readonly number[]; readonly rowOf: (moment: number) => number } {
  const rows = rowsOf(graph, limit);
  const renamed = (time: number) => rows.from[lowerBound(rows.times, time)] as number;
  const freed: number[] = [];
  for (const variable of [...graph.alive()]) {
    const uses = graph.uses(variable);
    if (uses.length === 0) continue;
    const merged = new Map<string, TimedBytes>();
    for (const use of uses) {
      const [start, end] = [renamed(use.start), renamed(use.end)];
      const always = least(use.bytes);
      if (start === end) continue;
      if (always > 0) graph.fixedUses.push({ start: use.start, end: use.end, bytes: always });
      const bytes = use.bytes.map((amount) => amount - always);
      if (bytes.every((amount) => amount === 0)) continue;
      const key = `${start} ${end}`;
      const known = merged.get(key);
      if (known)
        for (let state = 0; state < bytes.length; state++)
          bytes[state] = (bytes[state] as number) + (known.bytes[state] as number);
      merged.set(key, { start, end, bytes });
    }
    const kept = [...merged.values()];
    if (kept.length < uses.length) freed.push(variable);
    graph.setUses(variable, kept);
  }
  const fixed = graph.fixedUses.splice(0);
  const sums = new Map<string, { start: number; end: number; bytes: number }>();
  for (const use of fixed) {
    const [start, end] = [renamed(use.start), renamed(use.end)];
    if (start === end) continue;
    const key = `${start} ${end}`;
    const known = sums.get(key);
    if (known) known.bytes += use.bytes;
    else sums.set(key, { start, end, bytes: use.bytes });
  }
  graph.fixedUses.push(...sums.values());
  const { times, from } = rows;
  return { freed, rowOf: (moment) => from[Math.max(0, lowerBound(times, moment + 0.5) - 1)] as number };
}

/** Bytes that fixed uses leave of the limit at each time 0 … count−1. */
export function capacities(graph: CoreGraph, limit: number, count: number): Float64Array {
  const left = new Float64Array(count + 1);
  for (const { start, end, bytes } of graph.fixedUses) {
    if (start >= count) continue;
    left[start] = (left[start] as number) + bytes;
    left[Math.min(end, count)] = (left[Math.min(end, count)] as number) - bytes;
  }
  let live = 0;
  for (let row = 0; row < count; row++) {
    live += left[row] as number;
    left[row] = limit - live;
  }
  return left.subarray(0, count);
}

/** States that pass the limit even where all others take least. */
export function limitStates(
  graph: CoreGraph,
  limit: number,
): { readonly dropped: ReadonlyMap<number, readonly number[]> } {
  const dropped = new Map<number, readonly number[]>();
  if (limit === Infinity) return { dropped };
  const { times, live } = profile(graph, least);
  if (live.some((bytes) => bytes > limit)) throw new NoAssignment('every assignment exceeds the limit');
  const most = rangeMaximum(live);
  for (const variable of graph.alive()) {
    const uses = graph.uses(variable);
    if (uses.length === 0) continue;
    const kept: number[] = [];
    const room = uses.map(({ start, end, bytes }) => {
      return limit - most(lowerBound(times, start), lowerBound(times, end)) + least(bytes);
    });
    for (let state = 0; state < graph.size(variable); state++) {
      if (uses.every(({ bytes }, index) => (bytes[state] as number) <= (room[index] as number))) kept.push(state);
    }
    if (kept.length === 0) throw new NoAssignment('every assignment exceeds the limit');
    if (kept.length < graph.size(variable)) dropped.set(variable, kept);
  }
  return { dropped };
}

/** Live bytes between neighbouring starts and ends. */
function profile(
  graph: CoreGraph,
  amount: (bytes: Float64Array) => number,
): { readonly times: Float64Array; readonly live: Float64Array } {
  const starts: number[] = [];
  const ends: number[] = [];
  const amounts: number[] = [];
  const note = (start: number, end: number, bytes: number) => {
    starts.push(start);
    ends.push(end);
    amounts.push(bytes);
  };
  for (const { start, end, bytes } of graph.fixedUses) note(start, end, bytes);
  for (const variable of graph.alive())
    for (const { start, end, bytes } of graph.uses(variable)) note(start, end, amount(bytes));
  const times = Float64Array.from(new Set([...starts, ...ends])).sort();
  const live = new Float64Array(times.length);
  for (const [index, bytes] of amounts.entries()) {
    const [from, to] = [lowerBound(times, starts[index] as number), lowerBound(times, ends[index] as number)];
    live[from] = (live[from] as number) + bytes;
    live[to] = (live[to] as number) - bytes;
  }
  for (let index = 1; index < live.length; index++) live[index] = (live[index] as number) + (live[index - 1] as number);
  return { times, live };
}

/** Sorted times, and for each the number of rows before it. */
function rowsOf(graph: CoreGraph, limit: number): { readonly times: Float64Array; readonly from: Int32Array } {
  const { times, live } = profile(graph, largest);
  // A span matters where something starts at it (else the span before has all that it has) and something ends after it.
  const starts = new Set<number>();
  const ends = new Set<number>();
  for (const { start, end } of graph.fixedUses) starts.add(start) && ends.add(end);
  for (const variable of graph.alive())
    for (const { start, end } of graph.uses(variable)) starts.add(start) && ends.add(end);
  const from = new Int32Array(times.length + 1);
  let rows = 0;
  let pending = false;
  for (let index = 0; index < times.length; index++) {
    const time = times[index] as number;
    if (ends.has(time) && pending) {
      if ((live[index - 1] as number) > limit) rows += 1;
      pending = false;
    }
    from[index] = rows;
    if (starts.has(time)) pending = true;
  }
  from[times.length] = rows;
  return { times, from };
}

function least(bytes: Float64Array): number {
  let found = Infinity;
  for (const amount of bytes) if (amount < found) found = amount;
  return found;
}

function largest(bytes: Float64Array): number {
  let found = 0;
  for (const amount of bytes) if (amount > found) found = amount;
  return found;
}

/** Where a value would be put in a sorted list, before its equals. */
export function lowerBound(sorted: Float64Array, value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Maximum over [from, to) in constant time after n log n (sparse table). */
function rangeMaximum(values: Float64Array): (from: number, to: number) => number {
  const levels = [values];
  for (let width = 1; width * 2 <= values.length; width *= 2) {
    const below = levels[levels.length - 1] as Float64Array;
    const level = new Float64Array(values.length - width * 2 + 1);
    for (let index = 0; index < level.length; index++)
      level[index] = Math.max(below[index] as number, below[index + width] as number);
    levels.push(level);
  }
  return (from, to) => {
    if (to <= from) return 0;
    const level = 31 - Math.clz32(to - from);
    const values = levels[level] as Float64Array;
    return Math.max(values[from] as number, values[to - 2 ** level] as number);
  };
}
