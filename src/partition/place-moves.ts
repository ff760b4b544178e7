/**
 * @file Where copies between memories stand in a list of instructions. The order of everything else is as if all were kept on the
 * device, so that segments, and the bits that they compute, are the same with and without offload. What leaves the device leaves
 * right behind the step that makes it; what returns does right before the step that reads it first.
 */
import { orderPhase, type PhaseList, phasesOf, type Step, type TransferStep } from './order.js';
import { type MoveNode, readsOf, resultsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';

/** A list with its nodes and transfers in order. */
export interface OrderedList {
  readonly list: PhaseList;
  readonly steps: readonly Step[];
}

/** Every list of a graph in order: price, memory and program follow one. @throws Error (a fault of ours) as `orderPhase` */
export function orderedLists(graph: ShardedGraph): readonly OrderedList[] {
  const known = ORDERED.get(graph);
  if (known) return known;
  const ordered = phasesOf(graph).map((list) => ({ list, steps: orderList(graph, list) }));
  ORDERED.set(graph, ordered);
  return ordered;
}

const ORDERED = new WeakMap<ShardedGraph, readonly OrderedList[]>();

function orderList(graph: ShardedGraph, list: PhaseList): readonly Step[] {
  const { bare, barely, real } = withoutMoves(graph, list);
  const steps = orderPhase(bare, barely);
  return bare === graph ? steps : placeMoves(graph, list, steps.map(real));
}

/** A graph and a list as they are without copies, and the steps of the whole graph behind those of the bare one. */
interface Bare {
  readonly bare: ShardedGraph;
  readonly barely: PhaseList;
  readonly real: (step: Step) => Step;
}

/** The graph with the readers of copies reading what is copied; itself where it has no copies. */
function withoutMoves(graph: ShardedGraph, list: PhaseList): Bare {
  const sources = new Map(graph.nodes.flatMap((node) => (node.kind === 'move' ? [[node.output, node.input]] : [])));
  if (sources.size === 0) return { bare: graph, barely: list, real: (step) => step };
  const sourceOf = (name: string): string => {
    const source = sources.get(name);
    return source === undefined ? name : sourceOf(source);
  };
  const originals = new Map<ShardedNode, ShardedNode>();
  const nodes = graph.nodes.flatMap((node) => {
    if (node.kind === 'move') return [];
    const own: ShardedNode =
      node.kind === 'compute'
        ? { ...node, inputs: node.inputs.map((name) => (name === null ? null : sourceOf(name))) }
        : { ...node, input: sourceOf(node.input) };
    originals.set(own, node);
    return [own];
  });
  const transfers = new Map(
    list.transfers.map((step): [TransferStep, TransferStep] => [
      { ...step, transfer: { ...step.transfer, tensor: sourceOf(step.transfer.tensor) } },
      step,
    ]),
  );
  const original = <Node extends ShardedNode>(node: Node) => originals.get(node) as Node;
  return {
    bare: { ...graph, nodes },
    barely: { ...list, transfers: [...transfers.keys()] },
    real: (step) => {
      if (step.kind === 'send' || step.kind === 'recv') return transfers.get(step) as TransferStep;
      if (step.kind === 'segment') return { ...step, nodes: step.nodes.map(original) };
      return step.kind === 'move' ? step : ({ ...step, node: original(step.node) } as Step);
    },
  };
}

/** The steps of a list with its copies between them. */
function placeMoves(graph: ShardedGraph, list: PhaseList, steps: readonly Step[]): readonly Step[] {
  const moves = graph.nodes.filter((node): node is MoveNode => node.kind === 'move' && list.includes(node));
  const read = new Set(steps.flatMap(readBy));
  const made = new Set(steps.flatMap(madeBy));
  const awaited = new Map<string, MoveNode>();
  const behind = new Map<string, MoveNode[]>();
  const first: MoveNode[] = [];
  for (const move of moves) {
    if (read.has(move.output)) awaited.set(move.output, move);
    else if (made.has(move.input)) behind.set(move.input, [...(behind.get(move.input) ?? []), move]);
    else first.push(move);
  }
  const placed: Step[] = [];
  const place = (move: MoveNode) => placed.push({ kind: 'move', node: move });
  first.forEach(place);
  for (const step of steps) {
    for (const name of readBy(step)) {
      const move = awaited.get(name);
      if (move) place(move);
      awaited.delete(name);
    }
    placed.push(step);
    for (const name of madeBy(step)) behind.get(name)?.forEach(place);
  }
  return placed;
}

function readBy(step: Step): readonly string[] {
  if (step.kind === 'segment') return step.nodes.flatMap(readsOf);
  if (step.kind === 'send') return [step.transfer.tensor];
  return step.kind === 'start' || step.kind === 'accumulate' ? readsOf(step.node) : [];
}

function madeBy(step: Step): readonly string[] {
  if (step.kind === 'segment') return step.nodes.flatMap(resultsOf);
  if (step.kind === 'recv') return [step.transfer.tensor];
  return step.kind === 'wait' || step.kind === 'accumulate' ? resultsOf(step.node) : [];
}
