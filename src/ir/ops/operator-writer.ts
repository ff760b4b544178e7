/**
 * @file Operators written in place of another one: its gradient, or the same in plainer operators.
 */
import type { DType } from '../dtype.js';
import type { FactorRule } from '../factor-rule.js';
import type { Attributes, ConstantTensor } from '../graph.js';
import type { Operator, WrittenOperators } from '../operator.js';
import { madeOnce } from '../remembered.js';
import { gradientNames, resultNames } from '../written-names.js';
import { ExpansionWriter, positionsAlong, summationType } from './expansion.js';
import { operand, result } from './operands.js';
import { type DimensionAxes, rearrange } from './rearrange.js';

export class OperatorWriter {
  /** The underlying writer, for helpers that expansions use too. */
  readonly expansion = new ExpansionWriter();
  readonly #scalars = new Map<string, string>();
  readonly #casts = new Map<string, string>();
  readonly #written = new Map<string, string>();

  /** `rule`: that of the operator that is replaced. */
  constructor(
    readonly operator: Operator,
    readonly rule: FactorRule,
  ) {}

  shapeOfOperand(index: number): readonly number[] {
    return this.operator.inputs[index]?.shape ?? [];
  }

  /** The type that sums over operand 0 are formed in, and that formulas of several steps are computed in. */
  get sumType(): DType {
    return summationType(operand(this.operator, 0).dtype);
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

  /** Adds a node with several results, with the given names. */
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

  /** The positions 0, 1, … along an axis (int64), in a shape that broadcasts to a tensor of this shape. */
  positions(shape: readonly number[], axis: number): string {
    return positionsAlong(this.expansion, shape, axis, []);
  }

  /** Dimensions split, put in another order and joined again (rearrange.ts). */
  rearrange(input: string, from: DimensionAxes, to: DimensionAxes): string {
    return rearrange(this.expansion, input, from, to);
  }

  /** A scalar of a type; equal ones are one constant. */
  scalar(dtype: DType, value: number): string {
    const key = `${dtype}:${Object.is(value, -0) ? '-0' : value}`;
    return madeOnce(this.#scalars, key, () => this.expansion.scalar(dtype, value));
  }

  /** A scalar of an operand's type. */
  scalarLike(index: number, value: number): string {
    return this.scalar(operand(this.operator, index).dtype, value);
  }

  /** `name`, of type `from`, in type `to`; the same cast is written once. */
  inType(name: string, from: DType, to: DType): string {
    if (from === to) return name;
    return madeOnce(this.#casts, `${name}:${to}`, () => this.cast(name, to));
  }

  /** As `add`, for an operator without attributes: the same one is written once. */
  once(op: string, inputs: readonly string[]): string {
    return madeOnce(this.#written, `${op}(${inputs.join()})`, () => this.add(op, inputs));
  }

  /** Arithmetic on tensors of a type. */
  on(type: DType): Arithmetic {
    return new Arithmetic(this, type);
  }

  /** `name`, of type `from` and of result `index`'s shape, becomes that result, where it is used. */
  makes(index: number, name: string, from: DType): void {
    if (this.operator.outputs[index])
      this.add('Identity', [this.inType(name, from, result(this.operator, index).dtype)], {}, `out${index}`);
  }

  finish(): WrittenOperators {
    const { inputs, outputs } = this.operator;
    return withoutRenames(this.expansion.finish(), new Set([...resultNames(outputs), ...gradientNames(inputs)]));
  }
}

/** Removes an Identity that only renames a tensor to a gradient or a result: the tensor gets that name itself. */
function withoutRenames(written: WrittenOperators, wanted: ReadonlySet<string>): WrittenOperators {
  const made = new Set(written.nodes.flatMap(({ outputs }) => outputs));
  const renamed = new Map<string, string>();
  const nodes = written.nodes.filter(({ op, inputs: [input], outputs: [output = ''] }) => {
    if (op !== 'Identity' || !input || !made.has(input) || !wanted.has(output) || renamed.has(input)) return true;
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

/** Elementwise arithmetic: each method adds one operator and returns its result's name. Numbers become scalars. */
export class Arithmetic {
  constructor(
    readonly write: OperatorWriter,
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
