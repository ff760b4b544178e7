/**
 * @file Losses of 200 steps on data files under plans of several ranks against those of one rank, and data as NumPy writes it.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { type CompileOptions, compile, train } from '../../src/api/index.js';
import { readMetrics } from '../../src/api/training-run/metrics.js';
import { uniform } from '../../src/api/verification/numbers.js';
import { missing } from '../missing.js';
import { thinned } from '../selection.js';

const STEPS = 200;

const TRAINING: NonNullable<CompileOptions['training']> = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adamw', learningRate: 3e-3, schedule: { warmup: 10, shape: 'cosine', total: STEPS } },
};

const PLANS: Readonly<Record<string, Partial<CompileOptions>>> = {
  dp4: { degrees: { dp: 4 } },
  tp2: { degrees: { tp: 2, dp: 1 } },
  pp2: { degrees: { pp: 2, dp: 1 }, training: { ...TRAINING, microBatches: 2 } },
  'dp2 tp2': { degrees: { dp: 2, tp: 2 } },
  'ZeRO 3': { degrees: { dp: 2 }, zero: 3 },
  sp2: { degrees: { sp: 2, dp: 1 } },
};

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

async function trained(name: string, options: Partial<CompileOptions>, data: string) {
  const directory = join(folder, name);
  await compile({ model: 'models/gpt-tiny.onnx', output: directory, training: TRAINING, axes: 'roles', ...options });
  return readMetrics((await train({ directory, data: [data], steps: STEPS, seed: 1 })).metricsFile);
}

/** Seven of eight tokens determine the next one. */
function tokenFile(): string {
  const next = uniform(3);
  const tokens = [1];
  while (tokens.length < 16 * 300 + 1)
    tokens.push(next() < 0.875 ? ((tokens.at(-1) ?? 0) * 7 + 3) % 64 : Math.floor(next() * 64));
  const file = join(folder, 'tokens.bin');
  writeFileSync(file, Uint16Array.from(tokens));
  return file;
}

test('200 steps under several plans lose what one rank loses', async (t) => {
  t.timeout(600_000);
  const data = tokenFile();
  const one = await trained('one', { devices: 1 }, data);
  t.is(one.length, STEPS);
  const mean = (part: typeof one) => part.reduce((sum, { loss }) => sum + loss, 0) / part.length;
  t.true(mean(one.slice(-20)) < 0.5 * mean(one.slice(0, 20)), 'it learns');
  for (const [name, options] of thinned(Object.entries(PLANS), 2)) {
    const found = await trained(name, options, data);
    const worst = Math.max(...found.map(({ loss }, step) => Math.abs(loss - (one[step]?.loss ?? 0)) / loss));
    t.log(`${name}: ${worst.toExponential(1)}`);
    t.true(worst < 1e-4, `${name}: ${worst}`);
    const norms = Math.max(
      ...found.slice(0, 20).map((step, index) => {
        const expected = one[index]?.gradientNorm ?? 0;
        return Math.abs((step.gradientNorm ?? 0) - expected) / expected;
      }),
    );
    t.true(norms < 1e-4, `${name}: gradient norms ${norms}`);
  }
});

const python = process.env['AUTOPAR_PYTHON'] ?? 'python3';
const lacks = spawnSync(python, ['-c', 'import numpy']).status !== 0;
const withNumpy = missing(lacks, 'no Python with NumPy (AUTOPAR_PYTHON)') === null ? test : test.skip;

withNumpy('archives and arrays that NumPy writes are read', async (t) => {
  const file = join(folder, 'numpy.npz');
  const script =
    'import numpy as np, sys; ids = np.arange(8 * 16).reshape(8, 16) % 64; ' +
    'np.savez(sys.argv[1], ids=ids.astype(np.uint8), labels=ids.astype(">i8"))';
  t.is(spawnSync(python, ['-c', script, file]).status, 0);
  const directory = join(folder, 'numpy');
  await compile({ model: 'models/gpt-tiny.onnx', output: directory, training: TRAINING, devices: 1 });
  t.is((await train({ directory, data: [file] })).losses.length, 2);
});
