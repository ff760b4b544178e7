/**
 * @file Steps that nothing allows, or that memory does not hold: what the error says, and what its hint offers.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { autopar, workplace } from './autopar.js';

const STEP =
  'compile --model gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64 --cluster 1x4:a100-sxm-80 --train --global-batch 8 ' +
  '--plan-only -o out';

test('devices without room for tensors are refused at once, before steps are searched', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const device = { like: 'a100-sxm-80', memory: '1001MB' };
  const levels = [{ name: 'node', size: 4 }];
  writeFileSync(join(folder, 'small.yaml'), JSON.stringify({ version: 1, device, levels }));
  const line = STEP.replace('1x4:a100-sxm-80', 'small.yaml');
  const { code, stderr } = await autopar(line.split(' '), { cwd: folder });
  t.is(code, 4);
  t.regex(stderr, /error\[nothing-fits\]: a device has 1\.00 GB, and context and communication library take 2\.00 GB/);
  t.notRegex(stderr, /nothing fits/);
});

test('an error that holds under all degrees has no hint about degrees', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  // Only a tp that exceeds the heads leaves a step for a batch of 1.
  const line = STEP.replace('heads=4', 'heads=1').replace('--global-batch 8', '--global-batch 1 --sp 1 --pp 1');
  const hinted = async (more: string) => {
    const { code, stderr } = await autopar([...line.split(' '), ...more.split(' ')], { cwd: folder });
    t.is(code, 2, stderr);
    return stderr;
  };
  t.notRegex(await hinted('--frozen nothing*'), /--tp/);
  // Norms over a tp that does not divide the sequence are refused, and the hint does not offer them.
  const odd = line.replace('seq=32', 'seq=31').replace('1x4', '1x3');
  const refused = await autopar([...odd.split(' '), '--tp-sequence', 'on'], { cwd: folder });
  t.regex(refused.stderr, /tp 3 does not divide the 31 positions/);
  t.notRegex(refused.stderr, /--tp 3/);
  t.regex(await hinted('--micro-batch 1'), /hint: --tp \d, which spans nodes or exceeds the heads, fits/);
});

test('a part of the cluster is chosen within the memory that --memory gives to tensors', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line = `${STEP} --objective cost --memory 100MB --json`;
  const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
  t.is(code, 0, stderr + stdout);
  const { predicted } = JSON.parse(stdout) as { predicted: { peakBytes: readonly number[] } };
  t.true(Math.max(...predicted.peakBytes) <= 100e6);
});

test('where nothing fits one device, the error names it', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const line = `${STEP.replace('1x4', '1x1')} --objective memory --memory 1.92MB`;
  const { code, stderr } = await autopar(line.split(' '), { cwd: folder });
  t.is(code, 4);
  t.regex(stderr, /no combination of degrees for 1 device is possible/);
  t.regex(stderr, /the smallest of 1 proposed step, one device with 8 micro-batches, needs/);
});
