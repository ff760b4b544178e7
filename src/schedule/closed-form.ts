/**
 * @file How long a schedule takes, in one formula: for choices that are too many to simulate. `closedFormSeconds` is exact
 * for equal stages; where stages differ or results take time to travel `pipelineSeconds` is near, and `simulate` exact.
 * Interleaved zero-bubble and ZB-V, whose gaps are filled step by step, have no formula: `closedFormSeconds` simulates them, and
 * `pipelineSeconds` gives them the waiting of interleaved 1F1B and 1F1B that zero-bubble leaves.
 */
import { makeSchedule } from './make-schedule.js';
import { type ActionPhase, interleaves, type ScheduleKind, type ScheduleRequest, splitsBackward } from './schedule.js';
import { simulate } from './simulate.js';

/** Seconds of one micro-batch on one stage (all its chunks). */
export interface StageSeconds {
  readonly forward: number;
  /** Both gradients. */
  readonly backward: number;
  /** The part of `backward` that is the weight gradient: zero-bubble moves it. */
  readonly weightGradient: number;
}

/**
 * Seconds from the first action to the end of the last.
 *
 *     naive                m·p·(F + B)
 *     f-then-b, 1f1b       (m + p − 1)·(F + B)
 *     interleaved-1f1b     m·(F + B) + (p − 1)·(F + B)/v
 *     zero-bubble          m·(F + B) + (p − 1)·(F + B − W − w) + max(0, p − m)·w
 *     forwards only        m·F + (p − 1)·F/v
 *     interleaved-zero-bubble, zbv    simulated
 *
 * W is the weight gradient, B − W the input gradient, and w the least of F, B − W and W, which fills the bubble, so that a
 * third of 1F1B's is left where the three are equal (Qi et al. 2023). All are exact for equal stages, zero-bubble with fewer
 * micro-batches than stages only where W ≤ B − W.
 */
export function closedFormSeconds(request: ScheduleRequest, seconds: StageSeconds): number {
  const { kind, stages, microBatches, virtualStages = 1, training = true } = request;
  const { forward, backward, weightGradient } = seconds;
  if (!hasFormula(kind)) return simulatedSeconds(request, seconds);
  if (!training) return microBatches * forward + ((stages - 1) * forward) / virtualStages;
  const one = forward + backward;
  const filling = Math.min(forward, backward - weightGradient, weightGradient);
  const idle: Readonly<Record<FormulaKind, number>> = {
    naive: microBatches * (stages - 1) * one,
    'f-then-b': (stages - 1) * one,
    '1f1b': (stages - 1) * one,
    'interleaved-1f1b': ((stages - 1) * one) / virtualStages,
    'zero-bubble': (stages - 1) * (one - weightGradient - filling) + Math.max(0, stages - microBatches) * filling,
  };
  return microBatches * one + idle[kind];
}

type FormulaKind = Exclude<ScheduleKind, 'interleaved-zero-bubble' | 'zbv'>;

function hasFormula(kind: ScheduleKind): kind is FormulaKind {
  return kind !== 'interleaved-zero-bubble' && kind !== 'zbv';
}

/** Travel of results between the stages of a pipeline. */
export interface StageTravel {
  /** Seconds that a result travels to the next stage. */
  readonly seconds: number;
  /** Whether a stage computes nothing while it sends. */
  readonly blocks: boolean;
}

/** Seconds of the schedule itself, in time linear in its actions. */
function simulatedSeconds(request: ScheduleRequest, { forward, backward, weightGradient }: StageSeconds): number {
  const schedule = makeSchedule(request);
  const whole: Readonly<Record<ActionPhase, number>> = {
    ...{ forward, backward },
    ...{ 'input-gradient': backward - weightGradient, 'weight-gradient': weightGradient },
  };
  const compute = (_stage: number, _chunk: number, phase: ActionPhase) => whole[phase] / schedule.virtualStages;
  return simulate(schedule, { compute, transfer: () => 0 }).makespan;
}

/**
 * Approximate seconds of a schedule of stages that differ, found in time linear in the stages. For each stage it adds up
 * waiting and work:
 *
 *     until its first forward     Σ over earlier stages (F/v + travel)
 *     until its first backward    its warm-up forwards, or a micro-batch's way through all later stages and back
 *     then                        a forward and a backward in turns, at its own pace or that at which p − s micro-batches in
 *                                 flight come back
 *     after its last forward      the backwards left, or the last micro-batch's way there and back; then on through the
 *                                 earlier stages
 *
 * and takes the most of them. Where results take no time to travel every one is a lower bound, except for a split backward; a
 * simulation may hide a part of travel. The largest is the schedule's length for equal stages, and
 * within a few per cent where they differ (`test/schedule/closed-form.test.ts`). A split backward keeps the share of 1F1B's
 * waiting that zero-bubble has for stages equal to the slowest.
 */
export function pipelineSeconds(
  request: ScheduleRequest,
  stages: readonly StageSeconds[],
  travel: StageTravel,
): number {
  const { kind, microBatches: m, training = true } = request;
  const v = interleaves(kind) ? (request.virtualStages ?? 1) : 1;
  const hop = travel.seconds;
  const p = stages.length;
  if (kind === 'naive') return m * (totalOf(stages) + (training ? 2 : 1) * (p - 1) * hop);
  if (kind === 'f-then-b' || !training) {
    const forwards = flowSeconds(
      stages.map(({ forward }) => forward),
      m,
      v,
      travel,
    );
    return training
      ? forwards +
          flowSeconds(
            stages.map(({ backward }) => backward),
            m,
            v,
            travel,
          )
      : forwards;
  }
  const bound = alternatingSeconds(stages, m, v, travel);
  if (!splitsBackward(kind) || p === 1) return bound;
  const slowest = stages.reduce((most, stage) => (oneOf(stage) > oneOf(most) ? stage : most));
  const busy = m * oneOf(slowest);
  const waits = (of: ScheduleKind) => closedFormSeconds({ ...request, kind: of, stages: p }, slowest) - busy;
  const still = alternatingSeconds(stages, m, v, { seconds: 0, blocks: false });
  return bound - (still - busy) * (1 - waits('zero-bubble') / waits('1f1b'));
}

/** m micro-batches through stages one after another (a flow shop of equal jobs): the slowest sets the pace. */
function flowSeconds(seconds: readonly number[], m: number, v: number, { seconds: hop, blocks }: StageTravel): number {
  const once = seconds.reduce((sum, own) => sum + own, 0);
  const slowest = seconds.reduce((most, own) => Math.max(most, own), 0);
  const p = seconds.length;
  // Several chunks: a stage's passes follow one another, p micro-batches at a time.
  const pace = p === 1 ? slowest : Math.max(slowest + (blocks ? v * hop : 0), v * hop);
  return (once - slowest) / v + slowest + (m - 1) * pace + (p - 1) * hop;
}

function alternatingSeconds(stages: readonly StageSeconds[], m: number, v: number, travel: StageTravel): number {
  const p = stages.length;
  let forward = 0;
  let backward = 0;
  for (const stage of stages) {
    forward += stage.forward / v;
    backward += stage.backward / v;
  }
  const through: AlternatingPipeline = { stages: p, microBatches: m, virtualStages: v, travel, forward, backward };
  let before = 0;
  let behind = forward + backward;
  let most = 0;
  for (let index = 0; index < p; index++) {
    const stage = stages[index] as StageSeconds;
    behind -= (stage.forward + stage.backward) / v;
    most = Math.max(most, stageSpan(through, index, stage, before, behind));
    before += (stage.forward + stage.backward) / v;
  }
  return most;
}

/** A pipeline in which forwards and backwards take turns, as each of its stages sees it. */
interface AlternatingPipeline {
  readonly stages: number;
  readonly microBatches: number;
  readonly virtualStages: number;
  readonly travel: StageTravel;
  /** Seconds of a micro-batch through one chunk of every stage. */
  readonly forward: number;
  readonly backward: number;
}

/**
 * Seconds of such a pipeline (1F1B, interleaved 1F1B) from the waiting and work of one stage; its length is the most over its
 * stages. It never falls when one of its seconds grows, so it is a bound where they are bounds.
 * @param before seconds of a micro-batch, there and back, through one chunk of every earlier stage
 * @param behind the same for the later stages
 */
function stageSpan(
  { stages: p, microBatches: m, virtualStages: v, travel, forward: forwards, backward: backwards }: AlternatingPipeline,
  stage: number,
  { forward, backward }: Pick<StageSeconds, 'forward' | 'backward'>,
  before: number,
  behind: number,
): number {
  const hop = travel.seconds;
  const blocked = travel.blocks && p > 1 ? hop : 0;
  // The first micro-batch's way through all chunks but the last, and the last one's back.
  const turns = (v - 1) * (forwards + p * hop);
  const returns = (v - 1) * (backwards + p * hop);
  // In a plain pipeline the last stage sends no activations, and the first no gradients.
  const sendsForward = v === 1 && stage === p - 1 ? 0 : blocked;
  const sendsBackward = v === 1 && stage === 0 ? 0 : blocked;
  const f = forward / v + sendsForward;
  const b = backward / v + sendsBackward;
  const later = p - 1 - stage;
  const away = behind + 2 * later * hop;
  const warm = Math.min(v === 1 ? later : 2 * later + (v - 1) * p, m * v - 1);
  const cycle = v === 1 ? later + 1 : 2 * later + 1;
  const pace = Math.max(f + b, (f + b + away - sendsForward) / cycle);
  const ahead = (v - 1) * p + 1;
  const untilBackward = Math.max((warm + 1) * f, Math.max(ahead * f, turns + f) - sendsForward + away);
  const rest = m * v - 1 - warm;
  const afterForward = away - sendsForward + Math.max(ahead * b, returns + b);
  const own =
    rest > 0
      ? untilBackward + rest * pace + Math.max((warm + 1) * b, afterForward)
      : Math.max(untilBackward + m * v * b, m * v * f + afterForward);
  return before + 2 * stage * hop + own;
}

function oneOf({ forward, backward }: StageSeconds): number {
  return forward + backward;
}

function totalOf(stages: readonly StageSeconds[]): number {
  return stages.reduce((sum, stage) => sum + oneOf(stage), 0);
}
