/**
 * @file The script that draws pictures: ECharts with the parts that they use. The build puts all of it into this module's file
 * (scripts/build.mjs), so that neither Node nor a page needs another.
 */
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  TooltipComponent,
} from 'echarts/components';
import { type EChartsCoreOption, type EChartsType, init, use } from 'echarts/core';
import { SVGRenderer } from 'echarts/renderers';
import { barOption } from './bars.js';
import { choiceOption } from './choices.js';
import { lossOption } from './losses.js';
import { memoryOption } from './memory.js';
import type { Charts, Picture } from './picture.js';
import { timelineOption } from './timeline.js';

use([BarChart, CustomChart, LineChart, ScatterChart]);
use([DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, SVGRenderer]);

const OPTIONS: { readonly [Kind in Picture['kind']]: (picture: never) => EChartsCoreOption } = {
  losses: lossOption,
  timeline: timelineOption,
  bars: barOption,
  choices: choiceOption,
  memory: memoryOption,
};

function optionOf(picture: Picture): EChartsCoreOption {
  return OPTIONS[picture.kind](picture as never);
}

export const svg: Charts['svg'] = (picture, { width, height }) => {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    // Nobody zooms a file, and it is read on light and on dark pages.
    const { dataZoom, grid, ...option } = optionOf(picture);
    const room = dataZoom ? { ...(grid as object), bottom: 44 } : grid;
    chart.setOption({ ...option, grid: room, backgroundColor: '#ffffff' });
    return chart.renderToSVGString();
  } finally {
    chart.dispose();
  }
};

/** The parts of a browser's API that this script uses. */
interface PageElement extends HTMLElement {
  readonly dataset: { readonly picture?: string };
}
interface HTMLElement {
  readonly textContent: string | null;
}
declare const document: {
  readonly getElementById: (id: string) => HTMLElement | null;
  readonly querySelectorAll: (selector: string) => Iterable<PageElement>;
};
declare const window: {
  readonly addEventListener: (event: string, act: () => void) => void;
  readonly matchMedia: (query: string) => {
    readonly matches: boolean;
    readonly addEventListener: (event: string, act: () => void) => void;
  };
};

/** Draws the pictures of a page (page.ts) into their places, as wide as these are and in the reader's colours. */
export function drawPage(): void {
  const pictures = JSON.parse(document.getElementById('pictures')?.textContent ?? '[]') as readonly Picture[];
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  let drawn: readonly EChartsType[] = [];
  const draw = () => {
    for (const chart of drawn) chart.dispose();
    drawn = [...document.querySelectorAll('[data-picture]')].map((place) => {
      const chart = init(place as never, dark.matches ? 'dark' : null, { renderer: 'svg' });
      chart.setOption({
        ...optionOf(pictures[Number(place.dataset.picture)] as Picture),
        backgroundColor: 'transparent',
      });
      return chart;
    });
  };
  draw();
  dark.addEventListener('change', draw);
  window.addEventListener('resize', () => {
    for (const chart of drawn) chart.resize();
  });
}
