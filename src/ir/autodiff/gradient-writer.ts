/**
 * @file Writing gradients: an expansion whose dimensions are the forward operator's factors, with what most gradients need.
 */
import type { DType } from '../dtype.js';
import type { DimensionFactors, FactorRule } from '../factor-rule.js';
import type { Attributes } from '../graph.js';
import type { GradientView } from '../operator.js';
import { ExpansionWriter } from '../ops/expansion.js';

type Dimensions = readonly DimensionFactors[];

export class GradientWriter extends ExpansionWriter {
  constructor(
    readonly view: GradientView,
    readonly rule: FactorRule,
  ) {
    super();
  }

  /** Dimensions of an operand as the rule names them. */
  dimsOfOperand(operand: number): Dimensions {
    return this.rule.inputs[operand] ?? [];
  }

  /** Dimensions of a result. */
  dimsOfResult(result: number): Dimensions {
    return this.rule.outputs[result] ?? [];
  }

  typeOfOperand(operand: number): DType {
    return this.view.inputs[operand]?.dtype ?? 'float32';
  }

  /** A scalar of an operand's type. */
  scalarLike(operand: number, value: number): string {
    return this.scalar(this.typeOfOperand(operand), value);
  }

  /**
   * What has the (broadcast) shape `from` becomes the gradient `d{operand}`: summed over the dimensions that the operand
   * was broadcast along. `dims` are those of `name`, `shape` its sizes; both align at the right with the operand's.
   */
  intoOperand(operand: number, name: string, dims: Dimensions, shape: readonly number[]): void {
    const target = this.view.inputs[operand]?.shape ?? [];
    const extra = shape.length - target.length;
    const leading = shape.flatMap((_, axis) => (axis < extra ? [axis] : []));
    const spread = target.flatMap((size, axis) => (size === 1 && shape[axis + extra] !== 1 ? [axis + extra] : []));
    const output = `d${operand}`;
    if (leading.length + spread.length === 0) {
      this.add('Identity', [name], dims, {}, output);
      return;
    }
    const kept = dims.map((names, axis) => (spread.includes(axis) ? [] : names));
    if (spread.length > 0) {
      const last = leading.length === 0;
      const summed = this.add('ReduceSum', [name], kept, { axes: spread, keepdims: 1 }, last ? output : undefined);
      if (!last) this.add('ReduceSum', [summed], kept.slice(extra), { axes: leading, keepdims: 0 }, output);
      return;
    }
    this.add('ReduceSum', [name], kept.slice(extra), { axes: leading, keepdims: 0 }, output);
  }

  /** Adds a node with the dimensions of operand 0: most element-wise gradients never leave them. */
  like(operand: number, op: string, inputs: readonly (string | null)[], attributes: Attributes = {}): string {
    return this.add(op, inputs, this.dimsOfOperand(operand), attributes);
  }
}
