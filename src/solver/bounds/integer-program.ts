/**
 * @file A core, or a part of it, as an integer program with the tight edge rows.
 *
 *     x[v, s]      binary; Σ_s x[v, s] = 1
 *     y[e, s, t]   from 0 up; Σ_t y[e, s, t] = x[a, s]; Σ_s y[e, s, t] = x[b, t]
 *     row r        Σ bytes · x  ≤  capacity
 *
 * y is integral wherever x is. The weaker y ≥ x + x − 1 has an integrality gap that no branching closes. Only the requested rows
 * are stated: few of thousands bind, and a program of fewer rows has a lower optimum, so its bound holds.
 */
import type { Core } from './core.js';

/** Rows in compressed form: row r has the entries starts[r] … starts[r+1]−1. */
export interface IntegerProgram {
  /** By column; the first `integers` are binaries, the others from 0 to 1. */
  readonly costs: Float64Array;
  readonly integers: number;
  readonly starts: Int32Array;
  readonly columns: Int32Array;
  readonly values: Float64Array;
  readonly lower: Float64Array;
  readonly upper: Float64Array;
  /** Cost of the decided states, in the units of `costs`. */
  readonly offset: number;
  /** Costs of the core are this many times those of the program. */
  readonly scale: number;
}

export interface Formulation {
  readonly program: IntegerProgram;
  /** The columns of an assignment, from a state per variable. */
  columnsOf(states: Int32Array): Float64Array;
  /** The states of columns: for each variable the one whose column is largest. */
  statesOf(columns: Float64Array): Int32Array;
}

/** Columns that a formulation has at most. */
export function columnCount(core: Core, allowed = new Uint8Array(core.unary.length).fill(1)): number {
  const left = leftOf(core, allowed);
  let count = 0;
  for (let v = 0; v < core.count; v++) if ((left[v] as number) > 1) count += left[v] as number;
  for (let e = 0; e < core.tables.length; e++) {
    const [a, b] = [left[core.edgeA[e] as number] as number, left[core.edgeB[e] as number] as number];
    if (a < 2 || b < 2) continue;
    for (const cost of core.tables[e] as Float64Array) if (cost !== Infinity) count += 1;
  }
  return count;
}

/**
 * States the part of a core that the allowed states leave open.
 * @param allowed by state number; at least one per variable
 * @param rows memory rows to state
 * @param scale a cost that counts as one
 * @param cuts sets of state numbers of which not all may be taken
 */
export function formulate(
  core: Core,
  allowed: Uint8Array,
  rows: readonly number[],
  scale: number,
  cuts: readonly (readonly number[])[] = [],
): Formulation {
  const { offsets } = core;
  const columnOf = new Int32Array(core.unary.length).fill(-1);
  const stateAt: number[] = [];
  const only = new Int32Array(core.count).fill(-1);
  const left = leftOf(core, allowed);
  const costs: number[] = [];
  let offset = 0;
  for (let v = 0; v < core.count; v++) {
    for (let s = offsets[v] as number; s < (offsets[v + 1] as number); s++) {
      if (!allowed[s]) continue;
      if (left[v] === 1) {
        only[v] = s - (offsets[v] as number);
        offset += core.unary[s] as number;
      } else {
        columnOf[s] = costs.length;
        stateAt.push(s);
        costs.push(core.unary[s] as number);
      }
    }
  }
  const integers = costs.length;
  const body = new ConstraintRows();
  for (let v = 0; v < core.count; v++) {
    if ((left[v] as number) < 2) continue;
    for (let s = offsets[v] as number; s < (offsets[v + 1] as number); s++)
      if (allowed[s]) body.entry(columnOf[s] as number, 1);
    body.end(1, 1);
  }
  const pairs: { readonly column: number; readonly a: number; readonly b: number }[] = [];
  for (let e = 0; e < core.tables.length; e++) {
    const [a, b] = [core.edgeA[e] as number, core.edgeB[e] as number];
    const table = core.tables[e] as Float64Array;
    const [offA, offB] = [offsets[a] as number, offsets[b] as number];
    const [na, nb] = [(offsets[a + 1] as number) - offA, (offsets[b + 1] as number) - offB];
    const [fixA, fixB] = [only[a] as number, only[b] as number];
    if (fixA >= 0 && fixB >= 0) offset += table[fixA * nb + fixB] as number;
    else if (fixA >= 0) addTo(costs, columnOf, offB, nb, (j) => table[fixA * nb + j] as number);
    else if (fixB >= 0) addTo(costs, columnOf, offA, na, (i) => table[i * nb + fixB] as number);
    else {
      const [own, other]: [number[], number[]] = [[], []];
      for (let i = 0; i < na; i++) if (allowed[offA + i]) own.push(i);
      for (let j = 0; j < nb; j++) if (allowed[offB + j]) other.push(j);
      // Forbidden pairs have no column.
      const at = new Int32Array(own.length * other.length).fill(-1);
      own.forEach((i, row) => {
        other.forEach((j, column) => {
          const cost = table[i * nb + j] as number;
          if (cost === Infinity) return;
          at[row * other.length + column] = costs.length;
          pairs.push({ column: costs.length, a: columnOf[offA + i] as number, b: columnOf[offB + j] as number });
          costs.push(cost);
        });
      });
      own.forEach((i, row) => {
        for (let column = 0; column < other.length; column++) body.entryAt(at[row * other.length + column] as number);
        body.entry(columnOf[offA + i] as number, -1);
        body.end(0, 0);
      });
      other.forEach((j, column) => {
        for (let row = 0; row < own.length; row++) body.entryAt(at[row * other.length + column] as number);
        body.entry(columnOf[offB + j] as number, -1);
        body.end(0, 0);
      });
    }
  }
  for (const row of rows) memoryRow(core, row, columnOf, only, body);
  for (const cut of cuts) cutRow(cut, columnOf, allowed, body);
  // The least cost of a variable's states goes to the offset, not to columns: the solver's tolerances are for differences.
  for (let column = 0, v = 0; column < integers; v++) {
    const from = column;
    let least = Infinity;
    for (; column < integers && (stateAt[column] as number) < (offsets[v + 1] as number); column++)
      least = Math.min(least, costs[column] as number);
    if (least === Infinity) continue;
    offset += least;
    for (let at = from; at < column; at++) costs[at] = (costs[at] as number) - least;
  }
  // A state that is forbidden with the decided states has a column, and a row that holds it at zero.
  const forbidden = [...costs.keys()].filter((column) => costs[column] === Infinity);
  for (const column of forbidden) {
    body.entry(column, 1);
    body.end(0, 0);
  }
  const program: IntegerProgram = {
    costs: Float64Array.from(costs, (cost) => (cost === Infinity ? 0 : cost / scale)),
    integers,
    ...body.packed(),
    offset: offset / scale,
    scale,
  };
  return {
    program,
    columnsOf: (states) => {
      const columns = new Float64Array(costs.length);
      for (let v = 0; v < core.count; v++) {
        const column = columnOf[(offsets[v] as number) + (states[v] as number)] as number;
        if (column >= 0) columns[column] = 1;
      }
      for (const { column, a, b } of pairs) columns[column] = (columns[a] as number) * (columns[b] as number);
      return columns;
    },
    statesOf: (columns) => {
      const states = Int32Array.from(only);
      const most = new Float64Array(core.count).fill(-1);
      let v = 0;
      for (let column = 0; column < integers; column++) {
        const s = stateAt[column] as number;
        while (s >= (offsets[v + 1] as number)) v += 1;
        if ((columns[column] as number) <= (most[v] as number)) continue;
        most[v] = columns[column] as number;
        states[v] = s - (offsets[v] as number);
      }
      return states;
    },
  };
}

/** States left of each variable. */
function leftOf(core: Core, allowed: Uint8Array): Int32Array {
  const left = new Int32Array(core.count);
  for (let v = 0; v < core.count; v++) {
    for (let s = core.offsets[v] as number; s < (core.offsets[v + 1] as number); s++)
      left[v] = (left[v] as number) + (allowed[s] as number);
  }
  return left;
}

function addTo(
  costs: number[],
  columnOf: Int32Array,
  first: number,
  count: number,
  cost: (state: number) => number,
): void {
  for (let state = 0; state < count; state++) {
    const column = columnOf[first + state] as number;
    if (column >= 0) costs[column] = (costs[column] as number) + cost(state);
  }
}

/** Bytes as shares of the largest, so that the solver's tolerances mean the same everywhere. */
function memoryRow(core: Core, row: number, columnOf: Int32Array, only: Int32Array, body: ConstraintRows): void {
  const bytes = new Map<number, number>();
  let capacity = core.capacity[row] as number;
  for (let v = 0; v < core.count; v++) {
    for (let u = core.useStarts[v] as number; u < (core.useStarts[v + 1] as number); u++) {
      if ((core.useFrom[u] as number) > row || (core.useTo[u] as number) <= row) continue;
      const amounts = core.useBytes[u] as Float64Array;
      if ((only[v] as number) >= 0) {
        capacity -= amounts[only[v] as number] as number;
        continue;
      }
      amounts.forEach((amount, s) => {
        const column = columnOf[(core.offsets[v] as number) + s] as number;
        if (column >= 0 && amount > 0) bytes.set(column, (bytes.get(column) ?? 0) + amount);
      });
    }
  }
  if (bytes.size === 0) return;
  const unit = Math.max(Math.abs(capacity), 1);
  for (const [column, amount] of bytes) body.entry(column, amount / unit);
  body.end(-Infinity, capacity / unit);
}

/** Σ x ≤ count − 1 over the states of a cut. */
function cutRow(cut: readonly number[], columnOf: Int32Array, allowed: Uint8Array, body: ConstraintRows): void {
  if (cut.some((state) => !allowed[state])) return;
  const open = cut.filter((state) => (columnOf[state] as number) >= 0);
  for (const state of open) body.entry(columnOf[state] as number, 1);
  body.end(-Infinity, open.length - 1);
}

class ConstraintRows {
  private readonly starts: number[] = [0];
  private readonly columns: number[] = [];
  private readonly values: number[] = [];
  private readonly lower: number[] = [];
  private readonly upper: number[] = [];

  entry(column: number, value: number): void {
    this.columns.push(column);
    this.values.push(value);
  }

  /** A column's 1, if there is the column. */
  entryAt(column: number): void {
    if (column >= 0) this.entry(column, 1);
  }

  end(lower: number, upper: number): void {
    this.starts.push(this.columns.length);
    this.lower.push(lower);
    this.upper.push(upper);
  }

  packed(): Pick<IntegerProgram, 'starts' | 'columns' | 'values' | 'lower' | 'upper'> {
    return {
      starts: Int32Array.from(this.starts),
      columns: Int32Array.from(this.columns),
      values: Float64Array.from(this.values),
      lower: Float64Array.from(this.lower),
      upper: Float64Array.from(this.upper),
    };
  }
}
