/**
 * @file The sum of a BERT's embeddings: a row of the table of words, one of positions and, where there are segments, one of
 * theirs, for every place of every sample.
 */
import type { TensorFactors } from '../factor-rule.js';
import type { Operator } from '../operator.js';
import { constant } from './constants.js';
import type { ExpansionWriter } from './expansion.js';
import { operand } from './operands.js';

/** Dimensions of what is embedded: samples, places, features. */
export const EMBEDDED: TensorFactors = [['b'], ['s'], ['d']];

/** Positions of all places: [places], or [samples or 1, places] where they are an operand. */
function tablePositions(
  write: ExpansionWriter,
  operator: Operator,
): { readonly name: string; readonly dims: TensorFactors } {
  const ids = operator.inputs[8];
  if (ids) {
    const broadcasts = ids.shape[0] === 1 && operand(operator, 0).shape[0] !== 1;
    return { name: 'in8', dims: [broadcasts ? [] : ['b'], ['s']] };
  }
  const one = (value: number) => constant('int64', [value]);
  const attributes = { start: one(0), limit: one(operand(operator, 0).shape[1] ?? 1), delta: one(1) };
  return { name: write.add('Range', [], [['s']], attributes), dims: [['s']] };
}

/** Writes the sum, as `output` where that is given. */
export function embeddingSum(write: ExpansionWriter, operator: Operator, output?: string): string {
  const places = tablePositions(write, operator);
  const placed = write.add('Gather', ['in3', places.name], [...places.dims, ['d']], { axis: 0 });
  const words = write.add('Gather', ['in2', 'in0'], EMBEDDED, { axis: 0 });
  const segments =
    operator.inputs[4] && operator.inputs[1] ? write.add('Gather', ['in4', 'in1'], EMBEDDED, { axis: 0 }) : null;
  const both = write.add('Add', [words, placed], EMBEDDED, {}, segments ? undefined : output);
  return segments ? write.add('Add', [both, segments], EMBEDDED, {}, output) : both;
}
