/**
 * @file The table of kinds of recompute in docs/memory.md: memory and time of each are those that its plan predicts.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { autopar, ROOT } from '../cli/autopar.js';

const PAGE = readFileSync(join(ROOT, 'docs/memory.md'), 'utf8');
const ROWS = [...PAGE.matchAll(/^\| `([a-z-]+(?::except-last)?)` \| ([\d.]+) MB \| ([\d.]+) MB \| (\d+) ms \|$/gm)];
const MODEL = /\(`(gpt:[^`]*)`\)/.exec(PAGE)?.[1] ?? '';

test('the table has every kind', (t) => {
  t.deepEqual(
    ROWS.map(([, kind]) => kind),
    ['none', 'selective', 'operators', 'full', 'full:except-last', 'stage', 'stage:except-last'],
  );
});

for (const [, kind = '', ...figures] of ROWS)
  test(`docs/memory.md: ${kind}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const line = `compile --model ${MODEL} --train --plan-only --micro-batches 4 --global-batch 8 --pp 2 --schedule f-then-b`;
    const { stdout } = await autopar([...line.split(' '), '--recompute', kind, '--json', '-o', 'out'], { cwd: folder });
    const { predicted } = JSON.parse(stdout) as { predicted: { peakBytes: number[]; stepSeconds: number } };
    const shown = [...predicted.peakBytes.map((bytes) => bytes / 1e6), predicted.stepSeconds * 1e3];
    t.deepEqual(
      shown.map((value) => Number(value.toPrecision(3))),
      figures.map(Number),
    );
  });
