/**
 * @file A problem of one- and two-variable tables that can be changed: states dropped, variables merged or minimised out.
 *
 * At most one table joins two variables. Tables are never changed in place: equal layers share them, and work on a shared
 * table is done once.
 */
import { type ComparedTable, comparedTable, undominated } from '../elimination/dominance.js';
import { minimisedSum, type Summand } from '../elimination/minimised-sum.js';
import type { CostTable, LimitedProblem } from '../problem.js';

/** Two variables and their table. */
export interface PairTable {
  readonly a: number;
  readonly b: number;
  /** Rows are the states of `a`. */
  readonly table: CostTable;
}

/** Bytes by state over a span of time. */
export interface TimedBytes {
  readonly start: number;
  readonly end: number;
  readonly bytes: Float64Array;
}

interface Variable {
  unary: Float64Array;
  labels: Int32Array;
  uses: TimedBytes[];
  readonly joints: Map<number, PairTable>;
}

export class CoreGraph {
  private readonly variables: (Variable | null)[];
  private readonly memo = new Map<CostTable, Map<string, CostTable>>();
  private readonly checks = new WeakMap<CostTable, TableFacts>();
  /** By table: ready to be compared by rows, and by columns. */
  private readonly compared = new WeakMap<CostTable, ComparedTable[]>();
  /** Table entries and bytes looked at so far. */
  work = 0;
  /** Bytes of variables that are gone, by time span. */
  readonly fixedUses: { readonly start: number; readonly end: number; bytes: number }[] = [];

  constructor(problem: LimitedProblem) {
    this.variables = problem.sizes.map((size) => ({
      unary: new Float64Array(size),
      labels: Int32Array.from({ length: size }, (_, state) => state),
      uses: [],
      joints: new Map(),
    }));
    for (const { variables, table } of problem.factors) {
      const [a, b] = variables;
      if (a === undefined || variables.length > 2)
        throw new RangeError('the solver takes tables of one or two variables');
      if (b === undefined) {
        const { unary } = this.at(a);
        for (let state = 0; state < unary.length; state++)
          unary[state] = (unary[state] as number) + (table.values[state] as number);
        continue;
      }
      this.join(a, b, table);
    }
    for (const { variable, start, end, bytes } of problem.uses) {
      if (end > start) this.at(variable).uses.push({ start, end, bytes });
    }
    for (const { start, end, bytes } of problem.decided ?? []) this.fixedUses.push({ start, end, bytes });
  }

  *alive(): Iterable<number> {
    for (let variable = 0; variable < this.variables.length; variable++) if (this.variables[variable]) yield variable;
  }

  has(variable: number): boolean {
    return this.variables[variable] !== null;
  }

  size(variable: number): number {
    return this.at(variable).unary.length;
  }

  unary(variable: number): Float64Array {
    return this.at(variable).unary;
  }

  /** The problem's state behind each state. */
  labels(variable: number): Int32Array {
    return this.at(variable).labels;
  }

  uses(variable: number): readonly TimedBytes[] {
    return this.at(variable).uses;
  }

  setUses(variable: number, uses: TimedBytes[]): void {
    this.at(variable).uses = uses;
  }

  usesMemory(variable: number): boolean {
    return this.at(variable).uses.length > 0;
  }

  neighbours(variable: number): Iterable<number> {
    return this.at(variable).joints.keys();
  }

  joints(variable: number): readonly PairTable[] {
    return [...this.at(variable).joints.values()];
  }

  /** States with a finite cost that every neighbour has a state for. */
  consistentStates(variable: number): readonly number[] {
    const { unary, joints } = this.at(variable);
    let alive: boolean[] | undefined;
    for (let state = 0; state < unary.length; state++) {
      if (unary[state] !== Infinity) continue;
      alive ??= new Array<boolean>(unary.length).fill(true);
      alive[state] = false;
    }
    for (const { a, table } of joints.values()) {
      const facts = this.facts(table);
      const finite = a === variable ? facts.finiteByRow : facts.finiteByColumn;
      for (let state = 0; state < unary.length; state++) {
        if (finite[state] !== 0) continue;
        alive ??= new Array<boolean>(unary.length).fill(true);
        alive[state] = false;
      }
    }
    const states = Array.from(unary.keys());
    return alive ? states.filter((state) => alive[state]) : states;
  }

  restrict(variable: number, states: readonly number[]): void {
    const own = this.at(variable);
    own.unary = Float64Array.from(states, (state) => own.unary[state] as number);
    own.labels = Int32Array.from(states, (state) => own.labels[state] as number);
    own.uses = own.uses.map(({ start, end, bytes }) => ({
      start,
      end,
      bytes: Float64Array.from(states, (state) => bytes[state] as number),
    }));
    const key = states.join();
    for (const joint of [...own.joints.values()]) {
      const side = joint.a === variable ? 'a' : 'b';
      this.replace(
        joint,
        this.once(joint.table, `${side}${key}`, (table) => selected(table, side, states)),
      );
    }
  }

  /**
   * Moves costs of a table that do not depend on the other end's state into the cost of the states; tables that charge nothing
   * more are dropped. Returns the neighbours that lost one.
   */
  simplifyJoints(variable: number): readonly number[] {
    const lost: number[] = [];
    for (const joint of this.joints(variable)) {
      const { rest, byRow, byColumn } = this.facts(joint.table);
      if (rest === joint.table) continue;
      add(this.at(joint.a).unary, byRow);
      add(this.at(joint.b).unary, byColumn);
      if (rest) this.replace(joint, rest);
      else {
        this.at(joint.a).joints.delete(joint.b);
        this.at(joint.b).joints.delete(joint.a);
        lost.push(joint.a, joint.b);
      }
    }
    return lost;
  }

  /** Where each state of `leader` leaves the other end one state: that state; null otherwise. */
  only({ a, table }: PairTable, leader: number): Int32Array | null {
    const facts = this.facts(table);
    return a === leader ? facts.onlyByRow : facts.onlyByColumn;
  }

  /** The largest table that merging two variables would make. */
  entriesAfterMerge(leader: number, follower: number): number {
    let most = 0;
    for (const other of this.at(follower).joints.keys()) {
      if (other !== leader && this.size(leader) > this.size(follower))
        most = Math.max(most, this.size(other) * this.size(leader));
    }
    return most;
  }

  /** Makes `follower` part of `leader`, whose state s leaves it the state states[s]. */
  merge(leader: number, follower: number, states: Int32Array): void {
    const [into, from] = [this.at(leader), this.at(follower)];
    const joint = into.joints.get(follower) as PairTable;
    for (let state = 0; state < into.unary.length; state++) {
      const other = states[state] as number;
      const { sizes, values } = joint.table;
      const columns = sizes[1] as number;
      const entry = joint.a === leader ? values[state * columns + other] : values[other * columns + state];
      into.unary[state] = (into.unary[state] as number) + (entry as number) + (from.unary[other] as number);
    }
    for (const { start, end, bytes } of from.uses) {
      into.uses.push({ start, end, bytes: Float64Array.from(states, (state) => bytes[state] as number) });
    }
    const order = Array.from(states);
    const key = order.join();
    for (const old of [...from.joints.values()]) {
      this.unjoin(old);
      if (old === joint) continue;
      const side = old.a === follower ? 'a' : 'b';
      const table = this.once(old.table, `${side}${key}`, (pair) => selected(pair, side, order));
      if (side === 'a') this.join(leader, old.b, table);
      else this.join(old.a, leader, table);
    }
    this.variables[follower] = null;
  }

  /** Takes out a variable of one state: its table rows become costs of its neighbours. Returns its cost. */
  fold(variable: number): number {
    const own = this.at(variable);
    for (const joint of [...own.joints.values()]) {
      add(this.at(joint.a === variable ? joint.b : joint.a).unary, joint.table.values);
      this.unjoin(joint);
    }
    for (const { start, end, bytes } of own.uses) this.fixedUses.push({ start, end, bytes: bytes[0] as number });
    this.variables[variable] = null;
    return own.unary[0] as number;
  }

  /** A table as rows of `other`, columns of `variable`. */
  rowsBy(other: number, variable: number): Float64Array {
    const { a, table } = this.at(variable).joints.get(other) as PairTable;
    return a === other ? table.values : transposed(table);
  }

  /** Minimises out a variable of at most two neighbours. Returns its cost where it has none. */
  minimiseOut(variable: number): number {
    const own = this.at(variable);
    const near = [...own.joints.keys()];
    const sizes = [own.unary.length, ...near.map((other) => this.size(other))];
    const tables: Summand[] = [{ table: tableOf(own.unary), variables: [0] }];
    for (const joint of [...own.joints.values()]) {
      const place = near.indexOf(joint.a === variable ? joint.b : joint.a) + 1;
      tables.push({ table: joint.table, variables: joint.a === variable ? [0, place] : [place, 0] });
      this.unjoin(joint);
    }
    this.variables[variable] = null;
    this.work += sizes.reduce((product, size) => product * size, 1);
    const least = minimisedSum(tables, sizes);
    const [first, second] = near;
    if (first === undefined) return least.values[0] as number;
    if (second === undefined) add(this.at(first).unary, least.values);
    else this.join(first, second, least);
    return 0;
  }

  /** States that no other state replaces at no more cost, whatever the neighbours do, and no more memory at any time. */
  undominated(variable: number, work: number): readonly number[] {
    const { unary, joints, uses } = this.at(variable);
    const size = unary.length;
    let entries = 0;
    for (const { table } of joints.values()) entries += table.values.length;
    if (entries * size > work) return Array.from(unary.keys());
    const tables = [comparedTable(tableOf(unary), 0)];
    for (const { a, table } of joints.values()) tables.push(this.toCompare(table, a === variable ? 0 : 1));
    this.work += entries + size * size * tables.length;
    return undominated(
      tables,
      size,
      (better, worse) => !uses.some(({ bytes }) => (bytes[better] as number) > (bytes[worse] as number)),
    );
  }

  private at(variable: number): Variable {
    return this.variables[variable] as Variable;
  }

  private join(a: number, b: number, table: CostTable): void {
    const known = this.at(a).joints.get(b);
    if (!known) {
      const joint = { a, b, table };
      this.at(a).joints.set(b, joint);
      this.at(b).joints.set(a, joint);
      return;
    }
    const values = known.a === a ? table.values : transposed(table);
    const sum = known.table.values.map((cost, index) => cost + (values[index] as number));
    this.work += sum.length;
    this.replace(known, { ...known.table, values: sum });
  }

  private replace({ a, b }: PairTable, table: CostTable): void {
    const joint = { a, b, table };
    this.at(a).joints.set(b, joint);
    this.at(b).joints.set(a, joint);
  }

  private unjoin({ a, b }: PairTable): void {
    this.at(a).joints.delete(b);
    this.at(b).joints.delete(a);
  }

  private toCompare(table: CostTable, position: 0 | 1): ComparedTable {
    const made = this.compared.get(table) ?? [];
    this.compared.set(table, made);
    made[position] ??= comparedTable(table, position);
    return made[position];
  }

  private once(table: CostTable, key: string, make: (table: CostTable) => CostTable): CostTable {
    const made = this.memo.get(table) ?? new Map<string, CostTable>();
    this.memo.set(table, made);
    const known = made.get(key);
    if (known) return known;
    const result = make(table);
    this.work += result.values.length;
    made.set(key, result);
    return result;
  }

  private facts(table: CostTable): TableFacts {
    const known = this.checks.get(table);
    if (known) return known;
    const facts = factsOf(table);
    this.work += table.values.length;
    this.checks.set(table, facts);
    return facts;
  }
}

/** Facts of a table that are used again and again. */
interface TableFacts {
  readonly finiteByRow: Int32Array;
  readonly finiteByColumn: Int32Array;
  /** The only finite entry of each row, where each has one. */
  readonly onlyByRow: Int32Array | null;
  readonly onlyByColumn: Int32Array | null;
  /** The table without the least costs of its rows and columns: the table itself, another, or null if nothing is left. */
  readonly rest: CostTable | null;
  readonly byRow: Float64Array;
  readonly byColumn: Float64Array;
}

function factsOf(table: CostTable): TableFacts {
  const { values } = table;
  const [rows, columns] = extent(table);
  const [finiteByRow, finiteByColumn] = [new Int32Array(rows), new Int32Array(columns)];
  const [lastByRow, lastByColumn] = [new Int32Array(rows), new Int32Array(columns)];
  const byRow = new Float64Array(rows).fill(Infinity);
  const byColumn = new Float64Array(columns).fill(Infinity);
  for (let row = 0, index = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, index++) {
      const cost = values[index] as number;
      if (cost === Infinity) continue;
      finiteByRow[row] = (finiteByRow[row] as number) + 1;
      finiteByColumn[column] = (finiteByColumn[column] as number) + 1;
      lastByRow[row] = column;
      lastByColumn[column] = row;
      if (cost < (byRow[row] as number)) byRow[row] = cost;
    }
  }
  for (let row = 0; row < rows; row++) if (byRow[row] === Infinity) byRow[row] = 0;
  for (let row = 0, index = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, index++) {
      const cost = (values[index] as number) - (byRow[row] as number);
      if (cost < (byColumn[column] as number)) byColumn[column] = cost;
    }
  }
  for (let column = 0; column < columns; column++) if (byColumn[column] === Infinity) byColumn[column] = 0;
  const moves = byRow.some((cost) => cost !== 0) || byColumn.some((cost) => cost !== 0);
  const left = moves
    ? values.map(
        (cost, index) => cost - (byRow[Math.floor(index / columns)] as number) - (byColumn[index % columns] as number),
      )
    : values;
  const empty = left.every((cost) => cost === 0);
  return {
    finiteByRow,
    finiteByColumn,
    onlyByRow: finiteByRow.every((count) => count === 1) ? lastByRow : null,
    onlyByColumn: finiteByColumn.every((count) => count === 1) ? lastByColumn : null,
    rest: empty ? null : moves ? { sizes: table.sizes, values: left } : table,
    byRow,
    byColumn,
  };
}

function selected(table: CostTable, side: 'a' | 'b', states: readonly number[]): CostTable {
  const { values } = table;
  const [rows, columns] = extent(table);
  const [height, width] = side === 'a' ? [states.length, columns] : [rows, states.length];
  const result = new Float64Array(height * width);
  if (side === 'a') {
    states.forEach((state, row) => {
      result.set(values.subarray(state * columns, (state + 1) * columns), row * columns);
    });
  } else {
    for (let row = 0; row < rows; row++) {
      for (let index = 0; index < width; index++) {
        result[row * width + index] = values[row * columns + (states[index] as number)] as number;
      }
    }
  }
  return { sizes: [height, width], values: result };
}

function transposed(table: CostTable): Float64Array {
  const { values } = table;
  const [rows, columns] = extent(table);
  const result = new Float64Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++)
      result[column * rows + row] = values[row * columns + column] as number;
  }
  return result;
}

function extent({ sizes }: CostTable): readonly [rows: number, columns: number] {
  return [sizes[0] as number, sizes[1] as number];
}

function tableOf(values: Float64Array): CostTable {
  return { sizes: [values.length], values };
}

function add(costs: Float64Array, more: Float64Array): void {
  for (let index = 0; index < costs.length; index++) costs[index] = (costs[index] as number) + (more[index] as number);
}
