/** @file Amounts as bars, one above the other, each of parts that add up: seconds by part, bytes by kind of each stage. */
import type { EChartsCoreOption } from 'echarts/core';

export interface BarPicture {
  readonly kind: 'bars';
  readonly unit: string;
  readonly bars: readonly string[];
  /** An amount for each bar, 0 where it has none. */
  readonly parts: readonly { readonly name: string; readonly amounts: readonly number[] }[];
}

export function barOption({ unit, bars, parts }: BarPicture): EChartsCoreOption {
  return {
    color: COLOURS,
    tooltip: {
      trigger: 'item',
      valueFormatter: (value: unknown) => `${Number(Number(value).toPrecision(4))} ${unit}`,
    },
    legend: { type: 'scroll', top: 4, data: parts.map(({ name }) => name) },
    grid: { left: 90, right: 24, top: 60, bottom: 48 },
    xAxis: { type: 'value', name: unit, nameLocation: 'middle', nameGap: 26 },
    yAxis: { type: 'category', data: bars, inverse: true, axisTick: { show: false } },
    series: parts.map(({ name, amounts }) => ({
      ...{ name, type: 'bar', stack: 'all', barMaxWidth: 28, animation: false, data: amounts },
    })),
  };
}

/** Tableau's ten and two of its lighter ones: a step has more parts than the library has colours. */
const COLOURS = [
  ...['#4e79a7', '#f28e2b', '#59a14f', '#e15759', '#b07aa1', '#edc948'],
  ...['#76b7b2', '#9c755f', '#ff9da7', '#bab0ac', '#86bcb6', '#d4a6c8'],
];
