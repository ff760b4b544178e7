/**
 * @file One mesh: candidates of every operator, the group graph over them, its exact solution.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { priceFragment, stepPrice } from '../cost-model/price.js';
import { redistributionBound } from '../cost-model/redistribution-bound.js';
import { type Graph, type Node, typeOf } from '../ir/graph.js';
import type { Assignment } from '../partition/assignment.js';
import { Fragment } from '../partition/fragment.js';
import { replicated } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { makeRedistributor, type Redistributor } from '../sharding-propagation/redistribution.js';
import { type CandidateSet, candidatesOf } from './candidates.js';
import { settled } from './cheapest.js';
import { EdgeCosts } from './edge-costs.js';
import { buildGroupGraph } from './group-graph.js';
import type { OperatorQuestions } from './operator-questions.js';
import { NO_PINS, pinsKey, type SearchPins } from './pinned.js';

export interface MeshOptions {
  readonly axes: 'roles' | 'free';
  /** Axes whose degree the user gave. */
  readonly pinned: ReadonlySet<string>;
  /** What is known of the graph's operators whatever the mesh. */
  readonly questions: OperatorQuestions;
  /** What the user has decided, on this mesh. */
  readonly pins?: SearchPins;
  /** Whether redistributions may be all-to-alls; they may unless told. */
  readonly allToAll?: boolean;
}

export interface MeshSolution {
  readonly assignment: Assignment;
  /** What priced its redistributions: it remembers their steps. */
  readonly redistributor: Redistributor;
  /** Integer nanoseconds. */
  readonly cost: number;
  readonly bound: number;
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
}

/** The cheapest assignment on a mesh. Where pins ask for what roles do not allow, roles hold nowhere. */
export function solveMesh(graph: Graph, mesh: Mesh, cluster: Cluster, options: MeshOptions): MeshSolution {
  const candidates = candidateSets(mesh, cluster, options);
  const pinnedNodes = graph.nodes.filter((node) => options.pins?.operators.has(node.name));
  if (pinnedNodes.some((node) => candidates(node).liftsRoles))
    return solveMesh(graph, mesh, cluster, { ...options, axes: 'free' });
  const price = stepPrice(cluster, mesh);
  const bound = redistributionBound(cluster, mesh, price);
  const redistributor = makeRedistributor(mesh, price, bound, { allToAll: options.allToAll ?? true });
  const costs = new EdgeCosts(redistributor, bound);
  const groups = buildGroupGraph(graph, mesh, candidates, costs, options.pins?.inputs);
  const solution = settled(groups);
  const { states, cost } = solution;
  const fixed = copiedOutputs(graph, mesh, cluster);
  return {
    assignment: groups.assignmentOf(states),
    redistributor,
    cost: cost + fixed,
    bound: solution.bound + fixed,
    exceptions: graph.nodes.flatMap((node) =>
      candidates(node).unused.map((reason) => ({ operator: node.name, reason })),
    ),
  };
}

/** Candidates by node, enumerated and priced once per structure. */
function candidateSets(mesh: Mesh, cluster: Cluster, { axes, pinned, questions, pins = NO_PINS }: MeshOptions) {
  const byStructure = new Map<string, CandidateSet>();
  return (node: Node): CandidateSet => {
    const question = questions(node);
    const own = pins.operators.get(node.name) ?? [];
    const key = own.length === 0 ? question.key : `${question.key} ${pinsKey(own)}`;
    const known = byStructure.get(key);
    if (known) return known;
    const set = candidatesOf({ ...question, mesh, cluster, axes, pinned, pins: own });
    byStructure.set(key, set);
    return set;
  };
}

/** A graph output that is a weight is copied once, whatever the plan. */
function copiedOutputs(graph: Graph, mesh: Mesh, cluster: Cluster): number {
  return graph.outputs
    .filter((output) => graph.weights.has(output))
    .reduce((sum, output) => {
      const type = typeOf(graph, output);
      const layout = replicated(type.shape);
      const fragment = new Fragment(mesh);
      fragment.tensor(type, layout, 'in0');
      fragment.add({ op: 'Identity', inputs: ['in0'], results: [{ name: 'out0', type, layout }] });
      return sum + priceFragment(fragment, cluster);
    }, 0);
}
