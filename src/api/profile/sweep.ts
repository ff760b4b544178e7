/**
 * @file The measurements of `autopar profile`: a sweep of matmuls, of memory, of launches, of every collective over sizes and
 * group sizes; matmuls and collectives also on more ranks than there are cores.
 */
import type { MeasuredSubject } from '../../cost-model/fit-profile.js';
import { COLLECTIVE_KINDS, type CollectiveKind } from '../../cost-model/levels.js';
import type { Timing } from './measured-program.js';

export interface PlannedMeasurement {
  readonly subject: MeasuredSubject;
  readonly ranks: number;
  readonly timing: Timing;
}

interface SweepSizes {
  /** Matmuls with stored weights: rows, and sides of the weights. */
  readonly rows: readonly number[];
  readonly sides: readonly number[];
  /** Sizes of matmuls with matrices that are not stored. */
  readonly packed: readonly (readonly [rows: number, side: number])[];
  readonly adds: readonly number[];
  readonly chains: readonly number[];
  /** Elements of each result, for segments with many results. */
  readonly results: readonly number[];
  /** Elements of the most frequent collectives, and of the other collectives. */
  readonly elements: readonly number[];
  readonly otherElements: readonly number[];
  /** Approximate seconds of measuring one subject. */
  readonly seconds: number;
}

const FULL: SweepSizes = {
  rows: [64, 256, 1024],
  sides: [64, 128, 256, 512, 1024],
  packed: [
    [32, 512],
    [128, 512],
    [64, 1024],
    [256, 1024],
  ],
  adds: [2 ** 14, 2 ** 16, 2 ** 17, 2 ** 18, 2 ** 19, 2 ** 20, 2 ** 22],
  chains: [1, 8, 64, 256],
  results: [1, 2 ** 14, 2 ** 16, 2 ** 18],
  elements: [2 ** 8, 2 ** 12, 2 ** 15, 2 ** 17, 2 ** 19, 2 ** 21],
  otherElements: [2 ** 8, 2 ** 15, 2 ** 18, 2 ** 21],
  seconds: 0.5,
};

const QUICK: SweepSizes = {
  rows: [64, 512],
  sides: [128, 512],
  packed: [[64, 512]],
  adds: [2 ** 15, 2 ** 18, 2 ** 20],
  chains: [1, 128],
  results: [1, 2 ** 17],
  elements: [2 ** 10, 2 ** 19],
  otherElements: [2 ** 18],
  seconds: 0.1,
};

/** The measurements in order. Compute runs on as many ranks as there are cores, so that they share resources as in programs. */
export function sweep(cores: number, quick: boolean): readonly PlannedMeasurement[] {
  const sizes = quick ? QUICK : FULL;
  const busy = busyRanks(cores);
  const crowded = 2 * busy;
  const groups = [...new Set([2, 4, 8, crowded])].filter(
    (ranks) => (quick ? ranks === 2 : ranks <= Math.max(4, cores)) || ranks === crowded,
  );
  const on = (ranks: number, subject: MeasuredSubject): PlannedMeasurement => ({
    subject,
    ranks,
    timing: timingOf(subject, ranks / Math.min(ranks, cores), sizes.seconds),
  });
  const matmul = (rows: number, side: number) =>
    ({ kind: 'matmul', rows, side, operators: MATMULS_PER_SEGMENT }) as const;
  const matmuls = sizes.rows.flatMap((rows) =>
    sizes.sides.map((side): MeasuredSubject => ({ ...matmul(rows, side), stored: true })),
  );
  const sums = sizes.adds.map((elements): MeasuredSubject => ({ kind: 'add', elements, operators: SUMS }));
  const results = sizes.results.map((elements): MeasuredSubject => ({ kind: 'wide', tensors: WIDE, elements }));
  // Subjects that are measured again on a single rank with the whole machine, and on more ranks than cores.
  const again = [matmuls, sums.slice(0, -1), results].flatMap((subjects) => subjects.slice(quick ? -1 : -2));
  return [
    ...sizes.chains.map((operators) => on(busy, { kind: 'chain', operators })),
    ...results.map((subject) => on(busy, subject)),
    ...matmuls.map((subject) => on(busy, subject)),
    ...sizes.packed.map(([rows, side]) => on(busy, matmul(rows, side))),
    ...sizes.adds.map((elements) => on(busy, { kind: 'add', elements, operators: 1 })),
    ...sums.map((subject) => on(busy, subject)),
    ...[...(busy > 1 ? [1] : []), crowded].flatMap((ranks) => again.map((subject) => on(ranks, subject))),
    ...groups.flatMap((ranks) =>
      COLLECTIVE_KINDS.filter((kind) => !quick || ranks === 2 || kind === 'all-reduce').flatMap((collective) =>
        (USUAL.has(collective) ? sizes.elements : sizes.otherElements).map((elements) =>
          on(ranks, { kind: 'collective', collective, elements }),
        ),
      ),
    ),
  ];
}

/** Number of tensors that a segment with many results reads and computes. */
const WIDE = 16;

/** Matmuls in one segment: enough to distinguish the time of an operator from that of a segment. */
const MATMULS_PER_SEGMENT = 4;

/** Additions in one segment, each with its own operand: some operands are in a near cache, as in a model, and some are not. */
const SUMS = 9;

const USUAL: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>(['all-reduce', 'all-gather']);

/**
 * Many short steps: in the fastest step no other process used the cores, and a millisecond is shorter than the time for which
 * an operating system preempts them. If ranks share cores, a step is as long as several of their time slices.
 */
function timingOf(subject: MeasuredSubject, turns: number, seconds: number): Timing {
  const once = expectedSeconds(subject) * turns;
  const step = turns > 1 ? 10e-3 : 1e-3;
  const repeats = Math.min(32, Math.max(1, Math.round(step / once)));
  return { repeats, steps: Math.min(200, Math.max(7, Math.round(seconds / (once * repeats)))) };
}

/** Estimated seconds on a current machine, correct within a small factor. */
function expectedSeconds(subject: MeasuredSubject): number {
  if (subject.kind === 'matmul') return 2e-5 + (subject.operators * 2 * subject.rows * subject.side ** 2) / 1e11;
  if (subject.kind === 'add') return 2e-5 + (subject.operators * 12 * subject.elements) / 3e10;
  if (subject.kind === 'chain') return 2e-5 + subject.operators * 4e-7;
  if (subject.kind === 'wide') return 2e-5 + subject.tensors * (3e-6 + (12 * subject.elements) / 2e10);
  return 5e-5 + (4 * subject.elements) / 3e9;
}

/** Number of ranks that compute at the same time when compute is measured. */
export function busyRanks(cores: number): number {
  return Math.min(8, Math.max(1, cores));
}
