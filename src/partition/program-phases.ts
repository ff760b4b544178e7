/**
 * @file The lists of instructions of a step: the operators of each, how often it runs, and its sends and receives.
 */

import type { Phase } from '../ir/graph.js';
import { appendTo, groupBy } from '../ir/group-by.js';
import { remembered } from '../ir/remembered.js';
import {
  type PipelineStage,
  readsOf,
  type ShardedGraph,
  type ShardedNode,
  type StageTransfer,
} from './sharded-graph.js';

/** How often a list of instructions runs: once for each micro-batch, or once per step. */
export type ListRuns = 'micro' | 'step';

/** A list of instructions of a program. */
export interface ProgramPhase {
  /** Its name in program.json. */
  readonly phase: string;
  readonly runs: ListRuns;
  readonly includes: (node: ShardedNode) => boolean;
  /** Its sends and receives, in the order of all stages. */
  readonly transfers: readonly TransferInstruction[];
  /** It runs for the last micro-batch alone, which stores the activations that the others recompute (except-last.ts). */
  readonly isLast?: true;
}

/** A list that runs one phase of a pipeline stage's chunk for each micro-batch. */
export interface ChunkList extends ProgramPhase {
  readonly chunk: number;
  /** The phase of the schedule's actions that run it. */
  readonly does: string;
}

/**
 * The lists of a step in order: one list of all nodes; with micro-batches a list for each of them, then a list that runs once. A
 * pipeline stage has separate lists for forward and backward of each chunk, since those of other micro-batches run between them,
 * and also for the transfers of one list to one other stage.
 */
export const programPhases = remembered(listsOf);

function listsOf(graph: ShardedGraph): readonly ProgramPhase[] {
  const { pipeline } = graph;
  if (pipeline) return listsOfStage(graph, pipeline);
  const list = (phase: string, runs: ListRuns): ProgramPhase => ({
    ...{ phase, runs, transfers: [] },
    includes: (node) => phaseOfNode(node, graph) === phase,
  });
  if (!graph.microBatches) return [list('forward', 'step')];
  const begins = graph.nodes.some(({ phase }) => phase === 'begin');
  return [...(begins ? [list(BEGIN, 'step')] : []), list('micro', 'micro'), list('step', 'step')];
}

/** The name of the list that a node of a graph is in. */
export function phaseOfNode(node: ShardedNode, { pipeline, microBatches }: ListedGraph): string {
  if (pipeline) return listOfStage(node, pipeline);
  if (!microBatches) return 'forward';
  if (node.phase === 'begin') return BEGIN;
  return node.phase === 'update' ? 'step' : 'micro';
}

interface ListedGraph extends Pick<ShardedGraph, 'microBatches'> {
  readonly pipeline?: ComputingStage;
}

function listOfStage(node: ShardedNode, { chunkOf, splitsBackward }: ComputingStage): string {
  if (node.kind === 'move') return node.list;
  if (node.phase === 'begin') return BEGIN;
  if (node.phase === 'update') return UPDATE;
  return listName(doneIn(node.phase, splitsBackward), chunkOf.get(node.origin) ?? 0);
}

function doneIn(phase: Phase, splitsBackward: boolean): string {
  if (phase === 'forward') return phase;
  if (!splitsBackward) return 'backward';
  return phase === 'backward-weight' ? 'weight-gradient' : 'input-gradient';
}

/** The nodes of a graph by the names of their lists, in order. */
export const nodesByList = remembered(
  (graph: ShardedGraph): ReadonlyMap<string, readonly ShardedNode[]> =>
    groupBy(graph.nodes, (node) => phaseOfNode(node, graph)),
);

/** The name of the list of a stage that an action of its schedule runs. */
export function listName(phase: string, chunk: number): string {
  return chunk === 0 ? phase : `${phase}.${chunk}`;
}

const LAST = ' (last)';

/** The name of a list as the last micro-batch runs it, where that is a list of its own. */
export function lastList(list: string): string {
  return `${list}${LAST}`;
}

/** The list that the other micro-batches run in place of the last one's own list; any other list is returned unchanged. */
export function usualList(list: string): string {
  return list.endsWith(LAST) ? list.slice(0, -LAST.length) : list;
}

/** How often a list runs in a step: once for both halves of a micro-batch. */
export function runsOfList(
  { runs, isLast }: Pick<ProgramPhase, 'runs' | 'isLast'>,
  { microBatches, interleave = 1 }: Pick<ShardedGraph, 'microBatches' | 'interleave'>,
): number {
  if (runs === 'step' || isLast) return 1;
  return (microBatches?.count ?? 1) / interleave - (microBatches?.exceptLast ? 1 : 0);
}

/** Names of the lists that run once a step. */
export const BEGIN = 'begin';
export const UPDATE = 'update';

/** The name of a list that only sends results of `list` to a stage, or receives them from there. */
export function transferList(kind: TransferInstruction['kind'], list: string, stage: number): string {
  return `${kind} ${list} ${kind === 'send' ? 'to' : 'from'} ${stage}`;
}

/** The lists of a stage that compute, in the order in which a micro-batch runs through them. */
export function computeLists(stage: ComputingStage): readonly ChunkList[] {
  const list = (does: string, chunk: number): ChunkList => {
    const phase = listName(does, chunk);
    const includes = (node: ShardedNode) => listOfStage(node, stage) === phase;
    return { phase, does, chunk, runs: 'micro', includes, transfers: [] };
  };
  const inOrder = Array.from({ length: stage.chunks }, (_, chunk) => chunk);
  const backward = stage.splitsBackward ? ['input-gradient', 'weight-gradient'] : ['backward'];
  return [
    ...inOrder.map((chunk) => list('forward', chunk)),
    ...inOrder.reverse().flatMap((chunk) => backward.map((does) => list(does, chunk))),
  ];
}

/** The fields of a stage that determine which lists compute. */
type ComputingStage = Pick<PipelineStage, 'chunks' | 'chunkOf' | 'splitsBackward'>;

/** Each compute list, between receives of the tensors that it is the first to read and sends of its results. */
function listsOfStage(graph: ShardedGraph, pipeline: PipelineStage): readonly ProgramPhase[] {
  const transfers: readonly TransferInstruction[] = [
    ...pipeline.sends.map((transfer) => ({ kind: 'send', transfer }) as const),
    ...pipeline.receives.map((transfer) => ({ kind: 'recv', transfer }) as const),
  ].sort((a, b) => a.transfer.order - b.transfer.order);
  const includes = (phase: string) => (node: ShardedNode) => listOfStage(node, pipeline) === phase;
  const once = (phase: string, when: StageTransfer['when']): ProgramPhase => ({
    ...{ phase, runs: 'step', includes: includes(phase) },
    transfers: transfers.filter(({ transfer }) => transfer.when === when),
  });
  const exchanges = new Map<string, TransferInstruction[]>();
  for (const instruction of transfers) {
    const { when, list, stage } = instruction.transfer;
    if (when !== 'micro') continue;
    const name = transferList(instruction.kind, list, stage);
    appendTo(exchanges, name, instruction);
  }
  const taken = new Set<string>();
  const take = (isNow: (instruction: TransferInstruction) => boolean): readonly ProgramPhase[] =>
    [...exchanges].flatMap(([phase, instructions]) => {
      if (taken.has(phase) || !instructions.some(isNow)) return [];
      taken.add(phase);
      return [{ phase, runs: 'micro', includes: includes(phase), transfers: instructions } as const];
    });
  const nodes = nodesByList(graph);
  const inTurn = computeLists(pipeline).flatMap((list) => {
    const reads = new Set(nodes.get(list.phase)?.flatMap(readsOf));
    const before = take(({ kind, transfer }) => kind === 'recv' && reads.has(transfer.tensor));
    return [...before, list, ...take(({ kind, transfer }) => kind === 'send' && transfer.list === list.phase)];
  });
  return [once(BEGIN, 'begin'), ...inTurn, ...take(() => true), once(UPDATE, 'update')];
}

/** A send or a receive of one stage. */
export type TransferInstruction =
  | { readonly kind: 'send'; readonly transfer: StageTransfer }
  | { readonly kind: 'recv'; readonly transfer: StageTransfer };
