/**
 * @file The sample operators of the registry in torch functions.
 */
import { torchOperatorOf } from '../../../src/codegen/torch/operators/index.js';
import type { TorchNode } from '../../../src/codegen/torch/operators/operator.js';
import { viewOfCase } from '../../ir/ops/cases.js';
import type { Case } from '../../ir/ops/sample.js';

/** A sample's Python expression over operands x0, x1, …; null where torch has none for it. */
export function torchText(sample: Case): string | null {
  const { inputs, outputs, attributes } = viewOfCase(sample);
  const operands = inputs.map((type, index) => (type ? `x${index}` : null));
  const node: TorchNode = { op: sample.op, attributes, inputs, outputs, operands };
  return torchOperatorOf(sample.op, sample.domain)?.text(node) ?? null;
}
