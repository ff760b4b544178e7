/** @file A timeline: a line per stage or rank, a bar per span, coloured by its kind; the wheel and the slider zoom. */
import type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams } from 'echarts';
import type { EChartsCoreOption } from 'echarts/core';
import type { StepSpan } from '../cost-model/step-spans.js';

export interface TimelinePicture {
  readonly kind: 'timeline';
  /** Names of the lines, from the top. */
  readonly lines: readonly string[];
  readonly spans: readonly StepSpan[];
}

/** Kinds of compute and idle time have the usual colours of schedule drawings; communication has the others. */
const COLOURS: Readonly<Record<string, string>> = {
  forward: '#4c78a8',
  recompute: '#9ecae9',
  backward: '#54a24b',
  'backward-input': '#54a24b',
  'backward-weight': '#a4d38d',
  update: '#b279a2',
  // Light on white and on black.
  bubble: 'rgba(128, 128, 128, 0.18)',
};
const OTHERS = ['#f58518', '#e45756', '#eeca3b', '#9d755d', '#ff9da6', '#79706e'];

export function timelineOption({ lines, spans }: TimelinePicture): EChartsCoreOption {
  const kinds = [...new Set(spans.map(({ kind }) => kind))];
  const others = kinds.filter((kind) => COLOURS[kind] === undefined);
  const colourOf = (kind: string) => COLOURS[kind] ?? OTHERS[others.indexOf(kind) % OTHERS.length] ?? OTHERS[0];
  const unit = unitOf(Math.max(0, ...spans.map(({ until }) => until)));
  return {
    tooltip: {
      formatter: ({ value: [, from, until, label] }: { readonly value: readonly [number, number, number, string] }) =>
        `${label}<br>${text(from)} to ${text(until)} ${unit.name}, ${text(until - from)} ${unit.name}`,
    },
    legend: { type: 'scroll', top: 4, itemGap: 20, data: kinds },
    grid: { left: 90, right: 24, top: 40, bottom: 90 },
    xAxis: {
      type: 'value',
      name: unit.name,
      nameLocation: 'middle',
      nameGap: 26,
      min: 0,
      max: 'dataMax',
      axisLabel: { showMaxLabel: false },
    },
    yAxis: { type: 'category', data: lines, inverse: true, axisTick: { show: false } },
    dataZoom: [
      { type: 'slider', xAxisIndex: 0, filterMode: 'weakFilter', bottom: 10, height: 22 },
      { type: 'inside', xAxisIndex: 0, filterMode: 'weakFilter' },
    ],
    series: kinds.map((kind) => ({
      ...{ name: kind, type: 'custom', animation: false, itemStyle: { color: colourOf(kind) } },
      ...{ encode: { x: [1, 2], y: 0 }, renderItem: bar },
      data: spans
        .filter((span) => span.kind === kind)
        .map(({ line, from, until, label }) => [line, from / unit.seconds, until / unit.seconds, escaped(label)]),
    })),
  };
}

function bar(_params: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI) {
  const [line, from, until] = [api.value(0), api.value(1), api.value(2)];
  const [left = 0, middle = 0] = api.coord([from, line]);
  const [right = 0] = api.coord([until, line]);
  const size = api.size?.([0, 1]);
  const height = Array.isArray(size) ? (size[1] ?? 0) : 0;
  const thick = Math.min(28, height * 0.7);
  return {
    type: 'rect' as const,
    shape: { x: left, y: middle - thick / 2, width: Math.max(1, right - left), height: thick },
    style: { fill: api.visual('color') as string },
  };
}

/** The unit of time in which the longest is 1 or more. */
export function unitOf(seconds: number): { readonly name: string; readonly seconds: number } {
  if (seconds >= 1) return { name: 's', seconds: 1 };
  if (seconds >= 1e-3) return { name: 'ms', seconds: 1e-3 };
  return { name: 'µs', seconds: 1e-6 };
}

function text(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** Labels come from names in model files, and tooltips are HTML. */
export function escaped(label: string): string {
  return label.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
