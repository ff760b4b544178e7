/**
 * @file Operations on cost tables, each done once per distinct operands: repeated layers of a network share their tables,
 * so the second layer's work is a look-up. Results are shared in turn.
 *
 * Each result is remembered with the operation that made it, as *terms* in the order in which they came. So when some of the
 * given tables change, everything that follows from them is made again without deciding anew which operations to do.
 */
import type { CostProblem, CostSolution, CostTable } from '../problem.js';
import { type ComparedTable, comparedTable, undominated } from './dominance.js';
import { levelled } from './level-parts.js';
import { minimisedSum, product, type Summand } from './minimised-sum.js';

/** Number of a table: one that was given, or one made of others. */
export type TableTerm = number;

/** A table as one operand: which local variable each of its dimensions is. */
export interface TableOperand {
  readonly term: TableTerm;
  readonly variables: readonly number[];
}

/** A table that holds the variable whose states are compared, as the dimension `position`. */
interface TableOfCompared {
  readonly term: TableTerm;
  readonly position: number;
}

/** The states of a variable that stay, ascending. */
export interface RemainingStates {
  /** Number of the comparison that found them. */
  readonly comparison: number;
  readonly states: readonly number[];
}

/** How a table was made of others, or states were found. */
type MadeTable =
  | {
      readonly kind: 'restricted';
      readonly into: TableTerm;
      readonly of: TableTerm;
      readonly dimension: number;
      /** Number of the comparison that decides which states stay. */
      readonly kept: number;
    }
  | { readonly kind: 'minimised'; readonly into: TableTerm; readonly operands: readonly TableOperand[] }
  | {
      readonly kind: 'levelled';
      readonly into: TableTerm;
      /** Sums over the same variables. */
      readonly parts: readonly (readonly TableOperand[])[];
      readonly index: number;
    }
  | { readonly kind: 'compared'; readonly into: number; readonly operands: readonly TableOfCompared[] };

export class TableAlgebra {
  private given = new Map<CostTable, TableTerm>();
  private terms = new Map<string, TableTerm>();
  private tables: CostTable[] = [];
  private comparisons = new Map<string, number>();
  /** Comparisons that dropped nothing, by key: they are not made again, but forgotten where a table has changed. */
  private vain = new Map<string, readonly TableOfCompared[]>();
  private kept: RemainingStates[] = [];
  private made: MadeTable[] = [];
  /** By term, then by dimension. */
  private compared: ComparedTable[][] = [];
  private isOutdated = false;
  /** Entries of the tables made for the last problem. */
  entriesAtFirst = 0;

  /** How the last problem is solved when only its tables have changed: null where it is another, or that saves nothing. */
  again: ((problem: CostProblem) => CostSolution | null) | undefined;

  /** Before another problem: forgets results of tables that have been replaced, if not all of them were made anew. */
  begin(): void {
    this.again = undefined;
    this.entriesAtFirst = 0;
    if (!this.isOutdated) return;
    this.given = new Map();
    this.terms = new Map();
    this.tables = [];
    this.comparisons = new Map();
    this.vain = new Map();
    this.kept = [];
    this.made = [];
    this.compared = [];
    this.isOutdated = false;
  }

  /** The term of a table that is given. */
  term(table: CostTable): TableTerm {
    const known = this.given.get(table);
    if (known !== undefined) return known;
    this.given.set(table, this.tables.length);
    return this.tables.push(table) - 1;
  }

  table(term: TableTerm): CostTable {
    return this.tables[term] as CostTable;
  }

  /** The states that a comparison kept. */
  remainingBy(comparison: number): RemainingStates {
    return this.kept[comparison] as RemainingStates;
  }

  /** Keeps some states of one dimension. */
  restrict(of: TableTerm, dimension: number, { comparison }: RemainingStates): TableTerm {
    const key = `r${of}.${dimension}:${comparison}`;
    const known = this.terms.get(key);
    if (known !== undefined) return known;
    return this.add(key, { kind: 'restricted', into: this.tables.length, of, dimension, kept: comparison });
  }

  /**
   * Minimises variable 0 out of a sum of tables: result[x1, …, xd] = min over x0 of Σ tables. All variables 0 … d occur
   * in the operands.
   */
  eliminate(operands: readonly TableOperand[]): TableTerm {
    const key = `e${operandsKey(operands)}`;
    const known = this.terms.get(key);
    if (known !== undefined) return known;
    return this.add(key, { kind: 'minimised', into: this.tables.length, operands });
  }

  /** The table that is added to the part `index` of a sum, so that all of its parts cost the same (level-parts.ts). */
  level(parts: readonly (readonly TableOperand[])[], index: number): TableTerm {
    const key = `l${index}:${parts.map(operandsKey).join('|')}`;
    const known = this.terms.get(key);
    if (known !== undefined) return known;
    return this.add(key, { kind: 'levelled', into: this.tables.length, parts, index });
  }

  /** A term's table, ready to be compared along one of its dimensions. */
  toCompare(term: TableTerm, position: number): ComparedTable {
    this.compared[term] ??= [];
    const ofTerm = this.compared[term] as ComparedTable[];
    const known = ofTerm[position];
    const table = this.table(term);
    if (known?.table === table) return known;
    const made = comparedTable(table, position);
    ofTerm[position] = made;
    return made;
  }

  /** States of a variable that no other state dominates (dominance.ts). */
  undominated(operands: readonly TableOfCompared[]): RemainingStates {
    let key = '';
    for (const { term, position } of operands) key += `${term}.${position}+`;
    const known = this.comparisons.get(key);
    if (known !== undefined) return this.remainingBy(known);
    const comparison = this.kept.length;
    const { states, isAll } = this.compare(operands);
    const found = { comparison, states };
    this.comparisons.set(key, comparison);
    this.kept.push(found);
    // Where nothing is dropped, nothing follows.
    if (isAll) this.vain.set(key, operands);
    else this.made.push({ kind: 'compared', into: comparison, operands });
    return found;
  }

  /**
   * Replaces given tables by others and makes anew all results that follow from them; the states that stay are found anew, too,
   * where some were dropped before. Where null is returned, all results are forgotten before the next problem.
   * @param fits whether a sum of tables over variables of so many states may be minimised
   * @returns entries of the tables made, or null where one does not fit
   */
  replace(tables: ReadonlyMap<TableTerm, CostTable>, fits: (sizes: readonly number[]) => boolean): number | null {
    // An unfinished replacement would be taken for a finished one: half of the tables are the new ones.
    if (this.isOutdated) return null;
    const changed = new Set<TableTerm>(tables.keys());
    const decided = new Set<number>();
    this.isOutdated = true;
    for (const [term, table] of tables) {
      this.given.delete(this.table(term));
      this.given.set(table, term);
      this.tables[term] = table;
    }
    let entries = 0;
    for (const made of this.made) {
      if (made.kind === 'compared') {
        if (!made.operands.some(({ term }) => changed.has(term))) continue;
        const { states } = this.compare(made.operands);
        if (states.join() === this.remainingBy(made.into).states.join()) continue;
        this.kept[made.into] = { comparison: made.into, states };
        decided.add(made.into);
        continue;
      }
      const stands =
        made.kind === 'restricted'
          ? !changed.has(made.of) && !decided.has(made.kept)
          : !operandsOf(made).some(({ term }) => changed.has(term));
      if (stands) continue;
      if (made.kind === 'minimised' && !fits(this.sizesOf(made.operands))) return null;
      const table = this.make(made);
      entries += table.values.length;
      // Costs that rose may be in no minimum: then the table stays the same, and nothing follows from it.
      if (isEqual(table, this.table(made.into))) continue;
      this.tables[made.into] = table;
      changed.add(made.into);
    }
    for (const [key, operands] of this.vain) {
      if (!operands.some(({ term }) => changed.has(term))) continue;
      this.vain.delete(key);
      this.comparisons.delete(key);
    }
    this.isOutdated = false;
    return entries;
  }

  private add(key: string, made: Exclude<MadeTable, { kind: 'compared' }>): TableTerm {
    this.terms.set(key, made.into);
    this.made.push(made);
    const table = this.make(made);
    this.entriesAtFirst += table.values.length;
    this.tables.push(table);
    return made.into;
  }

  private make(made: Exclude<MadeTable, { kind: 'compared' }>): CostTable {
    if (made.kind === 'restricted')
      return restricted(this.table(made.of), made.dimension, this.remainingBy(made.kept).states);
    if (made.kind === 'levelled')
      return levelled(
        made.parts.map((part) => this.summands(part)),
        made.index,
        this.sizesOf(operandsOf(made)),
      );
    return minimisedSum(this.summands(made.operands), this.sizesOf(made.operands));
  }

  private summands(operands: readonly TableOperand[]): readonly Summand[] {
    return operands.map(({ term, variables }) => ({ table: this.table(term), variables }));
  }

  private compare(operands: readonly TableOfCompared[]): {
    readonly states: readonly number[];
    readonly isAll: boolean;
  } {
    const tables = operands.map(({ term, position }) => this.toCompare(term, position));
    const [first] = tables;
    const size = first?.table.sizes[first.position] ?? 0;
    const states = undominated(tables, size);
    return { states, isAll: states.length === size };
  }

  /** States of the local variables of a sum. */
  private sizesOf(operands: readonly TableOperand[]): readonly number[] {
    const sizes: number[] = [];
    for (const { term, variables } of operands) {
      const table = this.table(term);
      variables.forEach((variable, position) => {
        sizes[variable] = table.sizes[position] as number;
      });
    }
    return sizes;
  }
}

function operandsOf(made: Extract<MadeTable, { kind: 'minimised' | 'levelled' }>): readonly TableOperand[] {
  return made.kind === 'minimised' ? made.operands : made.parts.flat();
}

function operandsKey(operands: readonly TableOperand[]): string {
  let key = '';
  for (const { term, variables } of operands) key += `${term}(${variables.join()})`;
  return key;
}

function restricted(table: CostTable, dimension: number, states: readonly number[]): CostTable {
  const size = table.sizes[dimension] as number;
  const inner = product(table.sizes.slice(dimension + 1));
  const outer = table.values.length / (size * inner);
  const values = new Float64Array(outer * states.length * inner);
  let to = 0;
  for (let row = 0; row < outer; row++) {
    for (const state of states) {
      const from = (row * size + state) * inner;
      for (let index = 0; index < inner; index++) values[to++] = table.values[from + index] as number;
    }
  }
  return { sizes: table.sizes.map((old, index) => (index === dimension ? states.length : old)), values };
}

/** Equal values of another shape are another table: which states are left may have changed. */
function isEqual({ sizes, values }: CostTable, other: CostTable): boolean {
  return (
    sizes.every((size, dimension) => size === other.sizes[dimension]) &&
    values.every((cost, index) => cost === other.values[index])
  );
}
