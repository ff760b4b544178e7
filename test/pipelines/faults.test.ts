/**
 * @file A rank of any stage that throws, dies or stalls in the middle of a pipeline is named, with the instruction and the
 * tensor, and no thread or line is left; a program with one instruction too few or too many is refused before it runs.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { programOf } from '../../src/codegen/program-of.js';
import { checkProgram } from '../../src/program/check-program.js';
import type { Instruction, Program } from '../../src/program/program.js';
import { AutoparError } from '../../src/program/values.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { EVERYTHING } from '../selection.js';
import { lower, type Pipeline, scheduledFor, trainingStep, written } from './staged-training.js';

const PIPELINE: Pipeline = { kind: '1f1b', stages: 3, microBatches: 4 };
const SMALL: Pipeline = { ...PIPELINE, stages: 2 };

test.serial('a rank of any stage that throws, dies or stalls ends the step, and is named', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const { graph, inputs } = await trainingStep('llama-tiny', PIPELINE.microBatches);
  await written(folder, graph, PIPELINE);
  for (const rank of EVERYTHING ? [0, 1, 2] : [1])
    for (const kind of ['throw', 'exit', 'stall'] as const) {
      const run = () => runProgram(folder, inputs, { fault: { rank, instruction: 40, kind } });
      const error = await t.throwsAsync(run, { instanceOf: AutoparError });
      const { exit, where, message } = error as AutoparError;
      t.is(exit, 'rankFailed');
      t.regex(message, new RegExp(`^rank ${rank} .* instruction \\d+ of stage ${rank} \\(.+\\), tensor .+`));
      t.truthy(where.tensor);
    }
  const left = process.getActiveResourcesInfo().filter((kind) => kind === 'Worker' || kind === 'MessagePort');
  t.deepEqual(left, []);
  rmSync(folder, { recursive: true, force: true });
});

/** The program with one list changed. */
function withList(program: Program, stage: number, phase: string, list: readonly Instruction[]): Program {
  const stages = program.stages.map((own, index) =>
    index === stage ? { ...own, phases: { ...own.phases, [phase]: list } } : own,
  );
  return { ...program, stages };
}

test('a program that lacks one instruction, or has a collective or transfer twice, is refused', async (t) => {
  for (const pipeline of [SMALL, { ...SMALL, kind: 'zero-bubble', tp: 2 } as const, undefined]) {
    const { graph } = await trainingStep('mlp', 4);
    const lowered = await lower(graph, pipeline);
    const { program } = programOf(lowered, { name: 'm', fingerprint: '0' }, scheduledFor(pipeline));
    t.is(checkProgram(program), null);
    let seen = 0;
    for (const [stage, { phases }] of program.stages.entries())
      for (const [phase, list] of Object.entries(phases))
        for (const [position, instruction] of list.entries()) {
          if (instruction.kind === 'free') continue;
          const without = list.filter((_, other) => other !== position);
          t.not(checkProgram(withList(program, stage, phase, without)), null, `${phase} ${position} dropped`);
          if (instruction.kind === 'compute' || instruction.kind === 'accumulate') continue;
          const twice = list.flatMap((own, other) => (other === position ? [own, own] : [own]));
          t.not(checkProgram(withList(program, stage, phase, twice)), null, `${phase} ${position} twice`);
          seen++;
        }
    t.true(pipeline === undefined || seen >= 4, `${seen}`);
  }
});

test(
  'lifetimes are held: a list of once a step reads nothing of a micro-batch, and nothing makes what ' + 'lasts the run',
  async (t) => {
    const { graph } = await trainingStep('mlp', 4);
    const { program } = programOf(await lower(graph, SMALL), { name: 'm', fingerprint: '0' }, scheduledFor(SMALL));
    const [first] = program.stages;
    const made = first?.phases['forward']?.find((instruction) => instruction.kind === 'compute');
    if (!first || made?.kind !== 'compute') throw new Error('no forward');
    const [activation = ''] = made.outputs;
    t.is(first.tensors[activation]?.lifetime, 'micro');
    const update = first.phases['update'] ?? [];
    const read: Instruction = { ...made, inputs: made.inputs.map(() => activation) };
    t.regex(
      checkProgram(withList(program, 0, 'update', [read, ...update])) ?? '',
      /belongs to a micro-batch, and the phase runs once a step/,
    );
    const [state] = (program.state ?? []).filter(({ stage }) => stage === 0);
    const write: Instruction = { ...made, inputs: made.inputs.map(() => state?.to ?? ''), outputs: [state?.to ?? ''] };
    t.regex(
      checkProgram(withList(program, 0, 'update', [write, ...update])) ?? '',
      /lives for the run, and is computed again/,
    );
    const early: Instruction = { kind: 'free', tensors: [state?.to ?? ''] };
    const forward = first.phases['forward'] ?? [];
    t.regex(
      checkProgram(withList(program, 0, 'forward', [...forward, early])) ?? '',
      /lives for the run, and is freed|read where/,
    );
    const unstated = (program.state ?? []).map((pair) => (pair === state ? { ...pair, from: activation } : pair));
    t.regex(checkProgram({ ...program, state: unstated }) ?? '', /need lifetimes run and step|differs from/);
  },
);
