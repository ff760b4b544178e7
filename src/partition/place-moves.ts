/**
 * @file Where copies between memories stand in a list of instructions. The order of everything else is as if all tensors were on
 * the device, so that segments, and the bits that they compute, are the same with and without offload. A tensor leaves the device
 * right behind the step that computes it, and returns right before the step that reads it first.
 */
import { remembered } from '../ir/remembered.js';
import { lastForm, otherForm } from './except-last.js';
import { type OrderedList, type OrderedStep, orderLists } from './order.js';
import { BEGIN, lastList, type ProgramPhase, programPhases } from './program-phases.js';
import { readersOutside, type SegmentResults, segmentResults } from './segments.js';
import {
  type MoveNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type StageTransfer,
} from './sharded-graph.js';

/** A step in its place: a segment with its results. */
export type PlacedStep =
  | Exclude<OrderedStep, { readonly kind: 'segment' }>
  | (Extract<OrderedStep, { readonly kind: 'segment' }> & { readonly results: SegmentResults });

/** A list of instructions with its steps in place. */
export interface PlacedList extends OrderedList {
  readonly steps: readonly PlacedStep[];
}

/** Every list of a graph in order: price, memory and program follow one. @throws Error (internal error) as `orderLists` */
export const orderedLists = remembered((graph: ShardedGraph): readonly PlacedList[] => {
  const hasMoves = graph.nodes.some(({ kind }) => kind === 'move');
  const ordered = graph.microBatches?.exceptLast ? withLast(graph) : hasMoves ? withMoves(graph) : orderLists(graph);
  const outside = readersOutside(graph, ordered);
  return ordered.map((own) => ({
    ...own,
    steps: own.steps.map((step) =>
      step.kind === 'segment' ? { ...step, results: segmentResults(step.nodes, graph, outside(own.list)) } : step,
    ),
  }));
});

/** Lists of the micro-batches before the last, and those of the last. Collectives that start in a list's last run start there. */
function withLast(graph: ShardedGraph): readonly OrderedList[] {
  const others = orderedLists(otherForm(graph)).filter(({ list }) => list.runs === 'micro');
  const last = orderedLists(lastForm(graph)).map((own): OrderedList => {
    const { list } = own;
    return list.runs === 'micro' ? { ...own, list: { ...list, phase: lastList(list.phase), isLast: true } } : own;
  });
  const isFirst = ({ list }: OrderedList) => list.phase === BEGIN;
  // Collectives of both are numbered from the same number on, and ranks tell them apart by it.
  const taken = last.reduce((sum, { steps }) => sum + steps.filter(({ kind }) => kind === 'start').length, 0);
  const numbered = (step: OrderedStep): OrderedStep =>
    step.kind === 'start' || step.kind === 'wait' ? { ...step, id: taken + step.id } : step;
  return [
    ...last.filter(isFirst),
    ...others.map((own) => ({
      ...own,
      steps: own.steps.filter((step) => step.kind !== 'start' || !step.last).map(numbered),
    })),
    ...last.filter((own) => !isFirst(own)),
  ];
}

/** The lists of the graph without copies, which are placed between their steps. */
function withMoves(graph: ShardedGraph): readonly OrderedList[] {
  const { bare, original, real } = withoutMoves(graph);
  // A collective waits for the copy of its operand, in the list of both.
  const staying = bare.nodes.filter((node) => {
    const own = original(node);
    return node.kind === 'communicate' && own.kind === 'communicate' && node.input !== own.input;
  });
  const lists = programPhases(graph);
  return orderLists(bare, new Set(staying)).map(({ steps, deferred }, index) => {
    const list = lists[index] as ProgramPhase;
    return {
      list,
      steps: placeMoves(graph, list, steps.map(real)),
      deferred: new Map([...deferred].map(([node, names]) => [original(node), names])),
    };
  });
}

/** A graph as it is without copies, and the nodes and steps of the whole graph behind those of the bare one. */
interface Bare {
  readonly bare: ShardedGraph;
  readonly original: (node: ShardedNode) => ShardedNode;
  readonly real: (step: OrderedStep) => OrderedStep;
}

/** The graph without copies: readers of copies read the copied tensors. */
function withoutMoves(graph: ShardedGraph): Bare {
  const sources = new Map(graph.nodes.flatMap((node) => (node.kind === 'move' ? [[node.output, node.input]] : [])));
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
  const transfers = new Map<StageTransfer, StageTransfer>();
  const bareTransfer = (transfer: StageTransfer): StageTransfer => {
    const own = { ...transfer, tensor: sourceOf(transfer.tensor) };
    transfers.set(own, transfer);
    return own;
  };
  const { pipeline } = graph;
  const original = (node: ShardedNode) => originals.get(node) ?? node;
  return {
    bare: {
      ...graph,
      nodes,
      ...(pipeline
        ? {
            pipeline: {
              ...pipeline,
              sends: pipeline.sends.map(bareTransfer),
              receives: pipeline.receives.map(bareTransfer),
            },
          }
        : {}),
    },
    original,
    real: (step) => {
      if (step.kind === 'send' || step.kind === 'recv')
        return { ...step, transfer: transfers.get(step.transfer) ?? step.transfer };
      if (step.kind === 'segment') return { ...step, nodes: step.nodes.map(original) } as OrderedStep;
      return { ...step, node: original(step.node) } as OrderedStep;
    },
  };
}

/** The steps of a list with its copies between them. */
function placeMoves(graph: ShardedGraph, list: ProgramPhase, steps: readonly OrderedStep[]): readonly OrderedStep[] {
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
  const placed: OrderedStep[] = [];
  const place = (move: MoveNode) => placed.push({ kind: 'move', node: move });
  first.forEach(place);
  for (const [index, step] of steps.entries()) {
    // A bucket's collectives begin together: the operands of all of them return before the first.
    for (const name of bucketFrom(steps, index).flatMap(readBy)) {
      const move = awaited.get(name);
      if (move) place(move);
      awaited.delete(name);
    }
    placed.push(step);
    for (const name of madeBy(step)) behind.get(name)?.forEach(place);
  }
  return placed;
}

/** A step, with those behind it that start in the same bucket. */
function bucketFrom(steps: readonly OrderedStep[], from: number): readonly OrderedStep[] {
  const bucketOf = (step: OrderedStep | undefined) => (step?.kind === 'start' ? step.node.bucket?.id : undefined);
  const own = bucketOf(steps[from]);
  let to = from + 1;
  while (own !== undefined && bucketOf(steps[to]) === own) to++;
  return steps.slice(from, to);
}

function readBy(step: OrderedStep): readonly string[] {
  if (step.kind === 'segment') return step.nodes.flatMap(readsOf);
  if (step.kind === 'send') return [step.transfer.tensor];
  return step.kind === 'start' || step.kind === 'accumulate' ? readsOf(step.node) : [];
}

function madeBy(step: OrderedStep): readonly string[] {
  if (step.kind === 'segment') return step.nodes.flatMap(resultsOf);
  if (step.kind === 'recv') return [step.transfer.tensor];
  return step.kind === 'wait' || step.kind === 'accumulate' ? resultsOf(step.node) : [];
}
