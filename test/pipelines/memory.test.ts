/**
 * @file Micro-batches that each schedule has in flight, by the instructions of the program; and the state that a step holds.
 */
import test from 'ava';
import { programOf } from '../../src/codegen/program-of.js';
import { actionsOf } from '../../src/partition/placed-actions.js';
import { rankMemory } from '../../src/partition/rank-memory.js';
import type { Instruction, Program } from '../../src/program/program.js';
import { lower, type Pipeline, scheduledFor, trainingStep } from './staged-training.js';

/** Per stage, of how many micro-batches at most tensors are held that forward actions make and backward actions read. */
function mostInFlight({ stages, schedule }: Program): readonly number[] {
  return stages.map(({ phases, tensors }, index) => {
    const isForward = (phase: string) => phase.startsWith('forward');
    const used = (forward: boolean, of: (instruction: Instruction) => readonly string[]) =>
      new Set(
        Object.entries(phases).flatMap(([phase, list]) =>
          isForward(phase) === forward ? list.flatMap((instruction) => of(instruction)) : [],
        ),
      );
    const read = used(false, (instruction) => (instruction.kind === 'compute' ? instruction.inputs : []));
    const made = used(true, (instruction) => (instruction.kind === 'compute' ? instruction.outputs : []));
    const kept = new Set([...made].filter((name) => read.has(name) && tensors[name]?.lifetime === 'micro'));
    const live = new Map<number, Set<string>>();
    let most = 0;
    for (const { stage, microBatch, phase } of schedule) {
      if (stage !== index || microBatch === null) continue;
      const own = live.get(microBatch) ?? new Set();
      live.set(microBatch, own);
      for (const instruction of phases[phase] ?? []) {
        if (instruction.kind === 'compute') for (const name of instruction.outputs) if (kept.has(name)) own.add(name);
        if (instruction.kind === 'free') for (const name of instruction.tensors) own.delete(name);
      }
      most = Math.max(most, [...live.values()].filter(({ size }) => size > 0).length);
    }
    return most;
  });
}

const PROMISES = {
  naive: () => 1,
  'f-then-b': (_stage: number, _stages: number, microBatches: number) => microBatches,
  '1f1b': (stage: number, stages: number, microBatches: number) => Math.min(stages - stage, microBatches),
} as const;

for (const kind of ['naive', 'f-then-b', '1f1b'] as const) {
  test(`${kind} keeps the activations of as many micro-batches as it promises`, async (t) => {
    for (const [stages, microBatches] of [
      [2, 4],
      [3, 2],
      [4, 4],
    ] as const) {
      const { graph } = await trainingStep('llama-tiny', microBatches);
      const pipeline: Pipeline = { kind, stages, microBatches };
      const lowered = await lower(graph, pipeline);
      const { program } = programOf(lowered, { name: 'm', fingerprint: '0' }, scheduledFor(pipeline));
      const promised = program.stages.map((_, stage) => PROMISES[kind](stage, stages, microBatches));
      t.deepEqual(mostInFlight(program), promised, `${stages} stages, ${microBatches} micro-batches`);
    }
  });
}

test('schedules that keep more in flight are predicted to hold more', async (t) => {
  const { graph } = await trainingStep('llama-tiny', 4);
  const peaks: number[] = [];
  for (const kind of ['naive', '1f1b', 'f-then-b'] as const) {
    const pipeline: Pipeline = { kind, stages: 2, microBatches: 4 };
    const lowered = await lower(graph, pipeline);
    const [actions] = actionsOf(lowered, scheduledFor(pipeline));
    if (lowered[0]) peaks.push(rankMemory(lowered[0].sharded, actions).peakBytes);
  }
  const [naive = 0, oneByOne = 0, all = 0] = peaks;
  t.true(naive < oneByOne && oneByOne < all, peaks.join());
});
