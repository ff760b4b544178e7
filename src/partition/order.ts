/**
 * @file The order of all lists of a step: which collectives start in another list than their own (order-phase.ts orders each).
 */
import { isAccumulator } from '../ir/ops/accumulate.js';
import { deferrals } from './defer.js';
import { orderPhase, type UnderWay } from './order-phase.js';
import type { OrderedList } from './ordered-list.js';
import { nodesByList, phaseOfNode, programPhases } from './program-phases.js';
import { type CommunicationNode, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/**
 * Orders every list of a step of a graph without copies between memories (place-moves.ts). A bucket's collectives start
 * together. Collectives on sums over micro-batches start in the list that accumulates the sum, where it runs for the last time,
 * and are waited for in the list of their own. Throws (internal error) where the dependencies of nodes form a cycle.
 * @param staying collectives that start in the list of their own, whichever list accumulates their operand
 */
export function orderLists(graph: ShardedGraph, staying: ReadonlySet<ShardedNode> = new Set()): readonly OrderedList[] {
  const startedIn = startsAhead(graph, staying);
  const begun: UnderWay[] = [];
  let next = 0;
  return programPhases(graph).map((list) => {
    const ahead = new Set([...startedIn].flatMap(([node, name]) => (name === list.phase ? [node] : [])));
    const here = begun.filter(({ node }) => list.includes(node));
    // A node that waits for a later transfer would delay an earlier one.
    const isDeferring = list.transfers.length === 0;
    const deferred: OrderedList['deferred'] = isDeferring
      ? deferrals({ ...graph, nodes: nodesByList(graph).get(list.phase) ?? [] }, graph)
      : new Map();
    const instructions = orderPhase(graph, list, deferred, { ahead, begun: here, next });
    for (const instruction of instructions) {
      if (instruction.kind !== 'start') continue;
      next = Math.max(next, instruction.id + 1);
      if (instruction.last) begun.push({ node: instruction.node, id: instruction.id });
    }
    return { list, instructions, deferred };
  });
}

/** By collective of a bucket whose operand another list accumulates: the name of that list, in which it starts. */
function startsAhead(graph: ShardedGraph, staying: ReadonlySet<ShardedNode>): ReadonlyMap<CommunicationNode, string> {
  const adds = addedIn(graph);
  return new Map(
    graph.nodes.flatMap((node) => {
      const mayStart = node.kind === 'communicate' && node.bucket && !staying.has(node);
      const list = mayStart ? adds.get(node.input) : undefined;
      return list === undefined ? [] : [[node as CommunicationNode, list] as const];
    }),
  );
}

/** By sum over micro-batches: the list that adds it up. */
export function addedIn(graph: ShardedGraph): ReadonlyMap<string, string> {
  if (!graph.microBatches) return new Map();
  const lists = programPhases(graph).filter(({ runs }) => runs === 'micro');
  return new Map(
    graph.nodes.flatMap((node) => {
      if (node.kind !== 'compute' || !isAccumulator(node)) return [];
      const name = phaseOfNode(node, graph);
      const list = lists.find(({ phase }) => phase === name);
      return list ? resultsOf(node).map((name) => [name, list.phase] as const) : [];
    }),
  );
}
