/**
 * @file Which operators on constants are operators on parameters.
 */
import { isFloating } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { isDifferentiable } from '../operator.js';
import { entryOf, operatorFamily } from '../ops/index.js';
import { isTensor, type TensorValue, typeOfValue, type Value } from './values.js';

/** `parameter`: the exporter states it, or it is made of one; `initializer`: it may be one, or is made of such values only. */
export type ParameterForm = 'parameter' | 'initializer';

/**
 * The form of an operator's results where training needs it: a gradient passes it, and an operand is a parameter that the
 * exporter states or is made of one, or all are parameters as far as the file shows; null for any other. With a literal or a
 * computed number beside an initializer it is a formula. `formOf`: for a constant that the exporter does not name.
 */
export function formOfResults(
  node: SourceNode,
  values: readonly (Value | null)[],
  types: readonly (TensorType | null)[],
  formOf: (value: TensorValue) => ParameterForm | null,
): ParameterForm | null {
  if (!isDifferentiable(entryOf(node.op, node.domain))) return null;
  if (!types.some((type) => type !== null && isFloating(type.dtype))) return null;
  const forms = values.flatMap((value): readonly (ParameterForm | null)[] => {
    if (value === null || !isTensor(value) || !isFloating(value.type.dtype)) return [];
    if (!value.constant) return [null];
    const { kind } = value.constant;
    return [kind === 'parameter' ? 'parameter' : kind === null ? formOf(value) : null];
  });
  if (forms.includes('parameter')) return 'parameter';
  return forms.length > 0 && forms.every((form) => form !== null) ? 'initializer' : null;
}

/** Whether the operator transposes an initializer. */
export function turnsParameter(node: SourceNode, values: readonly (Value | null)[]): boolean {
  const [source] = values;
  return (
    node.op === 'Transpose' &&
    node.domain === '' &&
    source?.kind === 'constant' &&
    source.constant.stated &&
    isFloating(source.type.dtype)
  );
}

/** Whether the operator only moves the elements of its operands, without repeating them. */
export function rearranges(
  node: SourceNode,
  values: readonly (Value | null)[],
  types: readonly (TensorType | null)[] | null,
): boolean {
  const count = (all: readonly (TensorType | null)[]): number =>
    all.reduce((sum, type) => sum + (type ? elementCount(type.shape) : 0), 0);
  return types !== null && operatorFamily(node) === 'view' && count(types) <= count(values.map(typeOfValue));
}
