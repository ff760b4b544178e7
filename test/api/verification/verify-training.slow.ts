/**
 * @file verify of right programs: the shipped models with every option of training, on dp, tp, both and micro-batches.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { languageModel } from '../../../models/language-model.js';
import { compile } from '../../../src/api/compile.js';
import type { Training } from '../../../src/api/models/training.js';
import { verify } from '../../../src/api/verify.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { gptSizes } from '../../cost-model/step/sizes.js';
import { thinned } from '../../selection.js';

const models = fileURLToPath(new URL('../../../../models/', import.meta.url));

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

const ENTROPY = { loss: { kind: 'cross_entropy' } } as const;
const ADAMW = { kind: 'adamw', learningRate: 1e-3 } as const;

const TRAININGS: Readonly<Record<string, Training>> = {
  'AdamW, clipped, warm-up, cosine': {
    ...ENTROPY,
    optimizer: { ...ADAMW, clipNorm: 0.5, schedule: { warmup: 3, shape: 'cosine', total: 20 } },
  },
  SGD: { ...ENTROPY, optimizer: { kind: 'sgd', learningRate: 1e-2 } },
  Nesterov: {
    ...ENTROPY,
    optimizer: { kind: 'sgd', learningRate: 1e-2, momentum: 0.9, nesterov: true, weightDecay: 0.01 },
  },
  'Adam with a small rate': { ...ENTROPY, optimizer: { kind: 'adam', learningRate: 1e-6 } },
  LAMB: { ...ENTROPY, optimizer: { kind: 'lamb', learningRate: 1e-3, weightDecay: 0.01 } },
  squares: { loss: { kind: 'mse' }, optimizer: ADAMW },
  'fp16, dynamic scale': { ...ENTROPY, optimizer: ADAMW, precision: 'fp16' },
  bf16: { ...ENTROPY, optimizer: ADAMW, precision: 'bf16' },
};

const MESHES = [
  { name: 'dp 2', degrees: { dp: 2, tp: 1 } },
  { name: 'tp 2', degrees: { dp: 1, tp: 2 } },
  { name: 'dp 2 · tp 2', degrees: { dp: 2, tp: 2 } },
  { name: 'dp 2 in micro-batches', degrees: { dp: 2, tp: 1 }, microBatches: 2, globalBatch: 8 },
] as const;

async function passes(
  t: ExecutionContext,
  model: string,
  training: Training,
  { name, degrees, ...more }: (typeof MESHES)[number],
): Promise<void> {
  const output = join(folder(t), 'out');
  const { microBatches, globalBatch } = { microBatches: 1, globalBatch: undefined, ...more };
  const sizes = globalBatch === undefined ? {} : { globalBatch };
  await compile({
    ...{ model, output, degrees, devices: degrees.dp * degrees.tp, axes: 'roles' },
    ...{ training: microBatches === 1 ? training : { ...training, microBatches }, ...sizes },
  });
  const { passed, outputs, gradients = [], state = [], steps } = await verify({ directory: output });
  const failed = [...outputs, ...gradients, ...state].filter((one) => !one.passed);
  t.true(passed, `${name}: ${JSON.stringify(failed.slice(0, 3))}`);
  t.is(steps?.updates, 2);
}

const PAIRS = ['mlp', 'cnn-tiny', 'gpt-tiny', 'llama-tiny'].flatMap((model, row) =>
  Object.entries(TRAININGS).map(([name, training], column) => ({ model, row, name, training, column })),
);

// Each model with each training on one of the meshes: each training meets all meshes, each model all of them twice. One of three
// is run, in which no model, training or mesh is missed.
for (const { model, row, name, training, column } of thinned(PAIRS, 3)) {
  test.serial(`${model} trains as its unsharded graph does: ${name}`, async (t) => {
    for (const mesh of MESHES.filter((_, place) => (place + row + column) % MESHES.length === 0)) {
      // Statistics of a batch are not sums over micro-batches.
      const form = model === 'cnn-tiny' && 'microBatches' in mesh ? { freezeBatchStatistics: true } : {};
      await passes(t, join(models, `${model}.onnx`), { ...training, ...form }, mesh);
    }
  });
}

test.serial('Dropout draws the same masks', async (t) => {
  const sizes = { batch: 8, sequence: 6, layers: 1, vocabulary: 24, causal: true };
  const model = join(folder(t), 'dropout.onnx');
  const graph = languageModel('gpt', { ...gptSizes({ hidden: 16, heads: 2, dropout: 0.3 }), ...sizes }, 1);
  writeFileSync(model, writeOnnx(graph));
  for (const mesh of MESHES) await passes(t, model, { ...ENTROPY, optimizer: ADAMW }, mesh);
});
