/**
 * @file From the result of a search to plan.json's record.
 *
 * A plan states nothing twice. Operators of a repeated layer are spelt out for the first layer of their class only. A
 * tensor's reshards are left out where they follow: one reshard of all readers, in the layout that is produced, or in the
 * layout of the corresponding tensor's reshard in the first layer.
 */
import { clonedOperators, originalTensors, type RecomputedSet } from '../ir/autodiff/recompute.js';
import { fileTensorOf, type Graph, type Node } from '../ir/graph.js';
import { classNames, type LayerClass, layerClasses, leadersOf, operatorsByLayer } from '../ir/layers.js';
import { stateWeights } from '../ir/passes/state-weights.js';
import type { Assignment, SharedReshard } from '../partition/assignment.js';
import type { StagePlace } from '../partition/cut-stages.js';
import type { LoweredStage, PipelineLayout } from '../partition/lower-stages.js';
import type { Schedule } from '../schedule/schedule.js';
import { tensorLayoutText } from '../sharding-propagation/file-form.js';
import { isReplicated, type Layout } from '../sharding-propagation/layout.js';
import { layoutText } from '../sharding-propagation/layout-text.js';
import { type Mesh, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { dataAxes, type InnerDegrees } from '../sharding-propagation/roles.js';
import { axisSizes } from '../sharding-propagation/stage-meshes.js';
import { REPLICATED, type Strategy } from '../sharding-propagation/strategy.js';
import { firstTexts } from './first-only.js';
import { offloadParts } from './offload-words.js';
import type {
  Plan,
  PlanLayerClass,
  PlanOperator,
  PlanPass,
  PlanPrediction,
  PlanReshard,
  PlanSchedule,
  PlanSequence,
  PlanTraining,
} from './plan.js';
import { PLAN_VERSION } from './plan.js';
import { producedLayouts } from './produced-layouts.js';
import { readerText } from './readers.js';
import { bucketLimit, isServed, type PlanRequest } from './request.js';
import { stagePlaces } from './staged-graph.js';

/** The result of a search. */
export interface SearchResult {
  readonly assignment: Assignment;
  readonly prediction: PlanPrediction;
  readonly degrees: InnerDegrees;
  /** The minimised cost; equal to the price of the lowered graph. */
  readonly costNanoseconds: number;
  /** Lower bound under these degrees; equal to the cost where the optimum is proven. */
  readonly boundNanoseconds: number;
  /** Per reshard of the assignment: its steps, such as `all-gather(tp)`. */
  readonly viewSteps: readonly (readonly string[])[];
  readonly mode: string;
  /** The pins, such as `tp=2`: of the user, or of a proposal. */
  readonly pins: readonly string[];
  /** The stages as they are lowered, and what they run; left out for one. */
  readonly pipeline?: {
    readonly schedule: Pick<Schedule, 'kind' | 'stages' | 'virtualStages'>;
    readonly layout?: Pick<PipelineLayout, 'meshes'>;
  };
  readonly lowered?: readonly LoweredStage[];
  /** By operator: places that the user decided besides strategies. */
  readonly places?: ReadonlyMap<string, 'device' | 'host'>;
  /** The requested recomputation; for a graph with clones. */
  readonly recomputed?: RecomputedSet;
  /** The request in words. */
  readonly requested?: PlanRequest;
  /** How sp shards sequences. */
  readonly sequence?: PlanSequence;
  /** False where reshardings had to do without all-to-alls. */
  readonly allToAll?: boolean;
  /** A limit in seconds ended the search: equal questions may have other answers. */
  readonly isTimeLimited?: boolean;
}

/** The model of a plan, as imported. */
export interface PlanSubject extends Readonly<Plan['model']> {
  readonly graph: Graph;
  /** The passes that made the graph, in order. */
  readonly passes: readonly PlanPass[];
  /** The description of the training step, if the graph is one. */
  readonly training?: PlanTraining;
}

/** The cluster, with its device's id. */
export interface PlannedCluster {
  readonly nodes: number;
  readonly perNode: number;
  readonly device: { readonly id: string };
  readonly description?: object;
}

/** The plan of a search's result, for one model on one cluster. */
export function planOf(found: SearchResult, model: PlanSubject, cluster: PlannedCluster): Plan {
  const { graph, name, fingerprint, dims, globalBatch, passes } = model;
  const { assignment, prediction } = found;
  const serving = dataAxes(assignment.mesh).flatMap(({ name, size }) => (size > 1 ? [name] : []));
  const parts = offloadParts(found.requested?.offload ?? 'none');
  const { stages: pp = 1, virtualStages = 1 } = found.pipeline?.schedule ?? {};
  const meshes = found.pipeline?.layout?.meshes?.stages;
  const devices = cluster.nodes * cluster.perNode;
  const placeOf = stagePlaces(found.lowered ?? []);
  const nodes = graph.nodes.filter(({ phase }) => phase !== 'recompute');
  const torn = tornLayers(nodes, placeOf);
  const cloned = clonedOperators(graph);
  const layers = recomputingClasses({ ...graph, nodes }, found.recomputed?.operators ?? cloned, (node) => [
    entryOf(found, node),
    torn.has(node.layer) ? node.layer : null,
  ]).filter(({ instances }) => instances.length > 1);
  const inLayers = operatorsByLayer(nodes);
  const leaders = leadersOf(graph, layers);
  const recomputed = new Set([...cloned].map((name) => leaders.operators.get(name) ?? name));
  const operators = nodes
    .filter((node) => !leaders.operators.has(node.name))
    .map((node): readonly [string, PlanOperator] => {
      const { place, ...strategy } = entryOf(found, node);
      const recompute = recomputed.has(node.name);
      return [node.name, { ...placeEntry(placeOf(node)), ...strategy, recompute, ...(place ? { place } : {}) }];
    });
  const places = new Map(nodes.map((node) => [node.layer, placeOf(node)]));
  const placesIn = (instances: readonly string[]) => ({
    ...(pp > 1 ? { stages: instances.map((layer) => places.get(layer)?.stage ?? 0) } : {}),
    ...(virtualStages > 1 ? { chunks: instances.map((layer) => places.get(layer)?.chunk ?? 0) } : {}),
  });
  const produced = producedLayouts(graph, assignment);
  const held = stateWeights(graph);
  const clones = originalTensors(graph);
  const firstOf = firstTexts(
    graph.state.map(({ input }) => input),
    found.lowered ?? [],
  );
  const tensors = [...produced]
    .filter(([tensor]) => !leaders.tensors.has(tensor) && !clones.has(tensor))
    .filter(([tensor, layout]) => held.has(tensor) || !isReplicated(layout) || firstOf(tensor) !== '')
    .map(([tensor, layout]) => {
      const text = tensorLayoutText(graph, tensor, layout, assignment.mesh);
      return [tensor, `${text}${firstOf(tensor)}`] as const;
    });
  return {
    format: 'autopar-plan',
    version: PLAN_VERSION,
    model: { name, fingerprint, dims, globalBatch },
    passes: passes.map((pass) => ({ name: pass.name, ...(pass.options ? { options: pass.options } : {}) })),
    cluster: {
      nodes: cluster.nodes,
      perNode: cluster.perNode,
      device: cluster.device.id,
      ...(cluster.description ? { description: cluster.description } : {}),
    },
    mesh: [...(pp > 1 ? [{ axis: STAGE_AXIS, size: pp }] : []), ...axesOf(meshes?.[0] ?? assignment.mesh)],
    ...(meshes ? { meshes: meshes.map((own) => axisSizes(own).map(([axis, size]) => ({ axis, size }))) } : {}),
    degrees: { dp: 1, tp: 1, pp, sp: 1, ep: 1, ...found.degrees },
    stages: Array.from({ length: pp }, (_, stage) => ({
      operators: nodes.filter((node) => placeOf(node).stage === stage).length,
      devices: devices / pp,
    })),
    layerClasses: layers.map((layer) => ({
      ...layer,
      operators: inLayers.get(layer.name)?.length ?? 0,
      ...placesIn(layer.instances),
      ...variantsOf(nodes, layer, cloned),
    })),
    operators: Object.fromEntries(operators),
    tensors: Object.fromEntries(tensors),
    redistributions: planReshards(found, graph, produced, leaders.tensors),
    training: model.training ?? null,
    schedule: scheduleOf(graph, found, cloned.size > 0),
    predicted: prediction,
    search: {
      mode: found.mode,
      costSeconds: found.costNanoseconds / 1e9,
      boundSeconds: found.boundNanoseconds / 1e9,
      gap: found.costNanoseconds === 0 ? 0 : 1 - found.boundNanoseconds / found.costNanoseconds,
      ...(found.isTimeLimited ? { timeLimited: true as const } : {}),
    },
    pins: found.pins,
    ...(Object.keys(found.requested ?? {}).length > 0 ? { requested: found.requested ?? {} } : {}),
    ...(Object.keys(parts).length > 0 ? { places: parts } : {}),
    ...(found.sequence ? { sequence: found.sequence } : {}),
    ...(isServed(found.requested) && serving.length > 0 ? { server: serving } : {}),
    ...(found.allToAll === false ? { allToAll: false } : {}),
  };
}

/**
 * Classes of layers in which an instance recomputes the same operators as the others, or none: layers that recompute other
 * operators are another class. Whether a clone's result is read depends on the layer's position: so requests are compared.
 */
function recomputingClasses(
  graph: Graph,
  asked: ReadonlySet<string>,
  describe: (node: Node) => unknown,
): readonly LayerClass[] {
  if (asked.size === 0) return layerClasses(graph, describe);
  const isAlike = (node: Node) => asked.has(node.name);
  const own = layerClasses(graph, (node) => [describe(node), isAlike(node)]);
  const recomputing = new Set(graph.nodes.flatMap((node) => (isAlike(node) ? [node.layer] : [])));
  const variant = classNames(own);
  const together = layerClasses(graph, describe);
  const mixed = new Set(
    together.flatMap(({ instances }) => {
      const variants = new Set(instances.filter((layer) => recomputing.has(layer)).map((layer) => variant.get(layer)));
      return variants.size > 1 ? instances : [];
    }),
  );
  if (mixed.size === 0) return together;
  return layerClasses(graph, (node) => [describe(node), mixed.has(node.layer ?? '') && isAlike(node)]);
}

/** Which instances of a class recompute; nothing where all do, or none does. */
function variantsOf(
  nodes: readonly Node[],
  { instances }: LayerClass,
  cloned: ReadonlySet<string>,
): Pick<PlanLayerClass, 'recompute'> {
  const recomputing = new Set(nodes.flatMap(({ name, layer }) => (cloned.has(name) ? [layer] : [])));
  const recompute = instances.map((layer) => recomputing.has(layer));
  return new Set(recompute).size > 1 ? { recompute } : {};
}

function axesOf({ axes }: Mesh): Plan['mesh'] {
  return axes.map(({ name, size }) => ({ axis: name as Plan['mesh'][number]['axis'], size }));
}

/** Layers whose operators are not all in one place. */
function tornLayers(nodes: readonly Node[], placeOf: (node: Node) => StagePlace): ReadonlySet<string | null> {
  const places = new Map<string, StagePlace>();
  const torn = new Set<string>();
  for (const node of nodes) {
    if (node.layer === null) continue;
    const own = placeOf(node);
    const first = places.get(node.layer) ?? own;
    places.set(node.layer, first);
    if (own.stage !== first.stage || own.chunk !== first.chunk) torn.add(node.layer);
  }
  return torn;
}

function placeEntry({ stage, chunk }: StagePlace): Pick<PlanOperator, 'stage' | 'chunk'> {
  return { stage, ...(chunk > 0 ? { chunk } : {}) };
}

/** The schedule. A step in several micro-batches also states its samples: those of a micro-batch times the micro-batches. */
function scheduleOf(
  { microBatches, batch, tensors }: Graph,
  { pipeline, degrees: { dp = 1 }, requested, recomputed, assignment: { gathersAgain } }: SearchResult,
  isRecomputed: boolean,
): PlanSchedule {
  const count = microBatches?.count ?? 1;
  const samples = samplesOf({ batch, tensors });
  const isWritten = count > 1 && samples > 0 && samples % dp === 0;
  return {
    kind: pipeline?.schedule.kind ?? 'single',
    microBatches: count,
    ...(requested?.interleave === 2 && microBatches ? { interleave: 2 as const } : {}),
    ...(isWritten ? { microBatch: samples / dp, batch: samples * count } : {}),
    ...((pipeline?.schedule.virtualStages ?? 1) > 1
      ? { virtualStages: pipeline?.schedule.virtualStages as number }
      : {}),
    ...bucketLimit(requested),
    ...recomputeOf(isRecomputed ? recomputed : undefined, gathersAgain),
  };
}

/** Samples of a micro-batch over all ranks of dp; 0 where no input has a batch. */
export function samplesOf({ batch: [first], tensors }: Pick<Graph, 'batch' | 'tensors'>): number {
  return first ? (tensors.get(first.input)?.shape[first.axis] ?? 0) : 0;
}

/** Recomputation settings that no operator states; left out if none. */
function recomputeOf(recomputed: SearchResult['recomputed'], gathersAgain?: true): Pick<PlanSchedule, 'recompute'> {
  const { acrossLayers = false, exceptLast = false } = recomputed ?? {};
  const recompute = {
    ...(acrossLayers ? { from: 'stage' as const } : {}),
    ...(exceptLast ? { exceptLast: true as const } : {}),
    ...(gathersAgain ? { gathers: true as const } : {}),
  };
  return Object.keys(recompute).length > 0 ? { recompute } : {};
}

function entryOf(
  { assignment, places }: SearchResult,
  { name, group }: Node,
): Omit<PlanOperator, 'stage' | 'chunk' | 'recompute'> {
  const { axes, pieces, partialOperands, pending }: Strategy = assignment.strategies.get(group) ?? REPLICATED;
  const place = places?.get(name);
  return {
    strategy: axes,
    ...(pieces ? { pieces } : {}),
    ...(partialOperands ? { partial: partialOperands } : {}),
    ...(pending.kind === 'none' ? {} : { reduction: pending }),
    ...(place ? { place } : {}),
  };
}

/** Reshards that do not follow from the rest of the plan. */
function planReshards(
  found: SearchResult,
  graph: Graph,
  produced: ReturnType<typeof producedLayouts>,
  leaders: ReadonlyMap<string, string>,
): Readonly<Record<string, readonly PlanReshard[]>> {
  const { mesh, sharedReshards } = found.assignment;
  const texts = new Map<Layout, string>();
  const written = (tensor: string, layout: Layout): string => {
    if (fileTensorOf(graph, tensor)) return tensorLayoutText(graph, tensor, layout, mesh);
    const text = texts.get(layout) ?? layoutText(layout, mesh);
    texts.set(layout, text);
    return text;
  };
  const byTensor = new Map<string, { readonly reshard: SharedReshard; readonly entry: PlanReshard }[]>();
  sharedReshards.forEach((reshard, index) => {
    const entry = {
      readers: reshard.readers.map(readerText),
      layout: written(reshard.tensor, reshard.layout),
      steps: found.viewSteps[index] ?? [],
    };
    const list = byTensor.get(reshard.tensor);
    if (list) list.push({ reshard, entry });
    else byTensor.set(reshard.tensor, [{ reshard, entry }]);
  });
  const single = (tensor: string) => {
    const list = byTensor.get(tensor) ?? [];
    return list.length === 1 ? list[0]?.entry.layout : undefined;
  };
  const textOf = (tensor: string) => {
    const layout = produced.get(tensor);
    return layout && written(tensor, layout);
  };
  const follows = (tensor: string) => {
    const leader = leaders.get(tensor);
    const layout = single(tensor);
    if (layout === undefined) return false;
    const derived = leader === undefined || single(leader) === undefined ? textOf(tensor) : single(leader);
    return layout === derived;
  };
  return Object.fromEntries(
    [...byTensor]
      .filter(([tensor]) => !follows(tensor))
      .map(([tensor, list]) => [tensor, list.map(({ entry }) => entry)]),
  );
}
