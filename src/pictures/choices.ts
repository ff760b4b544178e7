/** @file Configurations that were compared, time against memory; the one that was taken stands out. */
import type { EChartsCoreOption } from 'echarts/core';
import { unitOf } from './timeline.js';

export interface ChoicePicture {
  readonly kind: 'choices';
  readonly choices: readonly DrawnChoice[];
  /** Memory of a device; null where it is unknown. */
  readonly memoryBytes: number | null;
}

export interface DrawnChoice {
  readonly name: string;
  readonly stepSeconds: number;
  readonly peakBytes: number;
  readonly isTaken: boolean;
}

export function choiceOption({ choices, memoryBytes }: ChoicePicture): EChartsCoreOption {
  const unit = unitOf(Math.max(0, ...choices.map(({ stepSeconds }) => stepSeconds)));
  const most = Math.max(0, ...choices.map(({ peakBytes }) => peakBytes));
  const memory = most >= 1e9 ? { name: 'GB', bytes: 1e9 } : { name: 'MB', bytes: 1e6 };
  const points = (isTaken: boolean) =>
    choices
      .filter((choice) => choice.isTaken === isTaken)
      .map(({ name, stepSeconds, peakBytes }) => [stepSeconds / unit.seconds, peakBytes / memory.bytes, name]);
  const limit = memoryBytes !== null && memoryBytes < 4 * most;
  return {
    tooltip: {
      formatter: ({ value: [time, bytes, name] }: { readonly value: readonly [number, number, string] }) =>
        `${name}<br>${Number(time.toPrecision(4))} ${unit.name}, ${Number(bytes.toPrecision(4))} ${memory.name}`,
    },
    legend: { top: 4, data: ['taken', 'not taken'] },
    grid: { left: 70, right: 24, top: 40, bottom: 48 },
    xAxis: { type: 'value', name: `a step, ${unit.name}`, nameLocation: 'middle', nameGap: 26, scale: true },
    yAxis: { type: 'value', name: `memory of a rank, ${memory.name}`, nameLocation: 'middle', nameGap: 48 },
    series: [
      { name: 'not taken', type: 'scatter', symbolSize: 8, data: points(false), animation: false },
      {
        ...{ name: 'taken', type: 'scatter', symbol: 'diamond', symbolSize: 16, data: points(true), animation: false },
        ...(limit
          ? {
              markLine: {
                ...{ silent: true, symbol: 'none', label: { formatter: 'memory of a device' } },
                data: [{ yAxis: memoryBytes / memory.bytes }],
              },
            }
          : {}),
      },
    ],
  };
}
