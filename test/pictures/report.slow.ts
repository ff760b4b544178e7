/**
 * @file A command's report as a reader has it, in a headless browser: the figures on the page are those of `--json`, the page
 * uses no network, no script complains, tables open by keyboard, and text can be read in light and dark.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import type { OperatorReason, PlanDetails } from '../../src/api/index.js';
import { partText } from '../../src/cli/part-text.js';
import { autopar } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { BROWSER, type OpenPage, withPage } from './browser.js';

const LINES = {
  compile: 'compile models/gpt-tiny.onnx --train --dp 2 --pp 2 --global-batch 8 --micro-batches 4',
  simulate: 'simulate --model gpt:layers=8 --cluster 1x8:a100-sxm-80 --train --dp 2 --tp 2 --pp 2 --global-batch 16',
  search: 'compile --model gpt:layers=4 --cluster 1x2:a100-sxm-80 --train --global-batch 4 --plan-only',
  propagated: 'compile models/gpt-tiny.onnx --dp 2 --tp 2 --plan-only --complete propagate --annotations PINS',
} as const;

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
const PINS = join(folder, 'pins.yaml');
writeFileSync(PINS, "version: 1\npins:\n  - match: {node: '/h.*/mlp/c_fc/MatMul'}\n    factors: {n: tp}\n");
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

interface Reported {
  readonly url: string;
  readonly json: {
    readonly stepSeconds?: number;
    readonly predicted?: Predicted;
    readonly operators?: PlanDetails['operators'];
  };
}

interface Predicted {
  readonly stepSeconds: number;
  readonly peakBytes: readonly number[];
  readonly partsSeconds: Readonly<Record<string, number>>;
}

async function reported(name: keyof typeof LINES): Promise<Reported> {
  const page = join(folder, `${name}.html`);
  const words = LINES[name].split(' ').map((word) => (word === 'PINS' ? PINS : word));
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
      if (seconds > 0) t.true(near(parts.get(partText(part)) ?? 0, seconds), part);
    const memory = await rowsBelow(page, 'Memory over a step');
    t.deepEqual(
      memory.map(([, most = ''], stage) => near(quantity(most), peakBytes[stage] ?? 0)),
      peakBytes.map(() => true),
    );
  });
});

for (const name of ['compile', 'search', 'propagated'] as const)
  browsed(`${name}: operators of a page have the times and reasons of --json`, async (t) => {
    const { url, json } = await reported(name);
    const { operators = [], predicted } = json;
    t.true(operators.length > 10);
    t.is(
      operators.some(({ count }) => count > 1),
      name !== 'compile',
    );
    await withPage(url, 'light', async (page) => {
      const rows = await rowsBelow(page, 'Operators');
      t.is(rows.length, operators.length);
      for (const [index, { operator, count, shown, seconds, why }] of operators.entries()) {
        const [first = '', layers, , strategy, , time = '', share = '', reasons = ''] = rows[index] ?? [];
        t.deepEqual([first, layers, strategy], [operator, count > 1 ? `×${count}` : '', shown.strategy]);
        t.true(near(quantity(time), seconds), operator);
        t.true(near(Number.parseFloat(share), (100 * seconds) / (predicted?.stepSeconds ?? 0)), operator);
        for (const reason of why) t.true(isTold(reason, reasons, operator), `${operator}: ${reasons}`);
      }
    });
  });

/** Whether a row's text has the names and figures of a reason. */
function isTold(reason: OperatorReason, text: string, operator: string): boolean {
  switch (reason.by) {
    case 'recompute':
      return text === `recomputes ${reason.operator}`;
    case 'pins':
      return reason.pins.every(
        (pin) => text.includes('pinned') && text.includes(`${pin.text} (${pin.file}:${pin.line})`),
      );
    case 'propagation':
      return reason.chains.every(({ axes, place, steps }) =>
        [`${place} on ${axes.join()}`, steps[1]?.says ?? '', steps.at(-1)?.says ?? ''].every((part) =>
          text.includes(part),
        ),
      );
    case 'price': {
      if (reason.next === undefined) return new RegExp(`autopar explain \\S+ --op '?${operator}`).test(text);
      if (reason.next === null) return text === 'the only strategy considered';
      const { differenceSeconds } = reason.next;
      const [, sign, figure = ''] = /lowest cost; next is .* at (?:([+−])(.*)|the same cost)$/.exec(text) ?? [];
      if (differenceSeconds === 0) return text.endsWith('at the same cost');
      return sign === (differenceSeconds < 0 ? '−' : '+') && near(quantity(figure), Math.abs(differenceSeconds));
    }
  }
}

browsed('every table opens and closes by keyboard, and the one of operators is open', async (t) => {
  const { url } = await reported('compile');
  await withPage(url, 'light', async ({ evaluate, press }) => {
    const headings = (await evaluate(
      "[...document.querySelectorAll('details')].map((own) => own.closest('section').querySelector('h2').textContent)",
    )) as readonly string[];
    t.is(headings.at(-1), 'Operators');
    const shown = "document.activeElement.parentElement.querySelector('table').checkVisibility()";
    for (const heading of headings) {
      await press('Tab');
      const focused =
        "[document.activeElement.tagName, document.activeElement.closest('section').querySelector('h2').textContent]";
      t.deepEqual(await evaluate(focused), ['SUMMARY', heading]);
      const isOpen = heading === 'Operators';
      t.is(await evaluate(shown), isOpen);
      for (const isShown of [!isOpen, isOpen]) {
        await press('Enter');
        t.is(await evaluate(shown), isShown);
      }
    }
    // A table that is open scrolls by keyboard.
    await press('Tab');
    t.is(await evaluate("document.activeElement.getAttribute('aria-label')"), 'Operators');
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
    for (const name of ['simulate', 'propagated'] as const) {
      const { url } = await reported(name);
      await withPage(url, colours, async ({ evaluate }) => {
        const contrasts = (await evaluate(CONTRAST)) as readonly number[];
        t.true(contrasts.length > 50 && Math.min(...contrasts) >= 4.5, `${name}: ${Math.min(...contrasts)}`);
      });
    }
  });
