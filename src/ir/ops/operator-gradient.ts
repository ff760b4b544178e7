/**
 * @file Helpers for the gradients of a family: entries that get a gradient, and the reduction of a gradient of the broadcast
 * shape to an operand.
 */
import type { DType } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import type { ConstantTensor } from '../graph.js';
import type { DifferentiatedOperator, GradientSource, OperatorEntry, PlainForm } from '../operator.js';
import { constant } from './constants.js';
import { operand } from './operands.js';
import { OperatorWriter } from './operator-writer.js';

/** Writes the gradients of all wanted operands. */
export type GradientBody = (write: OperatorGradient) => void;

/** The entry with a gradient that `body` writes; a text states why there is no gradient. */
export function differentiable(entry: OperatorEntry, body: GradientBody | string): OperatorEntry {
  if (typeof body === 'string') return { ...entry, gradient: { kind: 'none', why: body } };
  const source: GradientSource = {
    kind: 'operators',
    write: (operator) => {
      const write = new OperatorGradient(operator, entry.rule(operator));
      body(write);
      return write.finish();
    },
  };
  return { ...entry, gradient: source };
}

/** Writes the operator in plainer ones. */
export type PlainBody = (write: OperatorWriter) => void;

/** The entry with a plain form that `body` writes: its gradient goes through that. */
export function inPlainOperators(entry: OperatorEntry, body: PlainBody): OperatorEntry {
  return { ...entry, gradient: { kind: 'plain', form: formOf(entry, body) } };
}

/** The entry whose gradient goes through its expansion. */
export function throughExpansion(entry: OperatorEntry & Required<Pick<OperatorEntry, 'expansion'>>): OperatorEntry {
  return { ...entry, gradient: { kind: 'plain', form: entry.expansion } };
}

/** The entry with a plain form for devices that lack the operator; its gradient stays. */
export function withPlainForm(entry: OperatorEntry, body: PlainBody): OperatorEntry {
  return { ...entry, plain: formOf(entry, body) };
}

function formOf(entry: OperatorEntry, body: PlainBody): PlainForm {
  return (operator) => {
    const write = new OperatorWriter(operator, entry.rule(operator));
    body(write);
    return write.finish();
  };
}

/** For a gradient that would be possible but does not exist; `why` is the reason. */
export function refused(why: string): GradientSource {
  return { kind: 'refused', why };
}

/** By operator: a gradient, a plain form, or the reason why there is no gradient. */
export type GradientTable = Readonly<Record<string, GradientBody | { readonly plain: PlainBody } | string>>;

/** Entries with the gradient or plain form that the table has for each of them. */
export function withGradients(entries: readonly OperatorEntry[], table: GradientTable): readonly OperatorEntry[] {
  return entries.map((entry) => {
    const body = Object.hasOwn(table, entry.op) ? table[entry.op] : undefined;
    if (body === undefined) return entry;
    return typeof body === 'object' ? inPlainOperators(entry, body.plain) : differentiable(entry, body);
  });
}

/** A gradient while it is written. */
export class OperatorGradient extends OperatorWriter {
  constructor(
    override readonly operator: DifferentiatedOperator,
    rule: FactorRule,
  ) {
    super(operator, rule);
  }

  /** Whether operand `index` wants a gradient. */
  wants(index: number): boolean {
    return this.operator.wanted[index] === true;
  }

  /** Whether result `index` has a gradient. */
  has(index: number): boolean {
    return this.operator.given[index] === true;
  }

  /** The name of a result's gradient; null where it has none. */
  given(index: number): string | null {
    return this.has(index) ? `grad${index}` : null;
  }

  /**
   * `name`, of type `from` and of a shape that the operand broadcasts to, becomes `d{operand}`: summed over the dimensions
   * that the operand was broadcast along (one sum, so that one collective reduces all of them), and cast.
   */
  into(index: number, name: string, from: DType, shape: readonly number[]): void {
    const { shape: target } = operand(this.operator, index);
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
    this.add('Identity', [this.inType(name, from, operand(this.operator, index).dtype)], {}, `d${index}`);
  }

  /** The operand's values do not change any result: its gradient is zero. */
  none(index: number): void {
    const { dtype, shape } = operand(this.operator, index);
    const value: ConstantTensor = constant(dtype, [0], [1]);
    this.add('ConstantOfShape', [], { shape, value }, `d${index}`);
  }

  /** Zero gradients for those operands that want one. */
  noneOf(...indices: readonly number[]): void {
    for (const index of indices) if (this.wants(index)) this.none(index);
  }
}

/** Why no gradient passes through integers and truth values. */
export const INTEGER_RESULT = 'its result is whole numbers or truth values';

/** Why no gradient passes through step functions; PyTorch has zeros there. */
export const STEPS = 'a step function: its derivative is zero';
