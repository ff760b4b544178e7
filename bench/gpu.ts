/**
 * @file `npm run bench:gpu`: shipped and generated models on this machine's GPU, on one rank and on 2 and 4 ranks that share it,
 * against the unsharded model and against the CPU's kernels. `-- BACKEND` names another backend than webgpu; with cuda
 * each rank needs a device of its own.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { generatedModel } from '../models/families.js';
import { type BackendName, COMPUTING_BACKENDS } from '../src/api/execution/backends.js';
import { type LocalBackend, localDevices } from '../src/api/machine.js';
import type { Training } from '../src/api/requests/training-request.js';
import { type CompileOptions, compile, runCompiled, verify } from '../src/api/verbs.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { median } from './measure.js';

const BACKEND = await backendThere(process.argv[2] ?? 'webgpu');
const STEPS = 5;

const DEGREES = [
  { dp: 1, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
] as const;
const LARGER = 'gpt:layers=4,hidden=1024,heads=16,seq=256,vocab=8192';
const training: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } };

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const larger = join(folder, 'gpt.onnx');
  writeFileSync(larger, writeOnnx(generatedModel(LARGER).build(4), { weights: 'external', name: 'gpt' }));
  const sources: Readonly<Record<string, CompileOptions>> = {
    'gpt-tiny': { model: 'models/gpt-tiny.onnx' },
    'gpt-tiny, training': { model: 'models/gpt-tiny.onnx', training },
    'llama-tiny': { model: 'models/llama-tiny.onnx' },
    [LARGER]: { model: larger, initRandom: true },
  };
  console.log(
    `| model | degrees | ${BACKEND} step | of it copies | CPU step, ${availableParallelism()} cores | worst against the model |`,
  );
  console.log('|---|---|---|---|---|---|');
  for (const [name, source] of Object.entries(sources))
    for (const degrees of DEGREES) {
      const directory = join(folder, 'program');
      const ranks = degrees.dp * degrees.tp;
      await compile({ ...source, ...degrees, devices: ranks, axes: 'roles', output: directory, force: true });
      const { passed, outputs } = await verify({ directory, backend: BACKEND });
      const there = await runCompiled({ directory, backend: BACKEND, steps: STEPS });
      const threadsPerRank = Math.max(1, Math.floor(availableParallelism() / ranks));
      const here = await runCompiled({ directory, steps: STEPS, threadsPerRank });
      const copied = Math.max(...there.ranks.map(({ copySeconds = 0 }) => copySeconds)) / median(there.stepSeconds);
      const worst = Math.max(...outputs.map(({ worstAbsolute }) => worstAbsolute));
      const cells = [
        name,
        `dp ${degrees.dp} · tp ${degrees.tp}`,
        `${(median(there.stepSeconds) * 1e3).toFixed(1)} ms`,
        `${(copied * 100).toFixed(0)} %`,
        `${(median(here.stepSeconds) * 1e3).toFixed(1)} ms`,
        `${worst.toExponential(1)}${passed ? '' : ', not equal'}`,
      ];
      console.log(`| ${cells.join(' | ')} |`);
    }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** The backend of this name; ends the process with the reason if there is none or this machine lacks a requirement. */
async function backendThere(asked: string): Promise<BackendName> {
  const name = COMPUTING_BACKENDS.find((known) => known === asked);
  if (name === undefined) return end(`there is no backend ${asked}: name one of ${COMPUTING_BACKENDS.join(', ')}`);
  const { missing } = (await localDevices()).backends.find((backend) => backend.name === name) as LocalBackend;
  return missing ? end(`${missing.reason}\n  hint: ${missing.remedy}`) : name;
}

function end(why: string): never {
  console.error(why);
  process.exit(1);
}
