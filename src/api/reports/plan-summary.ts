/**
 * @file The printed summary of a plan, when it is chosen (`compile`) and later (`explain DIR`): its price, most expensive
 * operators, communication and memory.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { type MemoryOverTime, memoryOverTime } from '../../cost-model/memory-over-time.js';
import { type StepSpan, stepSpans } from '../../cost-model/step-spans.js';
import type { Graph } from '../../ir/graph.js';
import { leadersOf } from '../../ir/layers.js';
import type { Assignment } from '../../partition/assignment.js';
import { sharedOperators } from '../../partition/cut-stages.js';
import type { PipelineLayout } from '../../partition/lower-stages.js';
import { layoutOfParts } from '../../search/pipeline/stage-layout.js';
import type { Plan } from '../../strategy/plan.js';
import type { Explainable } from '../explain.js';
import { explainablePlanOf } from '../explanations/explain-compiled.js';
import { type OperatorReason, operatorReasons } from '../explanations/operator-reasons.js';
import { openPlan } from '../models/compiled-model.js';
import { loweredOfPlan } from '../models/inference-precision.js';
import { checkArguments, leftOut, text } from '../options/kinds.js';
import { readComparison } from '../output/comparison-file.js';
import type { PlanComparison } from '../planning/comparison.js';
import { assignedPlan, clusterOf, type LoweredPlan, lowerAssigned } from '../planning/lower-plan.js';
import { type RecomputeEffect, recomputeEffect } from '../planning/recompute-effect.js';
import { memoryLimit, type PeakMemory, peakMemory } from './peak-memory.js';
import {
  type Communication,
  communicationOf,
  type ExpensiveOperator,
  mostExpensiveOperators,
  type OperatorClass,
  operatorClassesOf,
} from './report.js';
import { type Server, serverOf } from './server.js';
import { type TrainingStateBytes, trainingStateBytes } from './training-state.js';

export interface PlanSummary {
  readonly plan: Plan;
  readonly cluster: Cluster;
  /** The format that most of the arithmetic is priced in. */
  readonly precision: string;
  /** The requested 16-bit format where values of it are held in float32 and rounded, as on ranks of this machine; else null. */
  readonly heldPrecision: string | null;
  /** Memory limit of a device in the search: the requested one, else all of its memory; null if there is no limit. */
  readonly memoryBytes: number | null;
  /** The time that recompute costs and the memory that it frees; null if nothing is recomputed. */
  readonly recompute: RecomputeEffect | null;
  /** The contents of each pipeline stage, in letters (`inspect` explains them) or as counts; null for one stage. */
  readonly stageLayout: string | null;
  /** Training state that a data-parallel rank of the fullest stage holds; null without dp. */
  readonly kept: TrainingStateBytes | null;
  /** Memory and traffic of a parameter server; null if all ranks update. */
  readonly server: Server | null;
  readonly mostExpensive: readonly ExpensiveOperator[];
  /** @deprecated older name of `mostExpensive` */
  readonly heaviest: readonly ExpensiveOperator[];
  readonly communication: readonly Communication[];
  /** Per stage, the memory of a rank at its peak, with the largest tensors. */
  readonly memory: readonly PeakMemory[];
  /** The plans compared with this one; null in a folder of an earlier version, or where nothing was compared. */
  readonly comparison: PlanComparison | null;
  /**
   * Details that only a report shows.
   * @throws AutoparError (input) where the files that the plan's pins came from have changed
   */
  readonly details: () => Promise<PlanDetails>;
}

export interface PlanDetails {
  /** The predicted timeline of the stages in a step. */
  readonly spans: readonly StepSpan[];
  /** Per stage, the memory of a rank over a step. */
  readonly memory: readonly MemoryOverTime[];
  /** All operators, most expensive first; operators of equal layers on the same stage are one. */
  readonly operators: readonly ExplainedClass[];
}

/** Operators of equal layers with the reasons for their strategy: two reasons if only some of them are pinned. */
export interface ExplainedClass extends ExpensiveOperator {
  readonly why: readonly OperatorReason[];
}

/** A plan with all data that its summary needs. */
export interface Summarised extends Pick<PlanSummary, 'plan' | 'cluster' | 'recompute' | 'stageLayout' | 'comparison'> {
  /** The requested memory limit. */
  readonly memory: number | undefined;
  /** The graph that the plan's layers belong to. */
  readonly graph: Graph;
  readonly lowering: LoweredPlan;
  readonly assignment: Assignment;
  readonly precision: string;
  /** The plan in the form that explanations need. */
  readonly explainable: () => Promise<Explainable>;
}

export function summaryOf(summarised: Summarised): PlanSummary {
  const { graph, lowering, assignment, memory, explainable, ...known } = summarised;
  const { plan, cluster } = known;
  const like = leadersOf(graph, plan.layerClasses).operators;
  const peaks = peakMemory(lowering, cluster, NAMED);
  const mostExpensive = mostExpensiveOperators(lowering.lowered, assignment, cluster, like);
  return {
    ...known,
    heldPrecision: heldPrecision(known),
    memoryBytes: memoryLimit(memory, cluster),
    kept: trainingStateBytes(lowering.lowered, plan, peaks),
    server: serverOf(lowering, plan, cluster),
    mostExpensive,
    heaviest: mostExpensive,
    communication: communicationOf(lowering.lowered, cluster, like),
    memory: peaks,
    details: async () => ({
      spans: stepSpans(lowering.lowered, lowering.schedule, cluster),
      memory: memoryOverTime(lowering.lowered, lowering.schedule, cluster),
      operators: explainedClasses(operatorClassesOf(lowering.lowered, assignment, cluster, like), await explainable()),
    }),
  };
}

function heldPrecision({
  plan,
  cluster,
  precision,
}: Pick<Summarised, 'plan' | 'cluster' | 'precision'>): string | null {
  const asked = plan.training?.precision ?? loweredOfPlan(plan)?.precision ?? 'fp32';
  return cluster.local && asked !== 'fp32' && asked !== precision ? asked : null;
}

function explainedClasses(classes: readonly OperatorClass[], plan: Explainable): readonly ExplainedClass[] {
  const reasonsOf = operatorReasons(plan);
  return classes.map(({ row, operators }, index) => ({ ...row, why: reasonsOf(operators, index < PRICED) }));
}

/** Classes whose other strategies are priced: nine tenths of a transformer's time. With twice as many it takes seconds. */
const PRICED = 32;

/** Tensors at the peak that a summary names. */
const NAMED = 32;

/**
 * The summary of a compiled folder's plan.
 * @throws AutoparError (input) where the folder or its model has changed
 */
export async function explainPlan(directory: string, model?: string): Promise<PlanSummary> {
  checkArguments('explainPlan', { directory: [directory, text], model: [model, leftOut(text)] });
  const { plan, source, planned } = await openPlan(directory, model);
  const assigned = assignedPlan(plan, planned.graph);
  const { staged, assignment } = assigned;
  const [cluster, lowering] = [clusterOf(plan), lowerAssigned(plan, assigned)];
  return summaryOf({
    plan,
    cluster,
    comparison: await readComparison(directory, plan),
    graph: staged.graph,
    lowering,
    assignment,
    memory: source.decisions?.memoryBytes,
    precision: plan.predicted.precision ?? 'the format of the model',
    recompute: recomputeEffect(staged.graph, lowering, plan.predicted, cluster),
    explainable: () => explainablePlanOf(directory, source, plan, planned),
    stageLayout: staged.pipeline && stageLayoutOf(plan, planned.graph, staged.pipeline.layout),
  });
}

/** The contents of stages as compile shows them; their numbers of operators where the plan has units in another order. */
function stageLayoutOf(plan: Plan, graph: Graph, { stages, chunks, placeOf }: PipelineLayout): string {
  const shared = new Set([...sharedOperators(graph)].map(({ name }) => name));
  // An operator that each reading stage runs for itself has no place of its own.
  const partOf = (name: string) => (shared.has(name) ? undefined : placeOf.get(name)?.part);
  return (
    layoutOfParts(graph, stages * chunks, partOf) ??
    plan.stages.map(({ operators }) => `${operators} operators`).join(' | ')
  );
}
