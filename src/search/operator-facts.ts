/**
 * @file Facts about each operator that do not depend on the mesh: its types, its weights, its batch, which results are read.
 * Gathered once per graph; every combination of degrees asks for candidates with them.
 */

import type { Graph, Node } from '../ir/graph.js';
import { isOnceAStep } from '../ir/graph.js';
import { makersOf } from '../ir/makers-and-readers.js';
import { weightTensors } from '../ir/of-weights.js';
import type { Operator } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { entryOf, operatorEntry, operatorRole, ruleOf } from '../ir/ops/index.js';
import { remembered } from '../ir/remembered.js';
import { structureKey } from '../ir/structure-key.js';
import { contextOf } from '../partition/lower-operator.js';
import { type InnerDegrees, type Roles, rolesOf, type SequenceMethods } from '../sharding-propagation/roles.js';
import type { CandidateRequest } from './candidates.js';
import { type FactorFamilies, factorFamilies } from './factor-families.js';
import { pieceHints } from './piece-hints.js';
import { type StatePart, statePartOf } from './zero.js';

/** The part of a request for candidates that does not depend on the mesh. */
export interface OperatorFacts extends Omit<CandidateRequest, 'mesh' | 'cluster' | 'axes' | 'pinned' | 'pins'> {
  /** Operators with equal keys have the same candidates. */
  readonly key: string;
  /** The part of a training step's persistent tensors that it makes; null for none. */
  readonly part: StatePart | null;
  /** The operator that it recomputes and whose strategies it shares; null for most. */
  readonly follows: Node | null;
}

export type OperatorFactsOf = (node: Node) => OperatorFacts;

/** The degrees and methods that decide whether sequences and experts are followed. */
export interface RequestedRoles extends Pick<InnerDegrees, 'sp' | 'ep'>, SequenceMethods {}

/** The facts about a graph's operators, each built when it is first requested. */
export function operatorFactsOf(graph: Graph, { sp = 1, ep = 1, ...methods }: RequestedRoles = {}): OperatorFactsOf {
  const isOverTp = (methods.tpSequence ?? 'auto') !== 'auto';
  const familiesOf = factorFamilies(graph, { sequence: sp > 1 || isOverTp, experts: ep > 1 });
  const roles: Roles = rolesOf(methods);
  const hinted = pieceHints(graph);
  const weightLike = weightTensors(graph);
  const heavyFrom = smallestHeavyWork(graph);
  const rounding = roundedOperators(graph);
  const partOf = statePartOf(graph);
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const make = (node: Node): OperatorFacts => {
    const operator = operatorOf(graph, node);
    const weights = node.inputs.map((input) => input !== null && weightLike.has(input));
    const families = familiesOf(node, ruleOf(operator));
    const hints = hinted.get(node) ?? new Map();
    const context = contextOf(graph, node);
    const rounded = rounding.has(node);
    const part = partOf(node);
    const around = [weights, context, familiesKey(families), [...hints], rounded, part];
    const key = `${structureKey(operator)} ${JSON.stringify(around)}`;
    return {
      key,
      part,
      follows: node.phase === 'recompute' ? (nodes.get(node.forward ?? '') ?? null) : null,
      operator,
      weights,
      context,
      families,
      roles,
      // An update that every rank repeats is data parallelism, and leaves no degree without use.
      heavy: !isAccumulator(node) && !isOnceAStep(node.phase) && workOf(operator) >= heavyFrom,
      hints,
      rounded,
    };
  };
  return remembered(make);
}

/** Operators whose results are quantised, directly or after elementwise operators and other views of them. */
function roundedOperators(graph: Graph): ReadonlySet<Node> {
  const quantised = graph.nodes.filter((node) => operatorRole(node) === 'quantise');
  if (quantised.length === 0) return new Set();
  const makers = makersOf(graph.nodes);
  const found = new Set<Node>();
  const stack = quantised.map(({ inputs }) => inputs[0] ?? null);
  for (let tensor = stack.pop(); tensor !== undefined; tensor = stack.pop()) {
    const maker = tensor === null ? undefined : makers.get(tensor);
    const entry = maker && entryOf(maker.op, maker.domain);
    if (!maker || entry?.role === 'dequantise' || found.has(maker)) continue;
    found.add(maker);
    const family = entry?.family;
    if (family === 'elementwise' || family === 'view') stack.push(...maker.inputs);
  }
  return found;
}

/** Work of the smallest of those operators, largest first, that together do nine tenths of a graph's work. */
function smallestHeavyWork(graph: Graph): number {
  const works = graph.nodes
    .filter(({ phase }) => !isOnceAStep(phase))
    .map((node) => workOf(operatorOf(graph, node)))
    .sort((a, b) => b - a);
  const enough = 0.9 * works.reduce((sum, work) => sum + work, 0);
  let sum = 0;
  for (const work of works) {
    sum += work;
    if (sum >= enough) return work || Infinity;
  }
  return Infinity;
}

function workOf(operator: Operator): number {
  return operatorEntry(operator).work(operator).flops;
}

function familiesKey({ place, factors, digits }: FactorFamilies): unknown {
  return [place, Object.values(factors).map((names) => [...names]), digits];
}
