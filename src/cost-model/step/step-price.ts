/**
 * @file Seconds of a training step: a micro-batch's work per stage by kernel, through the pipeline's schedule (`src/schedule`),
 * then gradients and the optimizer.
 */
import { madeOnce } from '../../ir/remembered.js';
import { pipelineSeconds, type StageSeconds, type StageTravel } from '../../schedule/closed-form.js';
import { checkRequest, makeSchedule } from '../../schedule/make-schedule.js';
import { partAt } from '../../schedule/parts.js';
import {
  type ActionPhase,
  type Schedule,
  type ScheduleKind,
  type ScheduleRequest,
  splitsBackward,
} from '../../schedule/schedule.js';
import { simulate } from '../../schedule/simulate.js';
import type { Cluster } from '../cluster.js';
import { outsideSeconds, passesBeside } from '../phase.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import type { RankParameters } from './data-price.js';
import { type PartPrice, type PartPrices, priceParts } from './part-price.js';
import { NOTHING, type PhaseTime, plus } from './phase-time.js';
import { chunkLayers, type StageLayers, stageClusters, stageLayers } from './stages.js';
import type { ModelWork } from './work.js';

/** Where the seconds of a step go, on the slowest stage. */
export interface StepParts
  extends Pick<PhaseTime, 'matmul' | 'attention' | 'memory' | 'launch' | 'tp' | 'sp' | 'ep' | 'host'> {
  readonly pp: number;
  readonly dp: number;
  readonly bubble: number;
  readonly optimizer: number;
  readonly other: number;
}

export interface StepPrice {
  readonly stepSeconds: number;
  /** A closed form of the pipeline, or every action of its schedule simulated; without a pipeline the closed form is exact. */
  readonly priceLevel: 'estimate' | 'simulated';
  /** Seconds of one micro-batch on each stage, all its chunks. */
  readonly stageSeconds: readonly StageSeconds[];
  /** Seconds that an activation travels to the next stage. */
  readonly sendSeconds: number;
  readonly parts: StepParts;
  /** Communication that compute hides, by axis, seconds. */
  readonly hidden: Readonly<Record<'tp' | 'dp' | 'host', number>>;
  /** Bytes that one rank sends per step, by axis, or moves to and from its host. */
  readonly bytes: Readonly<Record<'tp' | 'sp' | 'ep' | 'pp' | 'dp' | 'host', number>>;
}

/** Micro-batches per step. */
export function microBatches({ globalBatch, microBatch, degrees }: StepConfiguration): number {
  return Math.max(1, Math.round(globalBatch / (microBatch * degrees.dp)));
}

/**
 * Prices a step, its pipeline by a closed form: for many candidate configurations.
 * @param parts the prices of the parts on a stage's devices, where the caller has them already: searches price parts once for
 * many cuts of a model into stages
 * @throws Error where `configuration.stageLayers` are not those of the model
 */
export function priceStep(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
  parts: (cluster: Cluster) => PartPrices = (own) => priceParts(model, configuration, own, constants),
): StepPrice {
  const stages = timesOf(stageLayers(model, configuration), configuration, cluster, parts);
  const request = scheduleRequest(configuration);
  const priceLevel = configuration.degrees.pp === 1 ? 'simulated' : 'estimate';
  const length = (travel: StageTravel) => pipelineSeconds(request, stages, travel);
  return { ...assemble(stages, length, configuration, cluster, constants), priceLevel };
}

/**
 * Prices a step, its pipeline by simulating every action of the schedule, each chunk with its own times: the price that
 * ranks configurations and that is printed. Some 0.3 µs for each micro-batch, chunk and stage more. A schedule of more than
 * `MOST_ACTIONS`, or without an order for these numbers, keeps its closed form; `priceLevel` states which it is.
 * @param parts as `priceStep`
 * @param scheduleOf makes the schedule, where the caller keeps those it has made
 * @throws Error where `configuration.stageLayers` are not those of the model
 */
export function priceStepExactly(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
  parts: (cluster: Cluster) => PartPrices = (own) => priceParts(model, configuration, own, constants),
  scheduleOf: (request: ScheduleRequest) => Schedule = makeSchedule,
): StepPrice {
  const { pp } = configuration.degrees;
  if (pp === 1 || actionsOf(configuration) > MOST_ACTIONS || !hasSchedule(configuration))
    return priceStep(model, configuration, cluster, constants, parts);
  const stages = timesOf(stageLayers(model, configuration), configuration, cluster, parts);
  const chunks = timesOf(chunkLayers(model, configuration), configuration, cluster, parts);
  const schedule = scheduleOf(scheduleRequest(configuration));
  const length = ({ seconds, blocks }: StageTravel) =>
    simulate(schedule, {
      compute: (stage, chunk, phase) => phaseSeconds(chunks[partAt(schedule.kind, stage, chunk, pp)], phase),
      transfer: () => seconds,
      sendingBlocks: blocks,
    }).makespan;
  return { ...assemble(stages, length, configuration, cluster, constants), priceLevel: 'simulated' };
}

/** Whether the schedule has an order for these numbers of stages and micro-batches. */
export function hasSchedule(configuration: StepConfiguration): boolean {
  try {
    checkRequest(scheduleRequest(configuration));
    return true;
  } catch {
    return false;
  }
}

/** Actions of the schedule: each micro-batch forward and backward through each chunk. */
function actionsOf(configuration: StepConfiguration): number {
  return 2 * configuration.degrees.pp * configuration.virtualStages * microBatches(configuration);
}

/**
 * A lower bound on the seconds of the simulated step, from the closed form's price: a pipeline's closed form is a bound where
 * results take no time to travel, and it also adds up travel and a split backward's waiting, which a simulation may hide.
 */
export function leastSimulated(
  { stepSeconds, parts }: Pick<StepPrice, 'stepSeconds' | 'parts'>,
  kind: ScheduleKind,
): number {
  const inside = stepSeconds - parts.other;
  const mayHide = parts.pp + (splitsBackward(kind) ? parts.bubble : 0);
  return inside > 0 ? (stepSeconds * (inside - mayHide)) / inside : stepSeconds;
}

/** Actions of a schedule up to which it is simulated: a tenth of a second. */
const MOST_ACTIONS = 3e5;

/** The schedule of a configuration. */
export function scheduleRequest(configuration: StepConfiguration): Required<ScheduleRequest> {
  const { degrees, virtualStages, schedule = '1f1b', inference } = configuration;
  return {
    kind: schedule === '1f1b' && virtualStages > 1 ? 'interleaved-1f1b' : schedule,
    stages: degrees.pp,
    microBatches: microBatches(configuration),
    virtualStages,
    training: inference !== true,
  };
}

/** Seconds of one phase of one micro-batch on a stage, or a chunk. */
export function phaseSeconds(stage: StageSeconds | undefined, phase: ActionPhase): number {
  const { forward = 0, backward = 0, weightGradient = 0 } = stage ?? {};
  if (phase === 'forward') return forward;
  if (phase === 'backward') return backward;
  return phase === 'weight-gradient' ? weightGradient : backward - weightGradient;
}

function assemble(
  stages: readonly StageTime[],
  length: (travel: StageTravel) => number,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): Omit<StepPrice, 'priceLevel'> {
  const { degrees, virtualStages } = configuration;
  const { tp, pp, dp, sp } = degrees;
  const m = microBatches(configuration);
  const secondsAt = ({ forward, backward }: StageTime) => forward + backward;
  const slowest = stages.reduce((best, stage) => (secondsAt(stage) > secondsAt(best) ? stage : best));

  const { blocks, bytes: sent } = slowest.prices.send;
  const sendSeconds = pp === 1 ? 0 : Math.max(...stages.map(({ prices }) => prices.send.seconds));
  const busy = m * secondsAt(slowest);
  const still = pp === 1 ? busy : length({ seconds: 0, blocks });
  const pipeline = pp === 1 ? busy : length({ seconds: sendSeconds, blocks });

  // Reductions hide under the stage's own layers; the stage that is done last counts.
  const passes = passesBeside(virtualStages, pp, m);
  const once = [...new Set(stages)].map(({ prices, parameters, layers: { forward, backward } }) => ({
    data: prices.data(parameters, {
      forward,
      backward,
      firstForwards: forward * passes,
      lastBackwards: backward * passes,
      microBatches: m,
    }),
    optimizer: prices.optimizerSeconds(parameters),
    out: prices.gradientsOut(parameters, backward * passes),
  }));
  const after = ({ data, optimizer, out }: (typeof once)[number]) => data.exposed + optimizer + out.exposed;
  const { data, optimizer, out } = once.reduce((worst, one) => (after(one) > after(worst) ? one : worst));

  const { time } = slowest;
  const nodes = Math.max(1, (tp * pp * dp * sp) / cluster.perNode);
  const trains = !configuration.inference && !configuration.bundledRuntime;
  const before = pipeline + data.exposed + optimizer + out.exposed;
  const other = outsideSeconds(before, { trains, nodes }, constants);
  return {
    stepSeconds: before + other,
    stageSeconds: stages.map(({ forward, backward, weightGradient }) => ({ forward, backward, weightGradient })),
    sendSeconds,
    parts: {
      matmul: m * time.matmul,
      attention: m * time.attention,
      memory: m * time.memory,
      launch: m * time.launch,
      tp: m * time.tp,
      sp: m * time.sp,
      ep: m * time.ep,
      pp: pipeline - still,
      dp: data.exposed,
      host: m * time.host + out.exposed,
      bubble: still - busy,
      optimizer,
      other,
    },
    hidden: { tp: m * time.hiddenTp, dp: data.hidden, host: m * time.hiddenHost + out.hidden },
    bytes: {
      tp: m * time.tpBytes,
      sp: m * time.spBytes,
      ep: m * time.epBytes,
      pp: m * sendsOf(configuration) * sent,
      dp: data.bytes,
      host: 2 * m * slowest.hostSaved + out.bytes,
    },
  };
}

/**
 * Activations and gradients that a rank sends for one micro-batch, on the stage that sends most: one of each for every chunk. The
 * model's last chunk sends no activation and its first no gradient: that counts where every stage has one of them.
 */
function sendsOf({ degrees: { pp }, virtualStages, schedule, inference }: StepConfiguration): number {
  if (pp === 1) return 0;
  if (inference) return virtualStages;
  // In a V each stage of two has the model's first or last chunk, or both chunks of its turn.
  if (schedule === 'zbv' && pp === 2) return virtualStages;
  return pp === 2 ? 2 * virtualStages - 1 : 2 * virtualStages;
}

/** One micro-batch on one stage, or a chunk of it. */
interface StageTime extends StageSeconds {
  readonly prices: PartPrices;
  readonly time: PhaseTime;
  /** Seconds of the layers alone. */
  readonly layers: { readonly forward: number; readonly backward: number };
  readonly parameters: RankParameters;
  /** Bytes that each micro-batch moves to the host, and back. */
  readonly hostSaved: number;
}

/** Consecutive stages that are alike share one record. */
function timesOf(
  stages: readonly StageLayers[],
  configuration: StepConfiguration,
  cluster: Cluster,
  parts: (cluster: Cluster) => PartPrices,
): readonly StageTime[] {
  const pricesOn = new Map<Cluster, PartPrices>();
  const clusters = stageClusters(cluster, configuration);
  const times: StageTime[] = [];
  for (const [index, layers] of stages.entries()) {
    const own = clusters[layers.stage] ?? cluster;
    const prices = madeOnce(pricesOn, own, () => parts(own));
    const before = stages[index - 1];
    const last = times.at(-1);
    times.push(last && before && last.prices === prices && alike(layers, before) ? last : stageTime(layers, prices));
  }
  return times;
}

function alike(a: StageLayers, b: StageLayers): boolean {
  return (
    a.first === b.first &&
    a.last === b.last &&
    a.stored.every((count, index) => count === b.stored[index]) &&
    a.recomputed.every((count, index) => count === b.recomputed[index])
  );
}

function stageTime({ stored, recomputed, first, last }: StageLayers, prices: PartPrices): StageTime {
  let time = NOTHING;
  let forward = 0;
  let backward = 0;
  let dense = 0;
  let experts = 0;
  let hostSaved = 0;
  const add = (part: PartPrice, count: number) => {
    if (count === 0) return;
    time = plus(plus(time, part.forward, count), part.backward, count);
    forward += count * part.forwardSeconds;
    backward += count * part.backwardSeconds;
    dense += count * part.parameters.dense;
    experts += count * part.parameters.experts;
    hostSaved += count * part.bytes.hostSaved;
  };
  for (const [index, layer] of prices.layers.entries()) {
    add(layer.stored, stored[index] ?? 0);
    add(layer.recomputed, recomputed[index] ?? 0);
  }
  const layers = { forward, backward };
  if (first) add(prices.first, 1);
  if (last) add(prices.last, 1);
  return {
    prices,
    time,
    forward,
    backward,
    weightGradient: time.weightGradient,
    layers,
    parameters: { dense, experts },
    hostSaved,
  };
}
