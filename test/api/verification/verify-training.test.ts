/**
 * @file verify of programs that train: every way in which one is wrong is found and named, and those that are right pass.
 */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { mlp } from '../../../models/mlp.js';
import { normalisedCnn } from '../../../models/normalised-cnn.js';
import { compile } from '../../../src/api/compile.js';
import type { Training } from '../../../src/api/models/training.js';
import { annotationsOf } from '../../../src/api/requests/annotations.js';
import { type VerifyResult, verify } from '../../../src/api/verify.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { EVERYTHING } from '../../selection.js';
import { CORRUPTIONS, LEARNING_RATE } from '../corrupted-program.js';

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

async function compiled(
  t: ExecutionContext,
  training: Training,
  degrees: { readonly dp: number; readonly tp: number },
  recompute: boolean,
): Promise<string> {
  const at = folder(t);
  const model = join(at, 'model.onnx');
  writeFileSync(model, writeOnnx(mlp('small', { batch: 8, widths: [6, 10, 4] }, 1)));
  const output = join(at, 'out');
  const annotations = annotationsOf({ version: 1, pins: [{ match: { node: '**' }, recompute }] });
  const again = recompute ? { annotations } : {};
  await compile({
    ...{ model, output, training, devices: degrees.dp * degrees.tp, degrees, axes: 'roles' },
    ...again,
  });
  return output;
}

function comparisons({ outputs, gradients = [], state = [], tensors }: VerifyResult) {
  return [...outputs, ...gradients, ...state, ...tensors];
}

const ADAMW: Training['optimizer'] = { kind: 'adamw', learningRate: LEARNING_RATE };
const MOMENTUM: Training['optimizer'] = { kind: 'sgd', learningRate: LEARNING_RATE, momentum: 0.9 };

const PROGRAMS = [
  { name: 'dp 2 · tp 2', degrees: { dp: 2, tp: 2 }, training: { loss: { kind: 'mse' }, optimizer: ADAMW } },
  {
    name: 'dp 2 in micro-batches',
    degrees: { dp: 2, tp: 1 },
    training: { loss: { kind: 'mse' }, optimizer: MOMENTUM, microBatches: 2 },
  },
  {
    name: 'dp 2 in micro-batches that recompute',
    degrees: { dp: 2, tp: 1 },
    training: { loss: { kind: 'mse' }, optimizer: ADAMW, microBatches: 2 },
    recompute: true,
  },
  { name: 'dp 2', degrees: { dp: 2, tp: 1 }, training: { loss: { kind: 'mse' }, optimizer: MOMENTUM } },
  { name: 'tp 2', degrees: { dp: 1, tp: 2 }, training: { loss: { kind: 'mse' }, optimizer: ADAMW } },
] as const satisfies readonly {
  name: string;
  degrees: { dp: number; tp: number };
  training: Training;
  recompute?: boolean;
}[];

test('running statistics of a module that is called twice are state that each step moves once', async (t) => {
  const at = folder(t);
  const [model, output] = [join(at, 'model.onnx'), join(at, 'out')];
  const sizes = { batch: 8, channels: 3, size: 8, widths: [4, 8], classes: 10, dropout: 0 };
  writeFileSync(model, writeOnnx(normalisedCnn('twice', sizes, 5)));
  const training: Training = { loss: { kind: 'mse' }, optimizer: MOMENTUM };
  await compile({ model, output, training, devices: 1 });
  const result = await verify({ directory: output });
  t.true(result.passed, JSON.stringify(comparisons(result).filter(({ passed }) => !passed)));
});

for (const { name, degrees, training, ...more } of EVERYTHING ? PROGRAMS : PROGRAMS.slice(0, 1)) {
  const corruptions = EVERYTHING ? CORRUPTIONS : CORRUPTIONS.filter((_, at) => at % 4 === 0);

  test(`what is wrong with a program that trains is found and named: ${name}`, async (t) => {
    const directory = await compiled(t, training, degrees, 'recompute' in more);
    const right = await verify({ directory });
    t.true(right.passed, JSON.stringify(comparisons(right).filter(({ passed }) => !passed)));
    t.deepEqual(new Set(right.gradients?.map((one) => one.name)).size, 4);
    const tried: string[] = [];
    for (const { name: what, apply, fails } of corruptions) {
      const wrong = join(folder(t), 'out');
      cpSync(directory, wrong, { recursive: true });
      if (!apply(wrong)) continue;
      tried.push(what);
      const model = join(directory, '..', 'model.onnx');
      const result = await verify({ directory: wrong, model });
      const failed = comparisons(result).filter(({ passed }) => !passed);
      t.false(result.passed, `${what} passes`);
      t.true(
        failed.some((one) => fails.test(one.name)),
        `${what}: ${failed.map((one) => one.name).join(', ')}`,
      );
    }
    t.true(tried.length >= Math.min(corruptions.length, CORRUPTIONS.length - 3), tried.join('; '));
  });
}
