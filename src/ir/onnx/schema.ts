/**
 * @file ONNX's protobuf messages as one table (IR 3 to 14), decoded and encoded by protobufjs.
 *
 * Field names are ONNX's own. Fields the table lacks are kept as raw bytes (`$unknowns`) and written back unchanged.
 */
import protobuf from 'protobufjs/light.js';
import { type Proto2Messages, proto2Types } from '../proto2.js';

/** The messages of a model that autopar reads; all others are carried as unknown fields. */
const MESSAGES: Proto2Messages = {
  ModelProto: {
    ir_version: 'int64 1',
    producer_name: 'string 2',
    producer_version: 'string 3',
    domain: 'string 4',
    model_version: 'int64 5',
    doc_string: 'string 6',
    graph: 'GraphProto 7',
    opset_import: 'repeated OperatorSetIdProto 8',
    metadata_props: 'repeated StringStringEntryProto 14',
    functions: 'repeated FunctionProto 25',
    configuration: 'repeated DeviceConfigurationProto 26',
  },
  GraphProto: {
    node: 'repeated NodeProto 1',
    name: 'string 2',
    initializer: 'repeated TensorProto 5',
    doc_string: 'string 10',
    input: 'repeated ValueInfoProto 11',
    output: 'repeated ValueInfoProto 12',
    value_info: 'repeated ValueInfoProto 13',
    sparse_initializer: 'repeated SparseTensorProto 15',
    metadata_props: 'repeated StringStringEntryProto 16',
  },
  NodeProto: {
    input: 'repeated string 1',
    output: 'repeated string 2',
    name: 'string 3',
    op_type: 'string 4',
    attribute: 'repeated AttributeProto 5',
    doc_string: 'string 6',
    domain: 'string 7',
    overload: 'string 8',
    metadata_props: 'repeated StringStringEntryProto 9',
    device_configurations: 'repeated NodeDeviceConfigurationProto 10',
  },
  FunctionProto: {
    name: 'string 1',
    input: 'repeated string 4',
    output: 'repeated string 5',
    attribute: 'repeated string 6',
    node: 'repeated NodeProto 7',
    doc_string: 'string 8',
    opset_import: 'repeated OperatorSetIdProto 9',
    domain: 'string 10',
    attribute_proto: 'repeated AttributeProto 11',
    value_info: 'repeated ValueInfoProto 12',
    overload: 'string 13',
    metadata_props: 'repeated StringStringEntryProto 14',
  },
  AttributeProto: {
    name: 'string 1',
    f: 'float 2',
    i: 'int64 3',
    s: 'bytes 4',
    t: 'TensorProto 5',
    g: 'GraphProto 6',
    floats: 'repeated float 7',
    ints: 'repeated int64 8',
    strings: 'repeated bytes 9',
    tensors: 'repeated TensorProto 10',
    graphs: 'repeated GraphProto 11',
    doc_string: 'string 13',
    tp: 'TypeProto 14',
    type_protos: 'repeated TypeProto 15',
    type: 'int32 20',
    ref_attr_name: 'string 21',
    sparse_tensor: 'SparseTensorProto 22',
    sparse_tensors: 'repeated SparseTensorProto 23',
  },
  TensorProto: {
    dims: 'repeated int64 1',
    data_type: 'int32 2',
    segment: 'bytes 3',
    float_data: 'repeated packed float 4',
    int32_data: 'repeated packed int32 5',
    string_data: 'repeated bytes 6',
    int64_data: 'repeated packed int64 7',
    name: 'string 8',
    raw_data: 'bytes 9',
    double_data: 'repeated packed double 10',
    uint64_data: 'repeated packed uint64 11',
    doc_string: 'string 12',
    external_data: 'repeated StringStringEntryProto 13',
    data_location: 'int32 14',
    metadata_props: 'repeated StringStringEntryProto 16',
  },
  SequenceProto: { name: 'string 1', elem_type: 'int32 2', tensor_values: 'repeated TensorProto 3' },
  OptionalProto: { name: 'string 1', elem_type: 'int32 2', tensor_value: 'TensorProto 3' },
  SparseTensorProto: { values: 'TensorProto 1', indices: 'TensorProto 2', dims: 'repeated int64 3' },
  ValueInfoProto: {
    name: 'string 1',
    type: 'TypeProto 2',
    doc_string: 'string 3',
    metadata_props: 'repeated StringStringEntryProto 4',
  },
  TypeProto: {
    tensor_type: 'TensorTypeProto 1',
    sequence_type: 'ElementTypeProto 4',
    denotation: 'string 6',
    sparse_tensor_type: 'TensorTypeProto 8',
    optional_type: 'ElementTypeProto 9',
  },
  TensorTypeProto: { elem_type: 'int32 1', shape: 'TensorShapeProto 2' },
  ElementTypeProto: { elem_type: 'TypeProto 1' },
  TensorShapeProto: { dim: 'repeated DimensionProto 1' },
  DimensionProto: { dim_value: 'int64 1', dim_param: 'string 2', denotation: 'string 3' },
  OperatorSetIdProto: { domain: 'string 1', version: 'int64 2' },
  StringStringEntryProto: { key: 'string 1', value: 'string 2' },
  DeviceConfigurationProto: { name: 'string 1', num_devices: 'int32 2', device: 'repeated string 3' },
  NodeDeviceConfigurationProto: {
    configuration_id: 'string 1',
    sharding_spec: 'repeated ShardingSpecProto 2',
    pipeline_stage: 'int32 3',
  },
  ShardingSpecProto: {
    tensor_name: 'string 1',
    device: 'repeated int64 2',
    index_to_device_group_map: 'repeated IntIntListEntryProto 3',
    sharded_dim: 'repeated ShardedDimProto 4',
  },
  IntIntListEntryProto: { key: 'int64 1', value: 'repeated int64 2' },
  ShardedDimProto: { axis: 'int64 1', simple_sharding: 'repeated SimpleShardedDimProto 2' },
  SimpleShardedDimProto: { dim_value: 'int64 1', dim_param: 'string 2', num_shards: 'int64 3' },
};

/** A 64-bit integer as protobufjs returns it; numbers are accepted when encoding. */
export type Integer64 = number | { readonly low: number; readonly high: number; readonly unsigned: boolean };

export interface EntryProto {
  readonly key?: string;
  readonly value?: string;
}

export interface TensorProto {
  readonly name?: string;
  readonly dims?: readonly Integer64[];
  readonly data_type?: number;
  /** Part of a larger tensor; no exporter writes it, but a SequenceProto's elements have this number. */
  readonly segment?: Uint8Array;
  readonly raw_data?: Uint8Array;
  readonly float_data?: readonly number[];
  readonly int32_data?: readonly number[];
  readonly int64_data?: readonly Integer64[];
  readonly double_data?: readonly number[];
  readonly uint64_data?: readonly Integer64[];
  readonly string_data?: readonly Uint8Array[];
  readonly external_data?: readonly EntryProto[];
  readonly data_location?: number;
  readonly metadata_props?: readonly EntryProto[];
  /** Not a field of ONNX: where in the model's file the tensor's bytes are, in place of `raw_data`, which was not read. */
  readonly span?: { readonly offset: number; readonly length: number };
}

interface TensorTypeProto {
  readonly elem_type?: number;
  readonly shape?: { readonly dim?: readonly { readonly dim_value?: Integer64; readonly dim_param?: string }[] };
}

/** A value's type: one of these is present. */
export interface TypeProto {
  readonly tensor_type?: TensorTypeProto;
  readonly sequence_type?: { readonly elem_type?: TypeProto };
  readonly optional_type?: { readonly elem_type?: TypeProto };
}

/** A sequence in a .pb file; elements other than tensors are not decoded. */
export interface SequenceProto {
  readonly tensor_values?: readonly TensorProto[];
}

/** An optional in a .pb file: empty, or a tensor; values of other types are not decoded. */
export interface OptionalProto {
  readonly tensor_value?: TensorProto;
}

export interface ValueInfoProto {
  readonly name?: string;
  readonly type?: TypeProto;
  readonly metadata_props?: readonly EntryProto[];
}

export interface AttributeProto {
  readonly name?: string;
  readonly type?: number;
  readonly ref_attr_name?: string;
  readonly f?: number;
  readonly i?: Integer64;
  readonly s?: Uint8Array;
  readonly t?: TensorProto;
  readonly g?: GraphProto;
  readonly floats?: readonly number[];
  readonly ints?: readonly Integer64[];
  readonly strings?: readonly Uint8Array[];
  readonly tp?: TypeProto;
}

export interface NodeProto {
  readonly input?: readonly string[];
  readonly output?: readonly string[];
  readonly name?: string;
  readonly op_type?: string;
  readonly domain?: string;
  readonly overload?: string;
  readonly attribute?: readonly AttributeProto[];
  readonly metadata_props?: readonly EntryProto[];
  readonly device_configurations?: readonly NodeDeviceConfigurationProto[];
}

export interface NodeDeviceConfigurationProto {
  readonly configuration_id?: string;
  readonly sharding_spec?: readonly ShardingSpecProto[];
  readonly pipeline_stage?: number;
}

export interface ShardingSpecProto {
  readonly tensor_name?: string;
  readonly device?: readonly Integer64[];
  readonly index_to_device_group_map?: readonly { readonly key?: Integer64; readonly value?: readonly Integer64[] }[];
  readonly sharded_dim?: readonly {
    readonly axis?: Integer64;
    readonly simple_sharding?: readonly {
      readonly dim_value?: Integer64;
      readonly dim_param?: string;
      readonly num_shards?: Integer64;
    }[];
  }[];
}

export interface GraphProto {
  readonly name?: string;
  readonly node?: readonly NodeProto[];
  readonly initializer?: readonly TensorProto[];
  readonly sparse_initializer?: readonly unknown[];
  readonly input?: readonly ValueInfoProto[];
  readonly output?: readonly ValueInfoProto[];
  readonly value_info?: readonly ValueInfoProto[];
  readonly metadata_props?: readonly EntryProto[];
}

export interface OperatorSetIdProto {
  readonly domain?: string;
  readonly version?: Integer64;
}

export interface FunctionProto {
  readonly name?: string;
  readonly domain?: string;
  readonly overload?: string;
  readonly input?: readonly string[];
  readonly output?: readonly string[];
  readonly attribute?: readonly string[];
  readonly attribute_proto?: readonly AttributeProto[];
  readonly node?: readonly NodeProto[];
  readonly opset_import?: readonly OperatorSetIdProto[];
}

export interface ModelProto {
  readonly ir_version?: Integer64;
  readonly producer_name?: string;
  readonly producer_version?: string;
  readonly graph?: GraphProto;
  readonly opset_import?: readonly OperatorSetIdProto[];
  readonly functions?: readonly FunctionProto[];
  readonly metadata_props?: readonly EntryProto[];
  readonly configuration?: readonly {
    readonly name?: string;
    readonly num_devices?: number;
    readonly device?: readonly string[];
  }[];
}

/** ONNX's AttributeProto.AttributeType. */
export const ATTRIBUTE_TYPE = {
  float: 1,
  int: 2,
  string: 3,
  tensor: 4,
  graph: 5,
  floats: 6,
  ints: 7,
  strings: 8,
  type: 13,
} as const;

/** Decodes a model; unknown fields stay in the messages. Throws protobufjs's own errors on bytes that do not parse. */
export function decodeModel(bytes: Uint8Array): ModelProto {
  const reader = protobuf.Reader.create(bytes);
  reader.discardUnknown = false;
  return MODEL.decode(reader) as unknown as ModelProto;
}

/** Decodes a lone GraphProto. Throws protobufjs's own errors on bytes that do not parse. */
export function decodeGraph(bytes: Uint8Array): GraphProto {
  return GRAPH.decode(bytes) as unknown as GraphProto;
}

/** The bytes of a model given as plain records. */
export function encodeModel(model: ModelProto): Uint8Array {
  return MODEL.encode(model as Record<string, unknown>).finish();
}

/** Decodes a lone TensorProto (the .pb files of ONNX's test cases). */
export function decodeTensor(bytes: Uint8Array): TensorProto {
  return TENSOR.decode(bytes) as unknown as TensorProto;
}

/** Decodes a lone SequenceProto. Throws protobufjs's own errors on bytes that do not parse. */
export function decodeSequence(bytes: Uint8Array): SequenceProto {
  return SEQUENCE.decode(bytes) as unknown as SequenceProto;
}

/** Decodes a lone OptionalProto. Throws protobufjs's own errors on bytes that do not parse. */
export function decodeOptional(bytes: Uint8Array): OptionalProto {
  return OPTIONAL.decode(bytes) as unknown as OptionalProto;
}

// ONNX's schema is proto2: a written dimension of 0 differs from one that is left out.
const ROOT = protobuf.Root.fromJSON({ nested: proto2Types(MESSAGES) });
const MODEL = ROOT.lookupType('ModelProto');
const GRAPH = ROOT.lookupType('GraphProto');
const TENSOR = ROOT.lookupType('TensorProto');
const SEQUENCE = ROOT.lookupType('SequenceProto');
const OPTIONAL = ROOT.lookupType('OptionalProto');
