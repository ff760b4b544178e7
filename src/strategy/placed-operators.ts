/**
 * @file A plan spelt out: for every operator of the graph its stage, its strategy and the layouts of its operands and
 * results. plan.json states this once per class of layers; other notations state it node by node.
 */
import { clonedOperators } from '../ir/autodiff/recompute.js';
import type { Graph, Node } from '../ir/graph.js';
import { leadersOf } from '../ir/layers.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Assignment } from '../partition/assignment.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { operandLayouts, REPLICATED, reducedLayouts, type Strategy } from '../sharding-propagation/strategy.js';
import { assignmentOf, meshesOf } from './assignment-of.js';
import type { Plan } from './plan.js';
import { placesIn, stagedGraph } from './staged-graph.js';

export interface PlacedOperator {
  readonly node: Node;
  readonly stage: number;
  readonly chunk: number;
  readonly recompute: boolean;
  readonly place: 'device' | 'host';
  readonly strategy: Strategy;
  /** The layout in which each operand is read; null for one that is left out. */
  readonly operands: readonly (Layout | null)[];
  /** The layout in which each result is left, its pending reduction done; null for one that is not used. */
  readonly results: readonly (Layout | null)[];
}

export interface PlacedPlan {
  /** With clones of recomputed operators. */
  readonly graph: Graph;
  /** On the mesh of one stage, or on the mesh that stages of unlike meshes share. */
  readonly assignment: Assignment;
  /** By stage, where stages differ. */
  readonly meshes?: readonly Mesh[];
  /** 1 without a pipeline. */
  readonly stages: number;
  /** Chunks of each stage. */
  readonly chunks: number;
  /** In graph order; clones are as their originals. */
  readonly operators: readonly PlacedOperator[];
}

/**
 * The plan on its graph; for a pipeline, on the graph that its stages are cut from.
 * @throws AutoparError (input) where it is not a plan of this graph (assignment-of.ts).
 */
export function placePlan(plan: Plan, model: Graph): PlacedPlan {
  const { graph } = stagedGraph(plan, model);
  const assignment = assignmentOf(plan, graph);
  const leaders = leadersOf(graph, plan.layerClasses);
  const cloned = clonedOperators(graph);
  const placeOf = placesIn(plan);
  const plain = graph.nodes.filter(({ phase }) => phase !== 'recompute');
  const operators = plain.map((node): PlacedOperator => {
    const strategy = assignment.strategies.get(node.group) ?? REPLICATED;
    const operator = operatorOf(graph, node);
    const entry = operatorEntry(node);
    const rule = entry.rule(operator);
    const linear = entry.linear(operator);
    const stated = plan.operators[leaders.operators.get(node.name) ?? node.name];
    return {
      node,
      ...placeOf(node),
      recompute: cloned.has(node.name),
      place: stated?.place ?? 'device',
      strategy,
      operands: operandLayouts(rule, strategy, linear, assignment.mesh),
      results: reducedLayouts(rule, strategy, linear, assignment.mesh),
    };
  });
  const { pp: stages } = plan.degrees;
  const meshes = meshesOf(plan)?.stages;
  return {
    graph,
    assignment,
    ...(meshes ? { meshes } : {}),
    stages,
    chunks: plan.schedule.virtualStages ?? 1,
    operators,
  };
}
