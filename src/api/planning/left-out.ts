/**
 * @file What a plan leaves out where no steps are proposed, since something is said of operators or stages, or there is one
 * device: dimensions that the step planner searches, and that are planned here only where they are asked for.
 */
import { isFloating } from '../../ir/dtype.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { entryOf } from '../../ir/ops/index.js';
import type { InnerDegrees } from '../../sharding-propagation/roles.js';

/** What was to be decided. */
export interface DegreeQuestion {
  readonly devices: number;
  /** Degrees that the user gave. */
  readonly given: InnerDegrees;
  /** Stages of the pipeline: one, where none was asked for. */
  readonly stages: number;
  readonly trains: boolean;
  /** Ranks of this machine are their own host. */
  readonly isLocal: boolean;
}

/** Dimensions by the names of their options. */
export function unsearchedDimensions(
  graph: Graph,
  { devices, given, stages, trains, isLocal }: DegreeQuestion,
): readonly string[] {
  // With dp and tp given, nothing was left to choose among degrees.
  const spreads = devices > 1 && (given.dp === undefined || given.tp === undefined);
  return [
    ...(spreads && stages === 1 ? ['pp'] : []),
    ...(spreads ? innerAxes(graph).filter((axis) => given[axis] === undefined) : []),
    ...(trains ? ['recompute'] : []),
    ...(trains && !isLocal ? ['offload'] : []),
  ];
}

/** Of sp and ep those that cut something of the model. */
export function innerAxes(graph: Graph): readonly ('sp' | 'ep')[] {
  return [...(hasAttention(graph) ? (['sp'] as const) : []), ...(hasExperts(graph) ? (['ep'] as const) : [])];
}

function hasAttention(graph: Graph): boolean {
  return graph.nodes.some(({ op, domain }) => entryOf(op, domain)?.family === 'attention');
}

/** A weight for each expert: [experts, rows, columns]. */
function hasExperts(graph: Graph): boolean {
  return graph.nodes.some(({ op, domain, inputs }) => {
    if (entryOf(op, domain)?.family !== 'contraction') return false;
    return inputs.some((name) => {
      if (name === null || graph.weights.get(name)?.role !== 'parameter') return false;
      const { dtype, shape } = typeOf(graph, name);
      return shape.length === 3 && isFloating(dtype);
    });
  });
}
