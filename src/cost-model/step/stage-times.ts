/**
 * @file Time of one micro-batch on each stage of a pipeline, or on each chunk: the sums of the prices of its parts.
 */
import { madeOnce } from '../../ir/remembered.js';
import type { StageSeconds } from '../../schedule/closed-form.js';
import type { Cluster } from '../cluster.js';
import type { StepConfiguration } from './configuration.js';
import type { RankParameters } from './data-price.js';
import type { PartPrice, PartPrices } from './part-price.js';
import { NOTHING, type PhaseTime, plus } from './phase-time.js';
import { alike, type StageLayers, stageClusters } from './stages.js';

/** One micro-batch on one stage, or a chunk of it. */
export interface StageTime extends StageSeconds {
  readonly prices: PartPrices;
  readonly time: PhaseTime;
  /** Seconds of the layers alone. */
  readonly layers: { readonly forward: number; readonly backward: number };
  readonly parameters: RankParameters;
  /** Bytes that each micro-batch moves to the host, and back. */
  readonly hostSaved: number;
}

/** Consecutive stages that are alike share one record. */
export function timesOf(
  stages: readonly StageLayers[],
  configuration: StepConfiguration,
  cluster: Cluster,
  parts: (cluster: Cluster) => PartPrices,
): readonly StageTime[] {
  const pricesOn = new Map<Cluster, PartPrices>();
  const clusters = cluster.kinds ? stageClusters(cluster, configuration) : [];
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
