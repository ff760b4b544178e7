/**
 * @file The gradient of a sample operator: the requested gradients, whether its nodes keep to the contract of `Gradient`
 * (operator.ts), and its values, node by node in ONNX Runtime.
 */
import { gradientOperators } from '../../../src/ir/autodiff/backpropagation.js';
import { type DType, isFloating } from '../../../src/ir/dtype.js';
import type { TensorType } from '../../../src/ir/graph.js';
import type {
  DifferentiatedOperator,
  Gradient,
  Operator,
  WrittenOperator,
  WrittenOperators,
} from '../../../src/ir/operator.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { operatorOfCase } from '../ops/cases.js';
import type { Run, Values } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { randomValues } from '../ops/values.js';

export interface GradientOptions {
  /** Per operand; all floating-point ones by default. */
  readonly wanted?: readonly boolean[];
  /** Per result; all floating-point ones by default. */
  readonly given?: readonly boolean[];
  /** Relative and norm-wise, for each operand's gradient; 1e-4 in float32, 2e-2 in half precision by default. */
  readonly tolerance?: number;
  /** Draws other values. */
  readonly seed?: number;
  /** Checked instead of the registry's. */
  readonly gradient?: Gradient;
}

/** The operator that the sample's gradient is made from. */
export function differentiatedOf(sample: Case, { wanted, given }: GradientOptions): DifferentiatedOperator {
  const operator = operatorOfCase(sample);
  const floating = (type: TensorType | null) => type !== null && isFloating(type.dtype);
  return {
    ...operator,
    wanted: operator.inputs.map((type, index) => floating(type) && (wanted?.[index] ?? wanted === undefined)),
    given: operator.outputs.map((type, index) => floating(type) && (given?.[index] ?? given === undefined)),
  };
}

/** The registry's gradient for the operator (or the one given), proved well formed. */
export function gradientOf(operator: DifferentiatedOperator, own?: Gradient): WrittenOperators {
  const gradient = own ?? gradientOperators(needEntry(operator.op, operator.domain));
  if (gradient === null) throw new Error(`${operator.op} has no gradient`);
  const expansion = gradient(operator);
  checkForm(operator, expansion);
  return expansion;
}

/** Operands, drawn from the sample's ranges and rounded as float32 holds them, so that all precisions see the same. */
export function operandsOf(sample: Case, seed: number): readonly (Values | null)[] {
  return sample.inputs.map((input, index) => (input ? rounded(randomValues(input, seed * 16 + index)) : null));
}

/** A gradient of each result that is given, in [-1, 1). */
export function resultGradientsOf(operator: DifferentiatedOperator, seed: number): readonly (Values | null)[] {
  return operator.outputs.map((type, index) =>
    type && operator.given[index] ? rounded(randomValues({ ...type, low: -1, high: 1 }, seed * 16 + 8 + index)) : null,
  );
}

/** Tensors that a gradient may read: `in0`, `out0`, `grad0`, …. */
export function named(
  operands: readonly (Values | null)[],
  results: readonly (Values | null)[],
  gradients: readonly (Values | null)[],
): Map<string, Values> {
  const list = (prefix: string, values: readonly (Values | null)[]) =>
    values.flatMap((value, index) => (value ? [[`${prefix}${index}`, value] as const] : []));
  return new Map([...list('in', operands), ...list('out', results), ...list('grad', gradients)]);
}

/** Runs a gradient; returns `d0`, …; null where one is not wanted. */
export async function runGradient(
  operator: DifferentiatedOperator,
  expansion: WrittenOperators,
  values: ReadonlyMap<string, Values>,
  run: Run,
): Promise<readonly (Values | null)[]> {
  const made = await runExpansion(operator, expansion, values, run);
  return operator.wanted.map((wanted, index) => (wanted ? (made.get(`d${index}`) ?? null) : null));
}

/** All values of an expansion, by name; operators that no runtime has are expanded as well. */
async function runExpansion(
  operator: Operator,
  expansion: WrittenOperators,
  values: ReadonlyMap<string, Values>,
  run: Run,
): Promise<ReadonlyMap<string, Values>> {
  const made = new Map(values);
  for (const [name, value] of Object.entries(expansion.constants)) made.set(name, { ...value, data: numbersOf(value) });
  for (const node of expansion.nodes) {
    const inputs = node.inputs.map((name) => (name === null ? null : (made.get(name) ?? null)));
    const operation = { op: node.op, domain: node.domain ?? '', attributes: node.attributes ?? {} };
    const entry = needEntry(node.op, node.domain);
    const own = operatorOfNode(node, inputs);
    const types = entry.infer(own);
    const written = entry.isWritten && entry.expansion?.({ ...own, outputs: types });
    const operands = new Map(inputs.flatMap((value, index) => (value ? [[`in${index}`, value] as const] : [])));
    const inner = written && (await runExpansion(own, written, operands, run));
    const results = inner
      ? types.map((_, index) => inner.get(`out${index}`) ?? null)
      : await run(operation, inputs, types);
    for (const [index, name] of node.outputs.entries()) {
      const result = results[index];
      if (!result) throw new Error(`${operator.op}: ${node.op} leaves no ${name}`);
      if (typeText(result) !== typeText(types[index] ?? null))
        throw new Error(
          `${operator.op}: ${node.op} makes ${typeText(result)}, inferred ${typeText(types[index] ?? null)}`,
        );
      made.set(name, result);
    }
  }
  return made;
}

function typeText(type: TensorType | null): string {
  return type ? `${type.dtype}[${type.shape}]` : 'nothing';
}

function rounded(value: Values): Values {
  return isFloating(value.dtype) ? { ...value, data: value.data.map(Math.fround) } : value;
}

function operatorOfNode(node: WrittenOperator, inputs: readonly (TensorType | null)[]): Operator {
  return {
    name: node.op,
    op: node.op,
    domain: node.domain ?? '',
    attributes: node.attributes ?? {},
    inputs,
    outputs: [],
    outputCount: node.outputs.length,
  };
}

/** Everything that must hold of the nodes before any is run: what they read, and what they make. */
function checkForm(operator: DifferentiatedOperator, written: WrittenOperators): void {
  const tensors = new Map<string, TensorType>(Object.entries(written.constants));
  const readable = (kind: string, types: readonly (TensorType | null)[]) => {
    for (const [index, type] of types.entries()) if (type) tensors.set(`${kind}${index}`, type);
  };
  readable('in', operator.inputs);
  readable('out', operator.outputs);
  readable(
    'grad',
    operator.outputs.map((type, index) => (operator.given[index] ? type : null)),
  );
  for (const [position, node] of written.nodes.entries()) {
    const fault = (text: string): never => {
      throw new Error(`gradient of ${operator.op}, node ${position} ${node.op}(${node.inputs.join(', ')}): ${text}`);
    };
    const inputs = node.inputs.map((name) => {
      if (name === null) return null;
      return tensors.get(name) ?? fault(`reads ${name}, which is not there`);
    });
    const types = needEntry(node.op, node.domain).infer(operatorOfNode(node, inputs));
    for (const [index, name] of node.outputs.entries()) {
      if (tensors.has(name)) fault(`makes ${name} a second time`);
      tensors.set(name, types[index] ?? fault(`has no result ${index}`));
    }
  }
  for (const [index, type] of operator.inputs.entries()) checkResult(operator, tensors.get(`d${index}`), index, type);
}

function checkResult(
  operator: DifferentiatedOperator,
  made: TensorType | undefined,
  index: number,
  type: TensorType | null,
): void {
  const fault = (text: string): never => {
    throw new Error(`gradient of ${operator.op}: ${text}`);
  };
  if (!operator.wanted[index]) {
    if (made) fault(`makes d${index}, which is not wanted`);
    return;
  }
  const own = made ?? fault(`makes no d${index}, which is wanted`);
  if (typeText(own) !== typeText(type)) fault(`d${index} is ${typeText(own)}, not ${typeText(type)}`);
}

/** The sample with all floating-point operands and constants of a dtype. */
export function retyped(sample: Case, dtype: DType): Case {
  const inputs = sample.inputs.map((input) => (input && isFloating(input.dtype) ? { ...input, dtype } : input));
  return { ...sample, inputs };
}
