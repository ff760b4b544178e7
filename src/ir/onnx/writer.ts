/**
 * @file Writes a Graph as ONNX: for segments, for constant folding and for export. One pass, no shape information on
 * inner values: readers infer it.
 */
import { byteLength, type DType, onnxOfDtype } from '../dtype.js';
import { flattenRegions } from '../fused-regions/flatten-regions.js';
import {
  type AttributeValue,
  elementCount,
  type Graph,
  INTERNAL_OPSET,
  type Node,
  type TensorType,
  type TypedNumbers,
  typeOf,
  type Weight,
} from '../graph.js';
import type { ConstantInput } from '../operator.js';
import { constant } from '../ops/constants.js';
import { entryOf } from '../ops/index.js';
import { isFloatAttribute, type OwnForms } from './attribute-types.js';
import {
  ATTRIBUTE_TYPE,
  type AttributeProto,
  encodeModel,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from './schema.js';
import { writtenOut } from './written-out.js';

interface WriteOptions {
  /**
   * Weights whose role is not `constant`: `external` data, location = the weight's name, offset 0; or `inputs` of the graph,
   * without values. Left out, inline sources are written into the file, and the others are external data all the same.
   */
  readonly weights?: 'external' | 'inputs';
  /** The name of the graph inside the file; the graph's own by default. */
  readonly name?: string;
}

/** IR version of everything that is written: the newest that current tools all read. */
const WRITTEN_IR = 10;
const EXTERNAL = 1;

/** Versions of operator sets that the graph's file does not import; 1 for those not listed. */
const DOMAIN_VERSIONS: Readonly<Record<string, number>> = { 'ai.onnx.ml': 4 };

/** The graph as the bytes of an ONNX model of INTERNAL_OPSET, or of a newer one where an operator needs it. */
export function writeOnnx(given: Graph, options: WriteOptions = {}): Uint8Array {
  const graph = writtenOut(flattenRegions(given));
  const taken = new Set([...graph.tensors.keys(), ...graph.weights.keys()]);
  const constants: TensorProto[] = [];
  const keep = (name: string, type: DType, shape: readonly number[], values: readonly number[]): string => {
    const unique = uniqueName(name, taken);
    constants.push(tensorProto(unique, constant(type, values, shape)));
    return unique;
  };
  const node = graph.nodes.map((item) =>
    nodeProto(item, graph, keep, (name, value) => {
      const unique = uniqueName(name, taken);
      constants.push({ ...value, name: unique });
      return unique;
    }),
  );
  const isInput = ({ role }: Weight) => options.weights === 'inputs' && role !== 'constant';
  const weights = [...graph.weights];
  const version = opsetOf(graph);
  const domains = new Set(graph.nodes.map((item) => item.domain).filter((domain) => domain !== ''));
  return encodeModel({
    ir_version: WRITTEN_IR,
    producer_name: 'autopar',
    opset_import: [
      { domain: '', version },
      ...[...domains]
        .sort()
        .map((domain) => ({ domain, version: graph.domains?.get(domain) ?? DOMAIN_VERSIONS[domain] ?? 1 })),
    ],
    graph: {
      name: options.name ?? (graph.name || 'graph'),
      node,
      initializer: [
        ...weights
          .filter(([, weight]) => !isInput(weight))
          .map(([name, weight]) => weightProto(name, weight, options.weights === 'external')),
        ...constants,
      ],
      input: [
        ...graph.inputs.map((name) => valueProto(name, typeOf(graph, name))),
        ...weights.filter(([, weight]) => isInput(weight)).map(([name, weight]) => valueProto(name, weight)),
      ],
      output: graph.outputs.map((name) => outputProto(name, graph)),
    },
  });
}

/** INTERNAL_OPSET, a newer opset that an operator came with, or else the older one in which ONNX Runtime last knew one. */
function opsetOf(graph: Graph): number {
  const entries = graph.nodes.map((item) => entryOf(item.op, item.domain));
  const newest = entries.reduce((version, entry) => Math.max(version, entry?.since ?? 0), INTERNAL_OPSET);
  if (newest > INTERNAL_OPSET) return newest;
  return entries.reduce((version, entry) => Math.min(version, entry?.until ?? version), INTERNAL_OPSET);
}

type KeepValues = (name: string, type: DType, shape: readonly number[], values: readonly number[]) => string;
type KeepTensor = (name: string, value: TensorProto) => string;

function nodeProto(node: Node, graph: Graph, keep: KeepValues, keepTensor: KeepTensor): NodeProto {
  const entry = entryOf(node.op, node.domain);
  const constantInputs = entry?.constantInputs ?? [];
  const input = node.inputs.map((name) => name ?? '');
  const written = new Set<string>();
  for (const item of constantInputs) {
    const value = node.attributes[item.attribute];
    if (value === undefined) continue;
    written.add(item.attribute);
    while (input.length <= item.index) input.push('');
    input[item.index] = constantInput(item, value, node, graph, keep, keepTensor);
  }
  return {
    name: node.name,
    op_type: node.op,
    domain: node.domain,
    input,
    output: node.outputs.map((name) => name ?? ''),
    attribute: Object.entries(node.attributes)
      .filter(([name]) => !written.has(name))
      .map(([name, value]) => attributeProto(name, value, entry?.attributes)),
  };
}

/** Turns an attribute that ONNX wants as an input into an initializer; returns its name. */
function constantInput(
  item: ConstantInput,
  value: AttributeValue,
  node: Node,
  graph: Graph,
  keep: KeepValues,
  keepTensor: KeepTensor,
): string {
  const name = `${node.name}.${item.attribute}`;
  if (typeof value === 'object' && 'dtype' in value) return keepTensor(name, tensorProto(name, value));
  const values = listOf(value, node.name, item.attribute);
  if (item.form === 'ints') return keep(name, 'int64', [values.length], values);
  if (item.form === 'int') return keep(name, 'int64', Array.isArray(value) ? [values.length] : [], values);
  const first = node.inputs[0];
  const dtype = item.form === 'float' && first ? (graph.tensors.get(first)?.dtype ?? 'float32') : 'float32';
  return keep(name, dtype, Array.isArray(value) ? [values.length] : [], values);
}

function listOf(value: AttributeValue, node: string, attribute: string): readonly number[] {
  if (typeof value === 'number') return [value];
  if (typeof value === 'bigint') return [Number(value)];
  if (Array.isArray(value) && value.every((item) => typeof item === 'number')) return value;
  throw new Error(`attribute ${attribute} of ${node} has no numbers`);
}

function attributeProto(name: string, value: AttributeValue, own?: OwnForms): AttributeProto {
  if (typeof value === 'bigint') return { name, type: ATTRIBUTE_TYPE.int, i: Number(value) };
  if (typeof value === 'number') {
    if (isFloatAttribute(name, [value], own)) return { name, type: ATTRIBUTE_TYPE.float, f: value };
    return { name, type: ATTRIBUTE_TYPE.int, i: value };
  }
  if (typeof value === 'string') return { name, type: ATTRIBUTE_TYPE.string, s: utf8(value) };
  if ('dtype' in value) return { name, type: ATTRIBUTE_TYPE.tensor, t: tensorProto('', value) };
  if ('numbers' in value) return typedProto(name, value);
  if (isStrings(value)) return { name, type: ATTRIBUTE_TYPE.strings, strings: value.map(utf8) };
  if (isFloatAttribute(name, value, own)) return { name, type: ATTRIBUTE_TYPE.floats, floats: value };
  return { name, type: ATTRIBUTE_TYPE.ints, ints: value };
}

function typedProto(name: string, { type, numbers }: TypedNumbers): AttributeProto {
  const [first = 0] = numbers;
  switch (type) {
    case 'int':
      return { name, type: ATTRIBUTE_TYPE.int, i: first };
    case 'float':
      return { name, type: ATTRIBUTE_TYPE.float, f: first };
    case 'ints':
      return { name, type: ATTRIBUTE_TYPE.ints, ints: numbers };
    case 'floats':
      return { name, type: ATTRIBUTE_TYPE.floats, floats: numbers };
  }
}

function isStrings(value: readonly number[] | readonly string[]): value is readonly string[] {
  return typeof value[0] === 'string';
}

function tensorProto(name: string, tensor: TensorType & { readonly data: Uint8Array }): TensorProto {
  return { name, dims: tensor.shape, data_type: onnxOfDtype(tensor.dtype), raw_data: tensor.data };
}

function weightProto(name: string, weight: Weight, external: boolean): TensorProto {
  const { source, dtype, shape } = weight;
  if (source.kind === 'inline' && !(external && weight.role !== 'constant'))
    return tensorProto(name, { dtype, shape, data: source.data });
  return {
    name,
    dims: shape,
    data_type: onnxOfDtype(dtype),
    data_location: EXTERNAL,
    external_data: [
      { key: 'location', value: name },
      { key: 'offset', value: '0' },
      { key: 'length', value: String(byteLength(dtype, elementCount(shape))) },
    ],
  };
}

function valueProto(name: string, type: TensorType): ValueInfoProto {
  return {
    name,
    type: {
      tensor_type: {
        elem_type: onnxOfDtype(type.dtype),
        shape: { dim: type.shape.map((size) => ({ dim_value: size })) },
      },
    },
  };
}

/** A constant that is yet to be computed has no type; readers infer it. */
function outputProto(name: string, graph: Graph): ValueInfoProto {
  const type = graph.tensors.get(name);
  return type ? valueProto(name, type) : { name };
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function uniqueName(name: string, taken: Set<string>): string {
  let unique = name;
  for (let ordinal = 2; taken.has(unique); ordinal++) unique = `${name}.${ordinal}`;
  taken.add(unique);
  return unique;
}
