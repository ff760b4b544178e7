/**
 * @file MindSpore's strategy checkpoint as protobuf (proto2, package mindspore.straspb): the file is one
 * ParallelStrategyMap, without a header.
 */
import protobuf from 'protobufjs/light.js';
import { AutoparError } from '../../ir/error.js';
import { type Proto2Messages, proto2Types } from '../../ir/proto2.js';
import { MOST_DEVICES } from '../../sharding-propagation/mesh.js';
import type { KeyedStrategy, MindSporeStrategy, ParameterLayout, TensorMap } from './document.js';

const MESSAGES: Proto2Messages = {
  ParallelStrategyMap: {
    current_stage: 'required uint32 1',
    parallel_strategy_item: 'repeated ParallelStrategyItem 2',
    parallel_layout_item: 'repeated ParallelLayoutItem 3',
  },
  ParallelStrategyItem: { node_name: 'required string 1', parallel_strategys: 'required ParallelStrategys 2' },
  ParallelStrategys: { stage: 'required uint32 1', parallel_strategy: 'repeated ParallelStrategy 2' },
  ParallelStrategy: { dim: 'repeated uint32 1' },
  ParallelLayoutItem: { param_name: 'required string 1', parallel_layouts: 'required ParallelLayouts 2' },
  ParallelLayouts: {
    dev_matrix: 'repeated Unsigned 1',
    tensor_map: 'repeated Signed 2',
    param_split_shape: 'repeated Long 3',
    indices_offset: 'repeated Long 4',
    field: 'required int32 5',
    opt_weight_shard_step: 'required int32 6',
    opt_weight_shard_size: 'required int32 7',
  },
  Unsigned: { dim: 'repeated uint32 1' },
  Signed: { dim: 'repeated int32 1' },
  Long: { dim: 'repeated int64 1' },
};

/** The bytes of a checkpoint. Items keep the document's order. */
export function encodeStrategy(document: MindSporeStrategy): Uint8Array {
  return MAP.encode({
    current_stage: document.currentStage,
    parallel_strategy_item: [...document.operators].map(([node_name, { stage, splits }]) => ({
      node_name,
      parallel_strategys: { stage, parallel_strategy: splits.map((dim) => ({ dim })) },
    })),
    parallel_layout_item: [...document.parameters].map(([param_name, layout]) => ({
      param_name,
      parallel_layouts: {
        dev_matrix: [{ dim: layout.deviceMatrix }],
        tensor_map: writtenMap(layout.tensorMap).map((dim) => ({ dim })),
        param_split_shape: [{ dim: layout.splitShape }],
        indices_offset: [{ dim: layout.indicesOffset }],
        field: layout.field,
        opt_weight_shard_step: layout.optimizerShardStep,
        opt_weight_shard_size: layout.optimizerShardSize,
      },
    })),
  }).finish();
}

/**
 * Reads a checkpoint; `file` names it in errors.
 * @throws AutoparError `bad-strategy` (input) where the bytes are no ParallelStrategyMap, truncated, or state what cannot be
 */
export function decodeStrategy(bytes: Uint8Array, file: string): MindSporeStrategy {
  if (bytes.byteLength === 0) throw badStrategy(file, 'is empty');
  const map = decodeMap(bytes, file);
  return {
    currentStage: map.current_stage,
    operators: uniqueMap(file, 'operator', map.parallel_strategy_item ?? [], (item) => [
      item.node_name,
      {
        stage: item.parallel_strategys.stage,
        splits: (item.parallel_strategys.parallel_strategy ?? []).map(({ dim }) => [...(dim ?? [])]),
      } satisfies KeyedStrategy,
    ]),
    parameters: uniqueMap(file, 'parameter', map.parallel_layout_item ?? [], (item) => [
      item.param_name,
      layoutOf(item, file),
    ]),
    outputs: new Map(),
    operandLayouts: new Map(),
    resultLayouts: new Map(),
  };
}

/** The refusal of a checkpoint; `what` is a verb phrase about the file. */
export function badStrategy(file: string, what: string): AutoparError {
  return new AutoparError(
    'bad-strategy',
    'input',
    `the strategy checkpoint ${what}`,
    { file },
    'copy or save it again; docs/checkpoints.md lists the supported forms',
  );
}

/** Sizes of a device matrix that an error lists. */
const MOST_SHOWN = 8;

/** Why a device matrix and tensor map mean nothing together; null where they do. */
export function layoutProblem(deviceMatrix: readonly number[], tensorMap: TensorMap): string | null {
  if (deviceMatrix.some((size) => !Number.isSafeInteger(size) || size < 1))
    return `the device matrix (${deviceMatrix.join(', ')}) holds sizes that are not positive`;
  const devices = deviceMatrix.reduce((product, size) => product * size, 1);
  if (devices > MOST_DEVICES) {
    const shown = `${deviceMatrix.slice(0, MOST_SHOWN).join(', ')}${deviceMatrix.length > MOST_SHOWN ? ', …' : ''}`;
    return `the device matrix (${shown}) is for ${devices} devices, more than the ${MOST_DEVICES} that autopar plans for`;
  }
  const used = tensorMap.flat().filter((axis) => axis !== -1);
  const absent = used.find((axis) => axis < -1 || axis >= deviceMatrix.length);
  if (absent !== undefined)
    return (
      `the tensor map names axis ${absent}, the device matrix (${deviceMatrix.join(', ')}) has axes 0 to ` +
      `${deviceMatrix.length - 1}`
    );
  const twice = used.find((axis, index) => used.indexOf(axis) !== index);
  return twice === undefined ? null : `the tensor map uses axis ${twice} twice`;
}

/** A list by name. @throws AutoparError `bad-strategy` where a name is given twice */
function uniqueMap<Item, Value>(
  file: string,
  what: string,
  items: readonly Item[],
  entry: (item: Item) => readonly [string, Value],
): ReadonlyMap<string, Value> {
  const map = new Map<string, Value>();
  for (const item of items) {
    const [name, value] = entry(item);
    if (map.has(name)) throw badStrategy(file, `has two contradicting entries for ${what} ${name}`);
    map.set(name, value);
  }
  return map;
}

interface List<Item> {
  readonly dim?: readonly Item[];
}

interface LayoutItem {
  readonly param_name: string;
  readonly parallel_layouts: {
    readonly dev_matrix?: readonly List<number>[];
    readonly tensor_map?: readonly List<number>[];
    readonly param_split_shape?: readonly List<StrategyInteger>[];
    readonly indices_offset?: readonly List<StrategyInteger>[];
    readonly field: number;
    readonly opt_weight_shard_step: number;
    readonly opt_weight_shard_size: number;
  };
}

interface StrategyMap {
  readonly current_stage: number;
  readonly parallel_strategy_item?: readonly {
    readonly node_name: string;
    readonly parallel_strategys: { readonly stage: number; readonly parallel_strategy?: readonly List<number>[] };
  }[];
  readonly parallel_layout_item?: readonly LayoutItem[];
}

type StrategyInteger = number | { readonly low: number; readonly high: number };

function decodeMap(bytes: Uint8Array, file: string): StrategyMap {
  try {
    const reader = protobuf.Reader.create(bytes);
    reader.discardUnknown = false;
    const message = MAP.decode(reader);
    const map = message as unknown as StrategyMap;
    if (!foreign(message) || map.parallel_strategy_item?.length || map.parallel_layout_item?.length) return map;
  } catch (error) {
    const cut = error instanceof RangeError;
    const reason = error instanceof Error ? error.message : String(error);
    throw badStrategy(file, cut ? 'ends in the middle of a record: it is truncated' : `is damaged: ${reason}`);
  }
  throw badStrategy(file, 'is some other protobuf: it has fields that no strategy checkpoint has');
}

/** Another message's bytes may decode by chance: they leave fields behind that the schema does not know. */
function foreign(message: object): boolean {
  const unknown = (message as { readonly $unknowns?: readonly unknown[] }).$unknowns;
  return (unknown?.length ?? 0) > 0;
}

function layoutOf({ param_name, parallel_layouts: layouts }: LayoutItem, file: string): ParameterLayout {
  const deviceMatrix = [...(layouts.dev_matrix?.[0]?.dim ?? [])];
  const tensorMap = readMap((layouts.tensor_map ?? []).map(({ dim }) => [...(dim ?? [])]));
  const problem = layoutProblem(deviceMatrix, tensorMap);
  if (problem) throw badStrategy(file, `has an invalid layout of parameter ${param_name}: ${problem}`);
  return {
    deviceMatrix,
    tensorMap,
    splitShape: (layouts.param_split_shape?.[0]?.dim ?? []).map(integerOf),
    indicesOffset: (layouts.indices_offset?.[0]?.dim ?? []).map(integerOf),
    field: layouts.field,
    optimizerShardStep: layouts.opt_weight_shard_step,
    optimizerShardSize: layouts.opt_weight_shard_size,
  };
}

/**
 * One list of an axis per dimension; where a dimension has several axes, a list per dimension instead. As a single
 * list would mean the first, a tensor of one dimension with several axes is followed by an empty list.
 */
function writtenMap(map: TensorMap): TensorMap {
  if (map.every((axes) => axes.length === 1)) return [map.flat()];
  return map.length === 1 ? [...map, []] : map;
}

function readMap(lists: TensorMap): TensorMap {
  if (lists.length <= 1) return (lists[0] ?? []).map((axis) => [axis]);
  const [first = [], second = []] = lists;
  return lists.length === 2 && second.length === 0 ? [first] : lists;
}

function integerOf(value: StrategyInteger): number {
  return typeof value === 'number' ? value : value.high * 2 ** 32 + (value.low >>> 0);
}

const ROOT = protobuf.Root.fromJSON({
  nested: { mindspore: { nested: { straspb: { nested: proto2Types(MESSAGES) } } } },
});
const MAP = ROOT.lookupType('mindspore.straspb.ParallelStrategyMap');
