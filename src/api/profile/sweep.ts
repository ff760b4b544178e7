/**
 * @file What `autopar profile` measures: a sweep of matmuls, of memory, of launches, and of every collective over sizes and
 * group sizes.
 */
import type { Subject } from '../../cost-model/fit-profile.js';
import { COLLECTIVE_KINDS } from '../../cost-model/levels.js';
import type { Timing } from './measured-program.js';

export interface Planned {
  readonly subject: Subject;
  readonly ranks: number;
  readonly timing: Timing;
}

interface Sizes {
  /** Rows and columns: whole tiles of every menu. */
  readonly sides: readonly number[];
  readonly depths: readonly number[];
  readonly adds: readonly number[];
  readonly chains: readonly number[];
  readonly elements: readonly number[];
  /** How long one subject is measured, about. */
  readonly seconds: number;
}

const FULL: Sizes = {
  sides: [96, 192, 384, 768],
  depths: [16, 64, 256, 1024],
  adds: [2 ** 14, 2 ** 16, 2 ** 18, 2 ** 20, 2 ** 22],
  chains: [1, 8, 64, 256],
  elements: [2 ** 8, 2 ** 12, 2 ** 15, 2 ** 17, 2 ** 19, 2 ** 21],
  seconds: 0.4,
};

const QUICK: Sizes = {
  sides: [96, 384],
  depths: [32, 512],
  adds: [2 ** 14, 2 ** 18, 2 ** 21],
  chains: [1, 128],
  elements: [2 ** 10, 2 ** 19],
  seconds: 0.1,
};

/** The measurements in order; compute on as many ranks as there are cores, so that what they share is shared. */
export function sweep(cores: number, quick: boolean): readonly Planned[] {
  const { sides, depths, adds, chains, elements, seconds } = quick ? QUICK : FULL;
  const busy = busyRanks(cores);
  const groups = [2, 4, 8].filter((ranks) => ranks === 2 || (!quick && ranks <= Math.max(4, cores)));
  const on = (ranks: number, subject: Subject): Planned => ({ subject, ranks, timing: timingOf(subject, seconds) });
  return [
    ...chains.map((operators) => on(busy, { kind: 'chain', operators })),
    ...sides.flatMap((side) => depths.map((depth) => on(busy, { kind: 'matmul', rows: side, columns: side, depth }))),
    // A rank that has the machine to itself.
    ...(busy > 1
      ? sides
          .slice(-1)
          .flatMap((side) =>
            depths.slice(-2).map((depth) => on(1, { kind: 'matmul', rows: side, columns: side, depth })),
          )
      : []),
    ...adds.map((count) => on(busy, { kind: 'add', elements: count })),
    ...groups.flatMap((ranks) =>
      COLLECTIVE_KINDS.flatMap((collective) =>
        elements.map((count) => on(ranks, { kind: 'collective', collective, elements: count })),
      ),
    ),
  ];
}

/**
 * Many short steps: the fastest of them is one in which nobody else had the cores, and a millisecond is shorter than what an
 * operating system takes them away for.
 */
function timingOf(subject: Subject, seconds: number): Timing {
  const once = expectedSeconds(subject);
  const repeats = Math.min(32, Math.max(1, Math.round(1e-3 / once)));
  return { repeats, steps: Math.min(200, Math.max(7, Math.round(seconds / (once * repeats)))) };
}

/** On any machine of these years, within a factor of some. */
function expectedSeconds(subject: Subject): number {
  if (subject.kind === 'matmul') return 2e-5 + (2 * subject.rows * subject.columns * subject.depth) / 1e11;
  if (subject.kind === 'add') return 2e-5 + (12 * subject.elements) / 1e10;
  if (subject.kind === 'chain') return 2e-5 + subject.operators * 4e-7;
  return 5e-5 + (4 * subject.elements) / 3e9;
}

/** Ranks that compute at once where compute is measured. */
export function busyRanks(cores: number): number {
  return Math.min(8, Math.max(1, cores));
}
