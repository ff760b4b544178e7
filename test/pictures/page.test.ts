/**
 * @file Pages and pictures: their contents are the inputs, names of files are not markup, and a page's script draws every
 * picture without a complaint (in a headless browser, where there is one).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import { type Page, pageHtml } from '../../src/pictures/page.js';
import { type Picture, svgOf } from '../../src/pictures/picture.js';
import { missing } from '../missing.js';
import { BROWSER, withPage } from './browser.js';

const EVIL = '</script><img src=x onerror=alert(1)> & "quoted"';

const PICTURES: readonly Picture[] = [
  {
    kind: 'losses',
    runs: [
      { name: 'one', losses: [1, 2, 3].map((step) => [step, 4 / step] as const), evaluations: [[3, 2]] },
      { name: EVIL, losses: [1, 2, 3].map((step) => [step, 4 / step] as const), evaluations: [] },
    ],
  },
  {
    kind: 'timeline',
    lines: ['stage 0', 'stage 1'],
    spans: [
      { line: 0, from: 0, until: 1e-3, kind: 'forward', label: EVIL },
      { line: 1, from: 1e-3, until: 3e-3, kind: 'all-reduce(tp)', label: 'sum' },
    ],
  },
  { kind: 'bars', unit: 'MB', bars: ['stage 0'], parts: [{ name: 'weight', amounts: [3] }] },
  {
    kind: 'choices',
    memoryBytes: 3e9,
    choices: [
      { name: 'dp 2', stepSeconds: 1, peakBytes: 2e9, isTaken: true },
      { name: EVIL, stepSeconds: 2, peakBytes: 1e9, isTaken: false },
    ],
  },
  {
    kind: 'memory',
    curves: [
      {
        ...{ name: 'stage 0', atPeak: EVIL },
        points: [
          [0, 1e6],
          [1e-3, 3e6],
          [2e-3, 2e6],
        ],
      },
    ],
  },
];

const PAGE: Page = {
  title: EVIL,
  facts: [['degrees', EVIL]],
  sections: PICTURES.map((picture, index) => ({
    heading: `picture ${index}`,
    picture,
    table: { columns: [{ title: 'name' }], rows: [[EVIL]] },
  })),
  json: { name: EVIL, stepSeconds: 0.25 },
};

function jsonIn(html: string, id: string): unknown {
  const [, text = ''] = new RegExp(`<script type="application/json" id="${id}">(.*?)</script>`, 's').exec(html) ?? [];
  return JSON.parse(text);
}

test('a page holds its pictures and its object as they are, and names of files as text', async (t) => {
  const html = await pageHtml(PAGE);
  t.deepEqual(jsonIn(html, 'pictures'), PICTURES as unknown);
  t.deepEqual(jsonIn(html, 'report'), PAGE.json);
  t.false(html.includes('<img'));
  t.is(html.split('<script').length - 1, 3);
  t.is(html.split('</script>').length - 1, 3);
  t.is(html.split('<details>').length - 1, PICTURES.length);
});

test('each kind of picture is drawn as SVG', async (t) => {
  for (const picture of PICTURES) {
    const svg = await svgOf(picture, { width: 640, height: 320 });
    t.regex(svg, /^<svg width="640" height="320"/);
    t.false(svg.includes('NaN'), picture.kind);
    t.false(svg.includes('<img'), picture.kind);
  }
  const losses = await svgOf(PICTURES[0] as Picture, { width: 640, height: 320 });
  for (const word of ['one', 'one, evaluation', 'step', 'loss']) t.true(losses.includes(`>${word}<`), word);
});

(missing(BROWSER === undefined, 'pages in a browser (Chromium)') ? test.skip : test)(
  'a browser draws every picture of a page, in light and dark, and complains of nothing',
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'page.html');
    writeFileSync(file, await pageHtml(PAGE));
    const asked =
      "[document.querySelectorAll('[data-picture] svg').length, document.images.length, getComputedStyle(document.body).color]";
    for (const colours of ['light', 'dark'] as const) {
      await withPage(pathToFileURL(file).href, colours, async ({ evaluate, errors }) => {
        const [drawn, images, colour] = (await evaluate(asked)) as readonly [number, number, string];
        t.deepEqual([drawn, images, errors], [PICTURES.length, 0, []]);
        t.is(colour, colours === 'light' ? 'rgb(0, 0, 0)' : 'rgb(255, 255, 255)');
      });
    }
  },
);
