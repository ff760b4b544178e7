/**
 * @file One mesh as a problem: candidates of every operator and the group graph over them, whoever solves it.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { priceFragment, stepPrice } from '../cost-model/price.js';
import { reshardBound } from '../cost-model/reshard-bound.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, type Node, typeOf } from '../ir/graph.js';
import { madeOnce, remembered } from '../ir/remembered.js';
import { Fragment } from '../partition/fragment.js';
import { mergedOnce, replicated } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { OperatorPin } from '../sharding-propagation/pin.js';
import { makeResharder, type Resharder } from '../sharding-propagation/resharding.js';
import { type CandidateSet, candidatesOf, followingCandidates } from './candidates.js';
import { EdgeCosts } from './edge-costs.js';
import { buildGroupGraph, type GroupGraph } from './group-graph.js';
import type { OperatorFactsOf } from './operator-facts.js';
import { NO_PINS, pinsKey, type SearchPins } from './pinned.js';
import { meshesOfTensors } from './pipeline/stage-pins.js';
import { type LayoutRule, type ZeroLevel, type ZeroRule, zeroRule } from './zero.js';

export interface MeshOptions {
  readonly axes: 'roles' | 'free';
  /** Axes whose degree the user gave. */
  readonly pinned: ReadonlySet<string>;
  /** Facts about the graph's operators that do not depend on the mesh. */
  readonly factsOf: OperatorFactsOf;
  /** The user's pins, on this mesh. */
  readonly pins?: SearchPins;
  /** Whether resharding may use all-to-all; it may by default. */
  readonly allToAll?: boolean;
  /** The ZeRO level: which training state data-parallel ranks shard; the cheapest where it is left out. */
  readonly zero?: ZeroLevel;
  /** The option that asks for it, where it is not `--zero`. */
  readonly zeroText?: string;
  /** By operator: the mesh that its sub-axes are grouped to, where stages have different meshes. */
  readonly meshOf?: (node: Node) => Mesh;
}

/** The minimisation problem of one mesh. */
export interface MeshProblem {
  readonly graph: Graph;
  readonly mesh: Mesh;
  readonly cluster: Cluster;
  readonly groups: GroupGraph;
  /** Prices reshardings and remembers their steps. */
  readonly resharder: Resharder;
  /** Nanoseconds that every assignment costs in addition. */
  readonly fixed: number;
  /** Operators that could not use a pinned degree. */
  readonly exceptions: readonly { readonly operator: string; readonly reason: string }[];
}

export type Candidates = (node: Node) => CandidateSet;

/**
 * The problem of a mesh. Where pins require strategies that roles exclude, roles apply to no operator.
 * @param check called again and again: an error that it throws ends the building
 */
export function meshProblem(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshOptions,
  candidates: Candidates = candidateSets(graph, mesh, cluster, options),
  check: () => void = () => {},
): MeshProblem {
  const pinnedNodes = graph.nodes.filter((node) => options.pins?.operators.has(node.name));
  if (pinnedNodes.some((node) => candidates(node).liftsRoles)) {
    const free = { ...options, axes: 'free' } as const;
    return meshProblem(graph, mesh, cluster, free, candidateSets(graph, mesh, cluster, free, check), check);
  }
  const price = stepPrice(cluster, mesh);
  const bound = reshardBound(cluster, mesh, price);
  const resharder = makeResharder(mesh, price, bound, { allToAll: options.allToAll ?? true });
  const costs = new EdgeCosts(resharder, (...pair) => {
    check();
    return bound(...pair);
  });
  return {
    graph,
    mesh,
    cluster,
    groups: buildGroupGraph(graph, mesh, candidates, costs, options.pins?.inputs, layoutRule(graph, mesh, options)),
    resharder,
    fixed: copiedOutputs(graph, mesh, cluster),
    exceptions: graph.nodes
      .filter(({ phase }) => phase !== 'recompute')
      .flatMap((node) => candidates(node).unused.map((reason) => ({ operator: node.name, reason }))),
  };
}

/** The rule of the requested ZeRO level, by mesh; null where none is requested. */
function zeroRules(graph: Graph, { zero, zeroText, factsOf }: MeshOptions): ((mesh: Mesh) => ZeroRule) | null {
  if (zero === undefined) return null;
  const hasExperts = (node: Node) => factsOf(node).families.factors.expert.size > 0;
  return remembered((mesh: Mesh) => zeroRule(graph, mesh, zero, hasExperts, zeroText));
}

/** The ZeRO rule for layouts that a tensor's readers share, on the mesh of the first operator that reads or makes it. */
function layoutRule(graph: Graph, mesh: Mesh, options: MeshOptions): LayoutRule | null {
  const rules = zeroRules(graph, options);
  if (!rules) return null;
  const meshes = meshesOfTensors(graph, options.meshOf ?? (() => mesh));
  const ruleOf = (tensor: string) => rules(meshes.get(tensor) ?? mesh);
  return {
    resting: (input, asked) => ruleOf(input).resting(input, asked),
    layouts: (tensor, ...others) => ruleOf(tensor).layouts(tensor, ...others),
  };
}

/** Candidates by node, enumerated and priced once per structure. */
export function candidateSets(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshOptions,
  check: () => void = () => {},
): Candidates {
  const { axes, pinned, factsOf, pins = NO_PINS, meshOf = () => mesh } = options;
  const rules = zeroRules(graph, options);
  const byMesh = new Map<Mesh, Map<string, CandidateSet>>();
  const merged = mergedOnce(mesh);
  const pinsOf = (node: Node) => pins.operators.get(node.name) ?? [];
  const keyOf = (node: Node): string => {
    const { key, follows } = factsOf(node);
    const own = pinsOf(node);
    if (follows) return `${key} > ${keyOf(follows)}`;
    return own.length === 0 ? key : `${key} ${pinsKey(own)}`;
  };
  const candidates = (node: Node): CandidateSet => {
    const mesh = meshOf(node);
    const rule = rules?.(mesh);
    const byStructure = madeOnce(byMesh, mesh, () => new Map<string, CandidateSet>());
    const key = keyOf(node);
    const known = byStructure.get(key);
    if (known) return known;
    check();
    const { follows, ...facts } = factsOf(node);
    const asked = { ...facts, mesh, cluster, axes, pinned, merged };
    const free = (own: readonly OperatorPin[]) =>
      withFewestPins(own, (pins) => {
        const under = (some: readonly OperatorPin[]) => candidatesOf({ ...asked, pins: some });
        const all = under(pins);
        const at = { what: `${node.op} ${node.name}`, pins: pins.map(({ source }) => source) };
        return rule ? rule.candidates(facts.part, node, all, () => (pins.length === 0 ? all : under([])), at) : all;
      });
    const set = follows ? followingCandidates(candidates(follows), asked) : free(pinsOf(node));
    byStructure.set(key, set);
    return set;
  };
  return candidates;
}

/**
 * An operator's candidates under its pins. Where they cannot be kept together, the error names a smallest set that cannot be
 * kept: each pin in turn is left out, and stays out where the others still cannot be kept (deletion filter, Chinneck 1997).
 */
function withFewestPins(
  pins: readonly OperatorPin[],
  candidates: (pins: readonly OperatorPin[]) => CandidateSet,
): CandidateSet {
  try {
    return candidates(pins);
  } catch (error) {
    if (!(error instanceof AutoparError) || error.code !== 'pin-cannot-be-kept') throw error;
    let [kept, refusal] = [pins, error];
    for (const pin of pins) {
      const others = kept.filter((other) => other !== pin);
      if (others.length === 0) break;
      try {
        candidates(others);
      } catch (other) {
        if (!(other instanceof AutoparError)) throw other;
        [kept, refusal] = [others, other];
      }
    }
    throw refusal;
  }
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
