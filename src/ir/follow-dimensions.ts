/**
 * @file Where a dimension goes: the batch, a sequence, experts. It is followed from where it begins through the operators' factor
 * rules, in both directions until nothing changes.
 *
 *     ids [2, 12]  →  [2, 12, 64]  →  Reshape [24, 64]  →  MatMul m  →  Reshape [2, 12, 8, 8]
 *          {1, 2}        {1, 2}         {12, 2} on dim 0     {12, 2}       {1, 2}
 *
 * A mark {minor: R, size: b} states: dimension = major · b · R, and the middle digit is the position in the followed dimension.
 * Comments on a batch and its samples apply to any other dimension as well.
 */
import { type DimensionFactors, type FactorRule, ruleSides } from './factor-rule.js';
import type { BatchDimension, Graph, Node } from './graph.js';
import { typeOf } from './graph.js';
import { appendTo } from './group-by.js';
import { operatorOf } from './operator-of.js';
import { ruleOf } from './ops/index.js';

/** The part of a dimension or factor that is followed, in mixed radix: its size, and the product of all sizes below it. */
export interface DimensionMark {
  readonly minor: number;
  readonly size: number;
  /**
   * For a batch that is split into digits: samples per step of this digit; left out for the last digit, and for the whole batch.
   */
  readonly samples?: number;
}

/** How it is followed. */
export interface FollowOptions {
  /**
   * The followed dimension may become several, each with a digit of it (groups of samples). Otherwise that is a conflict, as it
   * is for a pass that changes the batch size.
   */
  readonly digits?: boolean;
}

export interface DimensionMarks {
  /** Size of the followed dimension; null where it begins nowhere. */
  readonly size: number | null;
  /** Marks of a tensor's dimensions; null where a dimension has no part of the followed one. */
  readonly dimensionMarks: (tensor: string) => readonly (DimensionMark | null)[];
  /**
   * Marks of a node's factors. A factor is the followed dimension where `minor` is 1 and `size` the factor's size; it has
   * that dimension as its major part where minor · size is the factor's size.
   */
  readonly factorMarks: (node: Node) => ReadonlyMap<string, DimensionMark>;
  /** Nodes where it could not be followed: two marks met, or a factor cuts through it. */
  readonly conflicts: readonly string[];
}

/** Follows some dimensions through the graph: they are one dimension, whose digits have one size in all of them. */
export function followDimensions(
  graph: Graph,
  starts: readonly BatchDimension[],
  { digits = false }: FollowOptions = {},
): DimensionMarks {
  const follower = new Follower(graph, digits);
  for (const { input, axis } of starts) follower.start(input, axis);
  return follower.follow(starts);
}

class Follower {
  private readonly marks = new Map<string, (DimensionMark | null)[]>();
  private readonly touching = new Map<string, Node[]>();
  private readonly conflicts = new Set<string>();
  private readonly queue: Node[] = [];
  private readonly queued = new Set<Node>();

  constructor(
    private readonly graph: Graph,
    private readonly digits: boolean,
  ) {
    for (const node of graph.nodes) {
      for (const tensor of new Set([...node.inputs, ...node.outputs])) {
        if (tensor === null) continue;
        appendTo(this.touching, tensor, node);
      }
    }
  }

  start(tensor: string, axis: number): void {
    const size = typeOf(this.graph, tensor).shape[axis] ?? 1;
    this.set(tensor, axis, { minor: 1, size }, null);
  }

  follow(starts: readonly BatchDimension[]): DimensionMarks {
    for (let position = 0; position < this.queue.length; position++) {
      const node = this.queue[position];
      if (!node) continue;
      this.queued.delete(node);
      this.visit(node);
    }
    const [first] = starts;
    return {
      size: first ? (typeOf(this.graph, first.input).shape[first.axis] ?? null) : null,
      dimensionMarks: (tensor) => this.marks.get(tensor) ?? typeOf(this.graph, tensor).shape.map(() => null),
      factorMarks: (node) => this.factorMarks(node),
      conflicts: [...this.conflicts],
    };
  }

  /** Gathers the marks of a node's factors from all its tensors and spreads them to all its tensors. */
  private visit(node: Node): void {
    const factors = this.factorMarks(node);
    if (factors.size === 0) return;
    const rule = ruleOf(operatorOf(this.graph, node));
    for (const { of: tensor, dims } of ruleSides(rule, node))
      dims.forEach((names, axis) => {
        const mark = markOfDimension(names, rule, factors);
        // With a batch of one, a parameter's dimension of size 1 is broadcast and stays; a larger one is tied to it.
        if (mark && !(mark.size === 1 && this.isParameter(tensor))) this.set(tensor, axis, mark, node);
      });
  }

  private factorMarks(node: Node): ReadonlyMap<string, DimensionMark> {
    const factors = new Map<string, DimensionMark>();
    const isMarked = (tensor: string | null) => tensor !== null && this.marks.has(tensor);
    if (!node.inputs.some(isMarked) && !node.outputs.some(isMarked)) return factors;
    const rule = ruleOf(operatorOf(this.graph, node));
    for (const { of: tensor, dims } of ruleSides(rule, node))
      this.marks.get(tensor)?.forEach((mark, axis) => {
        const names = dims[axis];
        if (!mark || !names || names.length === 0) return;
        const whole = factorMark(names, rule, mark);
        const found = whole ? [whole] : this.digits ? digitsOf(names, rule, mark) : [];
        if (found.length === 0 && mark.size > 1) this.conflicts.add(node.name);
        for (const { name, mark: own } of found) {
          const known = factors.get(name);
          if (known && !isSame(known, own)) this.conflicts.add(node.name);
          else factors.set(name, own);
        }
      });
    followWindows(rule, factors);
    return factors;
  }

  private set(tensor: string, axis: number, mark: DimensionMark, node: Node | null): void {
    const marks = this.marks.get(tensor) ?? typeOf(this.graph, tensor).shape.map(() => null);
    const known = marks[axis];
    if (known) {
      if (!isSame(known, mark)) this.conflicts.add(node?.name ?? tensor);
      return;
    }
    marks[axis] = mark;
    this.marks.set(tensor, marks);
    for (const neighbour of this.touching.get(tensor) ?? []) {
      if (this.queued.has(neighbour)) continue;
      this.queued.add(neighbour);
      this.queue.push(neighbour);
    }
  }

  private isParameter(tensor: string): boolean {
    const weight = this.graph.weights.get(tensor);
    return weight !== undefined && weight.role !== 'constant';
  }
}

/**
 * A window's result has the same dimension in another size: a mark of the whole of one becomes a mark of the whole of the
 * other.
 */
function followWindows(rule: FactorRule, factors: Map<string, DimensionMark>): void {
  for (const { name, size, halo } of rule.factors.values()) {
    const read = rule.factors.get(halo?.of ?? '');
    if (!read) continue;
    const isAll = (factor: string, of: number) => factors.get(factor)?.minor === 1 && factors.get(factor)?.size === of;
    if (isAll(name, size) && !factors.has(read.name)) factors.set(read.name, { minor: 1, size: read.size });
    else if (isAll(read.name, read.size) && !factors.has(name)) factors.set(name, { minor: 1, size });
  }
}

/** The factor of a dimension that holds the whole mark, with the mark as seen from that factor; null where none does. */
function factorMark(
  names: DimensionFactors,
  rule: FactorRule,
  mark: DimensionMark,
): { name: string; mark: DimensionMark } | null {
  let below = 1;
  for (let index = names.length - 1; index >= 0; index--) {
    const name = names[index] as string;
    const size = rule.factors.get(name)?.size ?? 1;
    const inside = mark.minor >= below && mark.minor * mark.size <= below * size && mark.minor % below === 0;
    // A batch of one sample is a digit of size 1: only a factor of size 1 in its place is the batch.
    if (inside && (mark.size > 1 || (size === 1 && mark.minor === below)))
      return { name, mark: below === 1 ? mark : { ...mark, minor: mark.minor / below } };
    below *= size;
  }
  return null;
}

/** A mark that several factors of a dimension share, digit by digit; none where one of them cuts through a digit. */
function digitsOf(
  names: DimensionFactors,
  rule: FactorRule,
  mark: DimensionMark,
): readonly { readonly name: string; readonly mark: DimensionMark }[] {
  const found: { name: string; mark: DimensionMark }[] = [];
  const end = mark.minor * mark.size;
  let below = 1;
  for (const name of [...names].reverse()) {
    const above = below * (rule.factors.get(name)?.size ?? 1);
    const [from, to] = [Math.max(mark.minor, below), Math.min(end, above)];
    if (from < to) {
      if (from % below !== 0 || to % from !== 0 || from % mark.minor !== 0 || end % to !== 0) return [];
      const samples = (mark.samples ?? 1) * (from / mark.minor);
      found.push({ name, mark: { minor: from / below, size: to / from, ...(samples > 1 ? { samples } : {}) } });
    }
    below = above;
  }
  return found;
}

function isSame(a: DimensionMark, b: DimensionMark): boolean {
  return a.minor === b.minor && a.size === b.size && a.samples === b.samples;
}

/** Whether a digit of the batch is the next after another, in the batch and in the dimension. */
function isNext({ minor, samples = 1 }: DimensionMark, before: DimensionMark): boolean {
  return minor === before.minor * before.size && samples === (before.samples ?? 1) * before.size;
}

/** The mark of a dimension whose factors are marked: digits that follow one another are one; else the most major one. */
export function markOfDimension(
  names: DimensionFactors,
  rule: FactorRule,
  factors: ReadonlyMap<string, DimensionMark>,
): DimensionMark | null {
  let below = 1;
  let found: DimensionMark | undefined;
  for (let index = names.length - 1; index >= 0; index--) {
    const name = names[index] as string;
    const mark = factors.get(name);
    if (mark) {
      const own: DimensionMark = below === 1 ? mark : { ...mark, minor: mark.minor * below };
      found = found && isNext(own, found) ? { ...found, size: found.size * own.size } : own;
    }
    below *= rule.factors.get(name)?.size ?? 1;
  }
  return found ?? null;
}
