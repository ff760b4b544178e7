/**
 * @file A step's pipeline as a timeline: the schedule's actions by event simulation over each stage's own times, in the trace
 * event format that Perfetto and chrome://tracing read.
 */
import type { MemoryOverTime } from '../../cost-model/memory-over-time.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { StageMemory } from '../../cost-model/step/step-memory.js';
import { phaseSeconds, type StepPrice, scheduleRequest } from '../../cost-model/step/step-price.js';
import { bubbleSpans, type StepSpan, sendSpan } from '../../cost-model/step-spans.js';
import { writeFileAtomic } from '../../program/atomic.js';
import type { Program } from '../../program/program.js';
import type { StepResult } from '../../runtime/session.js';
import { makeSchedule } from '../../schedule/make-schedule.js';
import { simulate } from '../../schedule/simulate.js';

/**
 * The actions of a step's pipeline, stage by stage, the gradient reductions and updates after it, the bubbles between them, and
 * then the sends of stages.
 * @throws AutoparError `bad-schedule` (usage) where the schedule is not defined for these numbers
 */
export function pipelineSpans(configuration: StepConfiguration, price: StepPrice): readonly StepSpan[] {
  const { actions, sends } = simulatedPipeline(configuration, price);
  const busy = [...actions.flat(), ...afterPipeline(actions, price)];
  return [...busy, ...bubbleSpans(busy, actions.length), ...sends];
}

/** Exposed gradient reductions, and the update, with their times on the slowest stage, which are part of the price. */
function afterPipeline(
  actions: readonly (readonly StepSpan[])[],
  { parts }: Pick<StepPrice, 'parts'>,
): readonly StepSpan[] {
  const end = Math.max(...actions.flat().map(({ until }) => until));
  const after = [
    { kind: 'all-reduce(dp)', label: 'gradients', from: end, until: end + parts.dp },
    { kind: 'update', label: 'update', from: end + parts.dp, until: end + parts.dp + parts.optimizer },
  ].filter(({ from, until }) => until > from);
  return actions.flatMap((_, line) => after.map((span) => ({ line, ...span })));
}

/** Bytes of a stage's device; stored activations vary with the micro-batches in flight. */
type StageMemoryCurve = Pick<StageMemory, 'activations' | 'total'>;

/**
 * The memory of a device of each stage over a step. It holds everything but activations throughout, and activations of the
 * micro-batches in flight: those between their forward and the last phase that reads its stored activations.
 */
export function pipelineMemory(
  configuration: StepConfiguration,
  price: StepPrice,
  stages: readonly StageMemoryCurve[],
): readonly MemoryOverTime[] {
  return simulatedPipeline(configuration, price).actions.map((actions, stage) => {
    const { activations = 0, total = 0 } = stages[stage] ?? {};
    const end = actions.at(-1)?.until ?? 0;
    if (configuration.inference) return [[0, total] as const, [end, total] as const];
    const last = actions.some(({ kind }) => kind === 'weight-gradient') ? 'weight-gradient' : 'backward';
    let flying = 0;
    const held = actions.flatMap(({ kind, from, until }): readonly (readonly [number, number])[] => {
      if (kind === 'forward') return [[from, ++flying]];
      return kind === last ? [[until, --flying]] : [];
    });
    const most = held.reduce((found, [, count]) => Math.max(found, count), 1);
    const bytes = (count: number) => total - activations * (1 - count / most);
    return [[0, bytes(0)] as const, ...held.map(([at, count]) => [at, bytes(count)] as const)];
  });
}

interface PipelineSpan extends StepSpan {
  readonly microBatch: number;
  readonly chunk: number;
}

function simulatedPipeline(
  configuration: StepConfiguration,
  price: StepPrice,
): { readonly actions: readonly (readonly PipelineSpan[])[]; readonly sends: readonly StepSpan[] } {
  const schedule = makeSchedule(scheduleRequest(configuration));
  const sends: StepSpan[] = [];
  const timeline = simulate(schedule, {
    compute: (stage, _, phase) => phaseSeconds(price.stageSeconds[stage], phase) / schedule.virtualStages,
    transfer: () => price.sendSeconds,
    onSend: (sent) => sends.push(...sendSpan(sent, schedule.stages)),
  });
  const actions = schedule.actions.map((own, stage) =>
    own.map(({ microBatch, phase, chunk }, index) => {
      const from = timeline.starts[stage]?.[index] ?? 0;
      const until = timeline.ends[stage]?.[index] ?? from;
      return { line: stage, from, until, kind: phase, label: `${phase} ${microBatch}`, microBatch, chunk };
    }),
  );
  return { actions, sends };
}

/**
 * Writes a step's pipeline: a line per stage, one for its sends, and its memory as a counter.
 * @throws AutoparError `bad-schedule` (usage) where the schedule is not defined for these numbers; (cannotWrite)
 */
export async function writeTimeline(
  file: string,
  configuration: StepConfiguration,
  price: StepPrice,
  stages: readonly StageMemoryCurve[],
): Promise<void> {
  const { actions, sends } = simulatedPipeline(configuration, price);
  const spans = [...actions.flat(), ...afterPipeline(actions, price), ...sends].map(
    ({ line, from, until, kind, label, ...rest }) => ({
      name: label,
      cat: kind,
      ...{ ph: 'X', pid: 0, tid: line },
      ts: from * MICROSECONDS,
      dur: (until - from) * MICROSECONDS,
      args: rest,
    }),
  );
  const memory = pipelineMemory(configuration, price, stages).flatMap((curve, stage) =>
    curve.map(([seconds, bytes]) => ({
      ...{ name: `memory of stage ${stage}`, ph: 'C', pid: 0, ts: seconds * MICROSECONDS },
      args: { bytes: Math.round(bytes) },
    })),
  );
  const names = actions.map((_, stage) => `stage ${stage}`);
  const lines = [...names, ...(sends.length > 0 ? names.map((name) => `${name} sends`) : [])];
  await writeEvents(file, lines, [...spans, ...memory]);
}

/**
 * Writes when ranks ran the actions and instructions of a step, in the same form: a line per rank, instructions inside of their
 * action, or of their pass (forward, backward, update) where an action has several, and each rank's memory as a counter.
 * @throws AutoparError (cannotWrite)
 */
export async function writeSpans(file: string, program: Program, spans: StepResult['spans']): Promise<void> {
  const perStage = spans.length / program.stages.length;
  const first = spans.flat().reduce((least, { from }) => Math.min(least, from), Number.POSITIVE_INFINITY);
  const events = spans.flatMap((own, tid) =>
    own.map(({ kind, label, chunk, microBatch, from, until }) => ({
      name: label ?? (microBatch === null ? kind : `${kind} ${microBatch}`),
      cat: kind,
      ...{ ph: 'X', pid: 0, tid },
      ts: (from - first) * MICROSECONDS_PER_MILLISECOND,
      dur: (until - from) * MICROSECONDS_PER_MILLISECOND,
      args: { microBatch, chunk },
    })),
  );
  const memory = spans.flatMap((own, rank) =>
    own.flatMap(({ from, heldBytes }) =>
      heldBytes === null
        ? []
        : [
            {
              ...{ name: `memory of rank ${rank}`, ph: 'C', pid: 0, ts: (from - first) * MICROSECONDS_PER_MILLISECOND },
              args: { bytes: heldBytes },
            },
          ],
    ),
  );
  const stageText = (rank: number) => (program.stages.length > 1 ? `, stage ${Math.floor(rank / perStage)}` : '');
  await writeEvents(
    file,
    spans.map((_, rank) => `rank ${rank}${stageText(rank)}`),
    [...events, ...memory],
  );
}

async function writeEvents(file: string, lines: readonly string[], events: readonly object[]): Promise<void> {
  const names = lines.map((name, tid) => ({ name: 'thread_name', ph: 'M', pid: 0, tid, args: { name } }));
  await writeFileAtomic(file, `${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: [...names, ...events] })}\n`);
}

const MICROSECONDS = 1e6;
const MICROSECONDS_PER_MILLISECOND = 1e3;
