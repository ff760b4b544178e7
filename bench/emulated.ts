/**
 * @file `npm run bench:emulated`: bubbles of pipelines on emulated ranks against the formula of their schedule.
 *
 * Every stage's forward and backward are said to take the same; ranks wait so long, and exchange over a link that takes next to
 * nothing. The share of a step in which a rank has nothing to do must be the formula's within 5 %. The fastest of some steps is
 * taken: whatever else the machine does can only add time.
 */
import { rmSync } from 'node:fs';
import type { Instruction, Program, ProgramStage } from '../src/program/program.js';
import { runProgram } from '../src/runtime/run-program.js';
import { closedFormSeconds } from '../src/schedule/closed-form.js';
import { makeSchedule } from '../src/schedule/make-schedule.js';
import { type Phase, phasesOf, type Schedule, type ScheduleKind } from '../src/schedule/schedule.js';
import { axis, programOf, stageOf, tensor, writeTiny } from '../test/runtime/tiny-program.js';

const STEPS = 5;
const WITHIN = 0.05;

/** Of one micro-batch on one stage. */
const SECONDS = { forward: 0.016, backward: 0.032, weightGradient: 0.016 };
const LINK = { bytesPerSecond: 1e12, latency: 1e-6 };

const CASES: readonly (readonly [kind: ScheduleKind, stages: number, microBatches: number, chunks: number])[] = [
  ...[2, 3, 4, 5, 6, 7, 8].flatMap((stages) => [1, 2].map((times) => ['1f1b', stages, times * stages, 1] as const)),
  ...[2, 4, 8].flatMap((stages) => [
    ['naive', stages, 4, 1] as const,
    ['f-then-b', stages, 8, 1] as const,
    ['interleaved-1f1b', stages, 8, 2] as const,
    ['zero-bubble', stages, 8, 1] as const,
  ]),
];

let missed = 0;
console.log(`schedule          p   m  v   bubble  formula`);
for (const [kind, stages, microBatches, virtualStages] of CASES) {
  const schedule = makeSchedule({ kind, stages, microBatches, virtualStages });
  const directory = await writeTiny(pipelineOf(schedule), {});
  try {
    const seconds = schedule.actions.map(() => secondsOf(schedule));
    const run = await runProgram(directory, {}, { steps: STEPS, warmup: 1, emulation: { seconds, link: LINK } });
    const busy = microBatches * (SECONDS.forward + SECONDS.backward);
    const share = (whole: number) => 1 - busy / whole;
    const measured = share(Math.min(...run.stepSeconds));
    const formula = share(closedFormSeconds(schedule, SECONDS));
    const isOff = Math.abs(measured / formula - 1) > WITHIN;
    if (isOff) missed += 1;
    const cells = [String(stages), String(microBatches).padStart(2), String(virtualStages)].join('  ');
    console.log(`${kind.padEnd(16)}  ${cells}  ${percent(measured)}  ${percent(formula)}${isOff ? '  off' : ''}`);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
console.log(`\n${CASES.length} emulated, ${missed} further than ${WITHIN * 100} % from the formula`);

/** A program without a model: every phase receives, takes its time in one segment, and sends. */
function pipelineOf(schedule: Schedule): Program {
  const { stages, microBatches, virtualStages, actions } = schedule;
  const parts = stages * virtualStages;
  const stageAt = (index: number): ProgramStage => {
    const phases: Record<string, Instruction[]> = {};
    for (let chunk = 0; chunk < virtualStages; chunk++)
      for (const phase of phasesOf(schedule))
        phases[`${phase}.${chunk}`] = listOf(phase, chunk * stages + index, parts, stages);
    const names = Object.values(phases).flatMap((list) =>
      list.flatMap((one) => (one.kind === 'compute' ? one.outputs : [])),
    );
    const received = Object.values(phases).flatMap((list) =>
      list.flatMap((one) => (one.kind === 'recv' ? [one.tensor] : [])),
    );
    const part = tensor([1], [1], [[]], { lifetime: 'micro' });
    return stageOf({
      tensors: Object.fromEntries([...names, ...received].map((name) => [name, part])),
      segments: Object.fromEntries(
        phasesOf(schedule).flatMap((phase) =>
          [true, false].map((reads) => [
            segmentOf(phase, reads),
            { file: 'none.onnx', inputs: reads ? ['a'] : [], weights: [], outputs: ['b'], flops: 0, operators: [] },
          ]),
        ),
      ),
      phases,
    });
  };
  return programOf({
    mesh: [axis('pp', stages)],
    stages: actions.map((_, index) => stageAt(index)),
    schedule: actions.flatMap((own) =>
      own.map(({ stage, chunk, microBatch, phase }) => ({ stage, chunk, microBatch, phase: `${phase}.${chunk}` })),
    ),
    outputs: [],
    inputs: [],
    model: { name: `pipeline of ${microBatches}`, fingerprint: '0' },
  });
}

/** One phase of part `part` of the model, which is on stage `part` modulo the stages. */
function listOf(phase: Phase, part: number, parts: number, stages: number): Instruction[] {
  const isForward = phase === 'forward';
  const [before, after] = isForward ? [part - 1, part + 1] : [part + 1, part - 1];
  const exchanges = phase !== 'weight-gradient';
  const [from, to] = [before, after].map((other) => (exchanges && other >= 0 && other < parts ? other % stages : null));
  const kind = isForward ? 'values' : 'gradients';
  const [read, made] = [`${phase} ${part} reads`, `${phase} ${part} makes`];
  return [
    ...(from == null ? [] : [{ kind: 'recv', tensor: read, stage: from, label: `${kind} ${before} ${part}` } as const]),
    {
      kind: 'compute',
      segment: segmentOf(phase, from != null),
      inputs: from == null ? [] : [read],
      weights: [],
      outputs: [made],
      label: phase,
    },
    ...(to == null ? [] : [{ kind: 'send', tensor: made, stage: to, label: `${kind} ${part} ${after}` } as const]),
    { kind: 'free', tensors: from == null ? [made] : [read, made] },
  ];
}

function segmentOf(phase: Phase, reads: boolean): string {
  return `${phase}${reads ? ' of what came' : ''}`;
}

/** By segment, on every stage. */
function secondsOf({ virtualStages }: Schedule): Readonly<Record<string, number>> {
  const { forward, backward, weightGradient } = SECONDS;
  const whole: Readonly<Record<Phase, number>> = {
    forward,
    backward,
    'input-gradient': backward - weightGradient,
    'weight-gradient': weightGradient,
  };
  return Object.fromEntries(
    (Object.keys(whole) as Phase[]).flatMap((phase) =>
      [true, false].map((reads) => [segmentOf(phase, reads), whole[phase] / virtualStages]),
    ),
  );
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2).padStart(6)}%`;
}
