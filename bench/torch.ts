/**
 * @file `npm run bench:torch`: emitted programs of a GPT-2 and a Llama layer stack in one process against the same models written
 * by hand for PyTorch eager: the same dtype, attention, optimizer and one thread. `-- --compile` adds torch.compile.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { generatedModel } from '../models/families.js';
import type { Training } from '../src/api/requests/training-request.js';
import { compile } from '../src/api/verbs.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { median } from './measure.js';

const STEPS = 5;
const BATCH = 2;
/** Sizes of GPT-2 (124 M parameters) but for layers and vocabulary, and of a Llama of the same width. */
const MODELS = {
  'gpt:layers=2,hidden=768,heads=12,seq=256,vocab=512': { heads: 12, kv_heads: 12 },
  'llama:layers=2,hidden=768,heads=12,kv_heads=4,ffn=2048,seq=256,vocab=512': { heads: 12, kv_heads: 4 },
} as const;
const training: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 0.001 } };

interface Compared {
  readonly program: readonly number[];
  readonly written: readonly number[];
  readonly compiled?: readonly number[];
  readonly off: number;
}

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const jobs: Readonly<Record<string, string | number | boolean>>[] = [];
  for (const [index, [name, heads]] of Object.entries(MODELS).entries()) {
    const model = join(folder, `${index}.onnx`);
    writeFileSync(model, writeOnnx(generatedModel(name).build(BATCH), { externalWeights: true, name: 'model' }));
    const output = join(folder, `${index}`);
    await compile({ model, output, initRandom: true, devices: 1, dp: 1, tp: 1, target: 'torch', training });
    jobs.push({ ...heads, folder: join(output, 'torch'), steps: STEPS, compile: process.argv.includes('--compile') });
  }
  const python = process.env['AUTOPAR_PYTHON'] || 'python3';
  const { stdout, status } = spawnSync(python, [resolve('bench/torch_eager.py')], {
    input: JSON.stringify(jobs),
    encoding: 'utf8',
    env: { ...process.env, OMP_NUM_THREADS: '1', PYTHONDONTWRITEBYTECODE: '1' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`${python} ended with ${status}: it needs torch, numpy and safetensors`);
  console.log('| model | emitted | by hand | ratio | losses apart |');
  console.log('|---|---|---|---|---|');
  for (const [index, own] of (JSON.parse(stdout) as readonly Compared[]).entries()) {
    const [emitted, written] = [median(own.program), median(own.written)];
    const compiled = own.compiled ? ` (${median(own.compiled).toFixed(2)} s compiled)` : '';
    const cells = [
      Object.keys(MODELS)[index],
      `${emitted.toFixed(2)} s${compiled}`,
      `${written.toFixed(2)} s`,
      (emitted / written).toFixed(2),
      own.off.toExponential(1),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
