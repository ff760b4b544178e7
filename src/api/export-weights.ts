/**
 * @file Exports trained weights to files for other tools: the model's own ONNX file with new values, under its names and in its
 * order of dimensions; or safetensors under the names of the modules, in PyTorch's order of dimensions.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { byteLength, type DType, onnxOfDtype } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import {
  elementCount,
  type FileTensor,
  type Graph,
  plainFileTensor,
  type TensorType,
  type Weight,
} from '../ir/graph.js';
import { withConstantWeights } from '../ir/onnx/constant-weights.js';
import { readOnnx } from '../ir/onnx/reader.js';
import { decodeModel, encodeModel, type ModelProto, type NodeProto, type TensorProto } from '../ir/onnx/schema.js';
import { initializerOf, loadWeight } from '../ir/onnx/tensors.js';
import { withDroppedBiases } from '../ir/parameters/dropped-biases.js';
import { findParameters } from '../ir/parameters/find-parameters.js';
import type { Parameter } from '../ir/parameters/parameter.js';
import { placeParameters } from '../ir/parameters/place-parameters.js';
import { sameValues } from '../ir/parameters/same-values.js';
import { isMadeUp } from '../ir/parameters/units.js';
import { madeOnce } from '../ir/remembered.js';
import { writeFileAtomic } from '../program/atomic.js';
import { type Checkpoint, readManifest } from '../program/checkpoint.js';
import { BoxReader } from '../program/checkpoint-boxes.js';
import { writeSafetensors } from '../program/safetensors.js';
import { checkStored } from '../runtime/saved-state.js';
import { checkpointIn, checkSameModel } from './execution/checkpoints.js';
import { importedAgain } from './models/compiled-model.js';
import { separated } from './models/merged-tensors.js';
import { withRandomWeights } from './models/random-weights.js';
import { readCompiled } from './output/folder.js';
import { checkNotSame } from './strategies/strategy-onnx.js';

export interface ExportOptions {
  /** The folder that compile wrote. */
  readonly directory: string;
  /** `.onnx` or `.safetensors`. */
  readonly output: string;
  /** A checkpoint's folder, or a folder of several, of which the newest is used; by default those of `directory`. */
  readonly checkpoint?: string;
  /** The model file; by default the path from which it was compiled. */
  readonly model?: string;
}

export interface Exported {
  readonly checkpoint: string;
  readonly step: number;
  /** Tensors of the file that have trained values. */
  readonly tensors: number;
  readonly bytes: number;
}

/**
 * Writes the weights of a checkpoint.
 * @throws AutoparError `bad-option` (usage) for another ending; `cannot-export` (input) if one tensor of the model's file holds
 *   several parameters that training has made different, and the file does not say which operators read which;
 *   `checkpoint-mismatch` (input) for a checkpoint of another model; `same-file` (cannotWrite) for the model's own file; as
 *   `readManifest` and `compiledModel`
 */
export async function exportWeights(options: ExportOptions): Promise<Exported> {
  const { directory, output } = options;
  const write = WRITERS[path.extname(output).toLowerCase()];
  if (!write)
    throw new AutoparError(
      'bad-option',
      'usage',
      `${output} ends neither in .onnx nor in .safetensors`,
      { file: output },
      'give the file one of these endings',
    );
  const parts = await readCompiled(directory);
  const folder = await checkpointIn(options.checkpoint ?? directory);
  const checkpoint = await readManifest(folder);
  checkSameModel(checkpoint, parts, folder);
  const { forward, file } = await importedAgain(directory, parts, options.model);
  await checkNotSame(file, output, 'trained weights');
  const { randomWeights, training } = parts.source;
  const imported = randomWeights === null ? forward : await withRandomWeights(forward, randomWeights);
  const found = findParameters(
    imported.graph,
    { ...imported.evidence, values: sameValues(imported.graph.weights) },
    training,
  );
  const { weightOf } = placeParameters(imported.graph, [...found.parameters, ...found.buffers]);
  const reader = new BoxReader(folder);
  try {
    const held = [...found.parameters, ...found.buffers].map((parameter) => ({ parameter, name: weightOf(parameter) }));
    // The optimizer may be another one: its state is not exported.
    const names = new Set(held.map(({ name }) => name));
    checkStored(parts.program, checkpoint.tensors, (name) => names.has(name));
    const sources: Sources = { graph: imported.graph, held, checkpoint, reader, file };
    return { checkpoint: folder, step: checkpoint.step, ...(await write(sources, output)) };
  } finally {
    await reader.close();
  }
}

interface Sources {
  readonly graph: Graph;
  /** Parameters and buffers, with the names under which the checkpoint has those that change. */
  readonly held: readonly { readonly parameter: Parameter; readonly name: string }[];
  readonly checkpoint: Checkpoint;
  readonly reader: BoxReader;
  /** The model file. */
  readonly file: string;
}

type Written = Pick<Exported, 'tensors' | 'bytes'>;

const WRITERS: Readonly<Record<string, (sources: Sources, output: string) => Promise<Written>>> = {
  '.onnx': intoModel,
  '.safetensors': intoSafetensors,
};

/** A tensor in the form of a file. */
interface FileValue extends TensorType {
  readonly data: Uint8Array;
}

/** The value of a tensor of the model's file as each of the parameters in it has it. */
type HeldValues = Map<Parameter, FileValue>;

/** Writes the model's file with the trained values. */
async function intoModel(sources: Sources, output: string): Promise<Written> {
  const { file } = sources;
  const held = await heldValues(sources);
  const values = new Map<string, FileValue>();
  let model = withConstantWeights(decodeModel(await readFile(file)));
  for (const [tensor, byParameter] of held) {
    const [first, ...others] = [...byParameter];
    if (!first) continue;
    values.set(tensor, first[1]);
    const differing = others.find(([, { data }]) => Buffer.compare(first[1].data, data) !== 0);
    if (!differing) continue;
    const apart = separated(model.graph ?? {}, sources.graph, tensor, [...byParameter.keys()]);
    if (!apart)
      throw cannotExport(
        file,
        tensor,
        `stores both ${first[0].name} and ${differing[0].name}, which differ after training, and the file does not say ` +
          'which of its operators reads which',
      );
    for (const [parameter, name] of apart.tensors) values.set(name, byParameter.get(parameter) ?? first[1]);
    const added = [...apart.tensors.values()].filter((name) => name !== tensor).map((name) => ({ name }));
    const initializer = [...(model.graph?.initializer ?? []), ...added];
    model = { ...model, graph: { ...model.graph, node: apart.nodes, initializer } };
  }
  const bytes = encodeModel(await withValues(model, values, sources));
  await writeFileAtomic(output, bytes);
  return totalOf([...values.values()]);
}

/** By tensor of the model's file: the values of the parameters in it, if training changes one of them. */
async function heldValues({ graph, held, checkpoint, reader }: Sources): Promise<ReadonlyMap<string, HeldValues>> {
  const values = new Map<string, HeldValues>();
  const add = (parameter: Parameter, parts: readonly NamedValue[]) => {
    for (const { name, value } of parts) madeOnce(values, name, () => new Map()).set(parameter, value);
  };
  for (const { parameter, name } of held) {
    const stored = checkpoint.tensors[name];
    if (!stored) continue;
    const trained = { dtype: stored.dtype, shape: stored.shape, data: await reader.whole(name, stored) };
    for (const weight of parameter.weights)
      add(parameter, inFile(weight, graph.weights.get(weight), trained, isStoredTransposed(parameter, weight)));
  }
  for (const { parameter, name } of held) {
    if (checkpoint.tensors[name]) continue;
    for (const weight of parameter.weights) {
      const own = graph.weights.get(weight);
      const isShared =
        own && inFile(weight, own, { ...own, data: new Uint8Array() }, false).some((part) => values.has(part.name));
      const value = isShared ? await weightValue(own) : null;
      if (value)
        add(
          parameter,
          inFile(weight, own, value, false).filter((part) => values.has(part.name)),
        );
    }
  }
  return values;
}

/** Writes every weight under its module's name. */
async function intoSafetensors({ graph, held, checkpoint, reader }: Sources, output: string): Promise<Written> {
  const entries = held.flatMap(({ parameter, name }) => {
    const [first = ''] = parameter.weights;
    const weight = graph.weights.get(first);
    const stored = checkpoint.tensors[name];
    if (!weight || (!stored && weight.source.kind === 'absent')) return [];
    const load = async (): Promise<FileValue> => {
      const data = stored ? await reader.whole(name, stored) : ((await loadWeight(weight.source)) ?? new Uint8Array());
      const { dtype, shape } = stored ?? weight;
      return { dtype, shape, data };
    };
    const known = asModules(name, parameter, weight, { ...(stored ?? weight), data: new Uint8Array() });
    return known.map(({ name: key, value: { dtype, shape } }, index) => {
      const pieces = async function* () {
        yield asModules(name, parameter, weight, await load())[index]?.value.data ?? new Uint8Array();
      };
      return { key, dtype, shape, pieces };
    });
  });
  await writeSafetensors(output, entries);
  return totalOf(entries);
}

function totalOf(types: readonly TensorType[]): Written {
  return {
    tensors: types.length,
    bytes: types.reduce((sum, { dtype, shape }) => sum + byteLength(dtype, elementCount(shape)), 0),
  };
}

function isStoredTransposed({ places }: Parameter, weight: string): boolean {
  return places.find((place) => place.weight === weight)?.isTransposeOfFirst ?? false;
}

interface NamedValue {
  readonly name: string;
  readonly value: FileValue;
}

/** The tensors of the file that hold a weight's value: several for a stacked weight. */
function inFile(
  weight: string,
  held: Weight | undefined,
  trained: FileValue,
  isTransposed: boolean,
): readonly NamedValue[] {
  const value = isTransposed ? transposed(trained, [1, 0]) : trained;
  const file = held?.file ?? plainFileTensor(weight, value);
  if (!file.parts) return [asFile(file, value)];
  return rowsOf(value).flatMap((row, index) => {
    const part = file.parts?.[index]?.file;
    return part ? [asFile(part, row)] : [];
  });
}

/** The slices of a tensor along its first dimension. */
function rowsOf({ dtype, shape: [count = 1, ...shape], data }: FileValue): readonly FileValue[] {
  const length = data.byteLength / count;
  return Array.from({ length: count }, (_, row) => ({
    dtype,
    shape,
    data: data.subarray(row * length, (row + 1) * length),
  }));
}

function asFile({ name, shape, dims }: FileTensor, value: FileValue): NamedValue {
  const order = shape.flatMap((_, axis) => {
    const dimension = dims.indexOf(axis);
    return dimension < 0 ? [] : [dimension];
  });
  const rest = dims.flatMap((axis, dimension) => (axis === null ? [dimension] : []));
  return { name, value: { ...transposed(value, [...order, ...rest]), shape } };
}

/**
 * The tensors of a weight in the form of its modules, under the parameter's name or the names of stacked parameters. Exporters
 * make up names for matrices that they store transposed; what no matmul reads under such a name is stored as it is.
 */
function asModules(
  own: string,
  { weights: [weight = ''], places }: Parameter,
  held: Weight,
  trained: FileValue,
): readonly NamedValue[] {
  const isMatrix = places.length === 0 || places.some(({ use }) => use === 'product');
  return inFile(weight, held, trained, false).map(({ name, value }, index) => ({
    name: held.file?.parts?.[index]?.weight ?? own,
    value: isMadeUp(name) && isMatrix && value.shape.length === 2 ? transposed(value, [1, 0]) : value,
  }));
}

/** The tensor with dimension `order[i]` as its i-th; without data only the shape changes. */
function transposed({ dtype, shape, data }: FileValue, order: readonly number[]): FileValue {
  const size = order.map((axis) => shape[axis] ?? 1);
  if (data.byteLength === 0 || order.every((axis, index) => axis === index)) return { dtype, shape: size, data };
  const width = byteLength(dtype, 1);
  const strides = shape.map((_, axis) => elementCount(shape.slice(axis + 1)));
  const steps = order.map((axis) => strides[axis] ?? 0);
  const result = new Uint8Array(data.byteLength);
  const counter = size.map(() => 0);
  let from = 0;
  for (let to = 0; to < result.byteLength; to += width) {
    for (let byte = 0; byte < width; byte++) result[to + byte] = data[from * width + byte] as number;
    for (let axis = size.length - 1; axis >= 0; axis--) {
      const [length, step] = [size[axis] as number, steps[axis] as number];
      const count = (counter[axis] as number) + 1;
      counter[axis] = count < length ? count : 0;
      from += count < length ? step : -step * (length - 1);
      if (count < length) break;
    }
  }
  return { dtype, shape: size, data: result };
}

/** The model with all values inside: the new file does not need the data files of the old one. */
async function withValues(
  model: ModelProto,
  values: ReadonlyMap<string, FileValue>,
  { graph, file }: Sources,
): Promise<ModelProto> {
  const left = new Set(values.keys());
  const initializer: TensorProto[] = [];
  for (const proto of model.graph?.initializer ?? []) {
    const name = proto.name ?? '';
    left.delete(name);
    initializer.push(valueProto(proto, values.get(name) ?? (await ownValue(proto, graph, file)), file));
  }
  const restored = await biasReaders(file);
  const node = (model.graph?.node ?? []).flatMap((item): readonly NodeProto[] => {
    const [name = ''] = item.output ?? [];
    const value = values.get(name);
    const inputs = restored.get(name);
    const [, , bias = ''] = inputs ?? [];
    const added = values.get(bias);
    if (inputs && added) {
      if (left.delete(bias)) initializer.push(valueProto({ name: bias }, added, file));
      return [{ ...item, input: [...(item.input ?? []).slice(0, 2), bias] }];
    }
    if (!value) return [item];
    left.delete(name);
    if (item.op_type === 'Constant') return [withConstant(item, valueProto({ name }, value, file))];
    // Exporters store equal values once, and read them through an Identity with the name of the other parameter.
    if (item.op_type !== 'Identity') throw cannotExport(file, name, `is a result of node ${item.name ?? item.op_type}`);
    initializer.push(valueProto({ name }, value, file));
    return [];
  });
  const held = new Set(initializer.map(({ name }) => name));
  for (const { name = '' } of model.graph?.input ?? []) {
    const value = values.get(name) ?? (await weightValue(graph.weights.get(name)));
    if (!value || held.has(name)) continue;
    left.delete(name);
    initializer.push(valueProto({ name, data_type: onnxOfDtype(value.dtype) }, value, file));
  }
  const [lost] = left;
  if (lost !== undefined) throw cannotExport(file, lost, 'is not an initializer of the main graph');
  return { ...model, graph: { ...model.graph, initializer, node } };
}

/** Operators whose bias the exporter had dropped and training restored: their operands, by result. */
async function biasReaders(file: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const model = await readOnnx(file);
  const { nodes } = withDroppedBiases(model, model.graph.nodes);
  const changed = nodes.filter((item, index) => item !== model.graph.nodes[index]);
  return new Map(changed.map(({ inputs, outputs }) => [outputs[0] ?? '', inputs.map((input) => input ?? '')]));
}

function withConstant(node: NodeProto, value: TensorProto): NodeProto {
  return {
    ...node,
    attribute: (node.attribute ?? []).map((item) => (item.name === 'value' ? { ...item, t: value } : item)),
  };
}

/** The value of a weight that is not trained; null if it has none. */
async function weightValue(weight: Weight | undefined): Promise<FileValue | null> {
  const data = weight ? await loadWeight(weight.source) : null;
  return weight && data ? { dtype: weight.dtype, shape: weight.shape, data } : null;
}

/** The value in the data file, or the random value of a weight that has none; null if the model file itself holds it. */
async function ownValue(proto: TensorProto, { weights }: Graph, file: string): Promise<FileValue | null> {
  if (proto.data_location !== EXTERNAL) return null;
  const { dtype, shape, source } = initializerOf(proto, { file, absentAllowed: true });
  const data = await loadWeight(source.kind === 'absent' ? (weights.get(proto.name ?? '')?.source ?? source) : source);
  if (data) return { dtype, shape, data };
  throw cannotExport(file, proto.name ?? '', 'has no value');
}

const EXTERNAL = 1;

function valueProto(proto: TensorProto, value: FileValue | null, file: string): TensorProto {
  if (!value) return proto;
  const { name = '', data_type: type, metadata_props: metadata } = proto;
  const own = onnxOfDtype(value.dtype);
  if (type !== undefined && type !== own)
    throw cannotExport(file, name, `differs in type from the trained ${value.dtype satisfies DType} weight`);
  return {
    name,
    dims: value.shape,
    data_type: own,
    raw_data: value.data,
    ...(metadata ? { metadata_props: metadata } : {}),
  };
}

function cannotExport(file: string, tensor: string, why: string): AutoparError {
  return new AutoparError(
    'cannot-export',
    'input',
    `tensor ${tensor} of ${file} ${why}`,
    { file, tensor },
    'write the weights as .safetensors, under the names of the modules',
  );
}
