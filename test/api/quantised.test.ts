/**
 * @file Models with quantised weights and activations against ONNX Runtime: within one quantisation step on one rank and on two,
 * their weights integers all the way.
 */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { importModel } from '../../src/api/models/import.js';
import { numberReader } from '../../src/api/verification/numbers.js';
import { verify } from '../../src/api/verify.js';
import { elementCount } from '../../src/ir/graph.js';
import { readProgram } from '../../src/program/reader.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { saved } from '../ir/model-maker.js';
import { convolutions, products, type QuantisedModel } from './quantised-models.js';

const MODELS: readonly QuantisedModel[] = [convolutions('uint8'), convolutions('int16'), products('int8')];

const DEGREES = [
  { devices: 1 },
  { degrees: { dp: 2 } },
  { degrees: { tp: 2 }, axes: 'roles' },
  { degrees: { tp: 2 }, axes: 'free' },
] as const;

async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'autopar-quantised-'));
  try {
    await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

for (const { name, model, step, weightElements } of MODELS) {
  test(`${name}: within one step of ONNX Runtime, on one rank and on two`, async (t) => {
    const file = await saved(model);
    await inFolder(async (folder) => {
      for (const [number, options] of DEGREES.entries()) {
        const directory = join(folder, String(number));
        await compile({ model: file, output: directory, ...options });
        const { outputs } = await verify({ directory, atol: 1.001 * step, rtol: 0 });
        t.deepEqual(
          outputs.filter(({ passed }) => !passed),
          [],
          JSON.stringify(options),
        );
        const { stages } = await readProgram(directory);
        t.false(JSON.stringify(stages).includes('all-reduce'), 'sums that are rounded stay whole');
        const weights = stages.flatMap((stage) => Object.values(stage.weights));
        const large = weights.filter(({ localShape }) => elementCount(localShape) > 64).map(({ dtype }) => dtype);
        t.true(
          large.every((dtype) => dtype === 'int8'),
          `${large}`,
        );
      }
    });
    await rm(dirname(file), { recursive: true });
  });

  test(`${name}: weights are imported as integers`, async (t) => {
    const file = await saved(model);
    const { graph } = await importModel(file);
    const integers = [...graph.weights.values()].filter(({ dtype }) => dtype === 'int8');
    const large = integers.filter(({ shape }) => shape.length > 1);
    t.is(
      large.reduce((sum, { shape }) => sum + elementCount(shape), 0),
      weightElements,
    );
    const floats = [...graph.weights.values()].filter(({ dtype }) => dtype === 'float32');
    t.true(floats.every(({ shape }) => shape.length <= 1));
    await rm(dirname(file), { recursive: true });
  });
}

test('where a quantised model differs, verify says by how much ONNX Runtime itself does', async (t) => {
  const file = await saved(convolutions('uint8').model);
  await inFolder(async (folder) => {
    const directory = join(folder, 'out');
    await compile({ model: file, output: directory, degrees: { tp: 2 }, axes: 'roles' });
    const weights = join(directory, 'program', 'weights');
    for (const part of await readdir(weights)) {
      const bytes = await readFile(join(weights, part));
      bytes.fill(1, bytes.byteLength - 64);
      await writeFile(join(weights, part), bytes);
    }
    const { passed, unoptimised } = await verify({ directory });
    t.false(passed);
    const { graph } = await importModel(file);
    const inputs = randomInputs(graph, 0);
    const [plain, optimised] = [await runOnnx(file, inputs, { optimised: false }), await runOnnx(file, inputs)];
    const [name = ''] = graph.outputs;
    const [left, right] = [plain[name], optimised[name]].map((found) =>
      numberReader(found as NonNullable<typeof found>),
    );
    const count = elementCount(plain[name]?.shape ?? []);
    const differences = Array.from({ length: count }, (_, at) => Math.abs((left?.(at) ?? 0) - (right?.(at) ?? 0)));
    t.deepEqual(
      unoptimised?.map(({ name: output, worstAbsolute }) => [output, worstAbsolute]),
      [[name, Math.max(...differences)]],
    );
  });
  await rm(dirname(file), { recursive: true });
});
