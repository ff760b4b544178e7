/**
 * @file A plan in the form that a rehearsal needs: on its graph, lowered, with the routes of its resharding, and its layers
 * grouped by how the plan treats them.
 */
import type { Graph } from '../../ir/graph.js';
import { classNames, layerClasses, leadersOf } from '../../ir/layers.js';
import { attributesKey } from '../../ir/passes/attributes-key.js';
import type { Assignment } from '../../partition/assignment.js';
import type { StagePlace } from '../../partition/cut-stages.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { Schedule } from '../../schedule/schedule.js';
import { layoutKey } from '../../sharding-propagation/layout.js';
import { checkFirst } from '../../strategy/first-only.js';
import type { Plan, PlanOperator } from '../../strategy/plan.js';
import { placesIn } from '../../strategy/staged-graph.js';
import { assignedPlan, lowerAssigned, predictionOf } from '../planning/lower-plan.js';
import { type RequestedRoute, recording } from './same-routes.js';
import { checkOperators } from './stated-operators.js';
import { checkPrediction } from './stated-prediction.js';
import { checkSteps } from './stated-steps.js';

export interface BigPlan {
  readonly plan: Plan;
  /** The graph that the stages are cut from. */
  readonly graph: Graph;
  readonly assignment: Assignment;
  readonly lowered: readonly LoweredStage[];
  readonly routes: readonly RequestedRoute[];
  /** Null for one stage. */
  readonly pipeline: {
    readonly schedule: Schedule;
    /** By forward operator. */
    readonly placeOf: ReadonlyMap<string, StagePlace>;
  } | null;
  /** The entry of an operator; operators of repeated layers have the entry of their first layer. */
  readonly entryOf: (operator: string) => PlanOperator | undefined;
  /** For each layer, the first layer that the plan treats alike. */
  readonly kindOf: ReadonlyMap<string, string>;
}

/** @throws AutoparError (input) where it is not a plan of this graph */
export function bigPlan(plan: Plan, model: Graph): BigPlan {
  const assigned = assignedPlan(plan, model);
  const { staged, assignment } = assigned;
  const { graph } = staged;
  const resharder = recording(assigned.resharder);
  const { lowered, schedule } = lowerAssigned(plan, { ...assigned, resharder });
  checkFirst(plan, graph, lowered);
  checkSteps(plan, assigned, staged.pipeline?.layout, lowered);
  checkOperators(plan, graph);
  checkPrediction(plan, predictionOf(plan, graph, { lowered, schedule }));
  const leaders = leadersOf(graph, plan.layerClasses);
  return {
    plan,
    graph,
    assignment,
    lowered,
    routes: resharder.requested(),
    pipeline: staged.pipeline && schedule ? { schedule, placeOf: staged.pipeline.layout.placeOf } : null,
    entryOf: (operator) => plan.operators[leaders.operators.get(operator) ?? operator],
    kindOf: kindsOf(plan, graph, assignment),
  };
}

/**
 * Groups layers of equal structure whose operators have the same strategies, read and send the same layouts, and are on the same
 * stage relative to the rest of their layer.
 */
function kindsOf(plan: Plan, graph: Graph, { strategies, sharedReshards }: Assignment): ReadonlyMap<string, string> {
  const placeOf = placesIn(plan);
  const [read, sent] = [new Map<string, string>(), new Map<string, string>()];
  for (const { readers, layout } of sharedReshards)
    for (const { kind, name, operand } of readers) {
      if (kind === 'operator') read.set(`${name}:${operand}`, layoutKey(layout));
      else sent.set(name, layoutKey(layout));
    }
  const classes = layerClasses(graph, (node, first) => {
    const [{ stage, chunk }, own] = [placeOf(node), placeOf(first)];
    return [
      ...[node.phase, attributesKey(node.attributes), strategies.get(node.group)],
      node.inputs.map((_, operand) => read.get(`${node.name}:${operand}`)),
      node.outputs.map((name) => sent.get(name ?? '')),
      [stage === own.stage, chunk === own.chunk, plan.meshes?.[stage]],
    ];
  });
  return classNames(classes);
}
