/**
 * @file `writeModel` of the verbs in JavaScript, and training from the file: exported models have all values.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import {
  AutoparError,
  type CompileOptions,
  compile,
  exportWeights,
  importModel,
  inspect,
  simulate,
  train,
} from '../../../src/api/index.js';
import { runOnnx } from '../../../src/runtime/reference.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const FAMILY = 'llama:layers=2,hidden=32,heads=4,seq=16,vocab=64';

test('compile, inspect and simulate say where the model is', async (t) => {
  const [compiled, inspected, simulated] = ['c', 'i', 's'].map((name) => join(folder, `${name}.onnx`));
  const globalBatch = 4;
  const output = join(folder, 'compiled');
  const asked = { generate: FAMILY, globalBatch } as const;
  const results = [
    await compile({ ...asked, output, planOnly: true, devices: 2, writeModel: `${compiled}` }),
    await inspect({ ...asked, writeModel: `${inspected}` }),
    await simulate({ ...asked, devices: 2, dp: 2, writeModel: `${simulated}` }),
  ];
  t.deepEqual(
    results.map(({ writtenModel }) => writtenModel),
    [compiled, inspected, simulated],
  );
  const fingerprints = await Promise.all(
    [compiled, inspected, simulated].map(async (file) => (await importModel(`${file}`)).fingerprint),
  );
  t.deepEqual([...new Set(fingerprints)], [fingerprints[0]]);
  t.is((await inspect({ ...asked })).writtenModel, undefined);
  const again = await inspect({ ...asked, writeModel: `${inspected}`, force: true });
  t.is(again.writtenModel, inspected);
});

test('an error has the words of JavaScript', async (t) => {
  const file = join(folder, 'new.onnx');
  const refused = async (work: Promise<unknown>) => t.throwsAsync(work, { instanceOf: AutoparError });
  const given = await refused(compile({ model: 'models/mlp.onnx', writeModel: file }));
  t.is(given?.code, 'bad-option');
  t.regex(given?.message ?? '', /^writeModel .* writes the model of generate, and the model is the file /);
  t.regex((await refused(inspect({ generate: FAMILY, force: true })))?.message ?? '', /^force replaces .*writeModel/);
  const wrong = { generate: FAMILY, writeModel: 1 } as unknown as CompileOptions;
  t.regex((await refused(compile(wrong)))?.message ?? '', /writeModel: expected a string/);
  t.false(existsSync(file));
});

test('trained from the file, an exported model has values of all weights, of those that are not trained too', async (t) => {
  const [model, directory, trained] = ['model.onnx', 'trained', 'trained.onnx'].map((name) => join(folder, name));
  const [file, output, exported] = [`${model}`, `${directory}`, `${trained}`];
  await inspect({ generate: `${FAMILY},batch=2`, writeModel: file });
  const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  await compile({ model: file, output, devices: 2, dp: 2, initRandom: true, training });
  const data = join(folder, 'tokens.bin');
  writeFileSync(
    data,
    Uint16Array.from({ length: 200 }, (_, index) => (index * 7) % 64),
  );
  await train({ directory: output, data: [data], steps: 1 });
  await exportWeights({ directory: output, output: exported });
  t.true((await importModel(exported)).weightsPresent);
  const ids = { dtype: 'int64', shape: [2, 16], data: new Uint8Array(8 * 32) } as const;
  t.truthy((await runOnnx(exported, { ids }))['logits']);
});
