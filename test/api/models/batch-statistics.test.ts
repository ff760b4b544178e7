/**
 * @file Training with statistics of shards and of micro-batches, as a whole model: loss, outputs and gradients are those of the
 * parts of the batch, each by itself in a graph of its own, and ranks compute them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { compile } from '../../../src/api/compile.js';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, trainingGraphOf } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { noise } from '../../ir/same-results.js';
import { slowTests } from '../../selection.js';

const SIZES = { channels: 2, size: 4, widths: [4], classes: 3, dropout: 0 };
const BATCH = 8;
const TRAINING: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.05 } };
const IMAGE = noise([BATCH, SIZES.channels, SIZES.size, SIZES.size]);
const LABELS = [0, 1, 2, 1, 0, 2, 2, 1];

/** Loss, logits and gradients of `samples` from `from` on, in one graph. */
async function computed(file: string, training: Training, from: number, samples: number) {
  const imported = await importModel(file, { globalBatch: samples, ...importedFor(training) });
  const { step } = trainingGraphOf(imported, training, { inSums: true });
  const each = IMAGE.data.byteLength / BATCH;
  const image: ConstantTensor = {
    ...IMAGE,
    shape: [samples, ...IMAGE.shape.slice(1)],
    data: IMAGE.data.slice(from * each, (from + samples) * each),
  };
  const labels = constant('int64', LABELS.slice(from, from + samples), [samples]);
  const names = [...step.gradients.values(), ...(step.divisor === null ? [] : [step.divisor])];
  const results = await runGraph(step.graph, { image, [step.labels ?? '']: labels }, names);
  const numbers = (name: string) => numbersOf(results[name] as ConstantTensor);
  const [divisor = 1] = step.divisor === null ? [1] : numbers(step.divisor);
  return {
    loss: numbers(step.loss),
    logits: numbers('logits'),
    gradients: new Map(
      [...step.gradients].map(([weight, name]) => [weight, numbers(name).map((own) => own / divisor)]),
    ),
  };
}

function near(one: readonly number[] | undefined, other: readonly number[], tolerance = 1e-5): boolean {
  return one?.length === other.length && other.every((value, at) => Math.abs(value - (one[at] ?? 9)) < tolerance);
}

function saved(remove: (clean: () => void) => void): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  remove(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'normalised.onnx');
  writeFileSync(file, writeOnnx(normalisedCnn('normalised', { batch: BATCH, ...SIZES }, 1)));
  return file;
}

for (const { batchStatistics, microBatches, parts } of [
  { batchStatistics: 'micro-batch', microBatches: 2, parts: 2 },
  { batchStatistics: 'shard', microBatches: 1, parts: 2 },
  { batchStatistics: 'shard', microBatches: 2, parts: 4 },
] as const)
  slowTests(test, microBatches === 1)(
    `statistics of each ${batchStatistics}, dp 2, ${microBatches} micro-batches`,
    async (t) => {
      const file = saved((clean) => t.teardown(clean));
      const training: Training = { ...TRAINING, batchStatistics, microBatches };
      const own = await computed(file, { ...training, shards: 2 }, 0, BATCH);
      const each = BATCH / parts;
      const alone = await Promise.all(
        Array.from({ length: parts }, (_, part) => computed(file, TRAINING, part * each, each)),
      );
      const mean = (lists: readonly (readonly number[])[]) =>
        (lists[0] ?? []).map((_, at) => lists.reduce((sum, list) => sum + (list[at] ?? Number.NaN), 0) / parts);
      t.true(near(own.loss, mean(alone.map(({ loss }) => loss))));
      t.true(
        near(
          own.logits,
          alone.flatMap(({ logits }) => logits),
        ),
      );
      t.true(own.gradients.size > 4);
      for (const [weight, gradient] of own.gradients)
        t.true(near(gradient, mean(alone.map(({ gradients }) => gradients.get(weight) ?? []))), weight);
      const whole = await computed(file, TRAINING, 0, BATCH);
      t.false(near(own.loss, whole.loss, 1e-4));
      t.false(near(own.logits, whole.logits, 1e-2));
      const output = `${file}.autopar`;
      const { verification } = await compile({
        model: file,
        output,
        training,
        degrees: { dp: 2, tp: 1 },
        axes: 'roles',
        verify: true,
      });
      t.true(verification?.passed);
      t.true((verification?.gradients?.length ?? 0) > 4);
    },
  );
