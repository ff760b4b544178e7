/**
 * @file Writes a plan into a copy of its model as ONNX multi-device annotations: a configuration, and on every node of the
 * file that the plan knows its stage and the sharding of its operands and results.
 *
 * Nodes of a plan are not quite those of the file: import folds, splits and joins them. A node of the file gets the
 * annotations of the operators that it became, `gemm` and `gemm/add`, or of the region that it went into. ONNX cannot
 * express the mesh, partial sums, reshardings and nodes inside functions: for them, metadata_props holds the whole plan,
 * so that reading it back gives the same plan.
 */
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import type {
  Integer64,
  ModelProto,
  NodeDeviceConfigurationProto,
  NodeProto,
  ShardingSpecProto,
} from '../../ir/onnx/schema.js';
import { integerOf } from '../../ir/onnx/tensors.js';
import { fileLayout, inFile } from '../../sharding-propagation/file-form.js';
import { isReplicated, type Layout } from '../../sharding-propagation/layout.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import { deviceCount } from '../../sharding-propagation/mesh.js';
import type { PlacedOperator, PlacedPlan } from '../placed-operators.js';
import type { Plan } from '../plan.js';
import { planToJson } from '../plan-json.js';
import { OperatorsOfFile } from './file-nodes.js';
import { specOfLayout } from './sharding-spec.js';

/** The name of autopar's configuration, and the prefix of its metadata keys. */
export const CONFIGURATION = 'autopar';
export const PLAN_KEY = 'autopar.plan';
/** The key of the training step, of which the file holds only the forward. */
export const TRAINING_KEY = 'autopar.training';

/** Multi-device annotations came with this IR version. */
const ANNOTATED_IR = 11;

/** Lists of devices of more entries than this make a file that no reader takes. */
const MOST_DEVICES_LISTED = 2 ** 26;

/**
 * The model with the plan's annotations in place of any that an earlier export left; nothing else is changed.
 * @param training how the step was made of the model, where it trains: stored as JSON
 */
export function annotateModel(model: ModelProto, plan: Plan, placed: PlacedPlan, training?: object): ModelProto {
  const configurations = nodeConfigurations(model, placed);
  checkSize(configurations);
  const nodes = (model.graph?.node ?? []).map((node, index): NodeProto => {
    const own = configurations[index];
    const others = (node.device_configurations ?? []).filter(({ configuration_id: id }) => id !== CONFIGURATION);
    const all = [...others, ...(own ? [own] : [])];
    if (all.length === (node.device_configurations ?? []).length && !own) return node;
    return withField(node, 'device_configurations', all);
  });
  const changed = {
    ir_version: Math.max(integerOf(model.ir_version), ANNOTATED_IR) as Integer64,
    metadata_props: [
      ...(model.metadata_props ?? []).filter(({ key }) => !key?.startsWith(`${CONFIGURATION}.`)),
      { key: PLAN_KEY, value: planToJson(plan) },
      ...(training ? [{ key: TRAINING_KEY, value: JSON.stringify(training) }] : []),
    ],
    configuration: [
      ...(model.configuration ?? []).filter(({ name }) => name !== CONFIGURATION),
      { name: CONFIGURATION, num_devices: deviceCount(placed.assignment.mesh) * placed.stages },
    ],
    graph: withField(model.graph ?? {}, 'node', nodes),
  };
  return Object.entries(changed).reduce<ModelProto>(
    (whole, [field, value]) => withField(whole, field as keyof typeof changed, value as never),
    model,
  );
}

/** Autopar's configuration of each node of the file; null for one that is not in the plan. */
export function nodeConfigurations(
  model: ModelProto,
  placed: PlacedPlan,
): readonly (NodeDeviceConfigurationProto | null)[] {
  const { mesh } = placed.assignment;
  const made = new OperatorsOfFile({ nodes: placed.operators.map((operator) => operator.node) });
  const byNode = new Map(placed.operators.map((operator) => [operator.node, operator]));
  return (model.graph?.node ?? []).map((node) => {
    const operators = made.of(node).flatMap((operator) => byNode.get(operator) ?? []);
    const [first] = operators;
    if (!first) return null;
    const named = new Set([...(node.input ?? []), ...(node.output ?? [])].filter((name) => name !== ''));
    return {
      configuration_id: CONFIGURATION,
      sharding_spec: specsOf(named, placed.graph, operators, mesh, first.stage * deviceCount(mesh)),
      pipeline_stage: first.stage,
    };
  });
}

/**
 * A layout per tensor of the node that the plan knows; whole tensors need none.
 * @param first device of the node's stage
 */
function specsOf(
  named: ReadonlySet<string>,
  graph: Graph,
  operators: readonly PlacedOperator[],
  mesh: Mesh,
  first: number,
): readonly ShardingSpecProto[] {
  const layouts = new Map<string, Layout>();
  const put = (tensor: string | null, layout: Layout | null) => {
    if (tensor === null || !layout) return;
    const form = inFile(graph, tensor).find(({ name }) => named.has(name));
    if (form && !layouts.has(form.name)) layouts.set(form.name, fileLayout(layout, form.file));
  };
  for (const operator of operators) {
    for (const [operand, tensor] of operator.node.inputs.entries()) put(tensor, operator.operands[operand] ?? null);
    for (const [result, tensor] of operator.node.outputs.entries()) put(tensor, operator.results[result] ?? null);
  }
  return [...layouts]
    .filter(([, layout]) => !isReplicated({ ...layout, partial: [] }))
    .flatMap(([tensor, layout]) => specOfLayout(tensor, layout, mesh, first) ?? []);
}

function checkSize(configurations: readonly (NodeDeviceConfigurationProto | null)[]): void {
  const entries = configurations
    .flatMap((configuration) => configuration?.sharding_spec ?? [])
    .reduce(
      (sum, spec) =>
        sum +
        (spec.index_to_device_group_map ?? []).reduce((count, group) => count + (group.value?.length ?? 0), 0) +
        (spec.device?.length ?? 0),
      0,
    );
  if (entries <= MOST_DEVICES_LISTED) return;
  throw new AutoparError(
    'too-many-devices',
    'input',
    `ONNX lists every device of every tensor: ${entries} entries here, more than the ${MOST_DEVICES_LISTED} that ` +
      'a file can reasonably hold',
    {},
    'use plan.json, which names axes instead of devices',
  );
}

/** The message with one field replaced; fields that the schema does not know stay with it. */
function withField<Message extends object, Key extends keyof Message>(
  message: Message,
  field: Key,
  value: Message[Key],
): Message {
  const descriptors = {
    ...Object.getOwnPropertyDescriptors(message),
    [field]: { value, enumerable: true, writable: true, configurable: true },
  };
  return Object.create(Object.getPrototypeOf(message) as object, descriptors) as Message;
}
