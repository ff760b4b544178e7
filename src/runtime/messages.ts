/**
 * @file What the launcher and its ranks say to each other.
 */
import type { Program, ProgramAction, ProgramAxis, ProgramStage } from '../program/program.js';
import type { ErrorPlace, ExitKind } from '../program/values.js';
import type { PeerLine, SharedRegions } from './shared-memory.js';
import type { SlotPlan } from './slots.js';
import type { RankStatistics } from './statistics.js';

/** For tests of fault handling: the rank fails at the n-th instruction that it executes (from 0, over all steps). */
export interface Fault {
  readonly rank: number;
  readonly instruction: number;
  /** `throw`: an exception; `exit`: the thread ends without a word; `stall`: it sleeps for ever. */
  readonly kind: 'throw' | 'exit' | 'stall';
}

/** All that a rank needs, handed over as the worker's data. */
export interface RankSetup {
  readonly rank: number;
  readonly ranks: number;
  /** Folder of program.json. */
  readonly folder: string;
  readonly stageIndex: number;
  readonly stage: ProgramStage;
  /** The stage's own mesh. */
  readonly axes: readonly ProgramAxis[];
  /** What the stage runs in a step, in order. */
  readonly actions: readonly ProgramAction[];
  readonly outputs: Program['outputs'];
  /** What the stage keeps from step to step. */
  readonly state: NonNullable<Program['state']>;
  /** Blocks of the inputs by local tensor; of those that are cut in micro-batches one for each. */
  readonly feeds: Readonly<Record<string, readonly Uint8Array[]>>;
  readonly steps: number;
  readonly warmup: number;
  readonly threads: number;
  /** Local tensors to hand back as they were in the last step. */
  readonly collect: readonly string[];
  readonly control: SharedArrayBuffer;
  readonly regions: SharedRegions;
  readonly slots: SlotPlan;
  readonly lines: readonly PeerLine[];
  readonly fault: Fault | null;
}

/** What a rank says. `failed` and `done` are its last words. */
export type RankMessage =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'step'; readonly step: number }
  | {
      readonly kind: 'done';
      /** Wall time of each counted step, barrier to barrier. */
      readonly stepSeconds: readonly number[];
      readonly processorSeconds: number;
      readonly statistics: RankStatistics;
      /** Blocks by local tensor, one per micro-batch that makes a part of them. */
      readonly outputs: Readonly<Record<string, readonly Uint8Array[]>>;
      readonly collected: Readonly<Record<string, Uint8Array>>;
      /** Values of outputs that are one number, step by step, by local tensor. */
      readonly history: Readonly<Record<string, readonly number[]>>;
    }
  | { readonly kind: 'failed'; readonly error: PlainError };

/** An error as a message can carry it; `user` where it was an AutoparError. */
export interface PlainError {
  readonly message: string;
  readonly stack: string;
  readonly user: {
    readonly code: string;
    readonly exit: ExitKind;
    readonly where: ErrorPlace;
    readonly hint: string | undefined;
  } | null;
}
