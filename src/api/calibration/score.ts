/**
 * @file Accuracy of predictions against measurements: errors, and whether predictions rank a sweep as the measurements do.
 */
import { groupBy } from '../../ir/group-by.js';

export interface ScoredRow {
  readonly measured: number;
  readonly predicted: number;
  /** Runs of one model, devices and batch: a sweep. */
  readonly group: string;
}

export interface Score {
  readonly rows: number;
  /** Mean of |predicted / measured − 1|; `bias` is the mean of predicted / measured − 1. */
  readonly mape: number;
  readonly bias: number;
  /** Kendall's tau-b, averaged over sweeps by pairs; null without a sweep of 3 or more. */
  readonly tau: number | null;
  /** Mean over sweeps: by how much the run with the fastest prediction is slower than the fastest run. */
  readonly regret: number | null;
  /** The largest regret, and its sweep. */
  readonly worst: { readonly regret: number; readonly sweep: string } | null;
  readonly sweeps: number;
}

export function scoreOf(rows: readonly ScoredRow[]): Score {
  const errors = rows.map(({ measured, predicted }) => predicted / measured - 1);
  const mean = (values: readonly number[]) =>
    values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
  const sweeps = [...groupBy(rows, ({ group }) => group).values()].filter((sweep) => sweep.length >= 3);
  const taus = sweeps.map((sweep) => ({ tau: kendall(sweep), weight: sweep.length }));
  const weight = taus.reduce((sum, item) => sum + item.weight, 0);
  const regrets = sweeps.map((sweep) => ({ regret: regretOf(sweep), sweep: sweep[0]?.group ?? '' }));
  return {
    rows: rows.length,
    mape: mean(errors.map(Math.abs)),
    bias: mean(errors),
    tau: sweeps.length === 0 ? null : taus.reduce((sum, item) => sum + item.tau * item.weight, 0) / weight,
    regret: sweeps.length === 0 ? null : mean(regrets.map(({ regret }) => regret)),
    worst: regrets.reduce<Score['worst']>((worst, item) => (worst && worst.regret >= item.regret ? worst : item), null),
    sweeps: sweeps.length,
  };
}

/** Kendall's tau-b: concordant minus discordant pairs, ties left out of each side. */
export function kendall(rows: readonly ScoredRow[]): number {
  let balance = 0;
  let measuredPairs = 0;
  let predictedPairs = 0;
  rows.forEach((a, index) => {
    for (const b of rows.slice(index + 1)) {
      const measured = Math.sign(a.measured - b.measured);
      const predicted = Math.sign(a.predicted - b.predicted);
      balance += measured * predicted;
      measuredPairs += Math.abs(measured);
      predictedPairs += Math.abs(predicted);
    }
  });
  return measuredPairs === 0 || predictedPairs === 0 ? 0 : balance / Math.sqrt(measuredPairs * predictedPairs);
}

function regretOf(sweep: readonly ScoredRow[]): number {
  const chosen = sweep.reduce((best, row) => (row.predicted < best.predicted ? row : best));
  return chosen.measured / Math.min(...sweep.map(({ measured }) => measured)) - 1;
}

/** Accuracy and F1 of the label "does not fit in memory". */
export function labelScore(rows: readonly { readonly fits: boolean; readonly predicted: boolean }[]): {
  readonly rows: number;
  readonly accuracy: number;
  readonly f1: number | null;
} {
  const right = rows.filter(({ fits, predicted }) => fits === predicted).length;
  const found = rows.filter(({ fits, predicted }) => !fits && !predicted).length;
  const wrong = rows.length - right;
  const any = rows.some(({ fits }) => !fits);
  return {
    rows: rows.length,
    accuracy: rows.length === 0 ? 0 : right / rows.length,
    f1: any ? (2 * found) / (2 * found + wrong) : null,
  };
}
