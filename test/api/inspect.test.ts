import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test from 'ava';
import { type GptSizes, gpt } from '../../models/gpt.js';
import { type LlamaSizes, llama } from '../../models/llama.js';
import { type Inspection, inspect } from '../../src/api/inspect.js';
import type { Graph } from '../../src/ir/graph.js';
import { readOnnx } from '../../src/ir/onnx/reader.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { missing } from '../missing.js';
import { ABSENT, sharedCases } from './shared-models.js';

const SHARED = resolve(process.env['AUTOPAR_SHARED'] ?? '../shared');

function savedGraph(graph: Graph): string {
  const file = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), `${graph.name}.onnx`);
  writeFileSync(file, writeOnnx(graph));
  return file;
}

function elements(items: readonly { readonly elements: number }[]): number {
  return items.reduce((sum, item) => sum + item.elements, 0);
}

function countOf({ parameters, folded }: Inspection): number {
  return elements(parameters.parameters) + elements(folded);
}

/** A linear layer with bias. */
const linear = (inputs: number, outputs: number): number => inputs * outputs + outputs;
const gpt2 = (vocabulary: number, width: number, layers: number): number =>
  vocabulary * width + layers * (12 * width ** 2 + 13 * width) + 2 * width;
const llamaCount = (vocabulary: number, width: number, keys: number, wide: number, layers: number): number =>
  2 * vocabulary * width + layers * (2 * width ** 2 + 2 * width * keys + 3 * width * wide + 2 * width) + width;
const gates = (count: number, inputs: number, hidden: number): number =>
  count * (inputs * hidden + hidden ** 2 + 2 * hidden);

/** Parameters that PyTorch counts, without those that the exporter left out of the file (noted beside each). */
const PYTORCH: Readonly<Record<string, number>> = {
  'torch-1.13.1-encoder_d64_l2': 2 * (linear(64, 192) + linear(64, 64) + linear(64, 128) + linear(128, 64) + 4 * 64),
  // The exporter kept only those rows of the position table that are read.
  'torch-1.13.1-gpt2_d64_l2': gpt2(128, 64, 2) + 16 * 64,
  'torch-1.13.1-gpt2_local_functions': gpt2(128, 64, 2) + 16 * 64,
  'torch-1.13.1-gpt2_loss': gpt2(128, 64, 2) + 16 * 64,
  'torch-1.13.1-llama_d64_l2_gqa': llamaCount(128, 64, 16, 96, 2),
  'torch-1.13.1-mlp_gemm': linear(48, 128) + linear(128, 128) + linear(128, 16),
  'torch-1.13.1-moe_top2_dense': 32 * 4 + 2 * 4 * 32 * 64,
  // One vector of zeros serves ten biases. Zero biases behind the encoder are left out, and rows of the position table that are
  // not read.
  'torch-2.13.0-hf_bert_mask':
    (12 + 130) * 64 + 2 * 64 + 2 * (4 * linear(64, 64) + linear(64, 128) + linear(128, 64) + 4 * 64) + 64 * 64 + 64 * 3,
  // Zero biases are left out, and in the first file rows of the position table that are not read.
  'torch-2.13.0-hf_gpt2': gpt2(128, 64, 2) - 2 * 9 * 64 + 12 * 64,
  'torch-2.13.0-hf_gpt2_dyn': gpt2(128, 64, 2) - 2 * 9 * 64 + 64 * 64,
  'torch-2.13.0-hf_llama_gqa': llamaCount(128, 64, 16, 96, 2),
  'torch-2.13.0-hf_llama_sdpa_opset23': llamaCount(128, 64, 16, 96, 2),
  'torch-2.13.0-mlp_fp16': linear(32, 64) + linear(64, 16),
  'torch-2.13.0-moe_top1_capacity': 32 * 4 + 2 * 4 * 32 * 64,
  'torch-2.13.0-nn_lstm': gates(4, 32, 48) + gates(4, 48, 48) + linear(48, 10),
  'torch-2.13.0-train_step_manual': linear(32, 64) + linear(64, 8),
  // The class token, repeated for every sample, is folded.
  'torch-1.13.1-vit_d64_l2':
    12 * 16 * 64 +
    64 +
    17 * 64 +
    2 * (linear(64, 192) + linear(64, 64) + linear(64, 128) + linear(128, 64) + 4 * 64) +
    2 * 64 +
    linear(64, 10),
  'torch-2.13.0-two_tower_shared': linear(40, 64) + 2 * 64 + linear(64, 32),
};

/** For those whose exporter has folded batch normalisation into convolutions: every floating-point initializer. */
async function initializersOf(file: string): Promise<number> {
  const { graph } = await readOnnx(file);
  const counts = [...graph.initializers.values()].map(({ dtype, shape }) => {
    const count = shape.reduce((product, size) => product * size, 1);
    return count > 1 && dtype === 'float32' ? count : 0;
  });
  return counts.reduce((sum, count) => sum + count, 0);
}

const cases = sharedCases();
if (missing(cases.length === 0, ABSENT)) test.skip('shared models', (t) => t.pass());

for (const { name, file } of cases) {
  test(`${name}: as many parameters as PyTorch has`, async (t) => {
    const inspection = await inspect({ model: file });
    t.true(inspection.parameters.parameters.every(({ trainable }) => trainable));
    t.is(countOf(inspection), PYTORCH[name] ?? (await initializersOf(file)));
    t.is(inspection.inputs[0]?.dimensions[0]?.role, 'batch');
    t.true(inspection.totalFlops > 0);
  });
}

const skeletons = join(SHARED, 'models', 'skeletons');
const noSkeletons = missing(
  !existsSync(skeletons) || !unpacks(),
  `full-size models (${skeletons}, and xz to unpack them)`,
);

function unpacks(): boolean {
  try {
    execFileSync('xz', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const SKELETONS = [
  // The head is tied to the table: 30522 · 1024 once, and 30522 for the head's bias; the pooler is not exported.
  { file: 'bert-large-opset18', count: 335_174_458, layers: 24, regions: ['LayerNormalization'] },
  { file: 'gpt2-xl-opset18', count: 1_557_611_200, layers: 48, regions: ['LayerNormalization'] },
  { file: 'llama3-8b-opset18', count: 8_030_261_248, layers: 32, regions: [] },
] as const;

for (const { file, count, layers, regions } of noSkeletons ? [] : SKELETONS) {
  test(`${file}: parameters, layers and dimensions of the published model`, async (t) => {
    const unpacked = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'model.onnx');
    const packed = join(skeletons, `${file}.onnx.xz`);
    writeFileSync(unpacked, execFileSync('xz', ['-dc', packed], { maxBuffer: 2 ** 28 }));
    const inspection = await inspect({ model: unpacked });
    t.is(elements(inspection.parameters.parameters), count);
    t.is(
      inspection.layers.reduce((sum, { instances }) => sum + instances.length, 0),
      layers,
    );
    t.deepEqual(
      inspection.inputs[0]?.dimensions.map(({ role }) => role),
      ['batch', 'sequence'],
    );
    t.deepEqual(
      inspection.outputs[0]?.dimensions.map(({ role }) => role),
      ['batch', 'sequence', 'vocabulary'],
    );
    for (const kind of regions) t.true(inspection.fusedRegions.some((row) => row.kind === kind));
  });
}

const archive = join(SHARED, 'data', 'onnx-conformance', 'models.tar.xz');
const LIGHT = [
  { name: 'bvlc_alexnet', count: 60_965_224 },
  { name: 'vgg19', count: 143_667_240 },
  { name: 'squeezenet', count: 1_235_496 },
  { name: 'resnet50', count: 25_557_032 },
  // Caffe's scale layers behind a normalisation double its scale and bias; the file holds two of them.
  { name: 'densenet121', count: 7_978_856 + 4 * 64 },
] as const;

test('topologies whose weights ConstantOfShape makes have the published number of weights', async (t) => {
  if (missing(!existsSync(archive) || !unpacks(), `light topologies (${archive})`)) return t.pass();
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const files = LIGHT.map(({ name }) => `light_${name}.onnx`);
  execFileSync('tar', ['-xJf', archive, '-C', folder, '--wildcards', ...files.map((file) => `*${file}`)]);
  const found = execFileSync('find', [folder, '-name', '*.onnx'], { encoding: 'utf8' }).trim().split('\n');
  for (const { name, count } of LIGHT) {
    const model = found.find((file) => file.endsWith(`light_${name}.onnx`)) ?? '';
    const { parameters } = await inspect({ model });
    const made = parameters.generated.filter(({ place }) => place.use !== 'statistics');
    t.is(elements(parameters.parameters) + elements(made), count, name);
  }
});

/** FLOPs of matmuls: two per weight and token, plus scores and weighted sums of attention. */
function productFlops(weights: number, { batch, sequence, layers, width }: GptSizes | LlamaSizes): number {
  return 2 * weights * batch * sequence + layers * 4 * batch * sequence ** 2 * width;
}

test('work of a GPT is that of the closed formula', async (t) => {
  const sizes = { batch: 2, sequence: 32, layers: 3, width: 64, heads: 4, vocabulary: 96 };
  const inspection = await inspect({ model: savedGraph(gpt('gpt', sizes, 1)) });
  t.is(countOf(inspection), gpt2(96, 64, 3) + 32 * 64);
  const weights = 3 * 12 * 64 ** 2 + 96 * 64;
  const least = productFlops(weights, sizes);
  t.true(inspection.totalFlops > least && inspection.totalFlops < 1.1 * least, `${inspection.totalFlops} of ${least}`);
  t.is(flopsOf(inspection, 'MatMul') % (2 * sizes.batch * sizes.sequence), 0);
  t.deepEqual(
    inspection.layers.map(({ instances }) => instances.length),
    [3],
  );
  t.like(inspection.parameters.decisions[0], { kind: 'tied', parameters: ['wte.weight'] });
});

test('work of a Llama is that of the closed formula, at any batch', async (t) => {
  const sizes = {
    batch: 2,
    sequence: 32,
    layers: 2,
    width: 64,
    heads: 8,
    keyHeads: 2,
    feedForward: 160,
    vocabulary: 96,
  };
  const model = savedGraph(llama('llama', sizes, 1));
  const weights = 2 * (2 * 64 ** 2 + 2 * 64 * 16 + 3 * 64 * 160) + 96 * 64;
  for (const batch of [2, 8]) {
    const inspection = await inspect({ model, globalBatch: batch });
    t.is(countOf(inspection), llamaCount(96, 64, 16, 160, 2), 'masks and rotary tables are not counted');
    const least = productFlops(weights, { ...sizes, batch });
    t.true(
      inspection.totalFlops > least && inspection.totalFlops < 1.15 * least,
      `${inspection.totalFlops} of ${least}`,
    );
  }
});

function flopsOf({ operators }: Inspection, op: string): number {
  return operators.find((row) => row.op === op)?.flops ?? 0;
}

test('facts of the file', async (t) => {
  const model = resolve('models', 'gpt-tiny.onnx');
  const { file, name, open, dims, batch, outputs } = await inspect({ model });
  t.like(file, { path: model, bytes: readFileSync(model).length, irVersion: 10, functions: 0 });
  t.is(name, 'gpt-tiny');
  t.deepEqual({ open, dims, batch }, { open: [], dims: {}, batch: 4 });
  t.deepEqual(outputs[0]?.dimensions[1]?.from, { input: 'ids', axis: 1 });
});
