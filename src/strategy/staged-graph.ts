/**
 * @file The graph of a plan's operators: the model's graph with clones of recomputed operators. For a pipeline it is the graph
 * that the search cut, with separate sums of gradients of weights that several stages read, and the stage of each forward
 * operator.
 */
import { NOTHING_RECOMPUTED, type RecomputedSet, withClones } from '../ir/autodiff/recompute.js';
import { type Graph, isOfModel, type Node } from '../ir/graph.js';
import { leadersOf } from '../ir/layers.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { lossAlone } from '../ir/passes/loss-alone.js';
import { onceAStep } from '../ir/passes/once-a-step.js';
import { inZigzag } from '../ir/passes/order-sequence.js';
import { withWeightsAsState } from '../ir/passes/state-weights.js';
import { accumulatedApart, type StagePlace, sharedOperators, withStageClones } from '../partition/cut-stages.js';
import type { LoweredStage, PipelineLayout } from '../partition/lower-stages.js';
import { makeSchedule } from '../schedule/make-schedule.js';
import { partAt, placeOfPart } from '../schedule/parts.js';
import { type Schedule, splitsBackward } from '../schedule/schedule.js';
import { meshesOf } from './assignment-of.js';
import type { Plan } from './plan.js';
import { castsOnce } from './request.js';
import { unfit } from './unfit.js';

export interface StagedGraph {
  readonly graph: Graph;
  /** Null for one stage. */
  readonly pipeline: { readonly layout: PipelineLayout; readonly schedule: Schedule } | null;
}

/**
 * @throws AutoparError (input) `plan-contradicts-itself` where an operator is placed before its operands, a chunk of a stage is
 * empty, or a layer is in two places; `plan-incomplete` where an operator has no place
 */
export function stagedGraph(plan: Plan, given: Graph): StagedGraph {
  const graph = inPlannedOrder(
    plan,
    withWeightsAsState(
      given,
      Object.keys(plan.tensors).filter((name) => given.weights.has(name)),
    ),
  );
  const { kind, interleave = 1, virtualStages = 1 } = plan.schedule;
  const microBatches = plan.schedule.microBatches / interleave;
  const recompute = recomputedIn(plan, graph);
  if (kind === 'single') return { graph: asRun(withClones(graph, recompute), plan), pipeline: null };
  const stages = plan.degrees.pp;
  const schedule = makeSchedule({ kind, stages, microBatches, virtualStages, training: plan.training !== null });
  const meshes = meshesOf(plan);
  // The plan has no entries for operators that a step does not run.
  const run = plan.training?.lossAlone ? lossAlone(graph) : graph;
  checkLayers(plan, run);
  const placed = placesIn(plan);
  const forward = graph.nodes.filter(({ phase }) => isOfModel(phase));
  const placeOf = new Map(
    forward.map((node) => {
      const { stage, chunk } = placed(node);
      return [node.name, { stage, chunk, part: partAt(kind, stage, chunk, stages) }];
    }),
  );
  checkOrder(run, placeOf, schedule);
  return {
    graph: asRun(withStageClones(accumulatedApart(graph, placeOf), recompute, placeOf), plan),
    pipeline: {
      layout: {
        stages,
        chunks: virtualStages,
        splitsBackward: schedule.training && splitsBackward(kind),
        placeOf,
        ...(meshes ? { meshes } : {}),
      },
      schedule,
    },
  };
}

/** The graph as steps run it: with operators that run once for all micro-batches, and without outputs that nothing reads. */
export function asRun(graph: Graph, { requested, training }: Pick<Plan, 'requested' | 'training'>): Graph {
  const stepped = castsOnce(requested) ? onceAStep(graph) : graph;
  return training?.lossAlone ? lossAlone(stepped) : stepped;
}

/**
 * The graph with its sequence in the order of the plan.
 * @throws AutoparError (input) `plan-contradicts-itself` where the sequence cannot be in that order
 */
export function inPlannedOrder({ sequence, degrees }: Pick<Plan, 'sequence' | 'degrees'>, graph: Graph): Graph {
  if (sequence?.order !== 'zigzag' || graph.ordered) return graph;
  const found = inZigzag(graph, degrees.sp);
  if (!found.graph)
    throw unfit('plan-contradicts-itself', `the plan has its sequence in zig-zag order, and ${found.reason}`, {});
  return found.graph;
}

/** Forward operators that the backward runs again. */
export function recomputedIn({ layerClasses, operators, schedule }: Plan, graph: Graph): RecomputedSet {
  const { from, exceptLast } = schedule.recompute ?? {};
  // A step's only micro-batch is its last.
  if (exceptLast && (graph.microBatches?.count ?? 1) === (schedule.interleave ?? 1)) return NOTHING_RECOMPUTED;
  const leaders = leadersOf(graph, layerClasses).operators;
  const kept = new Set(
    layerClasses.flatMap(({ instances, recompute }) => instances.filter((_, index) => recompute?.[index] === false)),
  );
  const named = graph.nodes.flatMap(({ name, phase, layer }) => {
    if (phase !== 'forward' || (layer !== null && kept.has(layer))) return [];
    const entry = leaders.get(name) ?? name;
    return Object.hasOwn(operators, entry) && operators[entry]?.recompute ? [name] : [];
  });
  return { operators: new Set(named), acrossLayers: from === 'stage', exceptLast: exceptLast === true };
}

/** Operators of a layer's class are written for its first layer: their places are that layer's. */
function checkLayers({ layerClasses, operators }: Plan, graph: Graph): void {
  const classOf = new Map(layerClasses.map((own) => [own.name, own]));
  const repeated = new Set(layerClasses.flatMap(({ instances }) => instances));
  for (const { name, layer, phase } of graph.nodes) {
    const own = Object.hasOwn(operators, name) ? operators[name] : undefined;
    if (!own && phase === 'forward' && !repeated.has(layer ?? ''))
      throw unfit('plan-incomplete', `the plan has no entry for operator ${name}`, { node: name });
    const { stages, chunks } = classOf.get(layer ?? '') ?? {};
    const [stage, chunk] = [stages?.[0] ?? own?.stage ?? 0, chunks?.[0] ?? own?.chunk ?? 0];
    if (!own || (own.stage === stage && (own.chunk ?? 0) === chunk)) continue;
    throw unfit(
      'plan-contradicts-itself',
      `the plan has operator ${name} on ${stageChunkText(own)}, and its layer ${layer} on ${stageChunkText({ stage, chunk })}`,
      { node: name },
    );
  }
}

/** Operators read results of earlier parts of the pipeline, or of their own part; every part has an operator. */
function checkOrder(
  graph: Graph,
  placeOf: ReadonlyMap<string, StagePlace>,
  { kind, stages, virtualStages }: Schedule,
): void {
  const partOf = ({ stage, chunk }: StagePlace) => partAt(kind, stage, chunk, stages);
  const shared = sharedOperators(graph);
  const makers = new Map<string, { readonly name: string; readonly place: StagePlace }>();
  const empty = new Set(Array.from({ length: stages * virtualStages }, (_, part) => part));
  for (const node of graph.nodes) {
    const { name, inputs, outputs } = node;
    const place = placeOf.get(name);
    if (!place || shared.has(node) || isAccumulator(node)) continue;
    empty.delete(partOf(place));
    for (const tensor of inputs) {
      const maker = makers.get(tensor ?? '');
      if (!maker || partOf(maker.place) <= partOf(place)) continue;
      throw unfit(
        'plan-contradicts-itself',
        `the plan has operator ${name} on ${stageChunkText(place)}, and it reads ${tensor}, which ${maker.name} makes on ` +
          `${stageChunkText(maker.place)}`,
        { node: name },
      );
    }
    for (const tensor of outputs) if (tensor !== null) makers.set(tensor, { name, place });
  }
  const [part] = empty;
  if (part === undefined) return;
  const place = placeOfPart(kind, part, stages);
  throw unfit('plan-contradicts-itself', `the plan has no forward operator on ${stageChunkText(place)}`, {});
}

/**
 * Checks the places that a plan gives operators besides the forward ones, which follow from those.
 * @throws AutoparError (input) `plan-contradicts-itself`
 */
export function checkStagePlaces(plan: Plan, graph: Graph, lowered: readonly LoweredStage[]): void {
  const stated = placesIn(plan);
  const placeOf = stagePlaces(lowered);
  const leaving = new Set([
    ...graph.outputs,
    ...lowered.flatMap(({ sharded }) => (sharded.pipeline?.sends ?? []).map(({ name }) => name)),
  ]);
  for (const [tensor, views] of Object.entries(plan.redistributions))
    if (!leaving.has(tensor) && views.some(({ readers }) => readers.includes('output')))
      throw unfit(
        'plan-contradicts-itself',
        `the plan has output as a reader of tensor ${tensor}, which leaves neither its stage nor the model`,
        { tensor },
      );
  for (const node of graph.nodes) {
    if (node.phase === 'recompute') continue;
    const [own, follows] = [stated(node), placeOf(node)];
    if (own.stage === follows.stage && own.chunk === follows.chunk) continue;
    throw unfit(
      'plan-contradicts-itself',
      `the plan has operator ${node.name} on ${stageChunkText(own)}; with its forward operators it is on ` +
        `${stageChunkText(follows)}`,
      { node: node.name },
    );
  }
}

export function stageChunkText({ stage, chunk = 0 }: { readonly stage?: number; readonly chunk?: number }): string {
  return chunk > 0 ? `stage ${stage}, chunk ${chunk}` : `stage ${stage}`;
}

/** Where operators are that were lowered; one that several stages run for themselves, on the first of them. */
export function stagePlaces(lowered: readonly LoweredStage[]): (node: Pick<Node, 'name'>) => StagePlace {
  const places = new Map<string, StagePlace>();
  for (const [stage, { graph, sharded }] of lowered.entries())
    for (const { name } of graph.nodes)
      if (!places.has(name)) places.set(name, { stage, chunk: sharded.pipeline?.chunkOf.get(name) ?? 0 });
  return ({ name }) => places.get(name) ?? { stage: 0, chunk: 0 };
}

/** Where a plan has operators: those of layers that repeat with their layer. */
export function placesIn({ layerClasses, operators }: Plan): (node: Pick<Node, 'name' | 'layer'>) => StagePlace {
  const ofLayer = new Map(
    layerClasses.flatMap(({ instances, stages, chunks }) =>
      instances.map((layer, index) => [layer, { stage: stages?.[index] ?? 0, chunk: chunks?.[index] ?? 0 }] as const),
    ),
  );
  return ({ name, layer }) => {
    const { stage = 0, chunk = 0 } = ofLayer.get(layer ?? '') ?? operators[name] ?? {};
    return { stage, chunk };
  };
}
