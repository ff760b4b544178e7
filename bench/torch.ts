/**
 * @file `npm run bench:torch`: emitted programs of GPTs and Llamas in one process against the same models written by hand for
 * PyTorch eager: the same formats, attention and optimizer, on one thread of the processor. `-- --gpu DEVICE` runs larger ones
 * on this machine's GPU in bf16, and compares seconds and memory with what `simulate` predicts for a device of the catalogue.
 * `--compile` adds torch.compile.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { generatedModel } from '../models/families.js';
import type { Training } from '../src/api/requests/training-request.js';
import { calibrate, compile, simulate } from '../src/api/verbs.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { median } from './measure.js';

interface BenchModel {
  readonly family: 'gpt' | 'llama';
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly ffn: number;
  readonly seq: number;
  readonly vocab: number;
  readonly batch: number;
}

/** Sizes of GPT-2 (124 M parameters) but for layers and vocabulary, and of a Llama of the same width. */
const SMALL: readonly BenchModel[] = [
  { family: 'gpt', layers: 2, hidden: 768, heads: 12, keyHeads: 12, ffn: 3072, seq: 256, vocab: 512, batch: 2 },
  { family: 'llama', layers: 2, hidden: 768, heads: 12, keyHeads: 4, ffn: 2048, seq: 256, vocab: 512, batch: 2 },
];
/** GPT-2, a wider one, and Llamas' layers. */
const LARGE: readonly BenchModel[] = [
  { family: 'gpt', layers: 12, hidden: 768, heads: 12, keyHeads: 12, ffn: 3072, seq: 1024, vocab: 50304, batch: 8 },
  { family: 'gpt', layers: 4, hidden: 2048, heads: 16, keyHeads: 16, ffn: 8192, seq: 1024, vocab: 8192, batch: 8 },
  { family: 'llama', layers: 8, hidden: 1024, heads: 16, keyHeads: 8, ffn: 2816, seq: 2048, vocab: 8192, batch: 4 },
  { family: 'llama', layers: 2, hidden: 4096, heads: 32, keyHeads: 8, ffn: 14336, seq: 2048, vocab: 8192, batch: 2 },
];

const COLUMNS =
  'model,device,devices,layers,hidden,heads,kv_heads,ffn,vocab,seq,micro_batch,global_batch,precision,software,attention,' +
  'norm,positions,gated,bias,tied,seconds';

const { values: given } = parseArgs({
  options: { compile: { type: 'boolean', default: false }, gpu: { type: 'string' } },
});
const device = given.gpu;
const [models, steps, precision] = device === undefined ? [SMALL, 5, 'fp32' as const] : [LARGE, 20, 'bf16' as const];
const training: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'adamw', learningRate: 0.001 },
  precision,
};

interface Compared {
  readonly program: readonly number[];
  readonly written: readonly number[];
  readonly compiled?: readonly number[];
  /** Kernels that a step starts. */
  readonly kernels: Readonly<Record<'program' | 'written', number>>;
  /** How far the losses are apart, relative to the first. */
  readonly off: number;
  /** Peak bytes of tensors in the GPU's memory. */
  readonly peak: Readonly<Record<'program' | 'written', number>> | null;
}

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const jobs: Readonly<Record<string, string | number | boolean>>[] = [];
  for (const [index, model] of models.entries()) {
    const file = join(folder, `${index}.onnx`);
    const graph = generatedModel(nameOf(model)).build(model.batch);
    writeFileSync(file, writeOnnx(graph, { weights: 'external', name: 'model' }));
    const output = join(folder, `${index}`);
    // Tensors that are bf16 on a device of the catalogue are float32 on CPU ranks of this machine.
    const cluster = device === undefined ? {} : { cluster: `1x1:${device}` };
    await compile({
      model: file,
      output,
      initRandom: true,
      devices: 1,
      dp: 1,
      tp: 1,
      target: 'torch',
      training,
      ...cluster,
    });
    jobs.push({
      ...{ heads: model.heads, kv_heads: model.keyHeads, folder: join(output, 'torch'), steps },
      ...{ compile: given.compile, device: device === undefined ? 'cpu' : 'cuda', precision },
    });
  }
  const python = process.env['AUTOPAR_PYTHON'] || 'python3';
  const { stdout, status } = spawnSync(python, [resolve('bench/torch_eager.py')], {
    input: JSON.stringify(jobs),
    encoding: 'utf8',
    env: { ...process.env, ...(device === undefined && { OMP_NUM_THREADS: '1' }), PYTHONDONTWRITEBYTECODE: '1' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`${python} ended with ${status}: it needs torch, numpy and safetensors`);
  const compared = JSON.parse(stdout) as readonly Compared[];
  console.log('| model | emitted | by hand | ratio | kernels | by hand | losses apart |');
  console.log('|---|---|---|---|---|---|---|');
  for (const [index, own] of compared.entries()) {
    const [emitted, written] = [median(own.program), median(own.written)];
    const compiled = own.compiled ? ` (${seconds(median(own.compiled))} compiled)` : '';
    const name = nameOf(models[index] as BenchModel);
    const cells = [name, `${seconds(emitted)}${compiled}`, seconds(written), (emitted / written).toFixed(2)];
    const { program, written: other } = own.kernels;
    console.log(`| ${[...cells, program, other, own.off.toExponential(1)].join(' | ')} |`);
  }
  if (device !== undefined) await printPredictions(compared, device);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Prints predictions for a device of the catalogue, and how much better they are if runs of the other models correct them. */
async function printPredictions(compared: readonly Compared[], id: string): Promise<void> {
  const cluster = `1x1:${id}`;
  console.log('\n| model | tokens/s | of the peak | measured | predicted | memory | by hand | predicted |');
  console.log('|---|---|---|---|---|---|---|---|');
  const rows: string[] = [];
  for (const [index, { program, peak }] of compared.entries()) {
    const model = models[index] as BenchModel;
    const { batch, seq } = model;
    const predicted = await simulate({
      ...{ generate: nameOf(model), cluster, loss: { kind: 'cross_entropy' }, precision, software: 'eager' },
      ...{ microBatch: batch, globalBatch: batch, attention: 'fused' },
    });
    const taken = median(program);
    const [stage] = predicted.stages;
    const held = stage && stage.total - stage.overhead;
    const cells = [
      nameOf(model),
      Math.round((batch * seq) / taken).toLocaleString('en-US'),
      `${((100 * predicted.utilisation * predicted.stepSeconds) / taken).toFixed(1)} %`,
      seconds(taken),
      seconds(predicted.stepSeconds),
      ...[peak?.program, peak?.written, held].map((bytes = Number.NaN) => `${(bytes / 1e9).toFixed(1)} GB`),
    ];
    console.log(`| ${cells.join(' | ')} |`);
    rows.push(runOf(model, id, taken));
  }
  const runs = join(folder, 'runs.csv');
  writeFileSync(runs, [COLUMNS, ...rows, ''].join('\n'));
  const { scores } = await calibrate({ files: [runs], cluster });
  const text = (score: typeof scores.otherModels) => (score ? `${(100 * score.mape).toFixed(1)} %` : 'not known');
  console.log(
    `\npredictions of steps are off by ${text(scores.before)}, each by the other models' runs by ${text(scores.otherModels)}`,
  );
}

function runOf(model: BenchModel, id: string, taken: number): string {
  const { layers, hidden, heads, keyHeads, ffn, vocab, seq, batch, family } = model;
  const style = family === 'gpt' ? 'layer,learned,no,yes,yes' : 'rms,rotary,yes,no,no';
  const sizes = [layers, hidden, heads, keyHeads, ffn, vocab, seq, batch, batch].join(',');
  return `${family} ${hidden},${id},1,${sizes},${precision},eager,fused,${style},${taken}`;
}

function nameOf({ family, layers, hidden, heads, keyHeads, ffn, seq, vocab }: BenchModel): string {
  const own = family === 'llama' ? `kv_heads=${keyHeads},ffn=${ffn},` : '';
  return `${family}:layers=${layers},hidden=${hidden},heads=${heads},${own}seq=${seq},vocab=${vocab}`;
}

function seconds(value: number): string {
  return value < 0.5 ? `${(value * 1e3).toFixed(1)} ms` : `${value.toFixed(2)} s`;
}
