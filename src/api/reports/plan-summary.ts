/**
 * @file What is printed of a plan, when it is chosen (`compile`) and later (`explain DIR`): its price, heaviest operators,
 * communication and memory.
 */
import path from 'node:path';
import type { Cluster } from '../../cost-model/cluster.js';
import { type HeldOverTime, memoryOverTime } from '../../cost-model/memory-over-time.js';
import { type StepSpan, stepSpans } from '../../cost-model/step-spans.js';
import type { Graph } from '../../ir/graph.js';
import { leadersOf } from '../../ir/layers.js';
import type { Assignment } from '../../partition/assignment.js';
import type { Plan } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import type { Explainable } from '../explain.js';
import { explainablePlanOf } from '../explanations/explain-compiled.js';
import { type OperatorReason, operatorReasons } from '../explanations/operator-reasons.js';
import { compiledModel } from '../models/compiled-model.js';
import { readSource } from '../output/folder.js';
import { assignedPlan, clusterOf, type LoweredPlan, lowerAssigned } from '../planning/lower-plan.js';
import { type RecomputeEffect, recomputeEffect } from '../planning/recompute-effect.js';
import { type KeptState, keptByRanks } from './kept-state.js';
import { type PeakMemory, peakMemory } from './peak-memory.js';
import {
  type Communication,
  communicationOf,
  type HeavyOperator,
  heaviestOf,
  type OperatorClass,
  operatorClassesOf,
} from './report.js';
import { type Server, serverOf } from './server.js';

export interface PlanSummary {
  readonly plan: Plan;
  readonly cluster: Cluster;
  /** The format that most of the arithmetic is priced in. */
  readonly precision: string;
  /** Memory of a device that the plan was searched within: what was asked for, else all of it; null where nothing limits it. */
  readonly memoryBytes: number | null;
  /** What recompute costs and frees; null where nothing is recomputed. */
  readonly recompute: RecomputeEffect | null;
  /** What each stage of a pipeline has, in letters (`inspect` says what they stand for) or counted; null for one stage. */
  readonly stageLayout: string | null;
  /** What data-parallel ranks keep of training; null without dp. */
  readonly kept: KeptState | null;
  /** What a parameter server holds and passes on; null where all ranks update. */
  readonly server: Server | null;
  readonly heaviest: readonly HeavyOperator[];
  readonly communication: readonly Communication[];
  /** Per stage, what a rank holds when it holds most, with the largest tensors. */
  readonly memory: readonly PeakMemory[];
  /**
   * What only a report has room for.
   * @throws AutoparError (input) where the files that the plan's pins came from are not what they were
   */
  readonly details: () => Promise<PlanDetails>;
}

export interface PlanDetails {
  /** When stages run what in a step, as it is predicted. */
  readonly spans: readonly StepSpan[];
  /** Per stage, what a rank holds over a step. */
  readonly memory: readonly HeldOverTime[];
  /** All operators, heaviest first; those of equal layers are one. */
  readonly operators: readonly ExplainedClass[];
}

/** Operators of equal layers with what decided their strategy: two reasons where only some of them are pinned. */
export interface ExplainedClass extends HeavyOperator {
  readonly why: readonly OperatorReason[];
}

/** A plan as it is at hand. */
export interface Summarised extends Pick<PlanSummary, 'plan' | 'cluster' | 'recompute' | 'stageLayout'> {
  /** As it was asked for. */
  readonly memory: number | undefined;
  /** The graph that the plan's layers are of. */
  readonly graph: Graph;
  readonly lowering: LoweredPlan;
  readonly assignment: Assignment;
  readonly precision: string;
  /** The plan as explanations look at it. */
  readonly explainable: () => Promise<Explainable>;
}

export function summaryOf(summarised: Summarised): PlanSummary {
  const { graph, lowering, assignment, memory, explainable, ...known } = summarised;
  const { plan, cluster } = known;
  const like = leadersOf(graph, plan.layerClasses).operators;
  return {
    ...known,
    memoryBytes: memory ?? (cluster.local ? null : cluster.device.memoryBytes),
    kept: keptByRanks(lowering.lowered, plan),
    server: serverOf(lowering, plan, cluster),
    heaviest: heaviestOf(lowering.lowered, assignment, cluster, like),
    communication: communicationOf(lowering.lowered, cluster, like),
    memory: peakMemory(lowering, cluster, NAMED),
    details: async () => ({
      spans: stepSpans(lowering.lowered, lowering.schedule, cluster),
      memory: memoryOverTime(lowering.lowered, lowering.schedule, cluster),
      operators: explainedClasses(operatorClassesOf(lowering.lowered, assignment, cluster, like), await explainable()),
    }),
  };
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
 * @throws AutoparError (input) where the folder or its model is not what it was
 */
export async function explainPlan(directory: string, model?: string): Promise<PlanSummary> {
  const [plan, source] = [await readPlan(path.join(directory, 'plan.json')), await readSource(directory)];
  const { planned } = await compiledModel(directory, source, plan, model);
  const assigned = assignedPlan(plan, planned.graph);
  const { staged, assignment } = assigned;
  const [cluster, lowering] = [clusterOf(plan), lowerAssigned(plan, assigned)];
  return summaryOf({
    plan,
    cluster,
    graph: staged.graph,
    lowering,
    assignment,
    memory: source.decisions?.memoryBytes,
    precision: plan.predicted.precision ?? 'the format of the model',
    recompute: recomputeEffect(staged.graph, lowering, plan.predicted, cluster),
    explainable: () => explainablePlanOf(directory, source, plan, planned),
    stageLayout: staged.pipeline ? plan.stages.map(({ operators }) => `${operators} operators`).join(' | ') : null,
  });
}
