/**
 * @file The plan of a rehearsal: a smaller model, a smaller mesh, and the plan's entries on them, lowered.
 */
import { AutoparError } from '../../ir/error.js';
import { fingerprint } from '../../ir/fingerprint.js';
import type { Graph } from '../../ir/graph.js';
import { interruptible } from '../../ir/interruption.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { Schedule } from '../../schedule/schedule.js';
import { batchSize } from '../../search/degrees.js';
import { deviceCount } from '../../sharding-propagation/mesh.js';
import { meshesOf } from '../../strategy/assignment-of.js';
import type { Plan } from '../../strategy/plan.js';
import { planFromJson, planToJson } from '../../strategy/plan-json.js';
import { inPlannedOrder } from '../../strategy/staged-graph.js';
import type { CompiledModel } from '../models/compiled-model.js';
import type { ImportedModel } from '../models/import.js';
import { withRandomWeights, withValuesOf } from '../models/random-weights.js';
import { assignedPlan, clusterOf, lowerAssigned } from '../planning/lower-plan.js';
import type { BigPlan } from './big-plan.js';
import { type Counterparts, counterparts } from './counterparts.js';
import { leadersIn } from './coverage.js';
import { layerRuns, type PlacedLayer, type RemovedLayers, withoutLayers } from './fewer-layers.js';
import { type FewerParts, fewerParts } from './fewer-parts.js';
import { NoReducedForm, sizePairs } from './mapped-layouts.js';
import { type ReducedMesh, reducedMesh } from './reduced-mesh.js';
import { partIn, reducedDegrees, reducedPlan, smallStages } from './reduced-plan.js';
import { sameRoutes } from './same-routes.js';
import { type ModelAttempt, modelAttempts, type ReducedSize, type SmallRequest } from './smaller-models.js';
import { checkCuts, narrowSizes, wholeCuts } from './smaller-sizes.js';

/** The weights of its models have values. */
export interface SmallPlan extends Omit<CompiledModel, 'file'> {
  readonly plan: Plan;
  readonly lowered: readonly LoweredStage[];
  readonly schedule: Schedule | null;
  readonly assignment: ReturnType<typeof assignedPlan>['assignment'];
  readonly same: Counterparts;
  readonly mesh: ReducedMesh;
  readonly parts: FewerParts | null;
  readonly ranks: number;
  readonly reduced: readonly ReducedSize[];
  readonly notes: readonly string[];
}

/** The fewest ranks of a pipeline. */
const LEAST_STAGES = 2;

/** @throws AutoparError (noPlan) `no-rehearsal` where the plan has no form at reduced sizes */
export async function smallPlan(big: BigPlan, request: SmallRequest): Promise<SmallPlan> {
  const { pipeline, assignment } = big;
  const unlike = meshesOf(big.plan);
  const stages = unlike?.stages.length ?? (pipeline ? LEAST_STAGES : 1);
  if (stages > request.ranks) throw unreduced(`its ${stages} stages, whose meshes differ, have ${request.ranks} ranks`);
  // Widths of a file are not reduced, so axes that shard one into single elements, or with padding, keep their sizes. With
  // unlike meshes only axes of size 2 work, which are sub-axes of every stage.
  const isOfFile = request.source.generated === undefined && !unlike;
  const wholes = isOfFile ? wholeCuts(big.graph, assignment, batchSize(big.graph)) : [];
  const mesh = reducedMesh(assignment, big.lowered, Math.floor(request.ranks / stages), wholes, unlike);
  const leader = leadersIn(big.graph, big.kindOf);
  const parts = pipeline
    ? fewerParts(
        big.graph,
        pipeline.schedule,
        pipeline.placeOf,
        assignment.sharedReshards,
        leader,
        unlike ? null : Math.floor(request.ranks / deviceCount(mesh.mesh)),
      )
    : null;
  const narrow = narrowSizes(big, mesh);
  const reasons: string[] = [];
  const together = big.plan.schedule.interleave ?? 1;
  const microBatches = together * (parts?.microBatches ?? MICRO_BATCHES);
  for (const attempt of modelAttempts(request, { mesh, microBatches, narrow })) {
    await interruptible(request.signal);
    try {
      return await attempted(big, request, attempt, { mesh, parts });
    } catch (error) {
      if (!(error instanceof NoReducedForm || (error instanceof AutoparError && error.exit !== 'backendAbsent')))
        throw error;
      reasons.push(`${attempt.name}: ${error.message}`);
    }
  }
  throw unreduced(reasons.at(-1) ?? '');
}

function unreduced(reason: string): AutoparError {
  return new AutoparError(
    'no-rehearsal',
    'noPlan',
    `the plan has no form at reduced sizes: ${reason}`,
    {},
    'give more --ranks, or rehearse a plan of fewer axes',
  );
}

/** Micro-batches of a step without pipeline stages. */
const MICRO_BATCHES = 2;

async function attempted(
  big: BigPlan,
  { seed, signal }: SmallRequest,
  attempt: ModelAttempt,
  { mesh, parts }: { readonly mesh: ReducedMesh; readonly parts: FewerParts | null },
): Promise<SmallPlan> {
  const forward = await attempt.forward();
  if (attempt.isNarrower) checkCuts(big.graph, forward.graph, big.assignment, mesh);
  const runs = layerRuns(forward.graph, placedLayers(big, parts));
  const fewer = (imported: ImportedModel): ImportedModel => {
    const graph = runs.reduce(withoutLayers, imported.graph);
    return { ...imported, graph, fingerprint: fingerprint(graph) };
  };
  const made = await attempt.model(fewer);
  const degrees = reducedDegrees(big.plan, mesh, parts?.stages ?? 1);
  const ordered = inPlannedOrder({ ...big.plan, degrees }, made.planned.graph);
  const staged = smallStages(big, ordered, parts);
  const same = counterparts(big.graph, staged.graph);
  const pairs = sizePairs(big.graph, staged.graph, same);
  const small = { imported: made.planned, ...staged, parts, mesh, same, pairs };
  const plan = planFromJson(planToJson(reducedPlan(big, small)), 'the plan of the rehearsal');
  const assigned = assignedPlan(plan, made.planned.graph, clusterOf(big.plan));
  const shapes = shapesIn(big.graph, staged.graph, same);
  const resharder = sameRoutes(big.routes, shapes, mesh, pairs, assigned.resharder);
  const { lowered, schedule } = lowerAssigned(plan, { ...assigned, resharder });
  const values = async (imported: ImportedModel) => withRandomWeights(imported, seed, signal);
  const planned = await values(made.planned);
  const whole = made.whole === made.planned ? planned : await values(made.whole);
  return {
    plan,
    planned: { ...planned, graph: { ...assigned.staged.graph, ...valuesOf(planned.graph) } },
    whole,
    constants: made.constants,
    lowered: lowered.map((stage) => ({ ...stage, graph: withValuesOf(stage.graph, planned.graph) })),
    schedule,
    assignment: assigned.assignment,
    same,
    mesh,
    parts,
    ranks: deviceCount(mesh.mesh) * (parts?.stages ?? 1),
    reduced: [...changedDegrees(big, plan), ...attempt.reduced, ...fewerLayers(big, runs)],
    notes: attempt.notes,
  };

  function valuesOf(graph: Graph): Pick<Graph, 'weights'> {
    return { weights: graph.weights, ...(graph.initial ? { initial: graph.initial } : {}) };
  }
}

function placedLayers(big: BigPlan, parts: FewerParts | null): readonly PlacedLayer[] {
  const layers = new Map<string, Set<number>>();
  for (const { name, layer, phase } of big.graph.nodes) {
    if (layer === null || phase !== 'forward') continue;
    const part = parts?.partOf[partIn(big, name) ?? 0] ?? 0;
    layers.set(layer, (layers.get(layer) ?? new Set<number>()).add(part));
  }
  return [...layers].map(([name, own]) => {
    const [part = 0, ...more] = own;
    return { name, kind: big.kindOf.get(name) ?? name, part: more.length > 0 ? null : part };
  });
}

function shapesIn(
  big: Graph,
  small: Graph,
  { tensorOf }: Counterparts,
): ReadonlyMap<string, ReadonlyMap<string, readonly number[]>> {
  const shapes = new Map<string, Map<string, readonly number[]>>();
  for (const [own, other] of tensorOf) {
    const [from, to] = [big.tensors.get(other)?.shape, small.tensors.get(own)?.shape];
    if (!from || !to) continue;
    const known = shapes.get(from.join()) ?? new Map<string, readonly number[]>();
    shapes.set(from.join(), known.set(to.join(), to));
  }
  return shapes;
}

function changedDegrees({ plan }: BigPlan, small: Plan): readonly ReducedSize[] {
  const sizes = (own: Plan) => ({
    ...own.degrees,
    'micro-batches': own.schedule.microBatches,
    'virtual stages': own.schedule.virtualStages ?? 1,
  });
  const after: Readonly<Record<string, number>> = sizes(small);
  return Object.entries(sizes(plan)).flatMap(([name, from]) => {
    const to = after[name] ?? 1;
    return from === 1 && to === 1 ? [] : [{ name, from, to }];
  });
}

function fewerLayers({ graph }: BigPlan, runs: readonly RemovedLayers[]): readonly ReducedSize[] {
  const from = new Set(graph.nodes.flatMap(({ layer }) => (layer === null ? [] : [layer]))).size;
  const gone = runs.reduce((sum, { layers }) => sum + layers.length, 0);
  return from === 0 ? [] : [{ name: 'layers', from, to: from - gone }];
}
