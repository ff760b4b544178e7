/**
 * @file The memory rows of a core that no other row implies: an integer program has to state these, and no more.
 *
 * Between two changes of the live variables all rows have the same bytes, and the one of least capacity implies the others; a row
 * that even the largest states keep implies nothing.
 */
import type { Core } from './core.js';

/** Rows, and the entries that they have together in an integer program. */
export interface BindingRows {
  readonly rows: readonly number[];
  readonly entries: number;
}

export function bindingRows(core: Core): BindingRows {
  const { count, useStarts, useFrom, useTo, useBytes, capacity } = core;
  const changes = new Uint8Array(core.rows + 1);
  const most = new Float64Array(core.rows + 1);
  const states = new Int32Array(core.rows + 1);
  for (let v = 0; v < count; v++) {
    for (let use = useStarts[v] as number; use < (useStarts[v + 1] as number); use++) {
      const bytes = useBytes[use] as Float64Array;
      const [from, to] = [useFrom[use] as number, useTo[use] as number];
      const largest = bytes.reduce((a, b) => Math.max(a, b), 0);
      const taking = bytes.reduce((sum, amount) => sum + Number(amount > 0), 0);
      for (const at of [from, to]) changes[at] = 1;
      most[from] = (most[from] as number) + largest;
      most[to] = (most[to] as number) - largest;
      states[from] = (states[from] as number) + taking;
      states[to] = (states[to] as number) - taking;
    }
  }
  const rows: number[] = [];
  let [entries, live, alive, tightest] = [0, 0, 0, -1];
  const close = () => {
    if (tightest < 0 || live <= (capacity[tightest] as number)) return;
    rows.push(tightest);
    entries += alive;
  };
  for (let row = 0; row < core.rows; row++) {
    if (changes[row]) {
      close();
      tightest = -1;
      live += most[row] as number;
      alive += states[row] as number;
    }
    if (tightest < 0 || (capacity[row] as number) < (capacity[tightest] as number)) tightest = row;
  }
  close();
  return { rows, entries };
}
