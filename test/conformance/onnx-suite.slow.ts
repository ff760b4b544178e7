import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { ROOT } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { thinned } from '../selection.js';
import { findCases } from './find-cases.js';
import { readMask, runFolders } from './main.js';
import { isSharded, refusalOf, verdictOf } from './report.js';

/** ONNX's backend tests, packed. A tenth of them is run here, in one sharded mode; `npm run conformance` runs all in all. */
const FOLDER = join(process.env['AUTOPAR_SHARED'] ?? join(ROOT, '..', 'shared'), 'data', 'onnx-conformance');

/** Reasons for which cases that ONNX Runtime passes may be refused. */
const REFUSABLE: ReadonlySet<string> = new Set(['loop', 'data-dependent shape', 'string']);

/** A folder with the archive's files; null where it is absent or cannot be unpacked. */
function unpacked(archive: string): string | null {
  if (!existsSync(join(FOLDER, archive))) return null;
  const folder = mkdtempSync(join(tmpdir(), 'autopar-suite-'));
  if (spawnSync('tar', ['-xf', join(FOLDER, archive), '-C', folder]).status === 0) return folder;
  rmSync(folder, { recursive: true, force: true });
  return null;
}

/** A test on an archive's files, or one visible line where they cannot be had. */
function suite(archive: string, title: string, run: (t: ExecutionContext, folder: string) => Promise<void>): void {
  const folder = unpacked(archive);
  const why = `${title} (${archive} is not in ${FOLDER}, which AUTOPAR_SHARED moves, or tar cannot unpack it)`;
  if (folder === null) {
    missing(true, why);
    test.skip(title, (t) => t.pass());
    return;
  }
  test.serial(title, async (t) => {
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    await run(t, folder);
  });
}

/** One of so many cases; those of an operator are neighbours by name. */
const EVERY = 10;

const options = { filter: '', modes: ['tp 2 free'], jobs: 2 };

suite('node.tar.xz', 'ONNX node cases that ONNX Runtime passes, unsharded and over 2 ranks', async (t, folder) => {
  const mask = readMask(join(folder, 'ORT-1.30.0-node-cpu.tsv'));
  const lines: string[] = [];
  const only = new Set(thinned([...mask].sort(), EVERY));
  const { counted } = await runFolders({ ...options, folders: [folder], mask, only }, (line) => lines.push(line));
  t.log(lines.at(-1));
  t.is(counted.length, only.size);
  const refused = counted.filter((result) => verdictOf(result) === 'refused');
  t.deepEqual(names(counted.filter((result) => verdictOf(result) === 'failed')), [], lines.join('\n'));
  t.deepEqual(names(refused.filter((result) => !REFUSABLE.has(refusalOf(result)))), []);
  t.true(refused.length <= 11, `${refused.length} are refused`);
  t.true(counted.filter(isSharded).length >= 0.74 * only.size, 'fewer cases are sharded than were');
});

suite('models.tar.xz', 'ONNX light models and cases converted from PyTorch', async (t, folder) => {
  const lines: string[] = [];
  const all = findCases([folder]).map(({ name }) => name);
  const only = new Set([...all.filter(isLight), ...thinned(all.filter((name) => !isLight(name)).sort(), EVERY)]);
  const { counted } = await runFolders({ ...options, folders: [folder], mask: null, only }, (line) => lines.push(line));
  t.log(lines.at(-1));
  t.deepEqual(names(counted.filter((result) => verdictOf(result) === 'failed')), [], lines.join('\n'));
  const light = counted.filter(({ name }) => isLight(name));
  t.deepEqual(
    light.map(verdictOf),
    Array.from({ length: 9 }, () => 'passed'),
  );
  t.true(counted.filter((result) => verdictOf(result) === 'passed').length >= 0.68 * only.size);
});

function isLight(name: string): boolean {
  return name.startsWith('light_');
}

function names(results: readonly { readonly name: string }[]): readonly string[] {
  return results.map(({ name }) => name);
}
