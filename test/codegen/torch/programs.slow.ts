/**
 * @file Programs of the torch target against the unsharded model: outputs of inference; the loss, every weight and all momentum
 * after twenty steps of training, which are linear in the gradients and in their norm.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { CompileOptions, Training } from '../../../src/api/index.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { missing } from '../../missing.js';
import { difference } from '../../pipelines/difference.js';
import { type ModelName, writeModel } from '../../pipelines/models.js';
import { torchAbsence } from '../../reference/torch.js';
import { type Emitted, emitted, type Ran, ranHere, runThreads, runTorchrun } from './emitted.js';

const absence = torchAbsence();
const STEPS = 20;
const TOLERANCE = 2e-4;

/** Clipping is active from the first step on. */
const TRAINING: Training = {
  loss: { kind: 'mse' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1, clipNorm: 0.05 },
};
const LANGUAGE: Training = { ...TRAINING, loss: { kind: 'cross_entropy' } };

interface Case {
  readonly name: string;
  readonly model: string | ModelName;
  readonly options: Partial<CompileOptions>;
}

const degrees = (dp: number, tp: number): Partial<CompileOptions> => ({ devices: dp * tp, degrees: { dp, tp } });

const CASES: readonly Case[] = [
  ...['models/gpt-tiny.onnx', 'models/llama-tiny.onnx', 'models/mlp.onnx', 'models/cnn-tiny.onnx'].flatMap((model) => [
    { name: `${model} infers on dp 2, tp 2`, model, options: degrees(2, 2) },
    { name: `${model} infers on one rank`, model, options: degrees(1, 1) },
  ]),
  ...[degrees(1, 2), degrees(2, 1), degrees(2, 2)].flatMap((options, index) => [
    { name: `gpt-tiny trains, ${index}`, model: 'models/gpt-tiny.onnx', options: { ...options, training: LANGUAGE } },
    {
      name: `llama-tiny trains, ${index}`,
      model: 'models/llama-tiny.onnx',
      options: { ...options, training: LANGUAGE },
    },
    { name: `cnn trains, ${index}`, model: 'cnn', options: { ...options, training: TRAINING } },
  ]),
  ...(['mlp', 'batch-norm', 'shared-layer', 'encoder-decoder', 'same-weight-twice'] as const).map((model) => ({
    name: `${model} trains on dp 2, tp 2`,
    model,
    options: { ...degrees(2, 2), training: TRAINING },
  })),
];

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-target-'));
  const programs: Emitted[] = [];
  let ran: readonly Ran[] = [];
  test.before(async () => {
    for (const [index, { model, options }] of CASES.entries()) programs.push(await compiled(index, model, options));
    ran = runThreads(programs);
  });

  for (const [index, { name, model, options }] of CASES.entries())
    test.serial(name, async (t) => {
      const { devices: _, degrees: __, ...whole } = options;
      const alone = await ranHere(await compiled(`${index}-alone`, model, { ...whole, ...degrees(1, 1) }));
      check(t.is, alone, ran[index] as Ran);
    });

  test.serial('under torchrun, on gloo', (t) => {
    const index = CASES.findIndex(({ name }) => name === 'gpt-tiny trains, 2');
    check(t.is, ran[index] as Ran, runTorchrun(programs[index] as Emitted));
  });

  async function compiled(index: number | string, model: string, options: Partial<CompileOptions>): Promise<Emitted> {
    const file = model.endsWith('.onnx') ? model : join(folder, `${index}.onnx`);
    if (file !== model) writeModel(model as ModelName, file);
    return emitted(join(folder, `${index}`), options.training ? STEPS : 1, { ...options, model: file });
  }
}

/** All outputs and all state are there, and differ by rounding. */
function check(is: (got: unknown, wanted: unknown) => void, wanted: Ran, got: Ran): void {
  for (const part of ['outputs', 'state'] as const) {
    is(
      Object.keys(wanted[part]).every((name) => got[part][name]),
      true,
    );
    const worst = Object.entries(wanted[part]).map(([name, tensor]) => {
      const other = got[part][name];
      return { name, off: other ? difference(numbersOf(tensor).map(Number), numbersOf(other).map(Number)) : 1 };
    });
    is(
      worst.find(({ off }) => !(off <= TOLERANCE)),
      undefined,
    );
  }
}
