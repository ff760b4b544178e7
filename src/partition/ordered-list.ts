/**
 * @file The order of a stage's program: lists of instructions that run segments, start and await collectives, add to sums over
 * micro-batches, copy between memories, send and receive.
 */
import type { deferrals } from './defer.js';
import type { ProgramPhase, TransferInstruction } from './program-phases.js';
import type { CommunicationNode, ComputeNode, MoveNode } from './sharded-graph.js';

/** Marks an instruction of the second half (interleave.ts): it works on the micro-batch behind that of its action. */
export type SecondHalf = 1;

export type OrderedInstruction = { readonly half?: SecondHalf } & (
  | { readonly kind: 'segment'; readonly nodes: readonly ComputeNode[] }
  | {
      readonly kind: 'start';
      readonly node: CommunicationNode;
      readonly id: number;
      /** The number of its bucket, where it has one. */
      readonly bucket?: number;
      /** Only where the list runs for the last time in a step; its wait stands in a list that runs once. */
      readonly last?: true;
    }
  | { readonly kind: 'wait'; readonly node: CommunicationNode; readonly id: number }
  | { readonly kind: 'accumulate'; readonly node: ComputeNode }
  | { readonly kind: 'move'; readonly node: MoveNode }
  | TransferInstruction
);

/** A list with its instructions. */
export interface OrderedList {
  readonly list: ProgramPhase;
  readonly instructions: readonly OrderedInstruction[];
  /** By node that runs as late as possible: the tensors that it waits for beside its operands. */
  readonly deferred: ReturnType<typeof deferrals>;
}
