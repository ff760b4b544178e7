/** @file The losses of training runs, a curve each, one above the other. */
import type { EChartsCoreOption } from 'echarts/core';

export interface LossPicture {
  readonly kind: 'losses';
  readonly runs: readonly LossCurve[];
}

export interface LossCurve {
  readonly name: string;
  /** Steps, from 1 on, with their losses. */
  readonly losses: readonly (readonly [step: number, loss: number])[];
  /** Losses of the evaluation data behind a step. */
  readonly evaluations: readonly (readonly [step: number, loss: number])[];
}

/** Curves differ in colour and in their dashes too: those of equal runs hide one another, and paper has no colours. */
export function lossOption({ runs }: LossPicture): EChartsCoreOption {
  const dashes = (index: number) => (index === 0 ? 'solid' : [12 / (index + 1), 4 + 2 * index]);
  const series = runs.flatMap(({ name, losses, evaluations }, index) => [
    {
      ...{ name, type: 'line', data: losses, showSymbol: false, sampling: 'lttb', animation: false },
      // The first is the widest, so that those above it let it be seen.
      lineStyle: { width: Math.max(1.5, 2 + runs.length - 1.5 * index), type: dashes(index) },
    },
    ...(evaluations.length > 0
      ? [
          {
            ...{ name: `${name}, evaluation`, type: 'line', data: evaluations, symbol: 'circle', symbolSize: 5 },
            ...{ animation: false, lineStyle: { width: 1 } },
          },
        ]
      : []),
  ]);
  return {
    legend: { top: 8, data: series.map(({ name }) => name) },
    grid: { left: 60, right: 24, top: 48, bottom: 48 },
    xAxis: { type: 'value', name: 'step', nameLocation: 'middle', nameGap: 28, min: 'dataMin', max: 'dataMax' },
    yAxis: { type: 'value', name: 'loss', nameLocation: 'middle', nameGap: 42, scale: true },
    series,
  };
}
