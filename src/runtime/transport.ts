/**
 * @file How ranks communicate. The rank loop knows this interface only; shared memory between worker threads is one
 * implementation.
 */
import type { ProgramCollective } from '../program/program.js';
import type { DType } from '../program/values.js';

/** One collective of the program as one rank sees it. */
export interface CollectiveCall {
  readonly collective: ProgramCollective;
  readonly dtype: DType;
  /** The group's ranks; member k holds shard k. */
  readonly members: readonly number[];
  /** This rank's place among the members. */
  readonly member: number;
  /** Bytes that this rank gives and gets. */
  readonly inputBytes: number;
  readonly outputBytes: number;
  /** The buffer that carries it (see `slots.ts`): the same number on all ranks of the stage. */
  readonly slot: number;
  /** Collectives of one bucket begin one after the other, and may travel as one message. */
  readonly bucket?: number;
}

/** A tensor that goes to a rank of another stage, or comes from it, as one of the two sees it. */
export interface TransferCall {
  /** The name by which both know it. */
  readonly label: string;
  readonly peer: number;
  readonly bytes: number;
}

export interface Transport {
  /**
   * Publishes this rank's input, if it `gives` one, and returns how many bytes it sent. The input may be changed or freed as soon
   * as this returns.
   */
  readonly start: (call: CollectiveCall, input: Uint8Array) => number;
  /**
   * Blocks until the members have started from which this rank's result comes, and writes it (all of `call.outputBytes`) to
   * `result`, if it `takes` one.
   */
  readonly wait: (call: CollectiveCall, result: Uint8Array) => void;
  /** Sends a tensor to a rank of another stage; never blocks on the receiver. */
  readonly send: (call: TransferCall, tensor: Uint8Array) => void;
  /** Blocks until the tensor has come. Tensors of one name arrive in the order sent. */
  readonly receive: (call: TransferCall) => Uint8Array;
  /** Milliseconds that this rank has been blocked in all of the above so far. */
  readonly blocked: () => number;
}

/** Whether this rank's input is part of the members' results: for a broadcast only the first one's. */
export function gives({ collective, member }: CollectiveCall): boolean {
  return collective.kind !== 'broadcast' || member === 0;
}

/** Whether this rank gets a result: for a reduce only the first. */
export function takes({ collective, member }: CollectiveCall): boolean {
  return collective.kind !== 'reduce' || member === 0;
}

/**
 * Bytes that one rank sends at most for a collective over `members` ranks, by the usual formulas for ring algorithms:
 * 2(n−1)/n of the input for an all-reduce, (n−1)/n of the whole array for gather, scatter and all-to-all. For a reduce and a
 * broadcast, the inputs that pass between it and others: n−1 at the first rank, one at each other.
 */
export function bytesSent(call: CollectiveCall): number {
  const share = (call.members.length - 1) / call.members.length;
  const { collective } = call;
  if (collective.kind === 'all-reduce') return 2 * share * call.inputBytes;
  if (collective.kind === 'reduce' || collective.kind === 'broadcast')
    return call.member === 0 ? (call.members.length - 1) * call.inputBytes : call.inputBytes;
  if (collective.kind === 'permute') return collective.to[call.member] === call.member ? 0 : call.inputBytes;
  return share * Math.max(call.inputBytes, call.outputBytes);
}
