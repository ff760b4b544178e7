/**
 * @file Reads multi-device annotations out of an ONNX model: the plan that we wrote with them, or, for annotations by
 * others, pins on the model.
 */
import { AutoparError } from '../../ir/error.js';
import { fileTensorOf, type Graph, type Node } from '../../ir/graph.js';
import { offer } from '../../ir/nearest.js';
import type { ModelProto, NodeDeviceConfigurationProto, NodeProto, ShardingSpecProto } from '../../ir/onnx/schema.js';
import { integerOf } from '../../ir/onnx/tensors.js';
import type { AnnotationRecord, PinRecord } from '../../sharding-propagation/annotations/annotation.js';
import { fileLayout, inFile, inFileOrder } from '../../sharding-propagation/file-form.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { deviceCount, type Mesh } from '../../sharding-propagation/mesh.js';
import { innerMesh } from '../../sharding-propagation/roles.js';
import { stagePlaces } from '../chunks.js';
import { exactly, pinDocument } from '../pin-document.js';
import type { PlacedPlan } from '../placed-operators.js';
import type { Plan } from '../plan.js';
import { planFromJson } from '../plan-json.js';
import { CONFIGURATION, nodeConfigurations, PLAN_KEY, TRAINING_KEY } from './annotate.js';
import { OperatorsOfFile } from './file-nodes.js';
import { countsOfSpec, inStage, layoutOfSpec, type ReadSpec, readSpec } from './sharding-spec.js';

/** The plan in the model's metadata; null if none. @throws AutoparError (input) as reading plan.json */
export function planInModel(model: ModelProto, file: string): Plan | null {
  const entry = (model.metadata_props ?? []).find(({ key }) => key === PLAN_KEY);
  return entry ? planFromJson(entry.value ?? '', file) : null;
}

/** The training step in the model's metadata, as it stands there; undefined if none, or it is not JSON. */
export function trainingInModel(model: ModelProto): unknown {
  const entry = (model.metadata_props ?? []).find(({ key }) => key === TRAINING_KEY);
  try {
    return entry ? JSON.parse(entry.value ?? '') : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The nodes whose annotations are not the ones that the plan in the metadata gives: another tool has changed them since.
 */
export function editedNodes(model: ModelProto, placed: PlacedPlan): readonly string[] {
  const expected = nodeConfigurations(model, placed);
  return (model.graph?.node ?? []).flatMap((node, index) => {
    const stated = (node.device_configurations ?? []).find(({ configuration_id: id }) => id === CONFIGURATION) ?? null;
    return canonical(stated) === canonical(expected[index] ?? null) ? [] : [node.name || (node.output?.[0] ?? '?')];
  });
}

export interface AnnotationPins {
  readonly mesh: Mesh;
  readonly pins: AnnotationRecord;
  /** Annotations that do not fit the model or the mesh, a line each. */
  readonly notes: readonly string[];
}

export interface AnnotationOptions {
  /** The configuration to read; may be left out where the model has one. */
  readonly configuration?: string;
  /**
   * The mesh (of one stage) to find the annotations' shards on; left out: the one of dp · tp on which most of them are layouts.
   */
  readonly mesh?: Mesh;
  /** Devices that there are: a configuration for another number is refused. */
  readonly devices?: number;
  /** Names the model in errors. */
  readonly file: string;
}

/**
 * The annotations of one configuration as pins on the operators that the annotated nodes became: layouts of operands and
 * results where their shards follow axes of the mesh, else numbers of shards; pipeline stages where there are several.
 * @throws AutoparError `not-annotated`, `bad-annotation` (input); `unknown-configuration` (usage);
 *   `strategy-mismatch` (input) where the configuration has another number of devices than the mesh
 */
export function annotationPins(model: ModelProto, graph: Graph, options: AnnotationOptions): AnnotationPins {
  const { file } = options;
  const configuration = chosenConfiguration(model, options);
  const name = configuration.name ?? '';
  const devices = configuration.num_devices ?? 0;
  const annotated = (model.graph?.node ?? []).flatMap((node) =>
    (node.device_configurations ?? []).flatMap((own) => (own.configuration_id === name ? [{ node, own }] : [])),
  );
  const notes: string[] = [];
  const made = new OperatorsOfFile(graph);
  const shapes: Shapes = new Map(
    [...graph.tensors.keys()].flatMap((tensor) =>
      inFile(graph, tensor).map((form): [string, readonly number[]] => [form.name, form.shape]),
    ),
  );
  const stages = annotated.reduce((most, { own }) => Math.max(most, (own.pipeline_stage ?? 0) + 1), 1);
  if (devices % stages !== 0)
    throw badAnnotation(
      file,
      `configuration ${name} has ${devices} devices for ${stages} stages, which do not divide them`,
    );
  const perStage = devices / stages;
  const places = annotated.map(({ node, own }): AnnotatedOperators => {
    const specs = specsOf(node, own, shapes, devices, file, notes);
    const stage = Object.hasOwn(own, 'pipeline_stage') ? (own.pipeline_stage ?? 0) : null;
    return {
      operators: made.of(node),
      specs: specs.map((spec) => inStage(spec, (stage ?? 0) * perStage)),
      stage,
    };
  });
  const specs = places.flatMap((place) => place.specs);
  const mesh = options.mesh ?? likelyMesh(specs, shapes, perStage);
  const here = options.devices ?? deviceCount(mesh) * stages;
  if (here !== devices || deviceCount(mesh) !== perStage) {
    throw new AutoparError(
      'strategy-mismatch',
      'input',
      `configuration ${name} is for ${devices} devices, ` +
        `${options.devices === undefined ? `the mesh has ${here}` : `there are ${here}`}`,
      { file },
      `give degrees that multiply to ${perStage}${stages > 1 ? `, the devices of one of its ${stages} stages` : ''}`,
    );
  }
  const pins = operatorPins(places, graph, mesh, notes);
  return { mesh, pins: pinDocument(mesh, pins, stages), notes };
}

/** By tensor of the file. */
type Shapes = ReadonlyMap<string, readonly number[]>;

/** A node of the file with the operators that it became. */
interface AnnotatedOperators {
  readonly operators: readonly Node[];
  readonly specs: readonly ReadSpec[];
  readonly stage: number | null;
}

function chosenConfiguration(
  model: ModelProto,
  { configuration, file }: AnnotationOptions,
): NonNullable<ModelProto['configuration']>[number] {
  const all = model.configuration ?? [];
  if (all.length === 0) {
    throw new AutoparError(
      'not-annotated',
      'input',
      'the model has no multi-device annotations',
      { file },
      'autopar strategy export PLAN --onnx OUT.onnx writes them',
    );
  }
  const names = all.map(({ name }) => name ?? '');
  const chosen =
    configuration === undefined && all.length === 1 ? all[0] : all.find(({ name }) => name === configuration);
  if (!chosen) {
    throw new AutoparError(
      'unknown-configuration',
      'usage',
      configuration === undefined
        ? `the model has ${all.length} configurations; name one with --configuration`
        : `the model has no configuration ${configuration}`,
      { file },
      offer(configuration ?? '', names),
    );
  }
  const devices = chosen.num_devices ?? 0;
  if (devices < 1 || devices > 2 ** 20)
    throw badAnnotation(file, `configuration ${chosen.name ?? ''} has ${devices} devices`);
  return chosen;
}

function specsOf(
  node: NodeProto,
  own: NodeDeviceConfigurationProto,
  shapes: Shapes,
  devices: number,
  file: string,
  notes: string[],
): readonly ReadSpec[] {
  const label = node.name || (node.output?.[0] ?? '');
  return (own.sharding_spec ?? []).flatMap((proto: ShardingSpecProto) => {
    const tensor = proto.tensor_name ?? '';
    const place = { node: label, tensor };
    if (![...(node.input ?? []), ...(node.output ?? [])].includes(tensor))
      throw badAnnotation(file, `node ${label} annotates tensor ${tensor}, which it neither reads nor makes`, place);
    const shape = shapes.get(tensor);
    if (!shape) {
      notes.push(`tensor ${tensor} of node ${label} was folded away; its annotation has no effect`);
      return [];
    }
    const spec = readSpec(proto, shape.length);
    if (typeof spec === 'string')
      throw badAnnotation(file, `the sharding of tensor ${tensor} at node ${label}: ${spec}`, place);
    const beyond = spec.holders.flat().find((device) => device >= devices);
    if (beyond !== undefined)
      throw badAnnotation(file, `node ${label} puts tensor ${tensor} on device ${beyond} of ${devices}`, place);
    return [spec];
  });
}

/**
 * The mesh of dp · tp on which most specs are layouts. A tie goes to the mesh on which most of them take axes whole, then
 * to the one with the larger tp.
 */
function likelyMesh(specs: readonly ReadSpec[], shapes: Shapes, devices: number): Mesh {
  const distinct = [...new Map(specs.map((spec) => [JSON.stringify([spec.cuts, spec.holders]), spec])).values()];
  let best: { readonly mesh: Mesh; readonly fitting: number; readonly plain: number } | undefined;
  for (let dp = 1; dp <= devices; dp++) {
    if (devices % dp !== 0) continue;
    const mesh = innerMesh({ dp, tp: devices / dp });
    const layouts = distinct.flatMap((spec) => layoutOfSpec(spec, shapes.get(spec.tensor) ?? [], mesh) ?? []);
    const fitting = layouts.length;
    const plain = layouts.filter((layout) => !layoutText(layout, mesh).includes('.')).length;
    if (!best || fitting > best.fitting || (fitting === best.fitting && plain > best.plain))
      best = { mesh, fitting, plain };
  }
  if (!best) throw new Error(`no mesh of ${devices} devices`);
  return best.mesh;
}

/** Pins by operator, in the order of the graph. */
function operatorPins(
  places: readonly AnnotatedOperators[],
  graph: Graph,
  mesh: Mesh,
  notes: string[],
): readonly PinRecord[] {
  const staged = new Set(places.flatMap(({ stage }) => (stage === null ? [] : [stage]))).size > 1;
  const asked = new Map<Node, { readonly specs: ReadSpec[]; stage: number | null }>();
  for (const { operators, specs, stage } of places) {
    for (const operator of operators) {
      const before = asked.get(operator) ?? { specs: [], stage: null };
      before.specs.push(...specs.filter(({ tensor }) => touches(operator, tensor, graph)));
      if (staged) before.stage ??= stage;
      asked.set(operator, before);
    }
    const inside = specs.find(({ tensor }) => !operators.some((operator) => touches(operator, tensor, graph)));
    if (inside) notes.push(`tensor ${inside.tensor} is neither read nor made after import; not pinned`);
  }
  const stages = new Map([...asked].flatMap(([node, { stage }]) => (stage === null ? [] : [[node, stage] as const])));
  const placeOf = stagePlaces(graph, stages, notes);
  return graph.nodes.flatMap((node) => {
    const own = asked.get(node);
    if (!own) return [];
    const stated = { ...sides(node, own.specs, graph, mesh), ...placeOf(node) };
    return Object.keys(stated).length === 0 ? [] : [{ match: { node: exactly(node.name) }, ...stated }];
  });
}

function touches({ inputs, outputs }: Node, tensor: string, graph: Graph): boolean {
  return [...inputs, ...outputs].some(
    (name) => name !== null && inFile(graph, name).some((form) => form.name === tensor),
  );
}

/** Layouts, and counts where no layout fits, at the places of operands and results; for weights in the file's dimensions. */
function sides(node: Node, specs: readonly ReadSpec[], graph: Graph, mesh: Mesh): Pick<PinRecord, 'layout' | 'split'> {
  const byTensor = new Map(specs.map((spec) => [spec.tensor, spec]));
  const stated = (name: string | null) => {
    const form = name === null ? undefined : inFile(graph, name).find((each) => byTensor.has(each.name));
    const spec = form && byTensor.get(form.name);
    if (!form || !spec) return null;
    // The annotation of a folded operator's result is about the weight.
    const file = form.file ? null : fileTensorOf(graph, name);
    const layout = layoutOfSpec(spec, form.shape, mesh);
    return { layout: layout && fileLayout(layout, file), counts: inFileOrder(countsOfSpec(spec), file, 1) };
  };
  const at = <Value>(
    names: readonly (string | null)[],
    value: (of: NonNullable<ReturnType<typeof stated>>) => Value | null,
  ) => {
    const values = names.map((name) => {
      const of = stated(name);
      return of && value(of);
    });
    return values.some((item) => item !== null) ? values : undefined;
  };
  const both = <Value>(value: (of: NonNullable<ReturnType<typeof stated>>) => Value | null) => {
    const [read, made] = [at(node.inputs, value), at(node.outputs, value)];
    return read || made ? { ...(read ? { in: read } : {}), ...(made ? { out: made } : {}) } : undefined;
  };
  const layout = both((of) => of.layout && layoutText(of.layout, mesh));
  const split = both((of) => (of.layout ? null : of.counts));
  return { ...(layout ? { layout } : {}), ...(split ? { split } : {}) };
}

/** A configuration in canonical form: 64-bit integers as numbers, specs in order. */
function canonical(own: NodeDeviceConfigurationProto | null): string {
  if (!own) return '';
  const specs = (own.sharding_spec ?? []).map((spec) =>
    JSON.stringify([
      spec.tensor_name ?? '',
      (spec.device ?? []).map(integerOf),
      (spec.index_to_device_group_map ?? []).map(({ key, value }) => [integerOf(key), (value ?? []).map(integerOf)]),
      (spec.sharded_dim ?? []).map(({ axis, simple_sharding: parts }) => [
        integerOf(axis),
        (parts ?? []).map((part) => [integerOf(part.dim_value), integerOf(part.num_shards)]),
      ]),
    ]),
  );
  return JSON.stringify([own.pipeline_stage ?? 0, specs.sort()]);
}

function badAnnotation(
  file: string,
  message: string,
  place: { readonly node?: string; readonly tensor?: string } = {},
): AutoparError {
  return new AutoparError(
    'bad-annotation',
    'input',
    message,
    { file, ...place },
    'ask the tool that wrote the annotations, or export the model without them',
  );
}
