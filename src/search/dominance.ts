/**
 * @file Dominance: the states of a variable that are worth keeping, whatever its neighbours do.
 */
import type { CostTable } from './cost-problem.js';

/**
 * The states that no other state dominates, ascending. State b dominates a when, whatever the neighbours' states, b is no dearer:
 * Σ over tables of max over neighbours (table[b, ·] − table[a, ·]) ≤ 0. Of equal states the first is kept.
 * @param operands tables that hold the variable, each as its dimension `position`
 */
export function undominated(
  operands: readonly { readonly table: CostTable; readonly position: number }[],
  size: number,
): readonly number[] {
  // Tables of one variable first: they settle most comparisons.
  const rows = operands.map((operand) => stateRows(operand, size)).sort((a, b) => a.length - b.length);
  const alive = Array.from({ length: size }, () => true);
  for (let state = size - 1; state >= 0; state--) {
    for (let other = 0; other < size; other++) {
      if (other === state || !alive[other]) continue;
      if (dominates(rows, other, state)) {
        alive[state] = false;
        break;
      }
    }
  }
  return [...alive.keys()].filter((state) => alive[state]);
}

/** A table with the compared variable as its first dimension: row a is all that state a can cost there. */
interface StateRows {
  readonly values: Float64Array;
  /** Of a row. */
  readonly length: number;
  /** By state: where in its row it costs least. */
  readonly cheapest: Int32Array;
}

function stateRows(
  { table, position }: { readonly table: CostTable; readonly position: number },
  size: number,
): StateRows {
  const { sizes } = table;
  let inner = 1;
  for (let dimension = position + 1; dimension < sizes.length; dimension++) inner *= sizes[dimension] as number;
  const length = table.values.length / size;
  const values = position === 0 ? table.values : new Float64Array(table.values.length);
  const cheapest = new Int32Array(size);
  for (let state = 0; state < size; state++) {
    let best = Infinity;
    let at = state * length;
    let from = state * inner;
    for (let index = 0; index < length; from += (size - 1) * inner) {
      for (let end = index + inner; index < end; index++, at++, from++) {
        const cost = table.values[from] as number;
        if (position > 0) values[at] = cost;
        if (cost >= best) continue;
        best = cost;
        cheapest[state] = index;
      }
    }
  }
  return { values, length, cheapest };
}

/** Whether `better` is never dearer than `worse`. Where `worse` is forbidden anyway, nothing needs to hold. */
function dominates(rows: readonly StateRows[], better: number, worse: number): boolean {
  // It would have to be no dearer where `worse` costs least: that settles nearly all.
  let more = 0;
  for (const { values, length, cheapest } of rows) {
    const at = cheapest[worse] as number;
    const cost = values[worse * length + at] as number;
    // A state that a table forbids altogether is dominated by any other.
    if (cost === Infinity) return true;
    more += (values[better * length + at] as number) - cost;
  }
  if (more > 0) return false;
  let slack = 0;
  for (const { values, length } of rows) {
    let most = -Infinity;
    for (let index = 0; index < length; index++) {
      const cost = values[worse * length + index] as number;
      if (cost === Infinity) continue;
      const more = (values[better * length + index] as number) - cost;
      if (more > most) most = more;
    }
    slack += most;
    if (slack === Infinity) return false;
  }
  return slack <= 0;
}
