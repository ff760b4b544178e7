/**
 * @file The table of docs/memory.md that sets a parameter server beside all-reduce: memory and bytes on 2, 4 and 8 ranks are
 * those that the plans predict, and grow with the ranks at the server alone.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { autopar, ROOT } from '../cli/autopar.js';

const PAGE = readFileSync(join(ROOT, 'docs/memory.md'), 'utf8');
const ROWS = [...PAGE.matchAll(/^\| (2|4|8) \|((?: [\d,]+ B \|){6})$/gm)].map(
  ([, dp = '', cells = '']) =>
    [Number(dp), cells.match(/[\d,]+/g)?.map((cell) => Number(cell.replaceAll(',', '')))] as const,
);
const MODEL = /--model (gpt:\S+) .*\\\n.*--gradient-sync parameter-server/.exec(PAGE)?.[1] ?? '';

interface Compiled {
  readonly predicted: { readonly peakBytes: readonly number[]; readonly communicatedBytes: number };
  readonly server?: Readonly<Record<'peakBytes' | 'passedBytes', { readonly server: number; readonly others: number }>>;
}

test('the table has every number of ranks, and its linear growth', (t) => {
  t.deepEqual(
    ROWS.map(([dp]) => dp),
    [2, 4, 8],
  );
  const column = (index: number) => ROWS.map(([, figures]) => figures?.[index] ?? 0);
  const [allReduce, server, passed] = [column(0), column(2), column(4)];
  t.is(new Set(allReduce).size, 1);
  const grown = (of: readonly number[]) => ((of[2] ?? 0) - (of[1] ?? 0)) / ((of[1] ?? 0) - (of[0] ?? 0));
  t.is(grown(passed), 2);
  t.is(grown(server), 2);
});

for (const [dp, figures] of ROWS)
  test(`docs/memory.md: ${dp} ranks`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const compiled = async (sync: string): Promise<Compiled> => {
      const line =
        `compile --model ${MODEL} --global-batch ${2 * dp} --train --plan-only --dp ${dp} --tp 1 ` +
        '--axes roles --optimizer adam --zero 0';
      const { stdout } = await autopar(
        [...line.split(' '), '--gradient-sync', sync, '--json', '--force', '-o', 'out'],
        {
          cwd: folder,
        },
      );
      return JSON.parse(stdout) as Compiled;
    };
    const [all, served] = [await compiled('all-reduce'), await compiled('parameter-server')];
    t.is(served.server?.peakBytes.server, served.predicted.peakBytes[0]);
    t.deepEqual(
      [
        ...[all.predicted.peakBytes[0], Math.round(all.predicted.communicatedBytes)],
        ...[served.server?.peakBytes.server, served.server?.peakBytes.others],
        ...[served.server?.passedBytes.server, served.server?.passedBytes.others],
      ],
      figures,
    );
  });
