/**
 * @file Where copies between memories stand in a list of instructions. The order of everything else is as if all tensors were on
 * the device, so that segments, and the bits that they compute, are the same with and without offload. A tensor leaves the device
 * right behind the instruction that computes it, and returns right before the one that reads it first.
 */
import { appendTo } from '../ir/group-by.js';
import { remembered } from '../ir/remembered.js';
import { lastForm, otherForm } from './except-last.js';
import { orderLists } from './order.js';
import type { OrderedInstruction, OrderedList } from './ordered-list.js';
import { BEGIN, lastList, type ProgramPhase, programPhases } from './program-phases.js';
import { readersOutside, type SegmentResults, segmentResults } from './segments.js';
import {
  copiedTensors,
  type MoveNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type StageTransfer,
} from './sharded-graph.js';

/** An instruction in its place: a segment with its results. */
export type PlacedInstruction =
  | Exclude<OrderedInstruction, { readonly kind: 'segment' }>
  | (Extract<OrderedInstruction, { readonly kind: 'segment' }> & { readonly results: SegmentResults });

/** A list with its instructions in place. */
export interface PlacedList extends OrderedList {
  readonly instructions: readonly PlacedInstruction[];
}

/** Every list of a graph in order: price, memory and program follow one. @throws Error (internal error) as `orderLists` */
export const orderedLists = remembered((graph: ShardedGraph): readonly PlacedList[] => {
  const hasMoves = graph.nodes.some(({ kind }) => kind === 'move');
  const ordered = graph.microBatches?.exceptLast ? withLast(graph) : hasMoves ? withMoves(graph) : orderLists(graph);
  const outside = readersOutside(graph, ordered);
  return ordered.map((own) => ({
    ...own,
    instructions: own.instructions.map((instruction) =>
      instruction.kind === 'segment'
        ? { ...instruction, results: segmentResults(instruction.nodes, graph, outside(own.list)) }
        : instruction,
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
  const taken = last.reduce(
    (sum, { instructions }) => sum + instructions.filter(({ kind }) => kind === 'start').length,
    0,
  );
  const numbered = (instruction: OrderedInstruction): OrderedInstruction =>
    instruction.kind === 'start' || instruction.kind === 'wait'
      ? { ...instruction, id: taken + instruction.id }
      : instruction;
  return [
    ...last.filter(isFirst),
    ...others.map((own) => ({
      ...own,
      instructions: own.instructions
        .filter((instruction) => instruction.kind !== 'start' || !instruction.last)
        .map(numbered),
    })),
    ...last.filter((own) => !isFirst(own)),
  ];
}

/** The lists of the graph without copies, which are placed between their instructions. */
function withMoves(graph: ShardedGraph): readonly OrderedList[] {
  const { bare, original, real } = withoutMoves(graph);
  // A collective waits for the copy of its operand, in the list of both.
  const staying = bare.nodes.filter((node) => {
    const own = original(node);
    return node.kind === 'communicate' && own.kind === 'communicate' && node.input !== own.input;
  });
  const lists = programPhases(graph);
  return orderLists(bare, new Set(staying)).map(({ instructions, deferred }, index) => {
    const list = lists[index] as ProgramPhase;
    return {
      list,
      instructions: placeMoves(graph, list, instructions.map(real)),
      deferred: new Map([...deferred].map(([node, names]) => [original(node), names])),
    };
  });
}

/** A graph as it is without copies, and the nodes and instructions of the whole graph behind those of the bare one. */
interface Bare {
  readonly bare: ShardedGraph;
  readonly original: (node: ShardedNode) => ShardedNode;
  readonly real: (instruction: OrderedInstruction) => OrderedInstruction;
}

/** The graph without copies: readers of copies read the copied tensors. */
function withoutMoves(graph: ShardedGraph): Bare {
  const sources = copiedTensors(graph);
  const sourceOf = (name: string) => sources.get(name) ?? name;
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
    real: (instruction) => {
      if (instruction.kind === 'send' || instruction.kind === 'recv')
        return { ...instruction, transfer: transfers.get(instruction.transfer) ?? instruction.transfer };
      if (instruction.kind === 'segment')
        return { ...instruction, nodes: instruction.nodes.map(original) } as OrderedInstruction;
      return { ...instruction, node: original(instruction.node) } as OrderedInstruction;
    },
  };
}

/** The instructions of a list with its copies between them. */
function placeMoves(
  graph: ShardedGraph,
  list: ProgramPhase,
  instructions: readonly OrderedInstruction[],
): readonly OrderedInstruction[] {
  const moves = graph.nodes.filter((node): node is MoveNode => node.kind === 'move' && list.includes(node));
  const read = new Set(instructions.flatMap(readBy));
  const made = new Set(instructions.flatMap(madeBy));
  const awaited = new Map<string, MoveNode>();
  const behind = new Map<string, MoveNode[]>();
  const first: MoveNode[] = [];
  for (const move of moves) {
    if (read.has(move.output)) awaited.set(move.output, move);
    else if (made.has(move.input)) appendTo(behind, move.input, move);
    else first.push(move);
  }
  const placed: OrderedInstruction[] = [];
  const place = (move: MoveNode) => placed.push({ kind: 'move', node: move });
  first.forEach(place);
  for (const [index, instruction] of instructions.entries()) {
    // A bucket's collectives begin together: the operands of all of them return before the first.
    for (const name of bucketFrom(instructions, index).flatMap(readBy)) {
      const move = awaited.get(name);
      if (move) place(move);
      awaited.delete(name);
    }
    placed.push(instruction);
    for (const name of madeBy(instruction)) behind.get(name)?.forEach(place);
  }
  return placed;
}

/** An instruction, with those behind it that start in the same bucket. */
function bucketFrom(instructions: readonly OrderedInstruction[], from: number): readonly OrderedInstruction[] {
  const bucketOf = (instruction: OrderedInstruction | undefined) =>
    instruction?.kind === 'start' ? instruction.node.bucket?.id : undefined;
  const own = bucketOf(instructions[from]);
  let to = from + 1;
  while (own !== undefined && bucketOf(instructions[to]) === own) to++;
  return instructions.slice(from, to);
}

function readBy(instruction: OrderedInstruction): readonly string[] {
  if (instruction.kind === 'segment') return instruction.nodes.flatMap(readsOf);
  if (instruction.kind === 'send') return [instruction.transfer.tensor];
  return instruction.kind === 'start' || instruction.kind === 'accumulate' ? readsOf(instruction.node) : [];
}

function madeBy(instruction: OrderedInstruction): readonly string[] {
  if (instruction.kind === 'segment') return instruction.nodes.flatMap(resultsOf);
  if (instruction.kind === 'recv') return [instruction.transfer.tensor];
  return instruction.kind === 'wait' || instruction.kind === 'accumulate' ? resultsOf(instruction.node) : [];
}
