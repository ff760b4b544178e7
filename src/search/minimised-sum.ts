/**
 * @file The inner step of elimination: a sum of cost tables, minimised over one variable.
 *
 *     result[x1, …, xd] = min over x0 of Σ tables
 *
 * Nearly all of a search's time is spent here, so the sum is never written down. Each table is laid out with x0 last; tables
 * over some of the variables of another are added to it first; of what is left, mostly one or two tables, each entry of
 * the result is one pass over x0. Costs are whole numbers below 2^53, so the order of additions does not matter.
 */
import type { CostTable } from './cost-problem.js';

/** A table of a sum: which local variable each of its dimensions is; variable 0 is one of them. */
export interface Summand {
  readonly table: CostTable;
  readonly variables: readonly number[];
}

/** A table with variable 0 as its last dimension. */
interface Rows {
  values: Float64Array;
  /** The other variables, ascending, outermost first. */
  readonly variables: readonly number[];
  /** Whether `values` is nobody else's, so that it may be added to. */
  isOwn: boolean;
}

/** @param sizes states of the variables 0 … d, all of which occur in the summands */
export function minimisedSum(summands: readonly Summand[], sizes: readonly number[]): CostTable {
  const tables = absorbed(
    summands.map((summand) => rowsOf(summand)),
    sizes,
  );
  const outSizes = sizes.slice(1);
  const values = new Float64Array(product(outSizes));
  const [only] = tables;
  if (only && tables.length === 1) leastOfRows(values, only.values, sizes[0] as number);
  else leastOfSums(values, tables, sizes);
  return { sizes: outSizes, values };
}

function rowsOf({ table, variables }: Summand): Rows {
  const order = [...variables.keys()].sort((a, b) => (variables[a] || Infinity) - (variables[b] || Infinity));
  const values = order.every((from, to) => from === to) ? table.values : permuted(table, order);
  return {
    values,
    variables: order.slice(0, -1).map((index) => variables[index] as number),
    isOwn: values !== table.values,
  };
}

/** A table's values with its dimensions in another order. */
function permuted({ sizes, values: old }: CostTable, order: readonly number[]): Float64Array {
  const oldStrides = strides(sizes);
  const newSizes = order.map((index) => sizes[index] as number);
  const newStrides = order.map((index) => oldStrides[index] as number);
  const [inner, stride] = [newSizes.at(-1) as number, newStrides.at(-1) as number];
  const values = new Float64Array(old.length);
  const walk = new Walk(newSizes.slice(0, -1), [newStrides]);
  for (let to = 0; to < values.length; walk.next()) {
    let from = walk.offset(0);
    for (let index = 0; index < inner; index++, from += stride) values[to++] = old[from] as number;
  }
  return values;
}

/** Tables over some of another's variables are added to it: what is left are tables of which none covers another. */
function absorbed(tables: readonly Rows[], sizes: readonly number[]): readonly Rows[] {
  const kept: Rows[] = [];
  const states = sizes[0] as number;
  for (const table of [...tables].sort((a, b) => b.variables.length - a.variables.length)) {
    let into: Rows | undefined;
    for (const other of kept) {
      if ((!into || other.values.length < into.values.length) && covers(other, table)) into = other;
    }
    if (!into) {
      kept.push({ ...table });
      continue;
    }
    if (!into.isOwn) [into.values, into.isOwn] = [into.values.slice(), true];
    addTo(into, table, sizes, states);
  }
  return kept;
}

function covers(larger: Rows, smaller: Rows): boolean {
  return smaller.variables.every((variable) => larger.variables.includes(variable));
}

function addTo({ values, variables }: Rows, table: Rows, sizes: readonly number[], states: number): void {
  const { values: added } = table;
  if (added.length === values.length) {
    for (let index = 0; index < values.length; index++) {
      values[index] = (values[index] as number) + (added[index] as number);
    }
    return;
  }
  const walk = new Walk(
    variables.map((variable) => sizes[variable] as number),
    [stridesIn(table, variables, sizes)],
  );
  for (let to = 0; to < values.length; walk.next()) {
    let from = walk.offset(0);
    for (let state = 0; state < states; state++, to++, from++) {
      values[to] = (values[to] as number) + (added[from] as number);
    }
  }
}

/** How far each of some variables moves on in a table; 0 where the table lacks it. */
function stridesIn(table: Rows, variables: readonly number[], sizes: readonly number[]): readonly number[] {
  const own = strides([...table.variables, 0].map((variable) => sizes[variable] as number));
  return variables.map((variable) => own[table.variables.indexOf(variable)] ?? 0);
}

/** By row: its least entry. */
function leastOfRows(result: Float64Array, values: Float64Array, states: number): void {
  let at = 0;
  for (let row = 0; row < result.length; row++) {
    let least = Infinity;
    for (let state = 0; state < states; state++, at++) {
      const cost = values[at] as number;
      if (cost < least) least = cost;
    }
    result[row] = least;
  }
}

/** The innermost loop is over x0, the next over the last variable; tables that the last variable moves, and those it does not. */
function leastOfSums(result: Float64Array, tables: readonly Rows[], sizes: readonly number[]): void {
  const states = sizes[0] as number;
  const last = sizes.length - 1;
  const lastSize = sizes[last] as number;
  const outer = Array.from({ length: last - 1 }, (_, index) => index + 1);
  const moving = tables.filter(({ variables }) => variables.includes(last));
  const still = tables.filter((table) => !moving.includes(table));
  const lastStrides = moving.map((table) => stridesIn(table, [last], sizes)[0] as number);
  const all = [...still, ...moving];
  const walk = new Walk(
    outer.map((variable) => sizes[variable] as number),
    all.map((table) => stridesIn(table, outer, sizes)),
  );
  const [sums, row] = [new Float64Array(states), new Float64Array(states)];
  const final = (all.at(-1) as Rows).values;
  const finalStride = lastStrides.at(-1) as number;
  for (let to = 0; to < result.length; walk.next()) {
    // What stands still: nothing, a part of one table, or a sum of several.
    let [base, start] = [(all[0] as Rows).values, walk.offset(0)];
    for (let index = 1; index < still.length; index++) {
      addRow(sums, base, start, (still[index] as Rows).values, walk.offset(index));
      [base, start] = [sums, 0];
    }
    let from = walk.offset(all.length - 1);
    for (let step = 0; step < lastSize; step++, from += finalStride) {
      let [moved, at] = [base, start];
      for (let index = 0; index < moving.length - 1; index++) {
        const offset = walk.offset(still.length + index) + step * (lastStrides[index] as number);
        const { values } = moving[index] as Rows;
        if (still.length === 0 && index === 0) [moved, at] = [values, offset];
        else {
          addRow(row, moved, at, values, offset);
          [moved, at] = [row, 0];
        }
      }
      let least = Infinity;
      for (let state = 0; state < states; state++) {
        const cost = (moved[at + state] as number) + (final[from + state] as number);
        if (cost < least) least = cost;
      }
      result[to++] = least;
    }
  }
}

function addRow(into: Float64Array, base: Float64Array, start: number, values: Float64Array, offset: number): void {
  for (let state = 0; state < into.length; state++) {
    into[state] = (base[start + state] as number) + (values[offset + state] as number);
  }
}

/** Row-major steps through a multi-index, with the place that it has in several tables. */
class Walk {
  private readonly counter: Int32Array;
  /** Whole numbers that fit a machine's integer: doubles would be objects of their own wherever they are passed on. */
  private readonly offsets: Int32Array;

  constructor(
    private readonly sizes: readonly number[],
    /** By table: how far each digit moves on. */
    private readonly strides: readonly (readonly number[])[],
  ) {
    this.counter = new Int32Array(sizes.length);
    this.offsets = new Int32Array(strides.length);
  }

  offset(table: number): number {
    return this.offsets[table] as number;
  }

  next(): void {
    const { counter, offsets, sizes, strides } = this;
    for (let digit = sizes.length - 1; digit >= 0; digit--) {
      const size = sizes[digit] as number;
      const value = (counter[digit] as number) + 1;
      const isOver = value === size;
      counter[digit] = isOver ? 0 : value;
      for (let table = 0; table < strides.length; table++) {
        const stride = (strides[table] as readonly number[])[digit] as number;
        offsets[table] = (offsets[table] as number) + (isOver ? stride * (1 - size) : stride);
      }
      if (!isOver) return;
    }
  }
}

function strides(sizes: readonly number[]): readonly number[] {
  const result = new Array<number>(sizes.length).fill(1);
  for (let index = sizes.length - 2; index >= 0; index--) {
    result[index] = (result[index + 1] as number) * (sizes[index + 1] as number);
  }
  return result;
}

function product(sizes: readonly number[]): number {
  return sizes.reduce((result, size) => result * size, 1);
}
