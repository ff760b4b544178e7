/**
 * @file explain: why a tensor or an operator of a plan is sharded as it is. It lists the steps of propagation back to the user's
 * pin, the layouts and resharding in the plan, and their costs. It returns data only: the command line prints it.
 */

import type { Cluster } from '../cost-model/cluster.js';
import type { DType } from '../ir/dtype.js';
import { dtypeBits } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { fileTensorOf, type Graph, type Node, storedIn, typeOf } from '../ir/graph.js';
import { groupBy } from '../ir/group-by.js';
import { offer } from '../ir/nearest.js';
import type { Assignment, SharedReshard, TensorReader } from '../partition/assignment.js';
import type { StagePlace } from '../partition/cut-stages.js';
import { type LoweredStage, meshOfOperators, type PipelineLayout } from '../partition/lower-stages.js';
import type { Schedule } from '../schedule/schedule.js';
import type { RequestedRoles } from '../search/operator-facts.js';
import { arrivingLayouts } from '../search/reshard-texts.js';
import { fileDimension, fileShape, tensorLayoutText } from '../sharding-propagation/file-form.js';
import type { Layout } from '../sharding-propagation/layout.js';
import { namesInMeshOrder } from '../sharding-propagation/layout-text.js';
import type { Mesh, SubAxis } from '../sharding-propagation/mesh.js';
import type { Pin, PinSource } from '../sharding-propagation/pin.js';
import type { Propagation } from '../sharding-propagation/propagation/propagate.js';
import { type ReasonStep, tensorChain } from '../sharding-propagation/propagation/reasons.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import { firstTexts } from '../strategy/first-only.js';
import type { Plan } from '../strategy/plan.js';
import { producedLayouts } from '../strategy/produced-layouts.js';
import { operandsOf } from './explanations/explain-layouts.js';
import { asServed, servedStages } from './explanations/explain-served.js';
import { type ExplainedTransfer, placesOfTensor, transfersOf } from './explanations/explain-stages.js';
import { stagePricesOf } from './explanations/stage-prices.js';
import { checkArguments, objects, text } from './options/kinds.js';
import { EXPLAINABLE, PLANNED } from './options/results.js';
import type { PlannedModel } from './plan.js';

/** A plan in the form that explanations read. */
export interface Explainable {
  readonly graph: Graph;
  readonly cluster: Cluster;
  readonly assignment: Assignment;
  /** Whether resharding may use all-to-all. */
  readonly allToAll: boolean;
  /** The propagation that made the plan; null if a search made it. */
  readonly propagation: Propagation | null;
  /** The user's pins on the plan's mesh. */
  readonly pins: readonly Pin[];
  /** The plan's buckets and micro-batch halves, whose communication overlaps with compute; none if left out. */
  readonly schedule?: Plan['schedule'];
  /** The stages of a pipeline; left out without a pipeline. */
  readonly stages?: readonly LoweredStage[];
  /** The schedule that they run. */
  readonly stageSchedule?: Schedule;
  /** The stages, if the first rank of some axes updates for the others (parameter server); left out if all ranks update. */
  readonly served?: readonly LoweredStage[];
  /** The mesh of an operator's stage, if stages have different meshes. */
  readonly meshOf?: (node: Pick<Node, 'name'>) => Mesh;
  /** The layout in which a reshard's tensor arrives on its readers' stage, if a stage with another mesh sends it. */
  readonly arriving?: (reshard: SharedReshard) => Layout | undefined;
  /** Other restrictions of the search: `roles` if dp shards only the batch, and axes whose degree was given. */
  readonly left?: {
    readonly axes: 'roles' | 'free';
    readonly degrees: ReadonlySet<string>;
    readonly asked?: RequestedRoles;
  };
}

/** The chain of propagation steps that brought axes to one place. */
export interface AxisChain {
  readonly axes: readonly string[];
  /** `dimension 1` of a tensor, `factor n` of an operator. */
  readonly place: string;
  /** Steps from the place itself back to the pin, or to the batch. */
  readonly steps: readonly (ReasonStep & { readonly says: string })[];
}

/** A resharding between the layout in which a tensor is computed and the one in which it is read. */
export interface ExplainedResharding {
  readonly from: string;
  readonly to: string;
  /** Such as `all-gather(tp)`. */
  readonly steps: readonly string[];
  readonly seconds: number;
}

export interface ExplainedReshard extends ExplainedResharding {
  /** Operators; `output` if the tensor is a graph output, `other stages` if it is sent in this layout. */
  readonly readers: readonly {
    readonly reader: string;
    readonly operand: number;
    /** Resharding from this layout to the one that the operator takes; null if they are the same. */
    readonly own: ExplainedResharding | null;
  }[];
}

export interface TensorExplanation {
  readonly tensor: string;
  /** `weight`: includes trained parameters; `state`: other tensors that a training step changes. */
  readonly role: 'input' | 'weight' | 'state' | 'computed';
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** The layout in which it is computed or fed; for a weight, every layout in which it is stored. */
  readonly layouts: readonly string[];
  /** Pipeline stages that compute it; for an input or a weight, stages that read it. Empty without a pipeline. */
  readonly places: readonly StagePlace[];
  /** Sends from the stage that computes it to other stages. */
  readonly transfers: readonly ExplainedTransfer[];
  /** The operator that computes it. */
  readonly maker: string | null;
  readonly views: readonly ExplainedReshard[];
  /** Operators that read the weight, with the layout of the shards that they read. */
  readonly shards: readonly { readonly reader: string; readonly operand: number; readonly layout: string }[];
  /** @deprecated older name of `shards` */
  readonly blocks: TensorExplanation['shards'];
  readonly chains: readonly AxisChain[];
  readonly pins: readonly PinSource[];
}

/** The result of `plan` in the form that explanations read; `pins` are the pins on its mesh. */
export function explainablePlan(planned: PlannedModel, pins: readonly Pin[]): Explainable {
  checkArguments('explainablePlan', { planned: [planned, PLANNED], pins: [pins, objects] });
  const { imported, cluster, found, pipeline, plan } = planned;
  const { assignment, propagation = null } = found;
  const graph = pipeline?.graph ?? imported.graph;
  const stages = pipeline
    ? { stages: found.lowered, stageSchedule: pipeline.schedule, ...meshesIn(graph, assignment, pipeline.layout) }
    : {};
  return {
    graph,
    cluster,
    assignment,
    allToAll: plan.allToAll ?? true,
    propagation,
    pins,
    schedule: plan.schedule,
    ...stages,
    ...servedStages(plan, () => found.lowered),
  };
}

/** The meshes and arriving layouts of stages that have meshes of their own; empty if all share one mesh. */
export function meshesIn(
  graph: Graph,
  assignment: Assignment,
  layout: PipelineLayout,
): Pick<Explainable, 'meshOf' | 'arriving'> {
  const meshOf = meshOfOperators(graph, layout);
  return meshOf ? { meshOf, arriving: arrivingLayouts(graph, assignment, layout) } : {};
}

/** The mesh whose axes a tensor's layouts name: that of the stage that computes it or, if none does, of its first reader. */
function meshOfTensor({ graph, assignment, meshOf }: Explainable, tensor: string): Mesh {
  const near = nearestOperator(graph, tensor);
  return (near && meshOf?.(near)) ?? assignment.mesh;
}

/** The operator that computes a tensor, or else its first reader. */
function nearestOperator({ nodes }: Graph, tensor: string): Node | undefined {
  return nodes.find(({ outputs }) => outputs.includes(tensor)) ?? nodes.find(({ inputs }) => inputs.includes(tensor));
}

/** Why a tensor is sharded as it is. @throws AutoparError `unknown-tensor` (usage) with the nearest name */
export function explainTensor(plan: Explainable, name: string): TensorExplanation {
  checkArguments('explainTensor', { plan: [plan, EXPLAINABLE], name: [name, text] });
  const { graph, assignment, propagation, pins } = plan;
  // A weight may have its name from the file.
  const tensor = graph.tensors.has(name)
    ? name
    : ([...graph.weights.keys(), ...(graph.initial?.keys() ?? [])].find(
        (weight) => fileTensorOf(graph, weight)?.name === name,
      ) ?? name);
  const type = graph.tensors.get(tensor);
  if (!type) throw unknownName('tensor', name, [...graph.tensors.keys()]);
  const mesh = meshOfTensor(plan, tensor);
  const isWeight = graph.weights.has(tensor);
  const stored = storedIn(graph, tensor);
  const isInput = graph.inputs.includes(tensor);
  const made = producedLayouts(graph, assignment).get(tensor);
  const shards = isWeight ? shardsOf(plan, tensor) : [];
  const axes = mesh.axes.flatMap((axis) => axis.subAxes.map((sub) => sub.name));
  const reasons = propagation?.reasons.tensors.get(tensor) ?? [];
  const chains = axes.flatMap((axis): readonly RawChain[] => {
    const reason = reasons.find((own) => own.axis === axis);
    if (!reason || !propagation) return [];
    return [
      {
        axis,
        place: `dimension ${fileDimension(graph, tensor, reason.dimension)}`,
        steps: tensorChain(propagation.reasons, tensor, axis),
      },
    ];
  });
  return {
    tensor,
    role: stored ? (isWeight || stored.role === 'parameter' ? 'weight' : 'state') : isInput ? 'input' : 'computed',
    dtype: type.dtype,
    shape: fileShape(graph, tensor),
    layouts: isWeight
      ? [...new Set(shards.map(({ layout }) => layout))]
      : made
        ? [`${tensorLayoutText(graph, tensor, made, mesh)}${firstTexts([tensor], plan.served ?? [])(tensor)}`]
        : [],
    places: placesOfTensor(plan.stages ?? [], tensor),
    transfers: transfersOf(plan.stages ?? [], tensor),
    maker: graph.nodes.find((node) => node.outputs.includes(tensor))?.name ?? null,
    views: made ? viewsOf(plan, tensor, made) : [],
    shards,
    blocks: shards,
    chains: joinChains(chains, graph, mesh),
    pins: pins.flatMap((pin) => (pin.kind === 'tensor' && pin.tensor === tensor ? [pin.source] : [])),
  };
}

/**
 * The resharding of a tensor from one layout to another; null if none is needed.
 * @param mesh the mesh whose axes the result names
 */
export function reshardingOf(
  plan: Explainable,
  by: Resharder,
  tensor: string,
  from: Layout,
  to: Layout,
  mesh: Mesh = meshOfTensor(plan, tensor),
): ExplainedResharding | null {
  const { graph } = plan;
  const { shape, dtype } = typeOf(graph, tensor);
  const steps = by.ops(from, to, shape, dtypeBits(dtype));
  if (steps.length === 0) return null;
  return {
    from: tensorLayoutText(graph, tensor, from, mesh),
    to: tensorLayoutText(graph, tensor, to, mesh),
    steps: steps.map(({ kind, axes }) => `${kind}(${namesInMeshOrder(axes, mesh).join(',')})`),
    seconds: by.cost(from, to, shape, dtypeBits(dtype)) / 1e9,
  };
}

/** The chain of one sub-axis, before the chains of an axis are joined. */
interface RawChain {
  readonly axis: SubAxis;
  readonly place: string;
  readonly steps: readonly ReasonStep[];
}

/** Chains for display: sub-axes with the same chain are joined. */
export function joinChains(chains: readonly RawChain[], graph: Graph, mesh: Mesh): readonly AxisChain[] {
  const joined = groupBy(chains, ({ place, steps }) => JSON.stringify([place, steps]));
  return [...joined.values()].flatMap((list) => {
    const [first] = list;
    if (!first) return [];
    const axes = namesInMeshOrder(
      list.map(({ axis }) => axis),
      mesh,
    );
    const steps = first.steps.map((step) => inFileDimensions(step, graph));
    return [{ axes, place: first.place, steps: steps.map((step) => ({ ...step, says: stepText(step) })) }];
  });
}

const UNKNOWN = { tensor: 'unknown-tensor', node: 'unknown-node' } as const;

/** The error for an unknown name, with the nearest known name. */
export function unknownName(kind: 'tensor' | 'node', name: string, names: readonly string[]): AutoparError {
  return new AutoparError(
    UNKNOWN[kind],
    'usage',
    `the model has no ${kind} ${name}`,
    { [kind]: name },
    offer(name, names),
  );
}

function inFileDimensions(step: ReasonStep, graph: Graph): ReasonStep {
  return step.at === 'tensor' ? { ...step, dimension: fileDimension(graph, step.tensor, step.dimension) } : step;
}

function stepText(step: ReasonStep): string {
  switch (step.at) {
    case 'tensor':
      return `tensor ${step.tensor}, dimension ${step.dimension}`;
    case 'operator':
      return `operator ${step.node}, factor ${step.factor}`;
    case 'batch':
      return 'the batch, which dp shards';
    case 'pin': {
      const { text, file, line } = step.source;
      return file === null ? text : `${text} (${file}${line === null ? '' : `:${line}`})`;
    }
  }
}

function viewsOf(plan: Explainable, tensor: string, made: Layout): readonly ExplainedReshard[] {
  const { assignment } = plan;
  const pricesOf = stagePricesOf(plan);
  const near = nearestOperator(plan.graph, tensor)?.name ?? '';
  const pricesOfReader = (reader: TensorReader | undefined) =>
    pricesOf(reader?.kind === 'operator' ? reader.name : near);
  const taken = operandsOf(plan);
  const meshOfReader = ({ kind, name }: TensorReader) => (kind === 'operator' ? plan.meshOf?.({ name }) : undefined);
  const own = (reader: TensorReader, from: Layout) => {
    const to = reader.kind === 'operator' ? taken(reader.name)[reader.operand] : null;
    return to ? reshardingOf(plan, pricesOfReader(reader).resharder, tensor, from, to, meshOfReader(reader)) : null;
  };
  const leaves = (name: string) => (plan.graph.outputs.includes(name) ? 'output' : 'other stages');
  return assignment.sharedReshards
    .filter((reshard) => reshard.tensor === tensor)
    .map((reshard) => {
      const [first] = reshard.readers;
      const mesh = (first && meshOfReader(first)) ?? meshOfTensor(plan, tensor);
      return { ...reshard, mesh, prices: pricesOfReader(first), from: plan.arriving?.(reshard) ?? made };
    })
    .map(({ layout, readers, from, mesh, prices }) => ({
      ...asServed(
        reshardingOf(plan, prices.resharder, tensor, from, layout, mesh) ?? unchanged(plan, tensor, from, mesh),
        { tensor, layout, readers },
        mesh,
        plan.served,
        prices.cluster,
      ),
      readers: readers.map((reader) => ({
        reader: reader.kind === 'operator' ? reader.name : leaves(reader.name),
        operand: reader.operand,
        own: own(reader, layout),
      })),
    }));
}

function unchanged({ graph }: Explainable, tensor: string, layout: Layout, mesh: Mesh): ExplainedResharding {
  const text = tensorLayoutText(graph, tensor, layout, mesh);
  return { from: text, to: text, steps: [], seconds: 0 };
}

function shardsOf(plan: Explainable, weight: string): TensorExplanation['shards'] {
  const taken = operandsOf(plan);
  return plan.graph.nodes.flatMap((node) =>
    node.inputs.flatMap((input, operand) => {
      const layout = input === weight ? taken(node.name)[operand] : null;
      return layout
        ? [
            {
              reader: node.name,
              operand,
              layout: tensorLayoutText(plan.graph, weight, layout, plan.meshOf?.(node) ?? plan.assignment.mesh),
            },
          ]
        : [];
    }),
  );
}
