import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { mlp } from '../../models/mlp.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant } from '../../src/ir/ops/constants.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { slowTests } from '../selection.js';
import { fallen } from './case.js';
import { findCases } from './find-cases.js';
import { readMask, runFolders } from './main.js';
import { isSharded, overLimit, verdictOf } from './report.js';
import { tiled } from './tiled.js';

const slow = slowTests(test);

const ROWS = Array.from({ length: 2 * 8 }, (_, index) => Math.sin(index));

/** A folder with a case of batch 2; `spoil` changes the expected output. */
async function writeCase(folder: string, spoil = (output: ConstantTensor) => output): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const model = writeOnnx(mlp('small', { batch: 2, widths: [8, 16, 4] }, 1));
  const x = constant('float32', ROWS, [2, 8]);
  const y = (await runOnnx(model, { x }))['y'];
  if (!y) throw new Error('the model has no output y');
  writeFileSync(join(folder, 'model.onnx'), model);
  writeFileSync(join(folder, 'in_x.bin'), x.data);
  writeFileSync(join(folder, 'out_y.bin'), spoil(y).data);
  const listing = {
    inputs: [{ name: 'x', dtype: 'float32', shape: [2, 8], file: 'in_x.bin' }],
    outputs: [{ name: 'y', dtype: 'float32', shape: y.shape, file: 'out_y.bin' }],
  };
  writeFileSync(join(folder, 'io.json'), JSON.stringify(listing));
}

const options = { filter: '', mask: null, jobs: 2 };

slow('passed and refused cases are told apart, links are followed, every case counts once', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const cases = join(folder, 'cases');
  await writeCase(join(folder, 'elsewhere', 'good'));
  await writeCase(join(cases, 'wrong'), (output) => ({ ...output, data: output.data.map((byte) => byte ^ 0x40) }));
  await writeCase(join(cases, 'broken'));
  writeFileSync(join(cases, 'broken', 'model.onnx'), readFileSync(join(cases, 'wrong', 'model.onnx')).subarray(0, 500));
  symlinkSync(join(folder, 'elsewhere'), join(cases, 'linked'), 'junction');
  t.is(findCases([cases, join(folder, 'elsewhere')]).length, 3);

  const lines: string[] = [];
  const { counted } = await runFolders({ ...options, folders: [cases] }, (line) => lines.push(line));
  t.deepEqual(
    counted.map((result) => [result.name, verdictOf(result), result.modes[0]?.reason ?? '']),
    [
      ['broken', 'refused', 'onnxruntime cannot run it'],
      ['good', 'passed', ''],
      // A result that ONNX Runtime itself does not give is not counted against autopar.
      ['wrong', 'refused', 'onnxruntime gives another result'],
    ],
  );
  t.is(lines.at(-1), '1 passed (1 sharded), 2 refused, 0 failed of 3');
  const good = counted[1];
  t.true(good !== undefined && isSharded(good));
  t.deepEqual(
    good?.modes.map(({ mode }) => mode),
    [
      'onnxruntime',
      'unsharded',
      'dp 2',
      'tp 2',
      'searched, 2 ranks',
      'dp 4',
      'tp 4',
      'searched, 4 ranks',
      'batch 8',
      'batch 8, dp 2',
      'batch 8, dp 4',
    ],
  );
  const share = good?.modes.find(({ mode }) => mode === 'dp 2')?.flopsShare ?? 1;
  t.true(share <= 0.55, String(share));
});

slow('a mask sets cases apart, a filter leaves them out, modes can be chosen', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const name of ['first', 'second', 'other']) await writeCase(join(folder, name));
  writeFileSync(join(folder, 'mask.tsv'), 'first\tpass\t\nsecond\tmismatch\tval 1\n');
  const mask = readMask(join(folder, 'mask.tsv'));
  t.deepEqual([...mask], ['first']);
  const lines: string[] = [];
  const results = await runFolders({ folders: [folder], filter: 's', mask, modes: ['tp 2'], jobs: 1 }, (line) =>
    lines.push(line),
  );
  t.deepEqual(
    results.counted.map(({ name, modes }) => [name, modes.map(({ mode }) => mode)]),
    [['first', ['onnxruntime', 'unsharded', 'tp 2']]],
  );
  t.deepEqual(
    results.apart.map(({ name }) => name),
    ['second'],
  );
  t.true(lines.includes('outside the mask:'));
  t.is(lines.at(-1), '1 passed (1 sharded), 0 refused, 0 failed of 1');
});

slow('a model given as a file runs on noise, and is trained where that is asked for', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  await writeCase(folder);
  const lines: string[] = [];
  const { counted } = await runFolders(
    { ...options, folders: [join(folder, 'model.onnx')], modes: ['tp 2', 'train tp 2'], train: true },
    (line) => lines.push(line),
  );
  t.deepEqual(
    counted.map(({ name, modes }) => [name, modes.map(({ mode, outcome }) => `${mode}: ${outcome}`)]),
    [['model', ['onnxruntime', 'unsharded', 'tp 2', 'train', 'train tp 2'].map((mode) => `${mode}: passed`)]],
    lines.join('\n'),
  );
});

test('sharded is what leaves a rank less work or fewer bytes', (t) => {
  const shardedAt = (flopsShare: number, bytes: number, sharded = true) =>
    fallen({ sharded, flopsShare, bytes }, 100).sharded;
  t.true(shardedAt(0.5, 100));
  t.true(shardedAt(1, 99));
  t.false(shardedAt(1, 100));
  t.false(shardedAt(0.5, 50, false));
});

test('a rank that does too much is named with the operator that prevents it', (t) => {
  const mode = {
    mode: 'tp 2',
    outcome: 'passed',
    detail: '',
    flopsShare: 0.9,
    largestShare: 0.6,
    exceptions: ['LSTM: whole'],
  } as const;
  const lines = overLimit([{ name: 'model', seconds: 1, modes: [mode, { ...mode, flopsShare: 0.6 }] }]);
  t.is(lines.length, 1);
  t.regex(lines[0] ?? '', /^model, tp 2: 0\.900 .* LSTM: whole$/);
});

test('tiling repeats whole runs of every dimension', (t) => {
  const array = constant('int64', [1, 2, 3, 4], [2, 2]);
  t.deepEqual(tiled(array, [4, 2]), constant('int64', [1, 2, 3, 4, 1, 2, 3, 4], [4, 2]));
  t.deepEqual(tiled(array, [2, 4]), constant('int64', [1, 2, 1, 2, 3, 4, 3, 4], [2, 4]));
  t.throws(() => tiled(array, [3, 2]));
});

test('what cannot be run is said in a sentence, with exit code 2', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const archive = join(folder, 'node.tar.xz');
  writeFileSync(archive, '');
  const main = fileURLToPath(new URL('./main.js', import.meta.url));
  const said = (...words: string[]) =>
    spawnSync(process.execPath, [...process.execArgv, main, ...words], { encoding: 'utf8' });
  for (const [words, says] of [
    [[], /^usage: npm run conformance -- FOLDER/],
    [[join(folder, 'nowhere')], /^there is no .*nowhere/],
    [[archive], /is an archive: unpack it first \(tar -xf /],
    [[folder, '--jobs', 'many'], /^--jobs wants a number of processes, not many/],
    [[folder, '--nothing'], /Unknown option '--nothing'/],
    [[folder, '--mask', join(folder, 'mask.tsv')], /^there is no .*mask\.tsv/],
  ] as const) {
    const { status, stderr } = said(...words);
    t.is(status, 2);
    t.regex(stderr, says);
  }
  const { status, stdout } = said(folder);
  t.is(status, 0);
  t.is(stdout.trim().split('\n').at(-1), '0 passed (0 sharded), 0 refused, 0 failed of 0');
});
