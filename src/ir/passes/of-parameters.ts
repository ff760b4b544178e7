/**
 * @file Which operators on constants are operators on parameters.
 */
import { isFloating } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { isDifferentiable } from '../operator.js';
import { entryOf, operatorFamily } from '../ops/index.js';
import { isNaturalOperand } from '../parameters/places.js';
import { isTensor, type TensorValue, typeOfValue, type Value } from './values.js';

/** `parameter`: the exporter states it, or it is made of one; `initializer`: it may be one, or is made of such values only. */
export type ParameterForm = 'parameter' | 'initializer';

/**
 * The form of an operator's results where training needs it: a gradient passes it, and an operand is a parameter that the
 * exporter states or is made of one, or is an initializer where weights are, or all are parameters as far as the file shows; null
 * for any other. With literals or computed values beside an initializer it is a formula, but for single numbers. `formOf`: for a
 * constant that the exporter does not name; `isNumber`: whether a larger one is a single number throughout.
 */
export function formOfResults(
  node: SourceNode,
  values: readonly (Value | null)[],
  types: readonly (TensorType | null)[],
  formOf: (value: TensorValue) => ParameterForm | null,
  isNumber: (value: TensorValue) => boolean,
): ParameterForm | null {
  if (!isDifferentiable(entryOf(node.op, node.domain))) return null;
  if (!types.some((type) => type !== null && isFloating(type.dtype))) return null;
  const forms = values.flatMap((value, operand): readonly (ParameterForm | null)[] => {
    if (value === null || !isTensor(value) || !isFloating(value.type.dtype)) return [];
    if (!value.constant) return [null];
    const { kind } = value.constant;
    const form = kind === 'parameter' ? 'parameter' : kind === null ? formOf(value) : null;
    if (form === 'initializer' && isWeight(node, operand, value)) return ['parameter'];
    return form === null && (elementCount(value.type.shape) === 1 || isNumber(value)) ? [] : [form];
  });
  if (forms.includes('parameter')) return 'parameter';
  return forms.length > 0 && forms.every((form) => form !== null) ? 'initializer' : null;
}

/**
 * Whether an initializer is where an operator has its weights: a matrix or kernel, scale and bias. A table that is looked up may
 * be one of sines, and a vector beside a matmul the frequencies of one.
 */
function isWeight({ op, domain }: SourceNode, operand: number, value: TensorValue): boolean {
  const entry = entryOf(op, domain);
  if (!entry || value.kind !== 'constant' || !value.constant.stated) return false;
  if (!isNaturalOperand(entry, operand) || entry.indexInput !== undefined) return false;
  const wide = value.type.shape.filter((size) => size > 1).length;
  return wide > (entry.family === 'contraction' ? 1 : 0);
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
