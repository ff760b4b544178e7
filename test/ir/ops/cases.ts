/**
 * @file Sample operators: one or more per entry, small, with even sizes so that every factor can be halved. They prove the
 * registry's rules (rules.test.ts), and docs/reference/operators.md shows the rule of each operator's first one.
 */
import type { Operator } from '../../../src/ir/operator.js';
import { CORE_CASES } from './cases/core.js';
import { FUSED_CASES } from './cases/fused.js';
import { NETWORK_CASES } from './cases/network.js';
import { QUANTISED_CASES } from './cases/quantised.js';
import { SIGNAL_CASES } from './cases/signals.js';
import type { Case } from './sample.js';
import { needEntry } from './simulate.js';

export const CASES: readonly Case[] = [
  ...CORE_CASES,
  ...NETWORK_CASES,
  ...SIGNAL_CASES,
  ...FUSED_CASES,
  ...QUANTISED_CASES,
];

/** The operator of a sample with the types of its operands and results. */
export function operatorOfCase(sample: Case): Operator {
  const operator: Operator = {
    name: sample.op,
    op: sample.op,
    domain: sample.domain,
    attributes: sample.attributes,
    inputs: sample.inputs.map((input) => (input ? { dtype: input.dtype, shape: input.shape } : null)),
    outputs: [],
    outputCount: sample.outputs,
  };
  return { ...operator, outputs: needEntry(sample.op, sample.domain).infer(operator) };
}
