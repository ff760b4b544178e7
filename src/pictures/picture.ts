/**
 * @file Pictures as data, and the charts that draw them: ECharts and our drawings of each kind (charts.ts), which the build puts
 * into one script. Node draws SVG with it; a page holds it and draws in the browser.
 */
import { readFile } from 'node:fs/promises';
import vm from 'node:vm';
import type { BarPicture } from './bars.js';
import type { ChoicePicture } from './choices.js';
import type { LossPicture } from './losses.js';
import type { MemoryPicture } from './memory.js';
import type { TimelinePicture } from './timeline.js';

export type Picture = LossPicture | TimelinePicture | BarPicture | ChoicePicture | MemoryPicture;

/** In pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The functions that the script of charts defines. */
export interface Charts {
  /** The picture as an SVG file. */
  readonly svg: (picture: Picture, size: Size) => string;
}

/** The picture as an SVG file. */
export async function svgOf(picture: Picture, size: Size): Promise<string> {
  const context = vm.createContext({ setTimeout, clearTimeout });
  vm.runInContext(`${await chartScript()}\n;globalThis.charts = charts;`, context);
  return (context['charts'] as Charts).svg(picture, size);
}

/** The script, which defines `charts`. Its path holds from the bundled command too. */
export function chartScript(): Promise<string> {
  return readFile(new URL('../../../dist/src/pictures/charts.js', import.meta.url), 'utf8');
}
