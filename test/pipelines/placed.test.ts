/**
 * @file The order in which a pipeline's program transfers: stages finish without a buffer, and a program whose transfers were
 * brought out of order is refused before it runs.
 */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { emitProgram } from '../../src/codegen/emit.js';
import { checkProgram } from '../../src/program/check-program.js';
import type { Program, ProgramAction } from '../../src/program/program.js';
import { skipModel } from './skip-model.js';
import { generate, type Pipeline, trainingStep } from './staged-training.js';

async function programOf(pipeline: Pipeline): Promise<Program> {
  const { graph } = await trainingStep(await skipModel(15), pipeline.microBatches);
  return (await generate(graph, pipeline)).generated.program;
}

const isTransfer = ({ phase }: ProgramAction) => / (to|from) /.test(phase);

/** A program in which two actions have changed places. */
function swapped(program: Program, first: ProgramAction | undefined, second: ProgramAction | undefined): Program {
  const other = (action: ProgramAction) => (action === first ? second : action === second ? first : action);
  return { ...program, schedule: program.schedule.map((action) => other(action) ?? action) };
}

const PIPELINE: Pipeline = { kind: '1f1b', stages: 4, microBatches: 4 };

test(
  'transfers are actions of both their stages: a skip goes to each stage that reads it, and none stands in a list ' +
    'that computes',
  async (t) => {
    const program = await programOf(PIPELINE);
    t.is(checkProgram(program), null);
    const exchanging = (instructions: Program['stages'][number]['phases'][string]) =>
      instructions.filter(({ kind }) => kind === 'send' || kind === 'recv');
    for (const { phases } of program.stages)
      for (const [phase, list] of Object.entries(phases)) {
        if (/ (to|from) /.test(phase)) t.true(list.every(({ kind }) => ['send', 'recv', 'free'].includes(kind)));
        else if (phase !== 'begin' && phase !== 'update') t.deepEqual(exchanging(list), []);
      }
    // The skipped value of the first stage: received by those that read it, in every micro-batch.
    const received = program.stages.map(({ phases }) =>
      Object.values(phases)
        .flat()
        .some((instruction) => instruction.kind === 'recv' && instruction.label === 't1'),
    );
    t.deepEqual(received, [false, false, true, true]);
    const jumps = program.schedule.filter(({ stage, phase }) => stage === 3 && phase === 'recv forward from 0');
    t.deepEqual(
      jumps.map(({ microBatch }) => microBatch),
      [0, 1, 2, 3],
    );
  },
);

test('a swapped pair of transfers is refused with the stages and instructions that wait', async (t) => {
  const program = await programOf(PIPELINE);
  const find = (phase: string, microBatch: number) =>
    program.schedule.find((action) => action.stage === 0 && action.phase === phase && action.microBatch === microBatch);
  const wrong = swapped(program, find('send forward to 1', 3), find('recv backward from 1', 0));
  const end = /stage \d to (send|receive) \S+ of micro-batch \d (to|from) stage \d \(phase .*, instruction \d+\), /;
  t.regex(checkProgram(wrong) ?? '', new RegExp(`^stages wait for one another: ${end.source}`));
});

test('between two stages every swap of a transfer with the one before it is refused', async (t) => {
  const program = await programOf({ ...PIPELINE, stages: 2 });
  const transfers = program.schedule.filter((action) => action.stage === 0 && isTransfer(action));
  for (const [index, second] of transfers.entries()) {
    const first = transfers[index - 1];
    if (first) t.truthy(checkProgram(swapped(program, first, second)), JSON.stringify([first, second]));
  }
});

test('what is exchanged once a step keeps the order of the whole graph on every stage', async (t) => {
  const program = await programOf(PIPELINE);
  const lists = program.stages.map(({ phases }) =>
    (phases['update'] ?? []).filter(({ kind }) => kind === 'send' || kind === 'recv'),
  );
  t.true((lists[0] ?? []).length > 1);
  const reversed = {
    ...program,
    stages: program.stages.map((stage, index) => {
      const exchanges = [...(lists[index] ?? [])];
      const update = (stage.phases['update'] ?? []).map((instruction) =>
        index === 0 && (instruction.kind === 'send' || instruction.kind === 'recv')
          ? (exchanges.pop() as typeof instruction)
          : instruction,
      );
      return { ...stage, phases: { ...stage.phases, update } };
    }),
  };
  // Transfers in another order than the stages' own are read too early, or waited for on both sides.
  t.regex(
    checkProgram(reversed) ?? '',
    /^(stages wait for one another: .*phase update|stage 0: phase update: .*not live)/,
  );
});

test('schedule.csv lies beside program.json: parts of the model by number, transfers between neighbours placed', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const rows = async (pipeline: Pipeline) => {
    const { graph } = await trainingStep(await skipModel(15), pipeline.microBatches);
    const { lowered, generated } = await generate(graph, pipeline);
    const target = mkdtempSync(join(folder, 'program-'));
    await emitProgram(target, generated, lowered);
    return readFileSync(join(target, 'schedule.csv'), 'utf8').trimEnd().split('\n');
  };
  t.deepEqual(await rows({ kind: '1f1b', stages: 2, microBatches: 2 }), [
    '0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1',
    '1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1',
  ]);
  t.deepEqual(await rows({ kind: 'zbv', stages: 2, microBatches: 1, chunks: 2 }), [
    '0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0I0,0W0',
    '1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,1I0,1SEND_B0,2W0,1W0',
  ]);
});
