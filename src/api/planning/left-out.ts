/**
 * @file Dimensions that a plan leaves out where no steps are proposed, since options fix how operators are planned, or there is
 * one device. The step planner searches these dimensions; here they are planned only on request.
 */
import { isFloating } from '../../ir/dtype.js';
import { type Graph, typeOf } from '../../ir/graph.js';
import { operatorFamily } from '../../ir/ops/index.js';
import type { InnerDegrees } from '../../sharding-propagation/roles.js';

/** The question of degrees, as it was given. */
export interface DegreesRequest {
  readonly devices: number;
  /** Degrees that the user gave. */
  readonly given: InnerDegrees;
  /** Stages of the pipeline; one by default. */
  readonly stages: number;
  readonly trains: boolean;
  /** Ranks of this machine are their own host. */
  readonly isLocal: boolean;
}

/** The dimensions that are not searched, by the names of their options. */
export function unsearchedDimensions(
  graph: Graph,
  { devices, given, stages, trains, isLocal }: DegreesRequest,
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

/** Those of sp and ep that can shard something in the model. */
export function innerAxes(graph: Graph): readonly ('sp' | 'ep')[] {
  return [...(hasAttention(graph) ? (['sp'] as const) : []), ...(hasExperts(graph) ? (['ep'] as const) : [])];
}

function hasAttention(graph: Graph): boolean {
  return graph.nodes.some((node) => operatorFamily(node) === 'attention');
}

/** A weight for each expert: [experts, rows, columns]. */
function hasExperts(graph: Graph): boolean {
  return graph.nodes.some(({ op, domain, inputs }) => {
    if (operatorFamily({ op, domain }) !== 'contraction') return false;
    return inputs.some((name) => {
      if (name === null || graph.weights.get(name)?.role !== 'parameter') return false;
      const { dtype, shape } = typeOf(graph, name);
      return shape.length === 3 && isFloating(dtype);
    });
  });
}
