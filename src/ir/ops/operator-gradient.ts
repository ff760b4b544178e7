/**
 * @file What the gradients of a family are written with: entries that get one, arithmetic on tensors of one shape, and the way
 * from a gradient of the broadcast shape back to an operand.
 */
import { GradientWriter } from '../autodiff/gradient-writer.js';
import type { DType } from '../dtype.js';
import type { DimensionFactors } from '../factor-rule.js';
import type { ConstantTensor } from '../graph.js';
import type { Expansion, OperatorEntry } from '../operator.js';
import { constant } from './constants.js';
import { summationType } from './expansion.js';
import { operand } from './operands.js';

export type Dimensions = readonly DimensionFactors[];

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
export class OperatorGradient extends GradientWriter {
  readonly #scalars = new Map<string, string>();
  readonly #casts = new Map<string, string>();
  readonly #written = new Map<string, string>();

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

  /** Equal scalars are one constant. */
  override scalar(dtype: DType, value: number): string {
    const key = `${dtype}:${Object.is(value, -0) ? '-0' : value}`;
    const name = this.#scalars.get(key) ?? super.scalar(dtype, value);
    this.#scalars.set(key, name);
    return name;
  }

  /** `name`, of type `from`, in type `to`; the same cast is written once. */
  inType(name: string, from: DType, to: DType, dims: Dimensions): string {
    if (from === to) return name;
    const key = `${name}:${to}`;
    const known = this.#casts.get(key) ?? this.cast(name, dims, to);
    this.#casts.set(key, known);
    return known;
  }

  /** As `add`, for an operator without attributes: the same one is written once. */
  once(op: string, inputs: readonly string[], dims: Dimensions): string {
    const key = `${op}(${inputs.join()})`;
    const known = this.#written.get(key) ?? this.add(op, inputs, dims);
    this.#written.set(key, known);
    return known;
  }

  /** Arithmetic on tensors of these dimensions. */
  on(dims: Dimensions, type: DType): Arithmetic {
    return new Arithmetic(this, dims, type);
  }

  /**
   * `name`, of type `from` and of a shape that the operand broadcasts to, becomes `d{operand}`: summed over the dimensions
   * that the operand was broadcast along (one sum, so that one collective pays for all of them), and cast.
   */
  into(index: number, name: string, from: DType, shape: readonly number[]): void {
    const { dtype, shape: target } = operand(this.view, index);
    const extra = shape.length - target.length;
    const leading = shape.flatMap((_, axis) => (axis < extra ? [axis] : []));
    const spread = target.flatMap((size, axis) => (size === 1 && shape[axis + extra] !== 1 ? [axis + extra] : []));
    const own = this.dimsOfOperand(index);
    let result = name;
    if (leading.length > 0 && spread.length > 0) {
      const axes = [...leading, ...spread];
      const kept = shape.map((_, axis) => (axis < extra ? [] : (own[axis - extra] ?? [])));
      const summed = this.add('ReduceSum', [result], kept, { axes, keepdims: 1 });
      result = this.add('Squeeze', [summed], own, { axes: leading });
    } else if (leading.length + spread.length > 0) {
      result = this.add('ReduceSum', [result], own, {
        axes: [...leading, ...spread],
        keepdims: leading.length > 0 ? 0 : 1,
      });
    }
    const last = this.inType(result, from, dtype, own);
    this.add('Identity', [last], own, {}, `d${index}`);
  }

  /** `name`, of operand `index`'s shape and of type `from`, becomes its gradient. */
  become(index: number, name: string, from: DType): void {
    const own = this.dimsOfOperand(index);
    this.add('Identity', [this.inType(name, from, operand(this.view, index).dtype, own)], own, {}, `d${index}`);
  }

  /** Nothing that the operand holds moves a result: its gradient is zero. */
  none(index: number): void {
    const { dtype, shape } = operand(this.view, index);
    const value: ConstantTensor = constant(dtype, [0], [1]);
    this.add('ConstantOfShape', [], this.dimsOfOperand(index), { shape, value }, `d${index}`);
  }

  /** Zero gradients for those operands that want one. */
  noneOf(...indices: readonly number[]): void {
    for (const index of indices) if (this.wants(index)) this.none(index);
  }

  override finish(): Expansion {
    return withoutRenames(super.finish());
  }
}

/** What makes a tensor that is only renamed to a gradient makes the gradient itself. */
function withoutRenames(expansion: Expansion): Expansion {
  const made = new Map(
    expansion.nodes.flatMap(({ outputs, dims }) => outputs.map((name, index) => [name, dims[index]] as const)),
  );
  const renamed = new Map<string, string>();
  const nodes = expansion.nodes.filter(({ op, inputs: [input], outputs: [output = ''], dims: [dims] }) => {
    const same = JSON.stringify(made.get(input ?? '')) === JSON.stringify(dims);
    if (op !== 'Identity' || !input || !same || !/^d\d+$/.test(output) || renamed.has(input)) return true;
    renamed.set(input, output);
    return false;
  });
  const named = (name: string) => renamed.get(name) ?? name;
  return {
    ...expansion,
    nodes: nodes.map((node) => ({
      ...node,
      inputs: node.inputs.map((name) => (name === null ? null : named(name))),
      outputs: node.outputs.map(named),
    })),
  };
}

type Term = string | number;

/** Element-wise arithmetic: each method adds one operator and returns its result's name. Numbers become scalars. */
export class Arithmetic {
  constructor(
    readonly write: OperatorGradient,
    readonly dims: Dimensions,
    readonly type: DType,
  ) {}

  of(op: string, ...terms: readonly Term[]): string {
    return this.write.once(
      op,
      terms.map((term) => this.named(term)),
      this.dims,
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
    return this.write.cast(condition, this.dims, this.type);
  }

  /** Sum over axes, which are kept as size 1. */
  sum(name: string, axes: readonly number[]): string {
    const dims = this.dims.map((names, axis) => (axes.includes(axis) ? [] : names));
    return axes.length === 0 ? name : this.write.add('ReduceSum', [name], dims, { axes, keepdims: 1 });
  }

  private named(term: Term): string {
    return typeof term === 'string' ? term : this.write.scalar(this.type, term);
  }
}

/** Why no gradient passes through integers and truth values. */
export const WHOLE_NUMBERS = 'its result is whole numbers or truth values';

/** Why none passes through steps, as PyTorch's zeros have it. */
export const STEPS = 'a step function: its derivative is zero';
