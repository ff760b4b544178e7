/**
 * @file schedule.csv of lowered pipelines of every kind, as PyTorch reads them: its own check and its own simulation of
 * computation and transfers accept each.
 */
import { spawnSync } from 'node:child_process';
import test from 'ava';
import { scheduleCsv } from '../../src/codegen/schedule-csv.js';
import { checkProgram } from '../../src/program/check-program.js';
import { placeOfPart } from '../../src/schedule/parts.js';
import { SCHEDULE_KINDS, splitsBackward } from '../../src/schedule/schedule.js';
import { missing } from '../missing.js';
import { torchAbsence } from '../reference/torch.js';
import { skipModel } from './skip-model.js';
import { generate, type Pipeline, trainingStep } from './staged-training.js';

const why = missing(torchAbsence() !== null, `PyTorch reads schedules: ${torchAbsence()}`);
const run = why === null ? test.serial : test.serial.skip;

/** Stages and micro-batches. */
const SIZES = [
  [2, 2],
  [2, 4],
  [3, 3],
  [3, 6],
  [4, 4],
  [4, 12],
] as const;

/** Every kind in every size, with 2 chunks where it has several; interleaved ones with 3; and fewer micro-batches than stages. */
function cases(): readonly Required<Omit<Pipeline, 'dp' | 'tp' | 'meshes' | 'recompute'>>[] {
  const everywhere = SCHEDULE_KINDS.flatMap((kind) => {
    const isChunked = kind === 'zbv' || kind.startsWith('interleaved');
    return SIZES.map(([stages, microBatches]) => ({ kind, stages, microBatches, chunks: isChunked ? 2 : 1 }));
  });
  const interleaved = ['interleaved-1f1b', 'interleaved-zero-bubble'] as const;
  const deeper = interleaved.flatMap((kind) =>
    SIZES.slice(0, 3).map(([stages, microBatches]) => ({ kind, stages, microBatches, chunks: 3 })),
  );
  const few = (['1f1b', 'zero-bubble'] as const).map((kind) => ({ kind, stages: 4, microBatches: 2, chunks: 1 }));
  return [...everywhere, ...deeper, ...few, { kind: 'zbv', stages: 4, microBatches: 2, chunks: 2 }];
}

run('PyTorch checks and simulates schedule.csv of 45 lowered pipelines and more', async (t) => {
  const model = await skipModel(48);
  const steps = new Map<number, Awaited<ReturnType<typeof trainingStep>>>();
  const asked: object[] = [];
  for (const pipeline of cases()) {
    const { stages, microBatches, chunks } = pipeline;
    const step = steps.get(microBatches) ?? (await trainingStep(model, microBatches));
    steps.set(microBatches, step);
    const { lowered, generated } = await generate(step.graph, pipeline);
    t.is(checkProgram(generated.program), null, JSON.stringify(pipeline));
    const text = scheduleCsv(
      generated.program,
      lowered.map(({ sharded }) => sharded),
    );
    asked.push({ text, stages, microBatches, parts: stages * chunks });
  }
  t.true(asked.length >= 45);
  // A receive that its forward would need is missing: PyTorch does detect wrong schedules.
  asked.push({ text: '0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n', stages: 2, microBatches: 1, parts: 2 });
  const { stdout, stderr } = spawnSync(
    process.env['AUTOPAR_PYTHON'] || 'python3',
    ['test/pipelines/torch_schedules.py'],
    {
      input: asked.map((one) => `${JSON.stringify(one)}\n`).join(''),
      encoding: 'utf8',
      maxBuffer: 2 ** 26,
    },
  );
  const answers = stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map(
      (line) =>
        JSON.parse(line) as { readonly error?: string; readonly ranks?: readonly number[]; readonly drawn?: number },
    );
  t.is(answers.length, asked.length, stderr);
  t.regex(answers.at(-1)?.error ?? '', /not progressing/);
  for (const [index, { kind, stages, ...pipeline }] of cases().entries()) {
    const answer = answers[index];
    t.is(answer?.error, undefined, JSON.stringify({ kind, stages, ...pipeline }));
    const ranks = answer?.ranks?.map((_, part) => placeOfPart(kind, part, stages).stage);
    t.deepEqual(answer?.ranks, ranks);
    // The visualiser has every computation.
    const { microBatches, chunks } = pipeline;
    t.is(answer?.drawn, stages * chunks * microBatches * (splitsBackward(kind) ? 3 : 2));
  }
});
