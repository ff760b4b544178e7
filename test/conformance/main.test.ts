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
import { tiled } from './arrays.js';
import { difference } from './compare.js';
import { findCases, runCase, runCases } from './main.js';
import { isSharded, overLimit, totalLine, verdictOf } from './report.js';

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

test('passed, refused and failed cases are told apart, links are followed, every case counts once', async (t) => {
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
  const results = await runCases([cases], (line) => lines.push(line));
  t.deepEqual(
    results.map((result) => [result.name, verdictOf(result)]),
    [
      ['broken', 'refused'],
      ['good', 'passed'],
      ['wrong', 'failed'],
    ],
  );
  t.is(lines.at(-1), '1 passed (1 sharded), 1 refused, 1 failed of 3');
  const good = results[1];
  t.true(good !== undefined && isSharded(good));
  t.deepEqual(
    good?.modes.map(({ mode }) => mode),
    [
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

test('a crash fails the mode it was in and nothing else', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const result = await runCase(folder, fileURLToPath(new URL('./crash.js', import.meta.url)));
  t.is(verdictOf(result), 'failed');
  t.regex(result.modes[0]?.detail ?? '', /ended by SIGABRT|exit code/);
  t.is(result.modes[0]?.mode, 'dp 2');
  t.is(totalLine([result]), '0 passed (0 sharded), 0 refused, 1 failed of 1');
});

test('a rank that does too much is named with the operator that prevents it', (t) => {
  const mode = { mode: 'tp 2', outcome: 'passed', detail: '', flopsShare: 0.9, exceptions: ['LSTM: whole'] } as const;
  const lines = overLimit([{ name: 'model', seconds: 1, modes: [mode, { ...mode, flopsShare: 0.6 }] }]);
  t.is(lines.length, 1);
  t.regex(lines[0] ?? '', /^model, tp 2: 0\.900 .* LSTM: whole$/);
});

test('comparison: tolerance, NaN in the same place only, shape and type', (t) => {
  const tolerance = { rtol: 1e-3, atol: 1e-4 };
  const floats = (values: readonly number[]) => constant('float32', values, [values.length]);
  t.is(difference('y', floats([1, 2]), floats([1.0005, 2]), tolerance), null);
  t.regex(difference('y', floats([1, 2.1]), floats([1, 2]), tolerance) ?? '', /element 1/);
  t.is(difference('y', floats([Number.NaN]), floats([Number.NaN]), tolerance), null);
  t.not(difference('y', floats([Number.NaN]), floats([1]), tolerance), null);
  t.not(difference('y', floats([1]), floats([Number.NaN]), tolerance), null);
  t.is(difference('y', floats([Number.POSITIVE_INFINITY]), floats([Number.POSITIVE_INFINITY]), tolerance), null);
  t.regex(difference('y', floats([1]), floats([1, 2]), tolerance) ?? '', /expected \[2\]/);
  t.regex(difference('y', constant('int64', [1], [1]), floats([1]), tolerance) ?? '', /expected float32/);
  t.is(difference('y', constant('float16', [1.01], [1]), constant('float16', [1], [1]), tolerance), null);
  t.regex(difference('y', undefined, floats([1]), tolerance) ?? '', /not computed/);
});

test('tiling repeats whole blocks of every dimension', (t) => {
  const array = constant('int64', [1, 2, 3, 4], [2, 2]);
  t.deepEqual(tiled(array, [4, 2]), constant('int64', [1, 2, 3, 4, 1, 2, 3, 4], [4, 2]));
  t.deepEqual(tiled(array, [2, 4]), constant('int64', [1, 2, 1, 2, 3, 4, 3, 4], [2, 4]));
  t.throws(() => tiled(array, [3, 2]));
});
