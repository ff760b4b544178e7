/**
 * @file Messages between the launcher and its ranks.
 */
import type { StoredTensor } from '../program/checkpoint.js';
import type { SavedShard } from '../program/checkpoint-boxes.js';
import type { Program, ProgramAction, ProgramAxis, ProgramStage } from '../program/program.js';
import { AutoparError, type ErrorPlace, type OuterMemory } from '../program/values.js';
import type { BackendName } from './backend.js';
import type { PeerLine, SharedRegions } from './shared-memory.js';
import type { SlotPlan } from './slots.js';
import type { RankStatistics } from './statistics.js';
import type { NotFinite } from './value-watch.js';

/** For tests of fault handling: the rank fails at the n-th instruction that it executes (from 0, over all steps). */
export interface Fault {
  readonly rank: number;
  readonly instruction: number;
  /** `throw`: an exception; `exit`: the thread ends without a message; `stall`: it sleeps for ever. */
  readonly kind: 'throw' | 'exit' | 'stall';
}

/** Shards of local tensors: a tensor of micro-batches has one for each of them. */
export type Shards = Readonly<Record<string, readonly Uint8Array[]>>;

/** Input of the emulated backend and its links. */
export interface Emulation {
  /** Seconds of a segment's execution, by stage and segment. */
  readonly seconds: readonly Readonly<Record<string, number>>[];
  readonly link: EmulatedLink;
  /** Bytes per second between a rank's device and its other memories; copies take no time where it is left out. */
  readonly moves?: Readonly<Record<OuterMemory, number>>;
}

/** A link between any two ranks. */
export interface EmulatedLink {
  readonly bytesPerSecond: number;
  /** Seconds from end to end. */
  readonly latency: number;
}

/** For tests of independence of time: before every collective or transfer a rank waits up to so many seconds, drawn per step. */
export interface Delays {
  readonly seed: number;
  readonly seconds: number;
}

/** All that a rank needs, passed as the worker's data. */
export interface RankSetup {
  readonly rank: number;
  readonly ranks: number;
  /** Folder of program.json. */
  readonly folder: string;
  readonly stageIndex: number;
  readonly stage: ProgramStage;
  /** The stage's own mesh. */
  readonly axes: readonly ProgramAxis[];
  /** Actions of the stage in a step, in order. */
  readonly actions: readonly ProgramAction[];
  readonly outputs: Program['outputs'];
  /** State that the stage keeps from step to step. */
  readonly state: NonNullable<Program['state']>;
  readonly threads: number;
  readonly control: SharedArrayBuffer;
  readonly regions: SharedRegions;
  readonly slots: SlotPlan;
  readonly lines: readonly PeerLine[];
  /** The backend that computes segments. */
  readonly backend: BackendName;
  /** Null: segments are computed. */
  readonly emulation: Emulation | null;
  /** Bytes that its device may hold; null for no limit. */
  readonly memory: number | null;
  /** The session's own folder for tensors that are stored on disk; null if none. */
  readonly offloadFolder: string | null;
  readonly delays: Delays | null;
  readonly fault: Fault | null;
}

/** Commands to a rank. It answers each before the next, except `close`, after which its thread ends. */
export type RankCommand =
  | {
      readonly kind: 'step';
      /** Shards of the inputs; null: those of the last step. */
      readonly feeds: Shards | null;
      /** Local tensors of the outputs to return. */
      readonly outputs: readonly string[];
      /** Local tensors to return as they were made last. */
      readonly collect: readonly string[];
      /** Local tensors whose sum of squares is requested. */
      readonly measure: readonly string[];
      /** Whether to list tensors that are not finite. */
      readonly check: boolean;
      /** Whether to list when each action and instruction ran. */
      readonly trace: boolean;
    }
  | { readonly kind: 'read'; readonly tensors: readonly string[] }
  | { readonly kind: 'write'; readonly shards: Shards }
  /** Writes boxes of its state to a file. */
  | { readonly kind: 'save'; readonly file: string; readonly shards: readonly SavedShard[] }
  /** Reads its state from the checkpoint in a folder. */
  | { readonly kind: 'restore'; readonly folder: string; readonly tensors: Readonly<Record<string, StoredTensor>> }
  | { readonly kind: 'close' };

/** A rank's answer to a command. */
export interface RankAnswer {
  /** Shards that the rank contributes to whole tensors, copied: outputs of a step, or tensors that were to be read. */
  readonly shards: Shards;
  readonly step: RankStep | null;
  /** For saved tensors: the SHA-256 by key, or the error that prevented writing. */
  readonly saved?: { readonly digests: Readonly<Record<string, string>> } | { readonly error: PlainError };
}

/** The result of a step. */
export interface RankStep {
  readonly collected: Shards;
  /** From barrier to barrier. */
  readonly seconds: number;
  /** Processor time of the whole process: of all ranks together. */
  readonly processorSeconds: number;
  readonly statistics: RankStatistics;
  /** Sums of squares of this rank's shards, by local tensor. */
  readonly squares: Readonly<Record<string, number>>;
  /** In the order in which they were made. */
  readonly notFinite: readonly NotFinite[];
  /** Present where a trace was requested. */
  readonly spans: readonly TraceSpan[];
}

/** When a rank ran an action, a pass of one that has several, or an instruction of it, or waited for another stage. */
export interface TraceSpan {
  /** `compute`, `send`, `recv`, `accumulate`, a move, a collective, or a `bubble`; for an action its phase, or the pass. */
  readonly kind: string;
  /** Layer and operator, or tensor; null for an action, a pass or a bubble. */
  readonly label: string | null;
  readonly chunk: number;
  readonly microBatch: number | null;
  /** Milliseconds on a clock that all ranks share. */
  readonly from: number;
  readonly until: number;
  /** Most bytes of the device's memory that the rank held meanwhile; null where `label` is. */
  readonly heldBytes: number | null;
}

/** Messages of a rank: `loaded` once, an answer to each command; `failed` is its last message. */
export type RankMessage =
  | { readonly kind: 'loaded'; readonly substitutes: readonly string[] }
  | { readonly kind: 'answer'; readonly answer: RankAnswer }
  | { readonly kind: 'failed'; readonly error: PlainError };

/** An error as a message can carry it; `user` where it was an AutoparError. */
export interface PlainError {
  readonly message: string;
  readonly stack: string;
  readonly user: {
    readonly code: AutoparError['code'];
    readonly exit: AutoparError['exit'];
    readonly where: ErrorPlace;
    readonly hint: string | undefined;
  } | null;
}

/** The error that a message carries, where it was meant for the user. */
export function userError({ message, user }: PlainError): AutoparError | null {
  return user ? new AutoparError(user.code, user.exit, message, user.where, user.hint) : null;
}

export function plainError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { message: String(error), stack: '', user: null };
  const user =
    error instanceof AutoparError ? { code: error.code, exit: error.exit, where: error.where, hint: error.hint } : null;
  return { message: error.message, stack: error.stack ?? '', user };
}
