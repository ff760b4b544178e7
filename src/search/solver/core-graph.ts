/**
 * @file A problem of one- and two-variable tables that can be changed: states dropped, variables merged or minimised out.
 *
 * At most one table joins two variables. Tables are never changed in place: equal layers share them, and what is done to a
 * shared table is done once.
 */
import type { LimitedProblem } from './limited-problem.js';

/** Row-major: rows are the states of `a`. */
export interface PairTable {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float64Array;
}

/** Two variables and their table. */
export interface Joint {
  readonly a: number;
  readonly b: number;
  readonly table: PairTable;
}

/** Bytes by state over a span of time. */
export interface Use {
  readonly start: number;
  readonly end: number;
  readonly bytes: Float64Array;
}

interface Variable {
  unary: Float64Array;
  labels: Int32Array;
  uses: Use[];
  readonly joints: Map<number, Joint>;
}

export class CoreGraph {
  private readonly variables: (Variable | null)[];
  private readonly memo = new Map<PairTable, Map<string, PairTable>>();
  private readonly checks = new WeakMap<PairTable, TableFacts>();
  /** Bytes of variables that are gone, by time span. */
  readonly fixedUses: { readonly start: number; readonly end: number; bytes: number }[] = [];

  constructor(problem: LimitedProblem) {
    this.variables = problem.sizes.map((size) => ({
      unary: new Float64Array(size),
      labels: Int32Array.from({ length: size }, (_, state) => state),
      uses: [],
      joints: new Map(),
    }));
    const tables = new Map<Float64Array, PairTable>();
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
      const known = tables.get(table.values);
      const pair = known ?? { rows: table.sizes[0] as number, columns: table.sizes[1] as number, values: table.values };
      tables.set(table.values, pair);
      this.join(a, b, pair);
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

  uses(variable: number): readonly Use[] {
    return this.at(variable).uses;
  }

  setUses(variable: number, uses: Use[]): void {
    this.at(variable).uses = uses;
  }

  usesMemory(variable: number): boolean {
    return this.at(variable).uses.length > 0;
  }

  neighbours(variable: number): Iterable<number> {
    return this.at(variable).joints.keys();
  }

  joints(variable: number): readonly Joint[] {
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
   * Moves what a table charges whatever the other end's state into the cost of the states; tables that charge nothing more
   * are dropped. Returns the neighbours that lost one.
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
  only({ a, table }: Joint, leader: number): Int32Array | null {
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
    const joint = into.joints.get(follower) as Joint;
    for (let state = 0; state < into.unary.length; state++) {
      const other = states[state] as number;
      const { columns, values } = joint.table;
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
    const { a, table } = this.at(variable).joints.get(other) as Joint;
    return a === other ? table.values : transposed(table);
  }

  /** Minimises out a variable of at most two neighbours. Returns its cost where it has none. */
  minimiseOut(variable: number): number {
    const own = this.at(variable);
    const near = [...own.joints.keys()];
    const tables = near.map((other) => this.rowsBy(other, variable));
    for (const joint of [...own.joints.values()]) this.unjoin(joint);
    this.variables[variable] = null;
    const [first, second] = near;
    if (first === undefined) return own.unary.reduce((least, cost) => Math.min(least, cost), Infinity);
    const rows = tables[0] as Float64Array;
    if (second === undefined) {
      add(this.at(first).unary, leastByRow(rows, own.unary));
      return 0;
    }
    const [height, width] = [this.size(first), this.size(second)];
    this.join(first, second, {
      rows: height,
      columns: width,
      values: minPlus(rows, own.unary, tables[1] as Float64Array),
    });
    return 0;
  }

  /** States that no other state replaces at no more cost, whatever the neighbours do, and no more memory at any time. */
  undominated(variable: number, work: number): readonly number[] {
    const { unary, joints, uses } = this.at(variable);
    const size = unary.length;
    const all = Array.from(unary.keys());
    const tables = [...joints.values()].map(({ a, table }) => (a === variable ? table.values : this.turned(table)));
    if (tables.reduce((sum, values) => sum + values.length, 0) * size > work) return all;
    tables.sort((a, b) => a.length - b.length);
    const alive = new Array<boolean>(size).fill(true);
    for (let state = size - 1; state >= 0; state--) {
      for (let other = 0; other < size; other++) {
        if (other === state || !alive[other]) continue;
        if (uses.some(({ bytes }) => (bytes[other] as number) > (bytes[state] as number))) continue;
        if (!dominates(tables, unary, other, state)) continue;
        alive[state] = false;
        break;
      }
    }
    return all.filter((state) => alive[state]);
  }

  private at(variable: number): Variable {
    return this.variables[variable] as Variable;
  }

  private join(a: number, b: number, table: PairTable): void {
    const known = this.at(a).joints.get(b);
    if (!known) {
      const joint = { a, b, table };
      this.at(a).joints.set(b, joint);
      this.at(b).joints.set(a, joint);
      return;
    }
    const values = known.a === a ? table.values : transposed(table);
    const sum = known.table.values.map((cost, index) => cost + (values[index] as number));
    this.replace(known, { ...known.table, values: sum });
  }

  private replace({ a, b }: Joint, table: PairTable): void {
    const joint = { a, b, table };
    this.at(a).joints.set(b, joint);
    this.at(b).joints.set(a, joint);
  }

  private unjoin({ a, b }: Joint): void {
    this.at(a).joints.delete(b);
    this.at(b).joints.delete(a);
  }

  private turned(table: PairTable): Float64Array {
    return this.once(table, 't', (pair) => ({ rows: pair.columns, columns: pair.rows, values: transposed(pair) }))
      .values;
  }

  private once(table: PairTable, key: string, make: (table: PairTable) => PairTable): PairTable {
    const made = this.memo.get(table) ?? new Map<string, PairTable>();
    this.memo.set(table, made);
    const known = made.get(key);
    if (known) return known;
    const result = make(table);
    made.set(key, result);
    return result;
  }

  private facts(table: PairTable): TableFacts {
    const known = this.checks.get(table);
    if (known) return known;
    const facts = factsOf(table);
    this.checks.set(table, facts);
    return facts;
  }
}

/** What is asked of a table again and again. */
interface TableFacts {
  readonly finiteByRow: Int32Array;
  readonly finiteByColumn: Int32Array;
  /** The only finite entry of each row, where each has one. */
  readonly onlyByRow: Int32Array | null;
  readonly onlyByColumn: Int32Array | null;
  /** What remains once the rows' and columns' least costs are taken out: the table itself, another, or null for nothing. */
  readonly rest: PairTable | null;
  readonly byRow: Float64Array;
  readonly byColumn: Float64Array;
}

function factsOf(table: PairTable): TableFacts {
  const { rows, columns, values } = table;
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
    rest: empty ? null : moves ? { rows, columns, values: left } : table,
    byRow,
    byColumn,
  };
}

function selected({ rows, columns, values }: PairTable, side: 'a' | 'b', states: readonly number[]): PairTable {
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
  return { rows: height, columns: width, values: result };
}

function transposed({ rows, columns, values }: PairTable): Float64Array {
  const result = new Float64Array(values.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++)
      result[column * rows + row] = values[row * columns + column] as number;
  }
  return result;
}

/** min over s of unary[s] + rows[r, s], for each r. */
function leastByRow(rows: Float64Array, unary: Float64Array): Float64Array {
  const size = unary.length;
  const result = new Float64Array(rows.length / size).fill(Infinity);
  for (let row = 0, index = 0; row < result.length; row++) {
    for (let state = 0; state < size; state++, index++) {
      const cost = (rows[index] as number) + (unary[state] as number);
      if (cost < (result[row] as number)) result[row] = cost;
    }
  }
  return result;
}

/** min over s of first[r, s] + unary[s] + second[c, s]: the min-plus product. */
function minPlus(first: Float64Array, unary: Float64Array, second: Float64Array): Float64Array {
  const size = unary.length;
  const [height, width] = [first.length / size, second.length / size];
  const result = new Float64Array(height * width);
  const row = new Float64Array(size);
  for (let r = 0; r < height; r++) {
    for (let state = 0; state < size; state++)
      row[state] = (first[r * size + state] as number) + (unary[state] as number);
    for (let c = 0, index = 0; c < width; c++) {
      let least = Infinity;
      for (let state = 0; state < size; state++, index++) {
        const cost = (row[state] as number) + (second[index] as number);
        if (cost < least) least = cost;
      }
      result[r * width + c] = least;
    }
  }
  return result;
}

function add(costs: Float64Array, more: Float64Array): void {
  for (let index = 0; index < costs.length; index++) costs[index] = (costs[index] as number) + (more[index] as number);
}

/** Whether `better` costs no more than `worse` whatever the neighbours do. */
function dominates(tables: readonly Float64Array[], unary: Float64Array, better: number, worse: number): boolean {
  let slack = (unary[better] as number) - (unary[worse] as number);
  for (const values of tables) {
    const width = values.length / unary.length;
    let most = -Infinity;
    for (let column = 0; column < width; column++) {
      const cost = values[worse * width + column] as number;
      if (cost === Infinity) continue;
      const more = (values[better * width + column] as number) - cost;
      if (more > most) most = more;
      if (most === Infinity) return false;
    }
    if (most === -Infinity) return true;
    slack += most;
  }
  return slack <= 0;
}
