/**
 * @file `npm run bench:pipelines`: a training step as a pipeline of two stages on two ranks of one thread each, against the same
 * step on one rank of one thread; 8 micro-batches, a model that matmuls dominate (aim: at most 0.65 of its time).
 *
 * The two take turns, and their fastest steps are compared. The breakdown of the ranks' time is printed below. `-- ROUNDS` sets
 * the turns (3).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { mlp } from '../models/mlp.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { type RunResult, runProgram } from '../src/runtime/run-program.js';
import { type Pipeline, trainingStep, written } from '../test/pipelines/staged-training.js';
import { median } from './measure.js';

const ROUNDS = Number(process.argv[2] ?? 3);
const STEPS = 5;
const AIM = 0.65;
const MICRO_BATCHES = 8;
const WIDTH = 1024;
const LAYERS = 8;
const BATCH = 2048;

const KINDS: readonly Pipeline['kind'][] = ['1f1b', 'zero-bubble'];

const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
try {
  const model = join(folder, 'model.onnx');
  const widths = Array.from({ length: LAYERS + 1 }, () => WIDTH);
  writeFileSync(model, writeOnnx(mlp('mlp', { batch: BATCH, widths }, 1)));
  const { graph, inputs } = await trainingStep(model, MICRO_BATCHES, { loss: { kind: 'mse' } });
  await written(join(folder, 'alone'), graph);
  for (const kind of KINDS) await written(join(folder, kind), graph, { kind, stages: 2, microBatches: MICRO_BATCHES });
  const results = new Map<string, RunResult[]>();
  for (let round = 0; round < ROUNDS; round++)
    for (const name of ['alone', ...KINDS]) {
      const run = await runProgram(join(folder, name), inputs, { steps: STEPS, warmup: 1 });
      results.set(name, [...(results.get(name) ?? []), run]);
    }
  const secondsOf = (name: string) => (results.get(name) ?? []).flatMap(({ stepSeconds }) => stepSeconds);
  const alone = secondsOf('alone');
  console.log(
    `${availableParallelism()} cores, Node ${process.version}; mlp ${LAYERS} × ${WIDTH}, batch ${BATCH} in ${MICRO_BATCHES}`,
  );
  console.log(`one rank     fastest ${milliseconds(Math.min(...alone))} ms, median ${milliseconds(median(alone))}`);
  for (const kind of KINDS) {
    const seconds = secondsOf(kind);
    const ratio = Math.min(...seconds) / Math.min(...alone);
    const middle = median(seconds) / median(alone);
    const verdict = `(aim ≤ ${AIM})${ratio > AIM ? '  missed' : ''}`;
    console.log(
      `${kind.padEnd(12)} fastest ${milliseconds(Math.min(...seconds))} ms: ${ratio.toFixed(3)} × ${verdict}; ` +
        `medians ${middle.toFixed(3)} ×`,
    );
    const processor = (name: string) =>
      median((results.get(name) ?? []).map(({ processorSeconds }) => processorSeconds));
    console.log(`  processor time of both ranks: ${(processor(kind) / processor('alone')).toFixed(3)} × that of one`);
    for (const { rank, computeSeconds, communicateSeconds, waitSeconds } of results.get(kind)?.at(-1)?.ranks ?? []) {
      const parts = [computeSeconds, communicateSeconds, waitSeconds].map(milliseconds);
      console.log(`  rank ${rank}: compute ${parts[0]}, communicate ${parts[1]}, wait ${parts[2]} ms`);
    }
  }
  const [own] = results.get('alone')?.at(-1)?.ranks ?? [];
  if (own)
    console.log(
      `  one rank: compute ${milliseconds(own.computeSeconds)}, accumulate and copies ${milliseconds(own.communicateSeconds)} ms`,
    );
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(1);
}
