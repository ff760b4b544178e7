/**
 * @file Dominance: the states of a variable that are worth keeping, whatever its neighbours do.
 *
 * State b dominates a when b costs at most as much, whatever the neighbours' states: Σ over tables of max over neighbours
 * (table[b, ·] − table[a, ·]) ≤ 0. It must cost at most as much where a costs least in each table: that test settles nearly all
 * pairs, and is kept as a sum (`Margins`) while the tables of a variable with many neighbours come and go.
 */
import type { CostTable } from '../problem.js';
import { inOrder } from './in-order.js';

/** A table that holds the variable whose states are compared, as its dimension `position`. */
export interface ComparedTable {
  readonly table: CostTable;
  readonly position: number;
  /** Entries from one state to the next: that of a state at a place is `values[state · inner + place]`. */
  readonly inner: number;
  /** By state: where in the table it costs least, from its own first entry on. */
  readonly cheapest: Int32Array;
}

/** Where each state of one of a table's dimensions costs least; ties: the first. */
export function comparedTable(table: CostTable, position: number): ComparedTable {
  const { sizes, values } = table;
  const size = sizes[position] as number;
  const inner = innerOf(table, position);
  const cheapest = new Int32Array(size);
  for (let state = 0; state < size; state++) {
    let best = Infinity;
    const start = state * inner;
    for (let row = start; row < values.length; row += size * inner) {
      for (let at = row; at < row + inner; at++) {
        const cost = values[at] as number;
        if (cost >= best) continue;
        best = cost;
        cheapest[state] = at - start;
      }
    }
  }
  return { table, position, inner, cheapest };
}

/**
 * The states that no other state dominates, ascending. The first of several equal states is kept.
 * @param may whether one state may replace another, costs aside
 */
export function undominated(
  operands: readonly ComparedTable[],
  size: number,
  may: (better: number, worse: number) => boolean = () => true,
): readonly number[] {
  // Tables of one variable first: they settle most comparisons.
  const tables = inOrder(operands, ({ table }) => table.values.length);
  const alive = Array.from({ length: size }, () => true);
  for (let state = size - 1; state >= 0; state--) {
    for (let other = 0; other < size; other++) {
      if (other === state || !alive[other] || !may(other, state)) continue;
      if (dominates(tables, other, state, size)) {
        alive[state] = false;
        break;
      }
    }
  }
  return [...alive.keys()].filter((state) => alive[state]);
}

/** How much dearer each state is than each other one where that one costs least, summed over a variable's tables. */
export class Margins {
  /** Row-major: [state that might dominate, state that it might dominate]. */
  private readonly sums: Float64Array;

  constructor(private readonly size: number) {
    this.sums = new Float64Array(size * size);
  }

  add(operand: ComparedTable): void {
    this.count(operand, 1);
  }

  remove(operand: ComparedTable): void {
    this.count(operand, -1);
  }

  /** Whether each state is cheaper than each other one somewhere: then none is dominated. */
  showNone(): boolean {
    const { sums, size } = this;
    for (let at = 0; at < sums.length; at++) {
      // The diagonal is all zeros.
      if ((sums[at] as number) <= 0 && at % (size + 1) !== 0) return false;
    }
    return true;
  }

  private count({ table, inner, cheapest }: ComparedTable, sign: number): void {
    const { sums, size } = this;
    const { values } = table;
    for (let worse = 0; worse < size; worse++) {
      const place = cheapest[worse] as number;
      const cost = values[worse * inner + place] as number;
      const isForbidden = cost === Infinity;
      const own = Math.min(cost, LARGE);
      for (let better = 0; better < size; better++) {
        if (better === worse) continue;
        const more = isForbidden ? FORBIDDEN : Math.min(values[better * inner + place] as number, LARGE) - own;
        sums[better * size + worse] = (sums[better * size + worse] as number) + sign * more;
      }
    }
  }
}

/** Cost of forbidden entries, so that sums stay exact and additions can be undone: 2^40 ns are 18 minutes. */
const LARGE = 2 ** 40;

/** The margin of a state that a table forbids altogether: any other state dominates it. */
const FORBIDDEN = -(2 ** 47);

/** Whether `better` is never dearer than `worse`. Where `worse` is forbidden anyway, nothing needs to hold. */
function dominates(tables: readonly ComparedTable[], better: number, worse: number, size: number): boolean {
  let more = 0;
  for (const { table, cheapest, inner } of tables) {
    const { values } = table;
    const place = cheapest[worse] as number;
    const cost = values[worse * inner + place] as number;
    // A state that a table forbids altogether is dominated by any other.
    if (cost === Infinity) return true;
    more += (values[better * inner + place] as number) - cost;
  }
  if (more > 0) return false;
  let slack = 0;
  for (const { table, inner } of tables) {
    const { values } = table;
    let most = -Infinity;
    for (let row = 0; row < values.length; row += size * inner) {
      for (let place = row; place < row + inner; place++) {
        const cost = values[worse * inner + place] as number;
        if (cost === Infinity) continue;
        const difference = (values[better * inner + place] as number) - cost;
        if (difference > most) most = difference;
      }
    }
    slack += most;
    if (slack === Infinity) return false;
  }
  return slack <= 0;
}

/** Entries from one state to the next. */
function innerOf({ sizes }: CostTable, position: number): number {
  let inner = 1;
  for (let dimension = position + 1; dimension < sizes.length; dimension++) inner *= sizes[dimension] as number;
  return inner;
}
