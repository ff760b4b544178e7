/**
 * @file Reads an ONNX file into an OnnxModel: the contents of the file, checked for readability, not yet for validity.
 */

import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { type DType, dtypeOfOnnx, elementTypeText } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { CodeOf } from '../error-codes.js';
import type { NumberType } from '../graph.js';
import { withConstantWeights } from './constant-weights.js';
import { dataFile, isMissing, problemsText } from './external-data.js';
import {
  functionKey,
  type Initializer,
  type InputKind,
  type OnnxModel,
  type RecordedTensor,
  type SourceAttribute,
  type SourceAttributes,
  type SourceDimension,
  type SourceFunction,
  type SourceGraph,
  type SourceNode,
  type SourceValue,
} from './model.js';
import { modulePath } from './module-path.js';
import { multiDeviceOf } from './multi-device.js';
import { scanModel } from './scanner.js';
import {
  ATTRIBUTE_TYPE,
  type AttributeProto,
  type EntryProto,
  type FunctionProto,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type OperatorSetIdProto,
  type ValueInfoProto,
} from './schema.js';
import { constantOfProto, initializerOf, integerOf, type TensorPlace } from './tensors.js';

/** Newest IR version and opsets that are understood; oldest opset whose operators convert. */
const NEWEST_IR = 14;
const NEWEST_OPSET = 28;
const OLDEST_OPSET = 1;
/** protobufjs's error text for messages nested more than 100 deep, the limit of protobuf's own readers. */
const TOO_DEEP = 'max depth exceeded';
/** protobuf cannot hold more in one message. */
const LARGEST_FILE = 2 ** 31 - 1;

/** InputSpec.kind of PyTorch's exporter → kind of the value. */
const KINDS: Readonly<Record<string, InputKind>> = {
  USER_INPUT: 'input',
  PARAMETER: 'parameter',
  BUFFER: 'buffer',
  CONSTANT_TENSOR: 'constant',
};

/**
 * Reads `file`. External data is looked up (folder, presence, length) but not read.
 * Throws AutoparError (exit input) for files that are not ONNX models or newer than autopar knows.
 */
export async function readOnnx(file: string): Promise<OnnxModel> {
  const path = resolve(file);
  await checkFile(path);
  return modelOf(decode(path), path);
}

async function checkFile(file: string): Promise<void> {
  const stats = await stat(file).catch(() => null);
  if (!stats) throw new AutoparError('file-missing', 'input', 'there is no such file', { file }, 'check the path');
  if (!stats.isFile())
    throw new AutoparError('not-a-file', 'input', 'this is not a file', { file }, 'give the path of an .onnx file');
  if (stats.size > LARGEST_FILE) {
    throw new AutoparError(
      'model-too-large',
      'input',
      `the model has ${(stats.size / 2 ** 30).toFixed(1)} GiB in one file, more than the 2 GiB that one protobuf ` +
        'message can hold',
      { file },
      'save it with external data (torch.onnx.export(..., external_data=True) or onnx.save(..., save_as_external_data=True))',
    );
  }
  if (stats.size === 0)
    throw new AutoparError('empty-file', 'input', 'the file is empty', { file }, 'export or copy the model again');
}

function decode(file: string): ModelProto {
  let model: ModelProto;
  try {
    model = scanModel(file);
  } catch (error) {
    throw unreadable(error, file);
  }
  if (!model.graph || integerOf(model.ir_version) < 1) {
    throw new AutoparError(
      'not-onnx',
      'input',
      'this is not an ONNX model: it has no graph or no IR version',
      { file },
      'give an .onnx file as torch.onnx.export writes it',
    );
  }
  return withConstantWeights(model);
}

/** The error for a file that cannot be read. */
function unreadable(error: unknown, file: string): AutoparError {
  if (error instanceof AutoparError) return error;
  const problem = (code: CodeOf<'input'>, message: string, hint: string): AutoparError =>
    new AutoparError(code, 'input', message, { file }, hint);
  if (error instanceof Error && 'syscall' in error) {
    const denied = 'code' in error && error.code === 'EACCES';
    const reason = denied ? 'permission denied' : error.message;
    return problem('file-unreadable', `the file cannot be read: ${reason}`, 'check its permissions');
  }
  if (error instanceof RangeError)
    return problem(
      'truncated-model',
      'the file ends in the middle of a record: it is truncated, or not an ONNX model',
      'compare its size with the original and copy it again',
    );
  if (error instanceof Error && error.message === TOO_DEEP)
    return problem(
      'nested-too-deep',
      'subgraphs are nested in subgraphs more than 30 deep, which protobuf does not read',
      'export the model with fewer nested If and Loop operators',
    );
  return problem(
    'not-onnx',
    'this is not an ONNX model (not a protobuf)',
    'give an .onnx file as torch.onnx.export writes it',
  );
}

function modelOf(proto: ModelProto, file: string): OnnxModel {
  const irVersion = integerOf(proto.ir_version);
  if (irVersion > NEWEST_IR) {
    throw new AutoparError(
      'ir-too-new',
      'input',
      `the file has IR version ${irVersion}; autopar reads up to ${NEWEST_IR}`,
      { file },
      'export with an older IR version, or update autopar',
    );
  }
  const opsets = opsetsOf(proto.opset_import ?? [], file);
  const graph = proto.graph ?? {};
  if (!opsets.has('') && graph.node?.some((node) => domainOf(node.domain) === '')) {
    throw new AutoparError(
      'opset-missing',
      'input',
      'the model does not state its opset: it is truncated, or its exporter is broken',
      { file },
      'compare its size with the original and copy it again',
    );
  }
  // If some data is there, a missing file is a mistake; if none is, the model comes without weights.
  const data = dataFiles(graph).map((location) => dataFile(location, file));
  const missing = data.filter(isMissing);
  const place: TensorPlace = { file, absentAllowed: missing.length === data.length };
  const kinds = new Map<string, InputKind>();
  for (const value of [...(graph.input ?? []), ...(graph.value_info ?? []), ...(graph.initializer ?? [])]) {
    const kind = KINDS[entry(value.metadata_props, 'pkg.torch.export.graph_signature.InputSpec.kind') ?? ''];
    if (kind && value.name) kinds.set(value.name, kind);
  }
  const context: ReaderContext = { place, opsets };
  return {
    file,
    irVersion,
    producer: `${proto.producer_name ?? ''} ${proto.producer_version ?? ''}`.trim(),
    opsets,
    graph: graphOf(graph, context),
    functions: new Map((proto.functions ?? []).map((item) => functionOf(item, context))),
    kinds,
    recorded: recordedTensors(graph),
    foldedFrom: foldedFrom(graph),
    multiDevice: multiDeviceOf(proto),
    notes: missing.length > 0 ? [`weights are absent: ${problemsText(missing)}; planning needs none`] : [],
  };
}

/** `b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True`, a line for each. */
function recordedTensors(graph: GraphProto): readonly RecordedTensor[] {
  const record = entry(graph.metadata_props, 'pkg.torch.export.ExportedProgram.graph_signature') ?? '';
  return [...record.matchAll(/^(\w+): (PARAMETER|BUFFER) target='([^']+)'/gm)].map(
    ([, placeholder = '', kind, name = '']) => ({
      name,
      placeholder,
      kind: kind === 'BUFFER' ? 'buffer' : 'parameter',
    }),
  );
}

/** `['h.0.attn.bias', 'unsqueeze', 'val_3']`, beside the type of a value that onnxscript computed. */
function foldedFrom({ value_info = [] }: GraphProto): ReadonlyMap<string, readonly string[]> {
  return new Map(
    value_info.flatMap(({ name, metadata_props }) => {
      const record = entry(metadata_props, 'pkg.onnxscript.optimizer.folded_from');
      return name && record ? [[name, [...record.matchAll(/'([^']*)'/g)].map(([, from = '']) => from)] as const] : [];
    }),
  );
}

interface ReaderContext {
  readonly place: TensorPlace;
  readonly opsets: ReadonlyMap<string, number>;
}

function opsetsOf(imports: readonly OperatorSetIdProto[], file: string): ReadonlyMap<string, number> {
  const opsets = new Map(imports.map((item) => [domainOf(item.domain), integerOf(item.version)]));
  const version = opsets.get('');
  if (version !== undefined && version > NEWEST_OPSET) {
    throw new AutoparError(
      'opset-too-new',
      'input',
      `the model uses opset ${version}; autopar knows opsets ${OLDEST_OPSET} to ${NEWEST_OPSET}`,
      { file },
      `export with opset_version=${NEWEST_OPSET} or lower, or update autopar`,
    );
  }
  if (version !== undefined && version < OLDEST_OPSET) {
    throw new AutoparError(
      'opset-too-old',
      'input',
      `the model uses opset ${version}; autopar knows opsets ${OLDEST_OPSET} to ${NEWEST_OPSET}`,
      { file },
      'convert it with onnx.version_converter, or export it again',
    );
  }
  return opsets;
}

/** 'ai.onnx' is another spelling of ONNX's own domain. */
function domainOf(domain: string | undefined): string {
  return domain === undefined || domain === 'ai.onnx' ? '' : domain;
}

function dataFiles(graph: GraphProto): readonly string[] {
  const locations = (graph.initializer ?? [])
    .map((tensor) => entry(tensor.external_data, 'location'))
    .filter((item) => item !== undefined);
  return [...new Set(locations)].sort();
}

function graphOf(proto: GraphProto, context: ReaderContext): SourceGraph {
  const { file } = context.place;
  if (proto.sparse_initializer?.length) {
    throw new AutoparError(
      'sparse-tensor',
      'input',
      'the model has sparse initializers, which autopar does not handle',
      { file },
      'store these weights as dense tensors',
    );
  }
  const initializers = new Map<string, Initializer>();
  for (const tensor of proto.initializer ?? []) {
    const name = tensor.name ?? '';
    if (initializers.has(name)) throw duplicate(name, file);
    initializers.set(name, initializerOf(tensor, context.place));
  }
  return {
    name: proto.name ?? '',
    nodes: (proto.node ?? []).map((node) => nodeOf(node, context)),
    inputs: (proto.input ?? []).map(sourceValueOf),
    outputs: (proto.output ?? []).map(sourceValueOf),
    initializers,
    valueInfo: new Map((proto.value_info ?? []).map((value) => [value.name ?? '', sourceValueOf(value)])),
  };
}

/** The error for a tensor that two places define. */
export function duplicate(tensor: string, file: string): AutoparError {
  return new AutoparError(
    'duplicate-name',
    'input',
    `two values have the name '${tensor}'; every tensor of an ONNX graph is defined once`,
    { file, tensor },
    'rename one of them, or export the model again',
  );
}

function withoutOperator(node: string, file: string): AutoparError {
  return new AutoparError(
    'unknown-operator',
    'input',
    `node '${node}' has no operator`,
    { file, node },
    'the file is damaged or was edited; export the model again',
  );
}

function nodeOf(proto: NodeProto, context: ReaderContext): SourceNode {
  const name = proto.name ?? '';
  const domain = domainOf(proto.domain);
  if (!proto.op_type) throw withoutOperator(name, context.place.file);
  const metadata = new Map((proto.metadata_props ?? []).map((item: EntryProto) => [item.key ?? '', item.value ?? '']));
  const traced = metadata.get('pkg.torch.onnx.fx_node');
  return {
    name,
    op: proto.op_type,
    domain,
    overload: proto.overload ?? '',
    attributes: attributesOf(proto.attribute ?? [], context),
    numberTypes: numberTypesOf(proto.attribute ?? []),
    inputs: (proto.input ?? []).map((input) => input || null),
    outputs: (proto.output ?? []).map((output) => output || null),
    module: modulePath(name, metadata),
    ...(traced === undefined ? {} : { traced }),
    opset: context.opsets.get(domain) ?? 0,
  };
}

function attributesOf(protos: readonly AttributeProto[], context: ReaderContext): SourceAttributes {
  return Object.fromEntries(protos.map((proto) => [proto.name ?? '', attributeOf(proto, context)]));
}

const NUMBER_TYPES: ReadonlyMap<number, NumberType> = new Map([
  [ATTRIBUTE_TYPE.int, 'int'],
  [ATTRIBUTE_TYPE.ints, 'ints'],
  [ATTRIBUTE_TYPE.float, 'float'],
  [ATTRIBUTE_TYPE.floats, 'floats'],
]);

/** The types of the attributes that are numbers, or stand for those of a function's call. */
function numberTypesOf(protos: readonly AttributeProto[]): Readonly<Record<string, NumberType>> {
  return Object.fromEntries(
    protos.flatMap((proto) => {
      const type = NUMBER_TYPES.get(proto.type || (proto.ref_attr_name ? 0 : impliedType(proto)));
      return type ? [[proto.name ?? '', type] as const] : [];
    }),
  );
}

function attributeOf(proto: AttributeProto, context: ReaderContext): SourceAttribute {
  if (proto.ref_attr_name) return { reference: proto.ref_attr_name };
  switch (proto.type || impliedType(proto)) {
    case ATTRIBUTE_TYPE.float:
      return proto.f ?? 0;
    case ATTRIBUTE_TYPE.int:
      return integerOf(proto.i);
    case ATTRIBUTE_TYPE.string:
      return text(proto.s);
    case ATTRIBUTE_TYPE.tensor:
      return constantOfProto({ ...proto.t, name: proto.t?.name || (proto.name ?? '') }, context.place.file);
    case ATTRIBUTE_TYPE.graph:
      return graphOf(proto.g ?? {}, context);
    case ATTRIBUTE_TYPE.floats:
      return [...(proto.floats ?? [])];
    case ATTRIBUTE_TYPE.ints:
      return (proto.ints ?? []).map(integerOf);
    case ATTRIBUTE_TYPE.strings:
      return (proto.strings ?? []).map(text);
    default:
      return { opaque: `attribute type ${proto.type ?? 0}` };
  }
}

/** The type by the field that is present: IR versions before 2 left the type out. */
function impliedType(proto: AttributeProto): number {
  const has = (field: keyof AttributeProto): boolean => Object.hasOwn(proto, field);
  if (has('f')) return ATTRIBUTE_TYPE.float;
  if (has('i')) return ATTRIBUTE_TYPE.int;
  if (has('s')) return ATTRIBUTE_TYPE.string;
  if (has('t')) return ATTRIBUTE_TYPE.tensor;
  if (has('g')) return ATTRIBUTE_TYPE.graph;
  if (proto.floats?.length) return ATTRIBUTE_TYPE.floats;
  if (proto.strings?.length) return ATTRIBUTE_TYPE.strings;
  return ATTRIBUTE_TYPE.ints;
}

const DECODER = new TextDecoder();

/** Text that is left out is empty; protobufjs then has an empty list where bytes would be. */
function text(bytes: Uint8Array | undefined): string {
  return bytes?.length ? DECODER.decode(bytes) : '';
}

/** Exporters write these for a size that they do not know, as they write -1: equal ones do not mean equal sizes. */
const NO_NAMES: ReadonlySet<string> = new Set(['', '?', '-1']);

function sourceValueOf(proto: ValueInfoProto): SourceValue {
  const tensor = proto.type?.tensor_type;
  const dims = tensor?.shape ? (tensor.shape.dim ?? []) : null;
  const elements = tensor?.elem_type ?? 0;
  const dtype = numericOf(elements);
  return {
    name: proto.name ?? '',
    dtype,
    ...(dtype === null && elements !== 0 ? { unhandled: elementTypeText(elements) } : {}),
    shape:
      dims?.map((dim): SourceDimension => {
        const size = Object.hasOwn(dim, 'dim_value') ? integerOf(dim.dim_value) : null;
        if (size !== null) return size >= 0 ? size : null;
        const name = dim.dim_param ?? '';
        return NO_NAMES.has(name.trim()) ? null : name;
      }) ?? null,
  };
}

/** The type of numbers; null for strings, though ONNX numbers their type with the others. */
function numericOf(number: number): DType | null {
  const dtype = dtypeOfOnnx(number);
  return dtype === undefined || dtype === 'string' ? null : dtype;
}

function functionOf(proto: FunctionProto, outer: ReaderContext): [string, SourceFunction] {
  const opsets = opsetsOf(proto.opset_import ?? [], outer.place.file);
  const context: ReaderContext = { place: outer.place, opsets: new Map([...outer.opsets, ...opsets]) };
  const name = proto.name ?? '';
  return [
    functionKey(domainOf(proto.domain), name, proto.overload ?? ''),
    {
      name,
      inputs: proto.input ?? [],
      outputs: proto.output ?? [],
      defaults: attributesOf(proto.attribute_proto ?? [], context),
      nodes: (proto.node ?? []).map((node) => nodeOf(node, context)),
    },
  ];
}

function entry(entries: readonly EntryProto[] | undefined, key: string): string | undefined {
  return entries?.find((item) => item.key === key)?.value;
}
