/**
 * @file Contents of a plan's tables: ranks of an axis in place of sub-axes, and layouts of operators that are lowered to others.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/index.js';

test('eight ranks of tp on four heads: four for heads, two for what a head has', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const { mostExpensive, communication } = await compile({
    ...{ model: 'models/gpt-tiny.onnx', output: join(folder, 'out'), devices: 8, tp: 8, axes: 'roles', planOnly: true },
  });
  const attention = mostExpensive.find(({ op }) => op === 'Attention');
  t.is(attention?.strategy, 'h: tp.0,tp.1, f: tp.2');
  t.deepEqual(attention?.shown, {
    strategy: 'h: tp 4 of 8, f: tp 2 of 8',
    layouts:
      '[-, tp 4 of 8, -, -] · [-, -, tp 4 of 8, -] · [-, tp 4 of 8, -, tp 2 of 8] · [-, -, -, -] → [-, tp 4 of 8, -, tp 2 of 8]',
  });
  for (const { op, shown } of mostExpensive) {
    if (op !== 'Add') continue;
    t.deepEqual(shown, { strategy: 'replicated', layouts: '[-, -, -] · [-, -, -] → [-, -, -]' });
  }
  t.deepEqual([...new Set(communication.map(({ kind, axes, over }) => `${kind} ${axes.join()} ${over}`))].sort(), [
    'all-gather tp.2 tp 2 of 8',
    'all-reduce tp tp',
  ]);
});

test('operators of equal layers are one row over all stages that run them alike', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const { mostExpensive } = await compile({
    ...{ model: 'models/gpt-tiny.onnx', output: join(folder, 'out'), devices: 2, dp: 1, tp: 1, pp: 2, planOnly: true },
  });
  const { operator, count, seconds } = mostExpensive[0] ?? {};
  t.deepEqual([operator, count], ['/h.0/attn/MatMul_1', 2]);
  t.true((seconds ?? 0) > (mostExpensive[1]?.seconds ?? 0));
  t.false(mostExpensive.some(({ operator }) => operator.startsWith('/h.1/')));
});

test('bytes of communication are those of a step, however many micro-batches it has', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const planned = (degrees: { readonly pp: number; readonly tp: number }, microBatches: number) =>
    compile({
      model: 'models/mlp.onnx',
      output: join(folder, `pp${degrees.pp}-${microBatches}`),
      cluster: '1x2:a100-sxm-80',
      degrees: { dp: 1, ...degrees },
      globalBatch: 64,
      training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches },
      planOnly: true,
    });
  // Of the whole array that two ranks hold together, each receives all for a sum, and the other half for a gather or scatter.
  const share = (kind: string) => (kind === 'all-reduce' || kind === 'send' ? 1 : 1 / 2);
  for (const microBatches of [2, 4]) {
    for (const degrees of [
      { pp: 2, tp: 1 },
      { pp: 1, tp: 2 },
    ]) {
      const { plan, communication } = await planned(degrees, microBatches);
      const { receivedBytes, bytesCommunicated } = plan.predicted;
      const received = (receivedBytes ?? [bytesCommunicated]).reduce((sum, bytes) => sum + bytes, 0);
      t.true(received > 0);
      t.is(
        communication.reduce((sum, { kind, bytes }) => sum + share(kind) * bytes, 0),
        received,
        `pp ${degrees.pp}, ${microBatches} micro-batches`,
      );
    }
  }
});
