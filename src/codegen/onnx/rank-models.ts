/**
 * @file The models of a stage's ranks: its graph with each rank's coordinates, and its weights as places in the files of shards.
 */
import { byteLength, type DType, onnxOfDtype } from '../../ir/dtype.js';
import { typeOf } from '../../ir/graph.js';
import {
  ATTRIBUTE_TYPE,
  decodeModel,
  encodeModel,
  type GraphProto,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from '../../ir/onnx/schema.js';
import { writeOnnx } from '../../ir/onnx/writer.js';
import { shardIndex, shardText } from '../../program/mesh.js';
import type { ProgramAxis, ProgramStage, ProgramWeight } from '../../program/program.js';
import type { OnnxStageGraph } from './stage-graph.js';

/** Where a tensor's bytes are in a file. */
export interface FileSpan {
  readonly offset: number;
  readonly length: number;
}

/** The parts of a rank's model that may differ between ranks. */
interface RankOwn {
  readonly coordinates: Readonly<Record<string, number>>;
  /** File of a weight's shard; null where it is zero. */
  readonly weights: Readonly<Record<string, string | null>>;
}

/** The models of a stage's ranks. */
export interface RankModels {
  /** By rank in the stage: a key that ranks share whose models are equal. */
  readonly keyOf: (rank: number) => string;
  readonly model: (rank: number, spanOf: (file: string, key: string) => FileSpan) => Uint8Array;
  /** Files of shards that the models name. */
  readonly shards: ReadonlySet<string>;
  /** Inputs without a value in the models, which are zero before the first step. */
  readonly zeros: ReadonlySet<string>;
}

/** @param axes of the ranks of the stage */
export function rankModels(
  { graph, exchanged }: OnnxStageGraph,
  { coordinates, weights }: ProgramStage,
  axes: readonly ProgramAxis[],
  ranks: number,
): RankModels {
  const whole = decodeModel(writeOnnx(graph, { weights: 'external' }));
  const inner = whole.graph ?? {};
  const named = new Set(inner.initializer?.map(({ name }) => name));
  const inputs = new Set(graph.inputs);
  const bound = Object.entries(weights).filter(([name]) => named.has(name));
  const own = Array.from(
    { length: ranks },
    (_, rank): RankOwn => ({
      coordinates: Object.fromEntries(
        Object.entries(coordinates).map(([name, { axes: along, block, bias }]) => [
          name,
          shardIndex(axes, along, rank) * block + bias,
        ]),
      ),
      weights: Object.fromEntries(bound.map(([name, weight]) => [name, fileOf(weight, axes, rank)])),
    }),
  );
  const info = exchanged.map((name): ValueInfoProto => {
    const { dtype, shape } = typeOf(graph, name);
    const dim = shape.map((size) => ({ dim_value: size }));
    return { name, type: { tensor_type: { elem_type: onnxOfDtype(dtype), shape: { dim } } } };
  });
  const model: RankModels['model'] = (rank, spanOf) => {
    const { coordinates: places, weights: files } = own[rank] as RankOwn;
    const made: NodeProto[] = [];
    const shapes: TensorProto[] = [];
    const initializer = (inner.initializer ?? []).flatMap((tensor): readonly TensorProto[] => {
      const name = tensor.name ?? '';
      const [place, file, weight] = [places[name], files[name], weights[name]];
      if (place !== undefined) return [{ ...tensor, raw_data: int64s([place]) }];
      if (file === undefined || !weight) return [tensor];
      if (file !== null) return [{ ...tensor, external_data: located(file, spanOf(file, weight.key)) }];
      if (inputs.has(name)) return [];
      shapes.push(shapeOf(name, weight));
      made.push(zerosOf(name, weight.dtype));
      return [];
    });
    const changed: GraphProto = {
      ...inner,
      node: [...made, ...(inner.node ?? [])],
      initializer: [...initializer, ...shapes],
      value_info: info,
    };
    return encodeModel({ ...whole, graph: changed });
  };
  return {
    keyOf: (rank) => JSON.stringify(own[rank]),
    model,
    shards: new Set(own.flatMap(({ weights: files }) => Object.values(files).filter((file) => file !== null))),
    zeros: new Set(bound.flatMap(([name, { file }]) => (file === null && inputs.has(name) ? [name] : []))),
  };
}

function fileOf({ file, axes: cut, zeroUnlessFirst }: ProgramWeight, axes: readonly ProgramAxis[], rank: number) {
  if (file === null || shardIndex(axes, zeroUnlessFirst, rank) !== 0) return null;
  return shardText(file, shardIndex(axes, cut, rank));
}

function located(file: string, { offset, length }: FileSpan): TensorProto['external_data'] & object {
  return [
    { key: 'location', value: file },
    { key: 'offset', value: String(offset) },
    { key: 'length', value: String(length) },
  ];
}

/** The zeros of a partial value, for a rank that holds no summand. */
function zerosOf(name: string, dtype: DType): NodeProto {
  const value: TensorProto = {
    dims: [1],
    data_type: onnxOfDtype(dtype),
    raw_data: new Uint8Array(byteLength(dtype, 1)),
  };
  return {
    name,
    op_type: 'ConstantOfShape',
    input: [shapeName(name)],
    output: [name],
    attribute: [{ name: 'value', type: ATTRIBUTE_TYPE.tensor, t: value }],
  };
}

function shapeOf(name: string, { localShape }: ProgramWeight): TensorProto {
  return {
    name: shapeName(name),
    dims: [localShape.length],
    data_type: onnxOfDtype('int64'),
    raw_data: int64s(localShape),
  };
}

function shapeName(name: string): string {
  return `${name}/shape of zeros`;
}

function int64s(values: readonly number[]): Uint8Array {
  return new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
}
