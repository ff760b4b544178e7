/**
 * @file Pipeline schedules as data: for each stage the order of its actions. An action runs one phase of one micro-batch
 * through one chunk (a stage of v virtual stages holds v chunks of the model).
 *
 *     naive             one micro-batch at a time through the whole pipeline
 *     f-then-b          all forwards, then all backwards (GPipe, Huang et al. 2019)
 *     1f1b              as soon as a backward can run it does (PipeDream-Flush, Narayanan et al. 2021)
 *     interleaved-1f1b  1F1B over v chunks a stage (Megatron-LM, Narayanan et al. 2021)
 *     zero-bubble       1F1B whose backward is split, weight gradients filling the bubble (ZB-H1, Qi et al. 2023)
 *     interleaved-zero-bubble  interleaved 1F1B whose backward is split in the same way
 *     zbv               two chunks a stage in the shape of a V, backward split (ZB-V, Qi et al. 2023)
 */

export const SCHEDULE_KINDS = [
  'naive',
  'f-then-b',
  '1f1b',
  'interleaved-1f1b',
  'zero-bubble',
  'interleaved-zero-bubble',
  'zbv',
] as const;

export type ScheduleKind = (typeof SCHEDULE_KINDS)[number];

/** `backward` computes both gradients; a split one has `input-gradient` and `weight-gradient` in its place. */
export const PHASES = ['forward', 'backward', 'input-gradient', 'weight-gradient'] as const;

export type ActionPhase = (typeof PHASES)[number];

/** Units of time that a phase takes where no better is known: a backward has two gradients to compute. */
export const UNIT_SECONDS: Readonly<Record<ActionPhase, number>> = {
  forward: 1,
  backward: 2,
  'input-gradient': 1,
  'weight-gradient': 1,
};

export interface Action {
  readonly stage: number;
  readonly chunk: number;
  readonly microBatch: number;
  readonly phase: ActionPhase;
}

/** Inputs of a schedule. */
export interface ScheduleRequest {
  readonly kind: ScheduleKind;
  /** p: stages of the pipeline. */
  readonly stages: number;
  /** m: micro-batches of one step. */
  readonly microBatches: number;
  /** v: chunks per stage; if left out 1, for zbv 2. `placeOfPart` states which parts of the model they are. */
  readonly virtualStages?: number;
  /** False: forwards only (inference). */
  readonly training?: boolean;
}

export interface Schedule extends Required<ScheduleRequest> {
  /** Per stage, in the order in which it runs them. */
  readonly actions: readonly (readonly Action[])[];
}

/** Whether a kind runs weight gradients apart from the input gradients that the part before waits for. */
export function splitsBackward(kind: ScheduleKind): boolean {
  return SPLIT.has(kind);
}

const SPLIT: ReadonlySet<ScheduleKind> = new Set(['zero-bubble', 'interleaved-zero-bubble', 'zbv']);

/** Whether a kind takes p micro-batches through each of a stage's chunks in turn. */
export function interleaves(kind: ScheduleKind): boolean {
  return INTERLEAVED.has(kind);
}

const INTERLEAVED: ReadonlySet<ScheduleKind> = new Set(['interleaved-1f1b', 'interleaved-zero-bubble']);

/** The fewest chunks of a stage. */
export function fewestChunks(kind: ScheduleKind): number {
  return kind === 'zbv' || interleaves(kind) ? 2 : 1;
}

/** The phases that a schedule runs each micro-batch through, in their order. */
export function phasesOf({ kind, training }: Pick<Schedule, 'kind' | 'training'>): readonly ActionPhase[] {
  if (!training) return ['forward'];
  return splitsBackward(kind) ? ['forward', 'input-gradient', 'weight-gradient'] : ['forward', 'backward'];
}
