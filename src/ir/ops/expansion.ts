/**
 * @file Writing expansions: nodes one after another, each result named with its dimensions.
 */
import type { DType } from '../dtype.js';
import { onnxOfDtype } from '../dtype.js';
import type { DimensionFactors, TensorFactors } from '../factor-rule.js';
import type { Attributes, ConstantTensor } from '../graph.js';
import type { Expansion, ExpansionNode } from '../operator.js';
import { constant } from './constants.js';

/** Collects the nodes and constants of one expansion. */
export class ExpansionWriter {
  readonly #nodes: ExpansionNode[] = [];
  readonly #constants: Record<string, ConstantTensor> = {};

  /** Adds a node with one result and returns the result's name: `output` where given, else a new local name. */
  add(
    op: string,
    inputs: readonly (string | null)[],
    dims: TensorFactors,
    attributes: Attributes = {},
    output = `t${this.#nodes.length}`,
  ): string {
    this.#nodes.push({ op, attributes, inputs, outputs: [output], dims: [dims] });
    return output;
  }

  /** Adds a node with several results, with the given names. */
  addAll(
    op: string,
    inputs: readonly (string | null)[],
    outputs: readonly string[],
    dims: readonly TensorFactors[],
    attributes: Attributes = {},
  ): void {
    this.#nodes.push({ op, attributes, inputs, outputs, dims });
  }

  /** As `add`, for an operator of another domain than ONNX's own. */
  addOf(
    domain: string,
    op: string,
    inputs: readonly (string | null)[],
    dims: TensorFactors,
    attributes: Attributes = {},
    output = `t${this.#nodes.length}`,
  ): string {
    this.#nodes.push({ op, domain, attributes, inputs, outputs: [output], dims: [dims] });
    return output;
  }

  /** Adds a scalar constant and returns its name. */
  scalar(dtype: DType, value: number): string {
    return this.tensor(constant(dtype, [value]));
  }

  tensor(value: ConstantTensor): string {
    const name = `c${Object.keys(this.#constants).length}`;
    this.#constants[name] = value;
    return name;
  }

  cast(input: string, dims: TensorFactors, to: DType, output?: string): string {
    return this.add('Cast', [input], dims, { to: onnxOfDtype(to) }, output);
  }

  finish(): Expansion {
    return { nodes: this.#nodes, constants: this.#constants };
  }
}

/** The dtype that sums are formed in: half-precision operands are summed in float32, as fused kernels do. */
export function summationType(dtype: DType): DType {
  return dtype === 'float16' || dtype === 'bfloat16' ? 'float32' : dtype;
}

/** The dimensions of a tensor after a reduction over the given axes with keepdims: reduced dimensions have no factor. */
export function reducedDimensions(dims: TensorFactors, axes: readonly number[]): TensorFactors {
  return dims.map((names, index) => (axes.includes(index) ? [] : names));
}

/** Writes the positions 0, 1, … along an axis (int64), in a shape that broadcasts to a tensor of this shape. */
export function positionsAlong(
  write: ExpansionWriter,
  shape: readonly number[],
  axis: number,
  names: DimensionFactors,
): string {
  const bound = (value: number) => constant('int64', [value]);
  const attributes = { start: bound(0), limit: bound(shape[axis] ?? 1), delta: bound(1) };
  const range = write.add('Range', [], [names], attributes);
  const beside = shape.flatMap((_, other) => (other === axis ? [] : [other]));
  if (beside.length === 0) return range;
  const dims = shape.map((_, other) => (other === axis ? names : []));
  return write.add('Unsqueeze', [range], dims, { axes: beside });
}
