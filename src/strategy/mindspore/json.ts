/**
 * @file MindSpore's strategy checkpoint as JSON (file names that end in .json). It holds more than the protobuf: shapes of
 * parameters, numbers of shards of results, and layouts of operands and results with names of axes.
 *
 * Its reader takes one axis per dimension of a parameter, so axes of the device matrix that shard one dimension together
 * are written as one.
 */
import { mapOf } from '../../ir/json-schema.js';
import { schemaCheck } from '../../ir/schema-check.js';
import { flatLayout } from './device-matrix.js';
import type { KeyedStrategy, MindSporeStrategy, NamedLayout, ParameterLayout } from './document.js';
import { badStrategy, layoutProblem } from './schema.js';

/** The text, and the parameters that this form cannot express: they are left out. */
export interface WrittenJson {
  readonly text: string;
  readonly leftOut: readonly string[];
}

/** The document in JSON form. */
export function strategyToJson(document: MindSporeStrategy): WrittenJson {
  const leftOut: string[] = [];
  const layouts = [...document.parameters].flatMap(([name, layout]) => {
    const flat = flatLayout(layout);
    if (flat) return [[name, parameterItem({ ...layout, ...flat })] as const];
    leftOut.push(name);
    return [];
  });
  const value = {
    current_stage: document.currentStage,
    parallel_strategy_item: items(document.operators, strategyItem),
    parallel_layout_item: Object.fromEntries(layouts),
    ...optional('parallel_out_strategy_item', items(document.outputs, strategyItem)),
    ...optional('parallel_layout_value_item', items(document.operandLayouts, valueItem)),
    ...optional('parallel_out_layout_value_item', items(document.resultLayouts, valueItem)),
  };
  return { text: `${shortLists(JSON.stringify(value, null, 2))}\n`, leftOut };
}

/** Lists of numbers on one line each. A string of JSON contains no line break. */
function shortLists(text: string): string {
  return text.replace(/\[\n[\d\s,-]*\]/g, (list) => list.replace(/\s+/g, ' ').replace('[ ', '[').replace(' ]', ']'));
}

/**
 * Parses the JSON form; `file` names it in errors.
 * @throws AutoparError `bad-strategy` (input) where it is truncated, of another form, or states what cannot be
 */
export function strategyFromJson(text: string, file: string): MindSporeStrategy {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badStrategy(file, text.trim() === '' ? 'is empty' : `is not JSON: ${(error as Error).message}`);
  }
  const validate = formCheck();
  const isCheckpoint = typeof value === 'object' && value !== null && 'current_stage' in value;
  if (!isCheckpoint)
    throw badStrategy(file, 'is neither a plan.json of autopar nor a strategy of MindSpore (current_stage is absent)');
  if (!validate(value)) {
    const [first] = validate.errors ?? [];
    const place = first?.instancePath.split('/').slice(1).join('.') || 'the whole';
    throw badStrategy(file, `is not valid: ${place} ${first?.message ?? 'is malformed'}`);
  }
  const parameters = Object.entries(value.parallel_layout_item ?? {}).map(([name, item]): [string, ParameterLayout] => {
    const layout = {
      deviceMatrix: item.dev_matrix,
      tensorMap: item.tensor_map.map((axis) => [axis]),
      ...(item.tensor_shape ? { shape: item.tensor_shape } : {}),
      splitShape: item.param_split_shape ?? [],
      indicesOffset: item.indices_offset ?? [],
      field: item.field,
      optimizerShardStep: item.opt_weight_shard_step,
      optimizerShardSize: item.opt_weight_shard_size,
    };
    const rank = item.tensor_shape?.length ?? layout.tensorMap.length;
    const problem =
      layoutProblem(layout.deviceMatrix, layout.tensorMap) ??
      (rank === layout.tensorMap.length
        ? null
        : `the tensor map has ${layout.tensorMap.length} dimensions, the shape ${rank}`);
    if (problem) throw badStrategy(file, `has an invalid layout of parameter ${name}: ${problem}`);
    return [name, layout];
  });
  const named = (of: Readonly<Record<string, ValueItem>> | undefined) =>
    new Map(Object.entries(of ?? {}).map(([key, item]) => [key, namedLayouts(item, key, file)]));
  return {
    currentStage: value.current_stage,
    operators: strategies(value.parallel_strategy_item),
    parameters: new Map(parameters),
    outputs: strategies(value.parallel_out_strategy_item),
    operandLayouts: named(value.parallel_layout_value_item),
    resultLayouts: named(value.parallel_out_layout_value_item),
  };
}

interface StrategyItem {
  readonly stage: number;
  readonly parallel_strategy: readonly (readonly number[])[];
}

interface ParameterItem {
  readonly dev_matrix: readonly number[];
  readonly tensor_map: readonly number[];
  readonly tensor_shape?: readonly number[];
  readonly param_split_shape?: readonly number[];
  readonly indices_offset?: readonly number[];
  readonly field: number;
  readonly opt_weight_shard_step: number;
  readonly opt_weight_shard_size: number;
}

interface NamedItem {
  readonly dev_matrix: readonly number[];
  readonly tensor_map: readonly (readonly number[])[];
  readonly interleaved_parallel: boolean;
  readonly alias_name: readonly string[];
}

/** By the operand's number, `"0"`, `"1"`, …. */
type ValueItem = Readonly<Record<string, NamedItem>>;

interface JsonForm {
  readonly current_stage: number;
  readonly parallel_strategy_item?: Readonly<Record<string, StrategyItem>>;
  readonly parallel_out_strategy_item?: Readonly<Record<string, StrategyItem>>;
  readonly parallel_layout_item?: Readonly<Record<string, ParameterItem>>;
  readonly parallel_layout_value_item?: Readonly<Record<string, ValueItem>>;
  readonly parallel_out_layout_value_item?: Readonly<Record<string, ValueItem>>;
}

function strategyItem({ stage, splits }: KeyedStrategy): StrategyItem {
  return { stage, parallel_strategy: splits };
}

function parameterItem(layout: ParameterLayout): ParameterItem {
  return {
    dev_matrix: layout.deviceMatrix,
    tensor_map: layout.tensorMap.map(([axis = -1]) => axis),
    ...(layout.shape ? { tensor_shape: layout.shape } : {}),
    ...(layout.splitShape.length > 0
      ? { param_split_shape: layout.splitShape, indices_offset: layout.indicesOffset }
      : {}),
    field: layout.field,
    opt_weight_shard_step: layout.optimizerShardStep,
    opt_weight_shard_size: layout.optimizerShardSize,
  };
}

function valueItem(layouts: readonly NamedLayout[]): ValueItem {
  return Object.fromEntries(
    layouts.map(({ deviceMatrix, tensorMap, interleaved, aliases }, index) => [
      String(index),
      { dev_matrix: deviceMatrix, tensor_map: tensorMap, interleaved_parallel: interleaved, alias_name: aliases },
    ]),
  );
}

function items<Value, Item>(map: ReadonlyMap<string, Value>, item: (value: Value) => Item): Record<string, Item> {
  return Object.fromEntries([...map].map(([key, value]) => [key, item(value)]));
}

function optional<Item>(name: string, record: Readonly<Record<string, Item>>): Record<string, unknown> {
  return Object.keys(record).length > 0 ? { [name]: record } : {};
}

function strategies(of: Readonly<Record<string, StrategyItem>> | undefined): ReadonlyMap<string, KeyedStrategy> {
  const entries = Object.entries(of ?? {});
  return new Map(entries.map(([key, item]) => [key, { stage: item.stage, splits: item.parallel_strategy }]));
}

function namedLayouts(item: ValueItem, key: string, file: string): readonly NamedLayout[] {
  return Object.keys(item)
    .sort((a, b) => Number(a) - Number(b))
    .map((index) => {
      const { dev_matrix, tensor_map, interleaved_parallel, alias_name } = item[index] as NamedItem;
      const problem = layoutProblem(dev_matrix, tensor_map);
      if (problem) throw badStrategy(file, `has an invalid layout of ${key}, tensor ${index}: ${problem}`);
      return {
        deviceMatrix: dev_matrix,
        tensorMap: tensor_map,
        interleaved: interleaved_parallel,
        aliases: alias_name,
      };
    });
}

const integer = { type: 'integer' } as const;
const count = { type: 'integer', minimum: 0 } as const;
const integers = { type: 'array', items: integer } as const;
const parts = { type: 'array', items: { type: 'integer', minimum: 1 } } as const;

function record(properties: Readonly<Record<string, object>>, optionalKeys: readonly string[] = []): object {
  return { type: 'object', properties, required: Object.keys(properties).filter((key) => !optionalKeys.includes(key)) };
}

const STRATEGY = record({ stage: count, parallel_strategy: { type: 'array', items: parts } });
const VALUE = mapOf(
  record({
    dev_matrix: parts,
    tensor_map: { type: 'array', items: integers },
    interleaved_parallel: { type: 'boolean' },
    alias_name: { type: 'array', items: { type: 'string' } },
  }),
);

/** Keys that it does not name are accepted: MindSpore adds some with new versions. */
const SCHEMA = record(
  {
    current_stage: count,
    parallel_strategy_item: mapOf(STRATEGY),
    parallel_out_strategy_item: mapOf(STRATEGY),
    parallel_layout_item: mapOf(
      record(
        {
          dev_matrix: parts,
          tensor_map: integers,
          tensor_shape: { type: 'array', items: count },
          param_split_shape: integers,
          indices_offset: integers,
          field: integer,
          opt_weight_shard_step: integer,
          opt_weight_shard_size: integer,
        },
        ['tensor_shape', 'param_split_shape', 'indices_offset'],
      ),
    ),
    parallel_layout_value_item: mapOf(VALUE),
    parallel_out_layout_value_item: mapOf(VALUE),
  },
  [
    'parallel_strategy_item',
    'parallel_out_strategy_item',
    'parallel_layout_item',
    'parallel_layout_value_item',
    'parallel_out_layout_value_item',
  ],
);

const formCheck = schemaCheck<JsonForm>(SCHEMA);
