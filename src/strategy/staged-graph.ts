/**
 * @file The graph that a plan's operators are of: of a pipeline the model's graph with the sums of gradients of weights that several
 * stages read apart, as the search cut it, and the stages that each forward operator is on.
 */
import type { Graph, Node } from '../ir/graph.js';
import { accumulatedApart, type StagePlace } from '../partition/cut-stages.js';
import type { PipelineLayout } from '../partition/lower-stages.js';
import { makeSchedule } from '../schedule/make-schedule.js';
import { partAt } from '../schedule/parts.js';
import { type Schedule, splitsBackward } from '../schedule/schedule.js';
import type { Plan } from './plan.js';

export interface StagedGraph {
  readonly graph: Graph;
  /** Null for one stage. */
  readonly pipeline: { readonly layout: PipelineLayout; readonly schedule: Schedule } | null;
}

/** @throws AutoparError `bad-schedule` (usage) where the plan's schedule has no order for its numbers */
export function stagedGraph(plan: Plan, graph: Graph): StagedGraph {
  const { kind, microBatches, virtualStages = 1 } = plan.schedule;
  if (kind === 'single') return { graph, pipeline: null };
  const stages = plan.degrees.pp;
  const schedule = makeSchedule({ kind, stages, microBatches, virtualStages, training: plan.training !== null });
  const placed = placesIn(plan);
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const placeOf = new Map(
    forward.map((node) => {
      const { stage, chunk } = placed(node);
      return [node.name, { stage, chunk, part: partAt(kind, stage, chunk, stages) }];
    }),
  );
  return {
    graph: accumulatedApart(graph, placeOf),
    pipeline: {
      layout: {
        stages,
        chunks: virtualStages,
        splitsBackward: schedule.training && splitsBackward(kind),
        placeOf,
      },
      schedule,
    },
  };
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
