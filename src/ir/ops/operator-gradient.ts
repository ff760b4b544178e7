/**
 * @file What the gradients of a family are written with: entries that get one, arithmetic on tensors of one shape, and the way
 * from a gradient of the broadcast shape back to an operand.
 */
import type { DType } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import type { Attributes, ConstantTensor } from '../graph.js';
import type { GradientView, OperatorEntry, WrittenOperators } from '../operator.js';
import { constant } from './constants.js';
import { ExpansionWriter, positionsAlong, summationType } from './expansion.js';
import { operand } from './operands.js';
import { type Axes, rearrange } from './rearrange.js';

/** Writes the gradients of all wanted operands. */
export type GradientBody = (write: OperatorGradient) => void;

/** The entry with a gradient that `body` writes; a text says why none passes. */
export function differentiable(entry: OperatorEntry, body: GradientBody | string): OperatorEntry {
  if (typeof body === 'string') return { ...entry, gradient: body };
  return {
    ...entry,
    gradient: (view) => {
      const write = new OperatorGradient(view, entry.rule(view));
      body(write);
      return write.finish();
    },
  };
}

/** Entries with what the table has for each of them, by operator. */
export function withGradients(
  entries: readonly OperatorEntry[],
  table: Readonly<Record<string, GradientBody | string>>,
): readonly OperatorEntry[] {
  return entries.map((entry) => {
    const body = Object.hasOwn(table, entry.op) ? table[entry.op] : undefined;
    return body === undefined ? entry : differentiable(entry, body);
  });
}

/** A gradient while it is written. */
export class OperatorGradient {
  /** The writer beneath, for what expansions write too. */
  readonly expansion = new ExpansionWriter();
  readonly #scalars = new Map<string, string>();
  readonly #casts = new Map<string, string>();
  readonly #written = new Map<string, string>();

  /** `rule`: the forward operator's. */
  constructor(
    readonly view: GradientView,
    readonly rule: FactorRule,
  ) {}

  /** Whether operand `index` wants a gradient. */
  wants(index: number): boolean {
    return this.view.wanted[index] === true;
  }

  /** Whether result `index` has a gradient. */
  has(index: number): boolean {
    return this.view.given[index] === true;
  }

  /** The name of a result's gradient; null where it has none. */
  given(index: number): string | null {
    return this.has(index) ? `grad${index}` : null;
  }

  shapeOfOperand(index: number): readonly number[] {
    return this.view.inputs[index]?.shape ?? [];
  }

  /** The type that sums over operand 0 are formed in, and that formulas of several steps are computed in. */
  get sumType(): DType {
    return summationType(operand(this.view, 0).dtype);
  }

  /** Adds a node with one result and returns the result's name: `output` where given, else a new local name. */
  add(op: string, inputs: readonly (string | null)[], attributes: Attributes = {}, output?: string): string {
    return this.expansion.add(op, inputs, [], attributes, output);
  }

  /** As `add`, for an operator of another domain than ONNX's own. */
  addOf(
    domain: string,
    op: string,
    inputs: readonly (string | null)[],
    attributes: Attributes = {},
    output?: string,
  ): string {
    return this.expansion.addOf(domain, op, inputs, [], attributes, output);
  }

  /** Adds a node with several results, named as told. */
  addAll(
    op: string,
    inputs: readonly (string | null)[],
    outputs: readonly string[],
    attributes: Attributes = {},
  ): void {
    this.expansion.addAll(op, inputs, outputs, [], attributes);
  }

  tensor(value: ConstantTensor): string {
    return this.expansion.tensor(value);
  }

  cast(input: string, to: DType, output?: string): string {
    return this.expansion.cast(input, [], to, output);
  }

  /** The positions 0, 1, … along an axis (int64), beside the other dimensions of a tensor of this shape. */
  positions(shape: readonly number[], axis: number): string {
    return positionsAlong(this.expansion, shape, axis, []);
  }

  /** Dimensions split, put in another order and joined again (rearrange.ts). */
  rearrange(input: string, from: Axes, to: Axes): string {
    return rearrange(this.expansion, input, from, to);
  }

  /** A scalar of a type; equal ones are one constant. */
  scalar(dtype: DType, value: number): string {
    const key = `${dtype}:${Object.is(value, -0) ? '-0' : value}`;
    const name = this.#scalars.get(key) ?? this.expansion.scalar(dtype, value);
    this.#scalars.set(key, name);
    return name;
  }

  /** A scalar of an operand's type. */
  scalarLike(index: number, value: number): string {
    return this.scalar(operand(this.view, index).dtype, value);
  }

  /** `name`, of type `from`, in type `to`; the same cast is written once. */
  inType(name: string, from: DType, to: DType): string {
    if (from === to) return name;
    const key = `${name}:${to}`;
    const known = this.#casts.get(key) ?? this.cast(name, to);
    this.#casts.set(key, known);
    return known;
  }

  /** As `add`, for an operator without attributes: the same one is written once. */
  once(op: string, inputs: readonly string[]): string {
    const key = `${op}(${inputs.join()})`;
    const known = this.#written.get(key) ?? this.add(op, inputs);
    this.#written.set(key, known);
    return known;
  }

  /** Arithmetic on tensors of a type. */
  on(type: DType): Arithmetic {
    return new Arithmetic(this, type);
  }

  /**
   * `name`, of type `from` and of a shape that the operand broadcasts to, becomes `d{operand}`: summed over the dimensions
   * that the operand was broadcast along (one sum, so that one collective pays for all of them), and cast.
   */
  into(index: number, name: string, from: DType, shape: readonly number[]): void {
    const { shape: target } = operand(this.view, index);
    const extra = shape.length - target.length;
    const leading = shape.flatMap((_, axis) => (axis < extra ? [axis] : []));
    const spread = target.flatMap((size, axis) => (size === 1 && shape[axis + extra] !== 1 ? [axis + extra] : []));
    const axes = [...leading, ...spread];
    let result = name;
    if (leading.length > 0 && spread.length > 0)
      result = this.add('Squeeze', [this.add('ReduceSum', [result], { axes, keepdims: 1 })], { axes: leading });
    else if (axes.length > 0) result = this.add('ReduceSum', [result], { axes, keepdims: leading.length > 0 ? 0 : 1 });
    this.become(index, result, from);
  }

  /** `name`, of operand `index`'s shape and of type `from`, becomes its gradient. */
  become(index: number, name: string, from: DType): void {
    this.add('Identity', [this.inType(name, from, operand(this.view, index).dtype)], {}, `d${index}`);
  }

  /** Nothing that the operand holds moves a result: its gradient is zero. */
  none(index: number): void {
    const { dtype, shape } = operand(this.view, index);
    const value: ConstantTensor = constant(dtype, [0], [1]);
    this.add('ConstantOfShape', [], { shape, value }, `d${index}`);
  }

  /** Zero gradients for those operands that want one. */
  noneOf(...indices: readonly number[]): void {
    for (const index of indices) if (this.wants(index)) this.none(index);
  }

  finish(): WrittenOperators {
    return withoutRenames(this.expansion.finish());
  }
}

/** What makes a tensor that is only renamed to a gradient makes the gradient itself. */
function withoutRenames(written: WrittenOperators): WrittenOperators {
  const made = new Set(written.nodes.flatMap(({ outputs }) => outputs));
  const renamed = new Map<string, string>();
  const nodes = written.nodes.filter(({ op, inputs: [input], outputs: [output = ''] }) => {
    if (op !== 'Identity' || !input || !made.has(input) || !/^d\d+$/.test(output) || renamed.has(input)) return true;
    renamed.set(input, output);
    return false;
  });
  const named = (name: string) => renamed.get(name) ?? name;
  return {
    constants: written.constants,
    nodes: nodes.map(({ op, domain = '', attributes = {}, inputs, outputs }) => ({
      op,
      domain,
      attributes,
      inputs: inputs.map((name) => (name === null ? null : named(name))),
      outputs: outputs.map(named),
    })),
  };
}

type Term = string | number;

/** Element-wise arithmetic: each method adds one operator and returns its result's name. Numbers become scalars. */
export class Arithmetic {
  constructor(
    readonly write: OperatorGradient,
    readonly type: DType,
  ) {}

  of(op: string, ...terms: readonly Term[]): string {
    return this.write.once(
      op,
      terms.map((term) => this.named(term)),
    );
  }

  add(a: Term, b: Term): string {
    return this.of('Add', a, b);
  }

  sub(a: Term, b: Term): string {
    return this.of('Sub', a, b);
  }

  mul(a: Term, b: Term): string {
    return this.of('Mul', a, b);
  }

  div(a: Term, b: Term): string {
    return this.of('Div', a, b);
  }

  square(a: Term): string {
    return this.of('Mul', a, a);
  }

  where(condition: string, then: Term, otherwise: Term): string {
    return this.of('Where', condition, then, otherwise);
  }

  /** A truth value as 0 or 1. */
  count(condition: string): string {
    return this.write.cast(condition, this.type);
  }

  /** Sum over axes, which are kept as size 1. */
  sum(name: string, axes: readonly number[]): string {
    return axes.length === 0 ? name : this.write.add('ReduceSum', [name], { axes, keepdims: 1 });
  }

  private named(term: Term): string {
    return typeof term === 'string' ? term : this.write.scalar(this.type, term);
  }
}

/** Why no gradient passes through integers and truth values. */
export const WHOLE_NUMBERS = 'its result is whole numbers or truth values';

/** Why none passes through steps, as PyTorch's zeros have it. */
export const STEPS = 'a step function: its derivative is zero';
