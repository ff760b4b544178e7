/**
 * @file The registry's gradient at operands that a test chooses: where a function has a kink, where operands tie or are zero.
 */
import { isFloating } from '../../../src/ir/dtype.js';
import type { Attributes } from '../../../src/ir/graph.js';
import type { DifferentiatedOperator, Operator } from '../../../src/ir/operator.js';
import { makeRun, type Values } from '../ops/one-node.js';
import { needEntry } from '../ops/simulate.js';
import { gradientOf, named, runGradient } from './sample-gradient.js';

const run = makeRun();

export interface At {
  readonly op: string;
  readonly domain?: string;
  readonly attributes?: Attributes;
  readonly operands: readonly (Values | null)[];
  /** Gradients of the results; null where one has none. Their number is that of results. */
  readonly gradients: readonly (Values | null)[];
  /** Operands that are numbers known when compiling. */
  readonly known?: readonly (number | null)[];
}

/** float32 of a shape: that of a vector by default. */
export const floats = (data: readonly number[], shape: readonly number[] = [data.length]): Values => ({
  dtype: 'float32',
  shape,
  data,
});

export const scalar = (value: number): Values => floats([value], []);

/** Results of the operator, and the gradients of its operands; undefined for those that can have none. */
export async function gradientAt({ op, domain = '', attributes = {}, operands, gradients, known }: At) {
  const bare: Operator = {
    name: op,
    op,
    domain,
    attributes,
    inputs: operands.map((value) => value && { dtype: value.dtype, shape: value.shape }),
    outputs: [],
    outputCount: gradients.length,
  };
  const operator: DifferentiatedOperator = {
    ...bare,
    outputs: needEntry(op, domain).infer(bare),
    wanted: operands.map((value) => value !== null && isFloating(value.dtype)),
    given: gradients.map((value) => value !== null),
    ...(known ? { known } : {}),
  };
  const results = await run({ op, domain, attributes }, operands, operator.outputs);
  const made = await runGradient(operator, gradientOf(operator), named(operands, results, gradients), run);
  return {
    results,
    gradients: made.map((value) => value?.data.map((number) => Number(number.toPrecision(6)))),
  };
}
