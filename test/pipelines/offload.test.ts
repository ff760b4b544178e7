/**
 * @file Programs that keep parameters, gradients, the optimizer's state or activations on the host or on disk: the same bits as on
 * the devices alone, less on the devices, and every byte that is kept or moved as it is predicted.
 */
import test from 'ava';
import { compareOffload } from './offloaded.js';

const STEPS = 3;

test.serial('data parallel ranks keep the optimizer on the host', async (t) => {
  const training = { optimizer: { kind: 'adamw' as const, learningRate: 1e-2, clipNorm: 0.5 } };
  const { whole, kept } = await compareOffload(
    t,
    { model: 'mlp', microBatches: 2, training },
    { stages: 1, dp: 2 },
    'optimizer',
    STEPS,
  );
  const [{ host } = { host: { peakBytes: 0 } }] = kept.outside.predicted;
  const moments = Object.values(kept.program.stages[0]?.tensors ?? {}).filter(
    ({ place, lifetime }) => place === 'host' && lifetime === 'run',
  );
  t.is(moments.length, 8);
  t.true(host.peakBytes > 0);
  t.true((whole.peaks.counted[0] ?? 0) - (kept.peaks.counted[0] ?? 0) > 0);
});

test.serial('tensor parallel ranks keep activations on the host and gradients on disk', async (t) => {
  const { kept } = await compareOffload(
    t,
    { model: 'mlp', microBatches: 2 },
    { stages: 1, tp: 2 },
    'activations:host,gradients:disk',
    STEPS,
  );
  const [{ host, disk } = { host: null, disk: null }] = kept.outside.predicted;
  t.true((host?.storedBytes ?? 0) > 0 && (host?.loadedBytes ?? 0) >= (host?.storedBytes ?? 0));
  t.true((disk?.storedBytes ?? 0) > 0);
});

test.serial('the stages of a pipeline keep all on disk', async (t) => {
  await compareOffload(t, { model: 'mlp', microBatches: 4 }, { kind: '1f1b', stages: 2 }, 'all:disk', STEPS);
});
