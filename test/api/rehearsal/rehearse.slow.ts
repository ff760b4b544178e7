/**
 * @file rehearse over kinds of models, degrees, schedules and precisions: every plan computes what one rank does at reduced sizes
 * and is covered whole. Every corruption of the programs of rehearsals is refused.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { languageModel } from '../../../models/language-model.js';
import type { LanguageModelSizes } from '../../../models/language-sizes.js';
import type { Training } from '../../../src/api/models/training.js';
import { rehearse } from '../../../src/api/rehearse.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { checkProgram } from '../../../src/program/check-program.js';
import type { Program } from '../../../src/program/program.js';
import { writeModel } from '../../pipelines/models.js';
import { corruptionsOf } from '../../program/corruptions.js';
import { thinned } from '../../selection.js';
import { CORRUPTIONS, LEARNING_RATE } from '../corrupted-program.js';
import { type Asked, faults, planned, TRAINING } from './planned.js';

const GPT = 'gpt:layers=4,hidden=128,heads=8,vocab=500,seq=32';
/** Eight stages, or chunks, lose layers too. */
const DEEP = GPT.replace('layers=4', 'layers=16');
const LLAMA = 'llama:layers=4,hidden=256,heads=8,vocab=1000,seq=32';
const CUT: Training = { ...TRAINING, microBatches: 8 };
const SGD: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1, momentum: 0.9 } };
const at = (dp: number, tp: number, pp = 1) => ({ globalBatch: 32, degrees: { dp, tp, pp } });

const PLANS: Readonly<Record<string, Asked>> = {
  'gpt, training': { family: GPT, ...at(2, 8), training: TRAINING },
  'gpt, odd vocabulary and sequence': { family: 'gpt:layers=4,hidden=128,heads=8,vocab=503,seq=31', ...at(2, 8) },
  'gpt, micro-batches': { family: GPT, ...at(2, 8), training: CUT },
  'gpt, free axes': { family: GPT, globalBatch: 32, devices: 16, axes: 'free' },
  'gpt, degrees 6 and 12': {
    family: 'gpt:layers=4,hidden=96,heads=12,vocab=500,seq=32',
    globalBatch: 36,
    degrees: { dp: 6, tp: 12 },
    cluster: '9x8:h100-sxm-80',
  },
  'gpt, 8 stages of inference': { family: DEEP, ...at(1, 2, 8) },
  'gpt, zbv': { family: DEEP, ...at(2, 2, 4), schedule: 'zbv', training: CUT },
  'gpt, recompute but of the last micro-batch': {
    family: GPT,
    globalBatch: 16,
    cluster: '1x4:h100-sxm-80',
    degrees: { dp: 1, tp: 2, pp: 2 },
    training: CUT,
    recompute: 'stage:except-last',
  },
  'llama, interleaved': {
    family: 'llama:layers=16,hidden=256,heads=8,vocab=1000,seq=32',
    ...at(1, 4, 4),
    schedule: 'interleaved-1f1b',
    virtualStages: 2,
    training: CUT,
  },
  'llama, bf16': { family: LLAMA, ...at(4, 4), training: { ...TRAINING, precision: 'bf16' } },
  'gpt, fp16': { family: GPT, ...at(4, 4), training: { ...TRAINING, precision: 'fp16', lossScale: 1024 } },
  'llama, bf16 inference': { family: LLAMA, ...at(4, 4), precision: 'bf16' },
  'bert, training': { family: 'bert:layers=4,hidden=256,heads=8,vocab=1000,seq=32', ...at(2, 8), training: TRAINING },
  'moe, training': {
    family: 'moe:layers=4,hidden=256,heads=8,kv_heads=4,ffn=512,experts=8,vocab=1000,seq=32',
    ...at(4, 4),
    training: TRAINING,
  },
  'moe, windows in every second layer': {
    family: 'moe:layers=8,hidden=256,heads=8,kv_heads=4,ffn=512,experts=8,vocab=1000,seq=32,window=8,head_width=64',
    ...at(4, 4),
  },
  'mlp, training': { family: 'mlp:layers=4,hidden=512', ...at(4, 4), training: SGD },
  'cnn-tiny, training': { file: 'models/cnn-tiny.onnx', ...at(4, 4), training: TRAINING },
  'gpt-tiny, training, heads cut to one': { file: 'models/gpt-tiny.onnx', ...at(2, 8), training: TRAINING },
  'gpt, stages of unlike meshes': {
    family: 'gpt:layers=6,hidden=128,heads=8,vocab=500,seq=32',
    globalBatch: 32,
    cluster: '3x4:h100-sxm-80',
    meshes: 'tp4 | dp2 tp2 | dp4',
    training: CUT,
  },
  'llama, sequences on one stage, samples on the other': {
    family: LLAMA,
    globalBatch: 64,
    meshes: 'sp2 tp4 | dp8',
    training: CUT,
  },
  'llama-tiny, stages': { file: 'models/llama-tiny.onnx', ...at(1, 4, 4), training: CUT },
};

for (const [name, asked] of thinned(Object.entries(PLANS), 4))
  test.serial(`a rehearsal computes what one rank does and covers its plan: ${name}`, async (t) => {
    const result = await rehearse({ directory: await planned(t, asked) });
    t.deepEqual(faults(result), []);
    t.true(result.passed);
    t.deepEqual(result.coverage.lost, []);
    t.is(result.coverage.covered, result.coverage.kinds);
    t.true(result.ranks <= 16);
  });

for (const [name, text, asked] of [
  ['gpt', 'gpt:layers=6,hidden=32,heads=4,vocab=50,seq=12', at(4, 4)],
  ['llama in stages', 'llama:layers=12,hidden=32,heads=4,vocab=50,seq=12', at(2, 2, 4)],
] as const)
  test.serial(`a file keeps its widths and values, and loses layers: ${name}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'model.onnx');
    const sizes = generatedModel(text).language as Omit<LanguageModelSizes, 'batch'>;
    writeFileSync(file, writeOnnx(languageModel('model', { ...sizes, batch: 4 }, 3)));
    const result = await rehearse({ directory: await planned(t, { file, ...asked, training: CUT }) });
    t.deepEqual(faults(result), []);
    t.deepEqual(result.coverage.lost, []);
    const layers = result.reduced.find(({ name: of }) => of === 'layers');
    t.true((layers?.to ?? 0) < (layers?.from ?? 0));
    t.deepEqual(result.notes, []);
  });

const SHARED = [
  ['u-net', { dp: 4, tp: 1, sp: 4 }, {}],
  ['chosen-experts', { dp: 4, tp: 2, sp: 2, ep: 4 }, { dispatch: 'variable' }],
] as const;

for (const [name, degrees, sent] of SHARED)
  test.serial(`borders of images and dispatched experts are rehearsed: ${name}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'model.onnx');
    writeModel(name, file);
    const result = await rehearse({
      directory: await planned(t, { file, globalBatch: 32, degrees, ...sent, training: SGD }),
    });
    t.deepEqual(faults(result), []);
    t.true(result.passed);
    t.is(result.coverage.covered, result.coverage.kinds);
  });

test('every corruption of a program of a rehearsal is refused, and those that types do not show are found', async (t) => {
  const training: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: LEARNING_RATE } };
  const directory = await planned(t, {
    family: 'mlp:layers=4,hidden=64',
    ...at(2, 4, 2),
    training: { ...training, microBatches: 4 },
  });
  const programs: Program[] = [];
  const right = await rehearse(
    { directory },
    {
      program: (own) => {
        programs.push(own);
        return own;
      },
    },
  );
  t.deepEqual(faults(right), []);
  const passed: string[] = [];
  let tried = 0;
  for (const one of corruptionsOf(programs[0] as Program)) {
    tried++;
    if (checkProgram(one.program) === null) passed.push(`${one.kind}: ${one.where}`);
  }
  t.true(tried > 300, `${tried}`);
  t.deepEqual(passed, []);
  const plain = await planned(t, { family: 'mlp:layers=4,hidden=64', ...at(4, 4), training });
  let found = 0;
  for (const { name, apply } of CORRUPTIONS) {
    let isApplied = false;
    const result = await rehearse(
      { directory: plain },
      {
        folder: (folder) => {
          isApplied = apply(folder);
        },
      },
    );
    if (!isApplied) continue;
    found++;
    t.false(result.passed, name);
  }
  t.true(found >= CORRUPTIONS.length - 2);
});
