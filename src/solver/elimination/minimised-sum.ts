/**
 * @file The inner step of elimination: a sum of cost tables, minimised over one variable.
 *
 *     result[x1, …, xd] = min over x0 of Σ tables
 *
 * Nearly all of a search's time is spent here, so the sum is never stored, nor is a table transposed: each is read with the
 * strides that it has. Tables over some of the variables of another are added to it first; for the remaining tables, mostly one
 * or two, each entry of the result is one pass over x0. Costs are whole numbers below 2^53, so the order of additions does not
 * matter.
 */
import type { CostTable } from '../problem.js';
import { inOrder } from './in-order.js';

/** A table of a sum: which local variable each of its dimensions is; variable 0 is one of them. */
export interface Summand {
  readonly table: CostTable;
  readonly variables: readonly number[];
}

interface Strided {
  values: Float64Array;
  /** By local variable: entries from one of its states to the next; 0 where the table lacks it. */
  strides: readonly number[];
  /** Number of variables. */
  readonly count: number;
  /** Whether `values` is not shared, so that it may be added to. */
  isOwn: boolean;
}

/** @param sizes states of the variables 0 … d, all of which occur in the summands */
export function minimisedSum(summands: readonly Summand[], sizes: readonly number[]): CostTable {
  const tables = absorbed(summands, sizes);
  const outSizes = sizes.slice(1);
  const values = new Float64Array(product(outSizes));
  leastOfSums(values, tables, sizes);
  return { sizes: outSizes, values };
}

function stridedOf({ table, variables }: Summand, count: number): Strided {
  const own = new Array<number>(count).fill(0);
  let stride = 1;
  for (let position = variables.length - 1; position >= 0; position--) {
    own[variables[position] as number] = stride;
    stride *= table.sizes[position] as number;
  }
  return { values: table.values, strides: own, count: variables.length, isOwn: false };
}

/** Tables over some of another's variables are added to it: none of the remaining tables covers another. */
function absorbed(summands: readonly Summand[], sizes: readonly number[]): readonly Strided[] {
  const kept: Strided[] = [];
  const tables = inOrder(summands, fewestLast);
  for (const summand of tables) {
    const table = stridedOf(summand, sizes.length);
    let into: Strided | undefined;
    for (const other of kept) {
      if ((!into || other.values.length < into.values.length) && covers(other, table)) into = other;
    }
    if (into) addTo(into, table, sizes);
    else kept.push(table);
  }
  return kept;
}

function fewestLast({ variables }: Summand): number {
  return -variables.length;
}

function covers(larger: Strided, smaller: Strided): boolean {
  for (let variable = 1; variable < smaller.strides.length; variable++) {
    if (smaller.strides[variable] !== 0 && larger.strides[variable] === 0) return false;
  }
  return true;
}

/** Adds a table to one that covers it; where that is shared, to a copy, in order of its variables with x0 last. */
function addTo(into: Strided, table: Strided, sizes: readonly number[]): void {
  const scope = scopeOf(into);
  const terms = new TableRows([into, table], scope, sizes);
  if (!into.isOwn) {
    into.values = new Float64Array(into.values.length);
    into.strides = orderedStrides(scope, sizes);
    into.isOwn = true;
  }
  const [one, other] = terms.cursors as [Cursor, Cursor];
  for (let to = 0; to < into.values.length; to += terms.entries, terms.next())
    sumRows(into.values, to, one, other, terms.rows, terms.states);
}

/** The variables of a table but x0, ascending. */
function scopeOf({ strides }: Strided): readonly number[] {
  const scope: number[] = [];
  for (let variable = 1; variable < strides.length; variable++) if (strides[variable] !== 0) scope.push(variable);
  return scope;
}

/** Strides of a table over some variables in this order, and x0 last. */
function orderedStrides(scope: readonly number[], sizes: readonly number[]): readonly number[] {
  const result = new Array<number>(sizes.length).fill(0);
  result[0] = 1;
  let stride = sizes[0] as number;
  for (let position = scope.length - 1; position >= 0; position--) {
    const variable = scope[position] as number;
    result[variable] = stride;
    stride *= sizes[variable] as number;
  }
  return result;
}

/** The innermost loop is over x0, the next over the last variable. */
function leastOfSums(result: Float64Array, tables: readonly Strided[], sizes: readonly number[]): void {
  const terms = new TableRows(
    tables,
    Array.from({ length: sizes.length - 1 }, (_, index) => index + 1),
    sizes,
  );
  const { cursors, rows, states } = terms;
  const final = cursors.length - 1;
  const last = cursors[final] as Cursor;
  const first = cursors[0] as Cursor;
  const sums: Cursor = { values: new Float64Array(final > 1 ? terms.entries : 0), start: 0, move: states, step: 1 };
  for (let to = 0; to < result.length; to += rows, terms.next()) {
    if (final === 0) {
      leastEntries(result, to, last, rows, states);
      continue;
    }
    // The sum of all tables but the last: nothing has to be added where that is a single table.
    let base = first;
    for (let index = 1; index < final; index++) {
      sumRows(sums.values, 0, base, cursors[index] as Cursor, rows, states);
      base = sums;
    }
    leastRows(result, to, base, last, rows, states);
  }
}

/** Where a table's rows are: its first entry, from one row to the next, and from one state of x0 to the next. */
interface Cursor {
  readonly values: Float64Array;
  start: number;
  readonly move: number;
  readonly step: number;
}

/** Tables side by side, as slices of rows over the last of some variables; `next` goes on to where the others have moved on. */
class TableRows {
  readonly cursors: readonly Cursor[];
  readonly rows: number;
  readonly states: number;
  private readonly walk: IndexWalk;

  constructor(tables: readonly Strided[], scope: readonly number[], sizes: readonly number[]) {
    const last = scope.at(-1);
    const outer = scope.slice(0, -1);
    this.states = sizes[0] as number;
    this.rows = last === undefined ? 1 : (sizes[last] as number);
    this.cursors = tables.map(({ values, strides }) => ({
      values,
      start: 0,
      move: last === undefined ? 0 : (strides[last] as number),
      step: strides[0] as number,
    }));
    this.walk = new IndexWalk(
      outer.map((variable) => sizes[variable] as number),
      tables.map(({ strides }) => outer.map((variable) => strides[variable] as number)),
    );
  }

  /** Entries of a slice, as if it were a table of its own. */
  get entries(): number {
    return this.rows * this.states;
  }

  next(): void {
    const { cursors, walk } = this;
    walk.next();
    for (let table = 0; table < cursors.length; table++) (cursors[table] as Cursor).start = walk.offset(table);
  }
}

/*
 * The loops that take the time are functions of their own, over numbers and arrays of one kind. As part of their callers, the
 * compiler deoptimised them again and again, and boxed every number that they read meanwhile.
 */

/** Row by row the sum of two tables. */
function sumRows(into: Float64Array, first: number, one: Cursor, other: Cursor, rows: number, states: number): void {
  const { values: own, step } = one;
  const { values: added, step: addedStep } = other;
  let to = first;
  for (let row = 0; row < rows; row++) {
    let a = one.start + row * one.move;
    let b = other.start + row * other.move;
    for (let state = 0; state < states; state++, a += step, b += addedStep)
      into[to++] = (own[a] as number) + (added[b] as number);
  }
}

/** Row by row the least of the sum of two tables. */
function leastRows(result: Float64Array, to: number, one: Cursor, other: Cursor, rows: number, states: number): void {
  const { values: own, step } = one;
  const { values: added, step: addedStep } = other;
  for (let row = 0; row < rows; row++) {
    let a = one.start + row * one.move;
    let b = other.start + row * other.move;
    let least = Infinity;
    for (let state = 0; state < states; state++, a += step, b += addedStep) {
      const cost = (own[a] as number) + (added[b] as number);
      if (cost < least) least = cost;
    }
    result[to + row] = least;
  }
}

/** Row by row the least entry. */
function leastEntries(result: Float64Array, to: number, table: Cursor, rows: number, states: number): void {
  const { values, step } = table;
  for (let row = 0; row < rows; row++) {
    let at = table.start + row * table.move;
    let least = Infinity;
    for (let state = 0; state < states; state++, at += step) {
      const cost = values[at] as number;
      if (cost < least) least = cost;
    }
    result[to + row] = least;
  }
}

/** Row-major steps through a multi-index, with the place that it has in several tables. */
class IndexWalk {
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

export function product(sizes: readonly number[]): number {
  return sizes.reduce((result, size) => result * size, 1);
}
