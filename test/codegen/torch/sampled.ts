/**
 * @file The sample operators of the registry in torch functions.
 */
import { INDENT } from '../../../src/codegen/torch/body.js';
import { expressionStatements } from '../../../src/codegen/torch/expression.js';
import type { TorchNode } from '../../../src/codegen/torch/operators/operator.js';
import { Names, statement } from '../../../src/codegen/torch/python.js';
import { operatorOfCase } from '../../ir/ops/cases.js';
import type { Case } from '../../ir/ops/sample.js';

/** A sample's lines over operands x0, x1, …, which make y0, y1, …; null where torch has none for it. */
export function torchLines(sample: Case): readonly string[] | null {
  const { inputs, outputs, attributes } = operatorOfCase(sample);
  const operands = inputs.map((type, index) => (type ? `x${index}` : null));
  const node: TorchNode = { op: sample.op, attributes, inputs, outputs, operands };
  const names = new Names();
  const targets = outputs.map((_, index) => () => `y${index}`);
  const statements = expressionStatements({ ...node, domain: sample.domain }, targets, (base) => names.take(base), '');
  return statements?.flatMap(({ text, comment }) => statement(text, INDENT, comment)) ?? null;
}
