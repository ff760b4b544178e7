/**
 * @file Each way to share out a sequence trains as one rank does, in each model and beside dp, tp and pp; counted bytes are the
 * predicted ones, and what a rank holds of activations falls with the number of ranks.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { generatedFile } from '../../src/api/models/generated.js';
import type { AutoparError } from '../../src/ir/error.js';
import { thinned } from '../selection.js';
import {
  activationBytes,
  chunksOfRing,
  METHODS,
  type SequenceMethod,
  sequenceCases,
  trainedApart,
  trainedLong,
} from './sequence-methods.js';
import { PRICED, pricedMethods } from './sequence-prices.js';

const TOLERANCE = 1e-5;

// Methods come in turn: every fifth case misses no model, no method and no degrees.
for (const each of thinned(sequenceCases(), 5))
  test.serial(`${each.model}, ${each.method}, ${each.degrees}`, async (t) => {
    const { loss, gradient, trained } = await trainedApart(each);
    t.log(loss.toExponential(1), gradient.toExponential(1));
    t.true(Math.max(loss, gradient) <= TOLERANCE);
    t.deepEqual(trained.peaks.counted, trained.peaks.predicted);
    t.deepEqual(trained.sent.counted, trained.sent.predicted);
    if (each.method !== 'megatron') t.is(trained.plan.sequence?.method, each.method);
    if (each.model === 'documents' && each.method === 'ring') t.is(trained.plan.sequence?.order, 'zigzag');
  });

/** Activations of a rank times the ranks, over one rank's. Gathered keys and values, and operands of tp matmuls, are whole. */
const MOST: Readonly<Record<SequenceMethod, readonly [two: number, four: number, eight: number]>> = {
  ulysses: [1, 1, 1],
  ring: [1, 1, 1],
  gather: [1.1, 1.25, 1.55],
  megatron: [1.1, 1.25, 1.55],
};

for (const method of METHODS)
  test.serial(`activations of ${method} on 2, 4 and 8 ranks`, async (t) => {
    const one = await trainedLong(method, 1);
    t.deepEqual(one.peaks.counted, one.peaks.predicted);
    for (const [index, ranks] of [2, 4, 8].entries()) {
      const shared = await trainedLong(method, ranks);
      t.deepEqual(shared.peaks.counted, shared.peaks.predicted);
      // One chunk is computed with, one is on its way.
      if (method === 'ring') t.is(chunksOfRing(shared), Math.min(ranks - 1, 2));
      const ratio = (activationBytes(shared) * ranks) / activationBytes(one);
      t.log(`${ranks} ranks: ${ratio.toFixed(3)}`);
      t.true(ratio <= (MOST[method][index] as number));
    }
  });

for (const each of PRICED)
  test.serial(`prices of ${JSON.stringify(each)}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const priced = await pricedMethods(each, folder);
    t.log(priced);
    const first = (of: 'bytes' | 'seconds') =>
      priced.toSorted((a, b) => (a[of] ?? Number.POSITIVE_INFINITY) - (b[of] ?? Number.POSITIVE_INFINITY))[0]?.method;
    t.is(first('seconds'), each.fastest);
    t.is(first('bytes'), each.least);
  });

test.serial('32K positions are planned as 8 × 4K, and one device lacks memory for them by a figure', async (t) => {
  const model = await generatedFile('llama:layers=64,hidden=2048,heads=16,seq=32768', 1);
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const planned = (devices: number) =>
    compile({
      ...{ model, output: join(folder, 'plan'), planOnly: true, globalBatch: 1, cluster: `1x${devices}:a100-sxm-80` },
      ...(devices > 1 ? { degrees: { sp: devices } } : {}),
      training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } },
    });
  const { plan } = await planned(8);
  t.deepEqual([plan.sequence?.positions, plan.degrees.sp], [32768, 8]);
  t.true(Math.max(...plan.predicted.peakBytes) < 80e9);
  const error = await t.throwsAsync(planned(1), { code: 'nothing-fits' });
  t.is((error as AutoparError).exit, 'noPlan');
  t.regex(error?.message ?? '', /needs at least \d+ GB of 75\.7 GB on each device/);
});
