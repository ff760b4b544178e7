/**
 * @file Operations on cost tables, each done once per distinct operands: repeated layers of a network share their tables,
 * so the second layer's work is a look-up. Results are shared in turn.
 */
import type { CostTable } from './cost-problem.js';

/** A table, with its number. */
interface Numbered {
  readonly table: CostTable;
  readonly id: number;
}

/** A table as one operand: which local variable each of its dimensions is. */
interface Operand extends Numbered {
  readonly variables: readonly number[];
}

/** A table that holds the variable whose states are compared, as the dimension `position`. */
interface Compared extends Numbered {
  readonly position: number;
}

/** States that stay, ascending. Equal lists that come from equal tables are one object. */
export interface KeptStates {
  readonly states: readonly number[];
  readonly key: string;
}

export class TableAlgebra {
  private readonly ids = new Map<CostTable, number>();
  private readonly results = new Map<string, CostTable>();
  private readonly kept = new Map<string, KeptStates>();

  /** A number that stands for the table in memo keys. */
  id(table: CostTable): number {
    const known = this.ids.get(table);
    if (known !== undefined) return known;
    const id = this.ids.size;
    this.ids.set(table, id);
    return id;
  }

  /** Keeps the listed states of one dimension. */
  restrict({ table, id }: Numbered, dimension: number, { states, key }: KeptStates): CostTable {
    return this.once(`r${id}.${dimension}:${key}`, () => {
      const size = table.sizes[dimension] as number;
      const inner = product(table.sizes.slice(dimension + 1));
      const outer = table.values.length / (size * inner);
      const values = new Float64Array(outer * states.length * inner);
      for (let row = 0; row < outer; row++) {
        states.forEach((state, position) => {
          const from = (row * size + state) * inner;
          values.set(table.values.subarray(from, from + inner), (row * states.length + position) * inner);
        });
      }
      return { sizes: table.sizes.map((old, index) => (index === dimension ? states.length : old)), values };
    });
  }

  /**
   * Minimises variable 0 out of a sum of tables: result[x1, …, xd] = min over x0 of Σ tables.
   * @param sizes states of the local variables 0 … d, all of which occur in the operands
   */
  eliminate(operands: readonly Operand[], sizes: readonly number[]): CostTable {
    let key = 'e';
    for (const { id, variables } of operands) key += `${id}(${variables.join()})`;
    return this.once(key, () => minimise(operands, sizes));
  }

  /**
   * States of a variable that no other state dominates. State b dominates a when, whatever the neighbours' states, b is
   * no dearer: Σ over tables of max over neighbours (table[b, ·] − table[a, ·]) ≤ 0. Of equal states the first is kept.
   */
  undominated(operands: readonly Compared[], size: number): KeptStates {
    let key = 'd';
    for (const { id, position } of operands) key += `${id}.${position}+`;
    const known = this.kept.get(key);
    if (known) return known;
    const states = removeDominated(operands, size);
    const result = { states, key: states.join() };
    this.kept.set(key, result);
    return result;
  }

  private once(key: string, make: () => CostTable): CostTable {
    const known = this.results.get(key);
    if (known) return known;
    const result = make();
    this.results.set(key, result);
    return result;
  }
}

function product(sizes: readonly number[]): number {
  return sizes.reduce((result, size) => result * size, 1);
}

/** The table with variable 0 as its last dimension, and the stride that each variable has in it. */
function rowForm(
  operand: Operand,
  variables: number,
): { readonly values: Float64Array; readonly strides: readonly number[] } {
  const { table } = operand;
  const position = operand.variables.indexOf(0);
  const order = [...operand.variables.keys()].filter((index) => index !== position);
  if (position >= 0) order.push(position);
  const oldStrides = strides(table.sizes);
  const newSizes = order.map((index) => table.sizes[index] as number);
  const values = new Float64Array(table.values.length);
  const counter = new Array<number>(order.length).fill(0);
  for (let index = 0; index < values.length; index++) {
    let from = 0;
    for (let digit = 0; digit < order.length; digit++) {
      from += (counter[digit] as number) * (oldStrides[order[digit] as number] as number);
    }
    values[index] = table.values[from] as number;
    step(counter, newSizes);
  }
  const newStrides = strides(newSizes);
  const result = new Array<number>(variables).fill(0);
  order.forEach((index, digit) => {
    result[operand.variables[index] as number] = newStrides[digit] as number;
  });
  return { values, strides: result };
}

function minimise(operands: readonly Operand[], sizes: readonly number[]): CostTable {
  const rows = operands.map((operand) => rowForm(operand, sizes.length));
  const states = sizes[0] as number;
  const outSizes = sizes.slice(1);
  const lastVariable = sizes.length - 1;
  const lastSize = lastVariable > 0 ? (sizes[lastVariable] as number) : 1;
  const moving = rows.filter((row) => lastVariable > 0 && (row.strides[lastVariable] as number) > 0);
  const still = rows.filter((row) => !moving.includes(row));
  const outerSizes = outSizes.slice(0, -1);
  const outer = product(outerSizes);
  const values = new Float64Array(outer * lastSize);
  const base = new Float64Array(states);
  const counter = new Array<number>(outerSizes.length).fill(0);
  const offsetOf = (row: (typeof rows)[number]) => {
    let offset = 0;
    for (let digit = 0; digit < counter.length; digit++) {
      offset += (counter[digit] as number) * (row.strides[digit + 1] as number);
    }
    return offset;
  };
  for (let index = 0; index < outer; index++) {
    base.fill(0);
    for (const row of still) {
      const offset = offsetOf(row);
      for (let state = 0; state < states; state++)
        base[state] = (base[state] as number) + (row.values[offset + state] as number);
    }
    const offsets = moving.map(offsetOf);
    for (let last = 0; last < lastSize; last++) {
      let best = Infinity;
      for (let state = 0; state < states; state++) {
        let sum = base[state] as number;
        for (let table = 0; table < moving.length; table++) {
          const row = moving[table] as (typeof rows)[number];
          sum += row.values[
            (offsets[table] as number) + last * (row.strides[lastVariable] as number) + state
          ] as number;
        }
        if (sum < best) best = sum;
      }
      values[index * lastSize + last] = best;
    }
    step(counter, outerSizes);
  }
  return { sizes: outSizes, values };
}

function removeDominated(operands: readonly Compared[], size: number): readonly number[] {
  // The variable as the first dimension of each table: row a is all that state a can cost there.
  const rows = operands.map(({ table, position }) => {
    const inner = product(table.sizes.slice(position + 1));
    const outer = table.values.length / (size * inner);
    return Array.from({ length: size }, (_, state) => {
      const row = new Float64Array(outer * inner);
      for (let index = 0; index < outer; index++) {
        const from = (index * size + state) * inner;
        row.set(table.values.subarray(from, from + inner), index * inner);
      }
      return row;
    });
  });
  // Tables of one variable first: they settle most comparisons.
  rows.sort((a, b) => (a[0]?.length ?? 0) - (b[0]?.length ?? 0));
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

/** Whether `better` is never dearer than `worse`. Where `worse` is forbidden anyway, nothing needs to hold. */
function dominates(rows: readonly (readonly Float64Array[])[], better: number, worse: number): boolean {
  let slack = 0;
  for (const table of rows) {
    const [a, b] = [table[worse] as Float64Array, table[better] as Float64Array];
    let most = -Infinity;
    for (let index = 0; index < a.length; index++) {
      const cost = a[index] as number;
      if (cost === Infinity) continue;
      const more = (b[index] as number) - cost;
      if (more > most) most = more;
    }
    // A state that a table forbids altogether is dominated by any other.
    if (most === -Infinity) return true;
    slack += most;
    if (slack === Infinity) return false;
  }
  return slack <= 0;
}

function strides(sizes: readonly number[]): readonly number[] {
  const result = new Array<number>(sizes.length).fill(1);
  for (let index = sizes.length - 2; index >= 0; index--) {
    result[index] = (result[index + 1] as number) * (sizes[index + 1] as number);
  }
  return result;
}

/** Next multi-index in row-major order. */
function step(counter: number[], sizes: readonly number[]): void {
  for (let digit = sizes.length - 1; digit >= 0; digit--) {
    counter[digit] = (counter[digit] as number) + 1;
    if ((counter[digit] as number) < (sizes[digit] as number)) return;
    counter[digit] = 0;
  }
}
