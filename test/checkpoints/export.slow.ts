/**
 * @file Models of PyTorch's exporters with trained weights: the exported file gives in ONNX Runtime what the next step of the
 * training gives, and is not the model that it was; safetensors have PyTorch's names and shapes.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Checkpoints } from '../../src/api/execution/checkpoints.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { labelBounds } from '../../src/api/execution/labels.js';
import { compile, exportWeights, openSession } from '../../src/api/index.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { numberReader } from '../../src/api/verification/numbers.js';
import { openCompiled } from '../../src/api/verify.js';
import { elementCount } from '../../src/ir/graph.js';
import { openSafetensors } from '../../src/program/safetensors.js';
import type { ConstantTensor } from '../../src/program/values.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { ABSENT, dimsOf, sharedCases } from '../api/shared-models.js';
import { missing } from '../missing.js';
import { difference } from '../pipelines/difference.js';

/** By model some weights with the shapes that they have in PyTorch. */
const SHAPES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'torch-1.13.1-gpt2_d64_l2': { 'b.0.f1.weight': '256,64', 'b.1.qkv.weight': '192,64', 'b.0.ln2.weight': '64' },
  'torch-1.13.1-gpt2_local_functions': {},
  'torch-1.13.1-llama_d64_l2_gqa': {},
  'torch-1.13.1-mlp_gemm': {},
  'torch-1.13.1-resnet18_w16': {},
  'torch-2.13.0-hf_gpt2': {
    'm.transformer.h.0.attn.c_attn.weight': '64,192',
    'm.transformer.h.0.attn.c_attn.bias': '192',
  },
  'torch-2.13.0-hf_llama_gqa': {},
  'torch-2.13.0-two_tower_shared': {},
};

const cases = sharedCases().filter(({ name }) => name in SHAPES);
const TRAINED = `weights of trained models in their own files: ${ABSENT}`;
if (missing(cases.length === 0, TRAINED) !== null) test.skip(TRAINED, () => undefined);

for (const item of cases) {
  test.serial(item.name, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const directory = join(folder, 'out');
    await compile({
      model: item.file,
      output: directory,
      dims: await dimsOf(item),
      devices: 2,
      degrees: { tp: 2, dp: 1 },
      axes: 'roles',
      training: {
        loss: { kind: 'cross_entropy' },
        optimizer: { kind: 'adamw', learningRate: 1e-2 },
        trainMode: 'as-exported',
      },
    });
    const { imported } = await openCompiled(directory);
    const inputs = randomInputs(imported.graph, 1, labelBounds(imported.training));
    const session = await openSession(directory);
    const checkpoints = await Checkpoints.open(directory, await readCompiled(directory));
    await session.step(inputs);
    await session.step(inputs);
    await checkpoints.save(session, { step: 2, state: {} });
    const { outputs } = await session.step(inputs);
    await session.close();
    await checkpoints.close();
    const [onnx, safetensors] = [join(folder, 'trained.onnx'), join(folder, 'trained.safetensors')];
    await exportWeights({ directory, output: onnx });
    await exportWeights({ directory, output: safetensors });
    const feeds = Object.fromEntries(Object.entries(inputs).filter(([name]) => name !== 'labels'));
    const [trained, before] = [await runOnnx(onnx, feeds), await runOnnx(item.file, feeds)];
    const compared = Object.keys(trained).filter((name) => outputs[name]);
    t.true(compared.length > 0);
    for (const name of compared) {
      t.true(difference(numbers(outputs[name]), numbers(trained[name])) < 1e-5, name);
      t.true(difference(numbers(outputs[name]), numbers(before[name])) > 1e-2, name);
    }
    const file = await openSafetensors(safetensors);
    for (const [name, shape] of Object.entries(SHAPES[item.name] ?? {}))
      t.is(file.entries.get(name)?.shape.join(), shape, `${name} of ${[...file.entries.keys()].join(' ')}`);
    await file.close();
  });
}

function numbers(tensor: ConstantTensor | undefined): readonly number[] {
  if (!tensor) return [];
  const read = numberReader(tensor);
  return Array.from({ length: elementCount(tensor.shape) }, (_, index) => read(index));
}
