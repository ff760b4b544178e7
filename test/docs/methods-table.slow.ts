/**
 * @file The table of docs/memory.md that sets methods beside one another: memory, bytes and time of each are those that its plan
 * predicts.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { autopar, ROOT } from '../cli/autopar.js';

const PAGE = readFileSync(join(ROOT, 'docs/memory.md'), 'utf8');
const [, BODY = ''] = /^## Methods side by side\n(.*?)^## /ms.exec(PAGE) ?? [];
const LINE = /`(compile [^`]*)`/.exec(BODY.replaceAll('\n', ' '))?.[1] ?? '';
const ROWS = [...BODY.matchAll(/^\| `(--[^`]*)` \|((?: (?:[\d.]+ (?:[kM]B|ms)|0) \|){5})$/gm)];

interface Compiled {
  readonly predicted: {
    readonly peakBytes: readonly number[];
    readonly communicatedBytes: number;
    readonly stepSeconds: number;
    readonly outside?: readonly {
      readonly host: { readonly peakBytes: number; readonly storedBytes: number; readonly loadedBytes: number };
    }[];
  };
}

/** With three digits, as the table has it. */
function shown(value: number, unit: 'B' | 's'): string {
  if (value === 0) return '0';
  const [scale, prefix] = unit === 's' ? [1e-3, 'm'] : value < 1e6 ? [1e3, 'k'] : [1e6, 'M'];
  return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`;
}

test('the table has ZeRO, a server, recompute, offload, all together and other parallelisms', (t) => {
  const options = ROWS.map(([, option = '']) => option).join('\n');
  for (const word of ['zero 0', 'zero 1', 'zero 2', 'zero 3', 'server', 'recompute', 'offload', '--pp', '--tp'])
    t.regex(options, new RegExp(word));
});

for (const [, options = '', cells = ''] of ROWS)
  test(`docs/memory.md: ${options}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const words = `${LINE} ${options} --json -o out`.split(/ +/);
    const { stdout } = await autopar(words, { cwd: folder });
    const { peakBytes, communicatedBytes, stepSeconds, outside = [] } = (JSON.parse(stdout) as Compiled).predicted;
    const most = (figures: readonly number[]) => Math.max(0, ...figures);
    t.deepEqual(
      cells.split('|').flatMap((cell) => (cell.trim() === '' ? [] : [cell.trim()])),
      [
        shown(most(peakBytes), 'B'),
        shown(most(outside.map(({ host }) => host.peakBytes)), 'B'),
        shown(communicatedBytes, 'B'),
        shown(most(outside.map(({ host }) => host.storedBytes + host.loadedBytes)), 'B'),
        shown(stepSeconds, 's'),
      ],
    );
  });
