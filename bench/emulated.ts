/**
 * @file `npm run bench:emulated`: bubbles of pipelines on emulated ranks against the formula of their schedule.
 *
 * A model with a layer per part of the pipeline is compiled as a user would. Every stage has the same forward and backward time;
 * ranks wait that long, and communicate over a link that takes almost no time. The share of a step in which a rank is idle must
 * be within 5 % of the formula. Seconds are those of the ranks' emulated clocks, which a busy machine does not change.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mlp } from '../models/mlp.js';
import { randomInputs } from '../src/api/execution/inputs.js';
import { compile } from '../src/api/index.js';
import { openCompiled } from '../src/api/verify.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';
import { listName } from '../src/partition/program-phases.js';
import type { ProgramStage } from '../src/program/program.js';
import { runProgram } from '../src/runtime/run-program.js';
import { closedFormSeconds } from '../src/schedule/closed-form.js';
import { makeSchedule } from '../src/schedule/make-schedule.js';
import { type ActionPhase, phasesOf, type Schedule, type ScheduleKind } from '../src/schedule/schedule.js';

const WITHIN = 0.05;

/** Seconds of one micro-batch on one stage. */
const SECONDS = { forward: 0.004, backward: 0.008, weightGradient: 0.004 };
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
  const share = (whole: number) => 1 - (microBatches * (SECONDS.forward + SECONDS.backward)) / whole;
  const measured = share(await stepSeconds(schedule));
  const formula = share(closedFormSeconds(schedule, SECONDS));
  const isOff = Math.abs(measured / formula - 1) > WITHIN;
  if (isOff) missed += 1;
  const cells = [String(stages), String(microBatches).padStart(2), String(virtualStages)].join('  ');
  console.log(`${kind.padEnd(16)}  ${cells}  ${percent(measured)}  ${percent(formula)}${isOff ? '  off' : ''}`);
}
console.log(`\n${CASES.length} emulated, ${missed} further than ${WITHIN * 100} % from the formula`);

/** Seconds of a step on emulated ranks. */
async function stepSeconds(schedule: Schedule): Promise<number> {
  const { kind, stages, microBatches, virtualStages } = schedule;
  const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
  try {
    const [model, output] = [join(folder, 'model.onnx'), join(folder, 'out')];
    const parts = stages * virtualStages;
    const widths = Array.from({ length: parts + 1 }, () => 8);
    writeFileSync(model, writeOnnx(mlp('mlp', { batch: microBatches, widths }, 1)));
    await compile({
      ...{ model, output, pp: stages, devices: stages, schedule: kind },
      stages: [...Array.from({ length: parts - 1 }, () => 't'), 'u'].join(' | '),
      training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches },
      ...(virtualStages > 1 ? { virtualStages } : {}),
    });
    const { imported, program } = await openCompiled(output);
    const seconds = program.stages.map((stage) => secondsOf(stage, schedule));
    const emulation = { seconds, link: LINK };
    const { stepSeconds: measured } = await runProgram(output, randomInputs(imported.graph, 1), { emulation });
    return Math.max(...measured);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Seconds by segment: the last segment of each list that the schedule runs takes the time of the whole list. */
function secondsOf({ phases }: ProgramStage, schedule: Schedule): Readonly<Record<string, number>> {
  const { forward, backward, weightGradient } = SECONDS;
  const whole: Readonly<Record<ActionPhase, number>> = {
    forward,
    backward,
    'input-gradient': backward - weightGradient,
    'weight-gradient': weightGradient,
  };
  const { virtualStages } = schedule;
  const lists = Array.from({ length: virtualStages }, (_, chunk) =>
    phasesOf(schedule).map((phase) => {
      const list = phases[listName(phase, chunk)] ?? [];
      const segments = list.flatMap((one) => (one.kind === 'compute' ? [one.segment] : []));
      return { segments, seconds: whole[phase] / virtualStages };
    }),
  ).flat();
  const found = Object.fromEntries(lists.map(({ segments, seconds }) => [segments.at(-1) ?? '', seconds]));
  for (const { segments, seconds } of lists)
    if (segments.reduce((sum, segment) => sum + (found[segment] ?? 0), 0) !== seconds)
      throw new Error(`segments ${segments.join(', ')} of a list take other than ${seconds} s`);
  return found;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2).padStart(6)}%`;
}
