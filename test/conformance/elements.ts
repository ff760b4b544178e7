/**
 * @file Cases whose inputs or outputs are sequences or optionals. The model's type says how a .pb file is to be read
 * (SequenceProto and OptionalProto number their fields as TensorProto does). Programs take and give tensors, and so does ONNX
 * Runtime for JavaScript, so that the elements become inputs and outputs of their own around the model's own nodes:
 *
 *     input x, a sequence of 2      x/0, x/1 → SequenceConstruct → x
 *     input x, an optional          x/0 → Optional → x, or Optional without an operand
 *     output y, a sequence of 2     y → SequenceLength → y/length, y → SequenceAt → y/0, y/1
 */
import { onnxOfDtype } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import {
  ATTRIBUTE_TYPE,
  type AttributeProto,
  decodeOptional,
  decodeSequence,
  type ModelProto,
  type NodeProto,
  type SequenceProto,
  type TensorProto,
  type TypeProto,
  type ValueInfoProto,
} from '../../src/ir/onnx/schema.js';
import { readTensorProto } from '../../src/ir/onnx/tensor-file.js';
import { constantOfProto } from '../../src/ir/onnx/tensors.js';
import { constant } from '../../src/ir/ops/constants.js';
import { Refusal } from './refusals.js';

/** A value of a case: a tensor, or the elements of a sequence or an optional. */
export type CaseValue = ConstantTensor | readonly ConstantTensor[];

/** Values of a case by name. */
export type CaseValues = Readonly<Record<string, CaseValue>>;

/** The container in a model's type of a value that is not a tensor; null for a tensor or a value without a type. */
function containerOf({ type }: ValueInfoProto): 'sequence' | 'optional' | null {
  if (type?.sequence_type) return 'sequence';
  return type?.optional_type ? 'optional' : null;
}

/** The value in the bytes of a .pb file, read by the model's type. Throws a Refusal where elements are not tensors. */
export function readByType(bytes: Uint8Array, value: ValueInfoProto, file: string): CaseValue {
  const container = containerOf(value);
  if (container === null) return readTensorProto(bytes, file);
  elementType(value);
  const elements = container === 'sequence' ? elementsOf(decodeSequence(bytes)) : presentIn(bytes);
  return elements.map((element) => constantOfProto(element, file));
}

function elementsOf({ tensor_values }: SequenceProto): readonly TensorProto[] {
  return tensor_values ?? [];
}

function presentIn(bytes: Uint8Array): readonly TensorProto[] {
  const { tensor_value } = decodeOptional(bytes);
  return tensor_value ? [tensor_value] : [];
}

/** Names of the inputs and outputs that are not tensors. */
export function containersOf({ graph }: ModelProto): readonly string[] {
  const values = [...(graph?.input ?? []), ...(graph?.output ?? [])];
  return values.filter((value) => containerOf(value) !== null).map(({ name = '' }) => name);
}

/** The values as tensors, by the names that `withElements` gives them. */
export function asTensors(values: CaseValues, isOutput: boolean): Readonly<Record<string, ConstantTensor>> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([name, value]) => {
      if (!isList(value)) return [[name, value] as const];
      const elements = value.map((element, index) => [`${name}/${index}`, element] as const);
      return isOutput ? [[`${name}/length`, constant('int64', [value.length], [])] as const, ...elements] : elements;
    }),
  );
}

/**
 * The model with elements for inputs and outputs, as many as there are in the values given. Throws a Refusal for optional
 * outputs.
 */
export function withElements(model: ModelProto, inputs: CaseValues, outputs: CaseValues): ModelProto {
  const graph = model.graph ?? {};
  const before = (graph.input ?? []).map((value) => packed(value, inputs[value.name ?? '']));
  const after = (graph.output ?? []).map((value) => unpacked(value, outputs[value.name ?? '']));
  return {
    ...model,
    graph: {
      ...graph,
      input: before.flatMap(({ values }) => values),
      output: after.flatMap(({ values }) => values),
      node: [...before.flatMap(({ nodes }) => nodes), ...(graph.node ?? []), ...after.flatMap(({ nodes }) => nodes)],
    },
  };
}

interface Part {
  readonly values: readonly ValueInfoProto[];
  readonly nodes: readonly NodeProto[];
}

function packed(value: ValueInfoProto, given: CaseValue | undefined): Part {
  const container = containerOf(value);
  if (container === null) return { values: [value], nodes: [] };
  const { name = '' } = value;
  const elements = given && isList(given) ? given : [];
  const input = elements.map((_, index) => `${name}/${index}`);
  const values = elements.map(({ dtype, shape }, index) => tensorValue(`${name}/${index}`, onnxOfDtype(dtype), shape));
  const made = { input, output: [name], name: `${name}/pack` };
  if (container === 'optional') {
    const attribute = [{ name: 'type', type: ATTRIBUTE_TYPE.type, tp: elementType(value) }];
    return { values, nodes: [{ ...made, op_type: 'Optional', ...(input.length === 0 ? { attribute } : {}) }] };
  }
  if (input.length > 0) return { values, nodes: [{ ...made, op_type: 'SequenceConstruct' }] };
  const dtype: AttributeProto = { name: 'dtype', type: ATTRIBUTE_TYPE.int, i: elementNumber(value) };
  return { values, nodes: [{ ...made, op_type: 'SequenceEmpty', attribute: [dtype] }] };
}

function unpacked(value: ValueInfoProto, expected: CaseValue | undefined): Part {
  const container = containerOf(value);
  if (container === null) return { values: [value], nodes: [] };
  const { name = '' } = value;
  if (container === 'optional' || !expected || !isList(expected))
    throw new Refusal(
      'sequence or optional',
      `output '${name}' is an optional, or a sequence that the case does not give`,
    );
  const length = `${name}/length`;
  const parts = expected.map((_, index): Part => {
    const at = `${name}/at/${index}`;
    const attribute: AttributeProto = { name: 'value_int', type: ATTRIBUTE_TYPE.int, i: index };
    return {
      values: [tensorValue(`${name}/${index}`, elementNumber(value), null)],
      nodes: [
        { name: at, op_type: 'Constant', output: [at], attribute: [attribute] },
        { name: `${name}/${index}`, op_type: 'SequenceAt', input: [name, at], output: [`${name}/${index}`] },
      ],
    };
  });
  return {
    values: [tensorValue(length, onnxOfDtype('int64'), []), ...parts.flatMap(({ values }) => values)],
    nodes: [
      { name: length, op_type: 'SequenceLength', input: [name], output: [length] },
      ...parts.flatMap(({ nodes }) => nodes),
    ],
  };
}

function tensorValue(name: string, number: number, shape: readonly number[] | null): ValueInfoProto {
  const dims = shape && { shape: { dim: shape.map((size) => ({ dim_value: size })) } };
  return { name, type: { tensor_type: { elem_type: number, ...dims } } };
}

/** The type of the elements, tensors. Throws a Refusal for sequences of sequences, optional sequences and others. */
function elementType({ name, type }: ValueInfoProto): TypeProto {
  const element = (type?.sequence_type ?? type?.optional_type)?.elem_type;
  if (element?.tensor_type) return element;
  throw new Refusal('sequence or optional', `the elements of '${name}' are no tensors`);
}

function elementNumber(value: ValueInfoProto): number {
  return elementType(value).tensor_type?.elem_type ?? 0;
}

function isList(value: CaseValue): value is readonly ConstantTensor[] {
  return Array.isArray(value);
}
