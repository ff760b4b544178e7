/** @file Bytes held over a step, a line per stage, with a mark at its peak that lists the memory held then. */
import type { EChartsCoreOption } from 'echarts/core';
import { escaped, unitOf } from './timeline.js';

export interface MemoryPicture {
  readonly kind: 'memory';
  readonly curves: readonly DrawnCurve[];
}

export interface DrawnCurve {
  readonly name: string;
  /** From each moment on so many bytes; seconds from the step's beginning. */
  readonly points: readonly (readonly [seconds: number, bytes: number])[];
  /** Description of the memory held at the peak. */
  readonly atPeak: string;
}

export function memoryOption({ curves }: MemoryPicture): EChartsCoreOption {
  const all = curves.flatMap(({ points }) => points);
  const unit = unitOf(all.reduce((most, [seconds]) => Math.max(most, seconds), 0));
  const most = all.reduce((found, [, bytes]) => Math.max(found, bytes), 0);
  const memory = most >= 1e9 ? { name: 'GB', bytes: 1e9 } : { name: 'MB', bytes: 1e6 };
  const scaled = ([seconds, bytes]: readonly [number, number]) => [seconds / unit.seconds, bytes / memory.bytes];
  return {
    tooltip: {
      formatter: ({ value: [time, bytes, text] }: { readonly value: readonly [number, number, string] }) =>
        `${text}<br>${Number(time.toPrecision(4))} ${unit.name}, ${Number(bytes.toPrecision(4))} ${memory.name}`,
    },
    legend: { type: 'scroll', top: 4, data: curves.map(({ name }) => name) },
    grid: { left: 70, right: 24, top: 40, bottom: 90 },
    xAxis: {
      ...{ type: 'value', name: unit.name, nameLocation: 'middle', nameGap: 26, min: 0, max: 'dataMax' },
      axisLabel: { showMaxLabel: false },
    },
    yAxis: { type: 'value', name: memory.name, nameLocation: 'middle', nameGap: 48, min: 0 },
    dataZoom: [
      { type: 'slider', xAxisIndex: 0, filterMode: 'none', bottom: 10, height: 22 },
      { type: 'inside', xAxisIndex: 0, filterMode: 'none' },
    ],
    series: curves.flatMap(({ name, points, atPeak }) => {
      const peak = points.reduce((found, point) => (point[1] > found[1] ? point : found), points[0] ?? [0, 0]);
      return [
        {
          name,
          type: 'line',
          step: 'end',
          showSymbol: false,
          animation: false,
          data: points.map((point) => [...scaled(point), escaped(name)]),
        },
        { name, type: 'scatter', symbolSize: 10, animation: false, data: [[...scaled(peak), escaped(atPeak)]] },
      ];
    }),
  };
}
