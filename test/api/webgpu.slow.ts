/**
 * @file Programs on WebGPU, a process per rank, against the unsharded model and its gradients on the CPU; ranks share the device.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { Training } from '../../src/api/requests/training-request.js';
import { type CompileOptions, compile, runCompiled, verify } from '../../src/api/verbs.js';
import { AutoparError } from '../../src/ir/error.js';
import { encodeModel } from '../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { normalised } from '../codegen/normalised.js';
import { model, node, value } from '../ir/model-maker.js';
import { missing } from '../missing.js';
import { vulkanAbsence } from '../runtime/vulkan.js';

const why = missing(vulkanAbsence() !== null, vulkanAbsence() ?? '');
const onWebGpu = why === null ? test.serial : test.skip;
const folder = mkdtempSync(join(tmpdir(), 'autopar-webgpu-'));

const training: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1, momentum: 0.9 } };
const tokens: Training = { ...training, loss: { kind: 'cross_entropy' } };

const CASES: Readonly<Record<string, CompileOptions>> = {
  'gpt, dp 2 · tp 2': { model: 'models/gpt-tiny.onnx', dp: 2, tp: 2, axes: 'roles' },
  'mlp in training, dp 2': { model: 'models/mlp.onnx', dp: 2, axes: 'roles', training },
  'gpt in training, pp 2': { model: 'models/gpt-tiny.onnx', pp: 2, axes: 'roles', training: tokens },
};

for (const [name, options] of Object.entries(CASES))
  onWebGpu(`${name}: verified${why ? `: ${why}` : ''}`, async (t) => {
    t.timeout(600_000);
    const directory = join(folder, name.replaceAll(/\W+/g, '-'));
    await compile({ ...options, output: directory });
    const { passed, outputs } = await verify({ directory, backend: 'webgpu', rtol: 1e-3, atol: 1e-4 });
    t.true(passed, JSON.stringify(outputs));
    const { backend, ranks } = await runCompiled({ directory, backend: 'webgpu' });
    t.is(backend, 'webgpu');
    for (const { copySeconds = 0, computeSeconds } of ranks) t.true(copySeconds > 0 && computeSeconds > 0);
  });

onWebGpu(`normalisations without kernels run in plainer operators${why ? `: ${why}` : ''}`, async (t) => {
  t.timeout(600_000);
  const file = join(folder, 'norms.onnx');
  writeFileSync(file, writeOnnx(normalised()));
  const directory = join(folder, 'norms');
  await compile({ model: file, output: directory, dp: 2, tp: 1, axes: 'roles' });
  const substituted = new Set<string>();
  const { passed, outputs } = await verify({
    directory,
    backend: 'webgpu',
    onSubstitutes: (operators) => operators.forEach((operator) => void substituted.add(operator)),
  });
  t.true(passed, JSON.stringify(outputs));
  t.true(
    [...substituted].some((text) => /RMSNormalization.*, in plainer operators$/.test(text)),
    [...substituted].join(),
  );
});

onWebGpu(`a result that the device has no memory for is named with its bytes${why ? `: ${why}` : ''}`, async (t) => {
  const file = join(folder, 'product.onnx');
  const rows = 24_576;
  const graph = {
    name: 'g',
    node: [node('MatMul', ['a', 'b'], ['product'])],
    input: [value('a', [rows, 2]), value('b', [2, rows])],
    output: [value('product', [rows, rows])],
  };
  writeFileSync(file, encodeModel(model(graph)));
  const directory = join(folder, 'product');
  await compile({ model: file, output: directory, devices: 1 });
  const error = await t.throwsAsync(runCompiled({ directory, backend: 'webgpu' }), { instanceOf: AutoparError });
  t.is(error.code, 'over-memory');
  t.regex(
    error.message,
    new RegExp(`tensor product of ${rows * rows * 4} bytes beside the ${4 * rows * 4} that it holds`),
  );
});
