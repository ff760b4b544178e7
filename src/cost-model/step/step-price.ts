/**
 * @file Seconds of a training step: a micro-batch's work per stage by kernel, through the pipeline, then gradients and the
 * optimizer. Pipelines by the closed forms of 1F1B and interleaved 1F1B (Narayanan et al. 2021):
 *
 *     step = Σ over stages (F + B) / v + (m − 1/v) · the slowest stage's (F + B)      roughly: one fill, m micro-batches
 */
import type { Cluster } from '../cluster.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import type { Held } from './data-price.js';
import { type PartPrices, priceParts } from './part-price.js';
import { NOTHING, type PhaseTime, plus } from './phase-time.js';
import { type StageLayers, stageClusters, stageLayers } from './stages.js';
import type { ModelWork } from './work.js';

/** Where the seconds of a step go, on the slowest stage. */
export interface StepParts {
  readonly matmul: number;
  readonly attention: number;
  readonly memory: number;
  /** What the host's launches add beyond the device's time. */
  readonly launch: number;
  /** Exposed communication by axis. */
  readonly tp: number;
  readonly sp: number;
  readonly ep: number;
  readonly pp: number;
  readonly dp: number;
  readonly bubble: number;
  readonly optimizer: number;
  readonly other: number;
}

export interface StepPrice {
  readonly stepSeconds: number;
  /** Seconds of one micro-batch on each stage, all its chunks. */
  readonly stageSeconds: readonly { readonly forward: number; readonly backward: number }[];
  /** Seconds that an activation travels to the next stage. */
  readonly sendSeconds: number;
  readonly parts: StepParts;
  /** Communication that compute hides, by axis, seconds. */
  readonly hidden: Readonly<Record<'tp' | 'dp', number>>;
  /** Bytes that one rank sends per step, by axis. */
  readonly bytes: Readonly<Record<'tp' | 'sp' | 'ep' | 'pp' | 'dp', number>>;
}

/** Micro-batches per step. */
export function microBatches({ globalBatch, microBatch, degrees }: StepConfiguration): number {
  return Math.max(1, Math.round(globalBatch / (microBatch * degrees.dp)));
}

/**
 * Prices a step.
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
  const { degrees, virtualStages } = configuration;
  const { tp, pp, dp, sp } = degrees;
  const m = microBatches(configuration);
  const pricesOn = new Map<Cluster, PartPrices>();
  const clusters = stageClusters(cluster, degrees);
  const stages = stageLayers(model, configuration).map((layers) => {
    const own = clusters[layers.stage] ?? cluster;
    const prices = pricesOn.get(own) ?? parts(own);
    pricesOn.set(own, prices);
    return stageTime(layers, prices);
  });
  const slowest = stages.reduce((best, stage) => (stage.seconds > best.seconds ? stage : best));
  const whole = stages.reduce((sum, { seconds }) => sum + seconds, 0);

  // A send per chunk boundary each way.
  const { send } = slowest.prices;
  const sends = pp === 1 ? 0 : 2 * virtualStages * send.exposed;
  const pace = slowest.seconds + sends;
  const fill = (whole - slowest.seconds + (pp - 1) * sends) / virtualStages;
  const bubble = pp === 1 ? 0 : idleSeconds(configuration, fill, m * (whole - slowest.seconds));

  // What is reduced hides under the stage's own layers; the stage that is done last counts.
  const once = stages.map(({ prices, held, layers }) => {
    const under = { forward: layers.forwardSeconds, backward: layers.backwardSeconds, microBatches: m };
    const data = prices.data(held, under);
    return { data, optimizer: prices.optimizerSeconds(held), hidden: data.hidden, bytes: data.bytes };
  });
  const { data, optimizer } = once.reduce((worst, one) =>
    one.data.exposed + one.optimizer > worst.data.exposed + worst.optimizer ? one : worst,
  );

  const { time } = slowest;
  const nodes = Math.max(1, (tp * pp * dp * sp) / cluster.perNode);
  const outside = configuration.inference ? 0 : constants.stepSeconds;
  const before = m * pace + bubble + data.exposed + optimizer + outside;
  const jitter = before * constants.jitter * Math.log2(nodes);
  return {
    stepSeconds: before + jitter,
    stageSeconds: stages.map(({ forwardSeconds, backwardSeconds }) => ({
      forward: forwardSeconds,
      backward: backwardSeconds,
    })),
    sendSeconds: pp === 1 ? 0 : send.exposed,
    parts: {
      matmul: m * time.matmul,
      attention: m * time.attention,
      memory: m * time.memory,
      launch: m * time.launch,
      tp: m * time.tp,
      sp: m * time.sp,
      ep: m * time.ep,
      pp: m * sends,
      dp: data.exposed,
      bubble,
      optimizer,
      other: outside + jitter,
    },
    hidden: { tp: m * time.hiddenTp, dp: data.hidden },
    bytes: {
      tp: m * time.tpBytes,
      sp: m * time.spBytes,
      ep: m * time.epBytes,
      pp: pp === 1 ? 0 : 2 * m * virtualStages * send.bytes,
      dp: data.bytes,
    },
  };
}

/** One micro-batch on one stage, all its chunks. */
interface StageTime {
  readonly prices: PartPrices;
  readonly time: PhaseTime;
  readonly seconds: number;
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** Of the layers alone. */
  readonly layers: { readonly forwardSeconds: number; readonly backwardSeconds: number };
  readonly held: Held;
}

function stageTime({ kept, recomputed, first, last }: StageLayers, prices: PartPrices): StageTime {
  let time = NOTHING;
  let forward = 0;
  let backward = 0;
  let dense = 0;
  let experts = 0;
  const add = (part: PartPrices['first'], count: number) => {
    if (count === 0) return;
    time = plus(plus(time, part.forward, count), part.backward, count);
    forward += count * part.forwardSeconds;
    backward += count * part.backwardSeconds;
    dense += count * part.held.dense;
    experts += count * part.held.experts;
  };
  for (const [index, layer] of prices.layers.entries()) {
    add(layer.kept, kept[index] ?? 0);
    add(layer.recomputed, recomputed[index] ?? 0);
  }
  const layers = { forwardSeconds: forward, backwardSeconds: backward };
  if (first) add(prices.first, 1);
  if (last) add(prices.last, 1);
  return {
    prices,
    time,
    seconds: forward + backward,
    forwardSeconds: forward,
    backwardSeconds: backward,
    layers,
    held: { dense, experts },
  };
}

/**
 * Seconds in which the slowest stage waits. Naive: one stage works at a time. Zero-bubble (Qi et al. 2023, ZB-H1): the
 * gradients of weights fill two thirds of the waiting.
 */
function idleSeconds({ schedule }: StepConfiguration, fill: number, others: number): number {
  if (schedule === 'naive') return others;
  return schedule === 'zero-bubble' ? fill / 3 : fill;
}
