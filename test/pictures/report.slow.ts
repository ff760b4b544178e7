/**
 * @file A command's report as a reader has it, in a headless browser: the figures on the page are those of `--json`, nothing is
 * asked of a network, no script complains, tables open by keyboard, and text can be read in light and dark.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import { autopar } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { BROWSER, type OpenPage, withPage } from './browser.js';

const LINES = {
  compile: 'compile models/gpt-tiny.onnx --train --dp 2 --pp 2 --global-batch 8 --micro-batches 4',
  simulate: 'simulate --model gpt:layers=8 --cluster 1x8:a100-sxm-80 --train --dp 2 --tp 2 --pp 2 --global-batch 16',
  search: 'compile --model gpt:layers=2 --cluster 1x2:a100-sxm-80 --train --global-batch 4 --plan-only',
} as const;

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

interface Reported {
  readonly url: string;
  readonly json: { readonly stepSeconds?: number; readonly predicted?: Predicted };
}

interface Predicted {
  readonly stepSeconds: number;
  readonly peakBytes: readonly number[];
  readonly partsSeconds: Readonly<Record<string, number>>;
}

async function reported(name: keyof typeof LINES): Promise<Reported> {
  const page = join(folder, `${name}.html`);
  const words = LINES[name].split(' ');
  const output = words[0] === 'compile' ? ['-o', join(folder, name)] : [];
  const { code, stdout, stderr } = await autopar([...words, ...output, '--report', page, '--json']);
  if (code !== 0) throw new Error(stderr);
  return { url: pathToFileURL(page).href, json: JSON.parse(stdout) as Reported['json'] };
}

/** Rows of the table below a heading, as text. */
async function rowsBelow({ evaluate }: OpenPage, heading: string): Promise<readonly (readonly string[])[]> {
  const rows = await evaluate(`(() => {
    const section = [...document.querySelectorAll('section')].find((own) => own.querySelector('h2').textContent === '${heading}');
    return [...section.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
  })()`);
  return rows as readonly (readonly string[])[];
}

/** `4.42 ms`, `449 kB` as a number of seconds or bytes. */
function quantity(text: string): number {
  const [, figure = '', unit = ''] = /^([\d.,]+) (\S+)/.exec(text) ?? [];
  return Number(figure.replace(',', '')) * (UNITS[unit] ?? Number.NaN);
}

const UNITS: Readonly<Record<string, number>> = {
  ...{ s: 1, ms: 1e-3, µs: 1e-6, ns: 1e-9 },
  ...{ B: 1, kB: 1e3, MB: 1e6, GB: 1e9 },
};

/** To the three digits that are shown. */
const near = (shown: number, value: number) => Math.abs(shown - value) <= 0.005 * value;

const browsed = missing(BROWSER === undefined, 'reports in a browser (Chromium)') ? test.skip : test;

for (const name of Object.keys(LINES) as (keyof typeof LINES)[])
  browsed(`${name}: a report draws all of its pictures offline and complains of nothing`, async (t) => {
    const { url, json } = await reported(name);
    await withPage(url, 'light', async (page) => {
      t.deepEqual(await page.evaluate("JSON.parse(document.getElementById('report').textContent)"), json as unknown);
      const sizes = (await page.evaluate(
        "[...document.querySelectorAll('[data-picture]')].map((place) => place.querySelector('svg')?.getBBox().width ?? 0)",
      )) as readonly number[];
      t.true(sizes.length >= 3 && sizes.every((width) => width > 500), sizes.join());
      t.deepEqual([page.errors, page.requests], [[], [url]]);
    });
  });

browsed('figures in tables of a page are those of --json', async (t) => {
  const { url, json } = await reported('compile');
  const { stepSeconds, peakBytes, partsSeconds } = json.predicted as Predicted;
  await withPage(url, 'light', async (page) => {
    const facts = (await page.evaluate("document.querySelector('dl').innerText")) as string;
    t.true(near(quantity(/predicted\s+(.*)/.exec(facts)?.[1] ?? ''), stepSeconds), facts);
    const parts = new Map(
      (await rowsBelow(page, 'Time by part')).map(([part = '', time = '']) => [part, quantity(time)]),
    );
    for (const [part, seconds] of Object.entries(partsSeconds))
      if (seconds > 0) t.true(near(parts.get(part) ?? 0, seconds), part);
    const memory = await rowsBelow(page, 'Memory over a step');
    t.deepEqual(
      memory.map(([, most = ''], stage) => near(quantity(most), peakBytes[stage] ?? 0)),
      peakBytes.map(() => true),
    );
    t.true((await rowsBelow(page, 'Operators')).length > 10);
  });
});

browsed('a table opens and closes by keyboard', async (t) => {
  const { url } = await reported('compile');
  await withPage(url, 'light', async ({ evaluate, press }) => {
    await press('Tab');
    t.is(await evaluate('document.activeElement.tagName'), 'SUMMARY');
    const shown = "document.activeElement.parentElement.querySelector('table').checkVisibility()";
    for (const isShown of [true, false]) {
      await press('Enter');
      t.is(await evaluate(shown), isShown);
    }
  });
});

/** Contrast of colours as WCAG 2 has it. */
const CONTRAST = `(() => {
  const luminance = (colour) => {
    const context = document.createElement('canvas').getContext('2d');
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = document.createElement('div');
  ground.style.background = 'Canvas';
  document.body.append(ground);
  const back = luminance(getComputedStyle(ground).backgroundColor);
  const texts = [...document.querySelectorAll('svg text, h1, h2, p, dt, dd, td, summary')];
  return texts.map((text) => {
    const own = getComputedStyle(text);
    const front = luminance(text instanceof SVGElement ? own.fill : own.color);
    return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  });
})()`;

for (const colours of ['light', 'dark'] as const)
  browsed(`text of a report can be read in ${colours}`, async (t) => {
    const { url } = await reported('simulate');
    await withPage(url, colours, async ({ evaluate }) => {
      const contrasts = (await evaluate(CONTRAST)) as readonly number[];
      t.true(contrasts.length > 50 && Math.min(...contrasts) >= 4.5, `${Math.min(...contrasts)}`);
    });
  });
