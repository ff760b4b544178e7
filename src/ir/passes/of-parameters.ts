/**
 * @file Which operators on constants are operators on parameters.
 */
import { isFloating } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { isDifferentiable } from '../operator.js';
import { entryOf, operatorFamily } from '../ops/index.js';
import { isTensor, type TensorValue, typeOfValue, type Value } from './values.js';

/** `parameter`: the exporter states it; `initializer`: it may be one, or is made of such values only. */
export type ParameterForm = 'parameter' | 'initializer';

/**
 * Whether training needs the operator: a gradient passes it, and its operands are parameters as far as the file shows; with a
 * literal or a computed number as another operand it is a formula. `formOf`: for a constant that the exporter does not name.
 */
export function readsParameters(
  node: SourceNode,
  values: readonly (Value | null)[],
  types: readonly (TensorType | null)[],
  formOf: (value: TensorValue) => ParameterForm | null,
): boolean {
  if (!isDifferentiable(entryOf(node.op, node.domain))) return false;
  if (!types.some((type) => type !== null && isFloating(type.dtype))) return false;
  const forms = values.flatMap((value): readonly (ParameterForm | null)[] => {
    if (value === null || !isTensor(value) || !isFloating(value.type.dtype)) return [];
    if (!value.constant) return [null];
    const { kind } = value.constant;
    return [kind === 'parameter' ? 'parameter' : kind === null ? formOf(value) : null];
  });
  return forms.includes('parameter') || (forms.length > 0 && forms.every((form) => form !== null));
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
