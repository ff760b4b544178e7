/**
 * @file Results of bench:accuracy for files.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../../cli/autopar.js';
import { slowTests } from '../../selection.js';
import { ROW } from './one-run.js';

const slow = slowTests(test);

slow('bench:accuracy takes any table of that form, ignores other columns, and names what a table lacks', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-accuracy-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const bench = [...process.execArgv, join(ROOT, 'dist/bench/published/accuracy.js')];
  const run = (name: string, header: readonly string[], values: readonly string[], ...flags: readonly string[]) => {
    const file = join(folder, name);
    writeFileSync(file, `${header.join(',')}\n${values.join(',')}\n`);
    return spawnSync(process.execPath, [...bench, file, ...flags], { encoding: 'utf8' });
  };
  const good = run('good.csv', [...Object.keys(ROW), 'mood'], [...Object.values(ROW), 'fine'], '--json');
  t.is(good.status, 0, good.stderr);
  const { total } = JSON.parse(good.stdout) as { readonly total: { readonly time: { readonly rows: number } } };
  t.is(total.time.rows, 1);
  const bad = run('bad.csv', ['model', 'gpus'], ['gpt', '8']);
  t.is(bad.status, 1);
  t.regex(bad.stderr, /lacks the columns gpu_type, layers/);
  t.notRegex(bad.stderr, /\bat .*\.js/);
  for (const [file, says] of [
    [join(folder, 'absent.csv'), /absent\.csv cannot be read: there is no such file/],
    [folder, /cannot be read: it is a folder/],
  ] as const) {
    const unread = spawnSync(process.execPath, [...bench, file], { encoding: 'utf8' });
    t.is(unread.status, 1);
    t.regex(unread.stderr, says);
  }
});
