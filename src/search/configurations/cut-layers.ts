/**
 * @file The stage cutter: assigns layers to the stages of a pipeline whose degrees, micro-batches and schedule are decided.
 * Embedding and head belong to the first and last stage, so that these get fewer layers; a stage recomputes as few layers as its
 * micro-batches in flight leave room for, which makes it slower. Dynamic programming from the last stage to the first.
 */
import { DEVICE_OVERHEAD, fixedBytesAmong } from '../../cost-model/hardware.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { layerOrder, placesIn, stageOfLast } from '../../cost-model/step/stages.js';
import { inFlightOn } from '../../cost-model/step/step-memory.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { madeOnce } from '../../ir/remembered.js';

export interface CutRequest {
  readonly limitBytes: number | null;
  /** Whether layers may keep their activations where the configuration recomputes. */
  readonly isMixed: boolean;
}

/**
 * Cuts whose slowest stage is as fast as possible, or slower by up to `PACES` where a micro-batch then passes all stages sooner;
 * stages are as even as possible. Empty where no cut fits, and for chunks of layers of several classes.
 * @param prices of the model's parts on the devices of each stage
 * @returns the configuration with `stageLayers`; with `recomputedLayers` where some of a stage's layers recompute
 */
export function cutLayers(
  model: ModelWork,
  configuration: StepConfiguration,
  prices: readonly PartPrices[],
  request: CutRequest,
): readonly StepConfiguration[] {
  const { degrees, virtualStages } = configuration;
  if (degrees.pp === 1 || (virtualStages > 1 && model.layers.length > 1)) return [];
  const stages = new StageCosts(model, configuration, prices, request);
  const fastest = leastPace(stages);
  if (fastest === Number.POSITIVE_INFINITY) return [];
  const found = new Map<string, StepConfiguration>();
  for (const pace of PACES) {
    const ends = leastThrough(stages, fastest * pace);
    if (ends) found.set(ends.join(), configurationOf(ends, stages, configuration, request));
  }
  return [...found.values()];
}

/** The first only allows for rounding, since a sum of the same seconds in another order differs in its last digits. */
const PACES = [1 + 1e-9, 1.05, 1.2];

/** A stage with some layers. */
interface StagePart {
  /** Seconds of a micro-batch, forward and backward. */
  readonly seconds: number;
  /** Number of layers that recompute. */
  readonly recomputed: number;
}

const NO_ROOM: StagePart = { seconds: Number.POSITIVE_INFINITY, recomputed: 0 };

/** Costs of stages by the layers assigned to them: layers are positions in the model's order. */
class StageCosts {
  readonly count: number;
  readonly layers: number;
  /** The fewest layers of a stage: one for each chunk, except for a chunk that embedding or head make up. */
  readonly fewest: readonly number[];
  private readonly stageOfLast: number;
  private readonly order: readonly number[];
  private readonly room: number;
  private readonly known: readonly Map<number, StagePart>[];
  private readonly flying: readonly number[];

  constructor(
    model: ModelWork,
    configuration: StepConfiguration,
    private readonly prices: readonly PartPrices[],
    private readonly request: CutRequest,
  ) {
    const { degrees, virtualStages } = configuration;
    this.count = degrees.pp;
    this.order = layerOrder(model);
    this.layers = this.order.length;
    this.stageOfLast = stageOfLast(configuration);
    this.fewest = prices.map(
      (_, stage) => virtualStages - (stage === 0 ? 1 : 0) - (stage === this.stageOfLast ? 1 : 0),
    );
    this.room = roomFor(request.limitBytes, configuration);
    this.flying = prices.map((_, stage) => inFlightOn(stage, configuration));
    // Stages other than the first and last differ only in their devices and micro-batches in flight.
    const known = new Map<string, Map<number, StagePart>>();
    const kinds = [...new Set(prices)];
    this.known = prices.map((own, stage) => {
      const key = `${kinds.indexOf(own)} ${this.isEnd(stage) ? stage : ''} ${this.flying[stage]}`;
      return madeOnce(known, key, () => new Map<number, StagePart>());
    });
  }

  /** A stage with the layers from `from` up to `to`; `NO_ROOM` where it does not fit, and then not with more layers either. */
  part(stage: number, from: number, to: number): StagePart {
    const known = this.known[stage] as Map<number, StagePart>;
    const key = this.prices[0]?.layers.length === 1 ? to - from : from * (this.layers + 1) + to;
    return madeOnce(known, key, () => this.makePart(stage, from, to));
  }

  private isEnd(stage: number): boolean {
    return stage === 0 || stage === this.stageOfLast;
  }

  private makePart(stage: number, from: number, to: number): StagePart {
    const { first, layers, last } = this.prices[stage] as PartPrices;
    const kept = new StageFigures();
    const recomputed = new StageFigures();
    for (const sums of [kept, recomputed]) {
      if (stage === 0) sums.add(first, 1);
      if (stage === this.stageOfLast) sums.add(last, 1);
    }
    const counts = layers.map(() => 0);
    for (let layer = from; layer < to; layer++) {
      const index = this.order[layer] as number;
      counts[index] = (counts[index] as number) + 1;
    }
    for (const [index, count] of counts.entries()) {
      const layer = layers[index];
      if (!layer || count === 0) continue;
      kept.add(this.request.isMixed ? layer.stored : layer.recomputed, count);
      recomputed.add(layer.recomputed, count);
    }
    const flying = this.flying[stage] as number;
    const all = to - from;
    if (kept.bytes(flying) <= this.room) return { seconds: kept.seconds, recomputed: 0 };
    if (recomputed.bytes(flying) > this.room || all === 0) return NO_ROOM;
    // Bytes that recomputing one layer frees; `over` includes the memory that is live while a layer recomputes.
    const each = (flying * (kept.saved - recomputed.saved)) / all;
    const over = kept.bytes(flying) + Math.max(0, recomputed.live - kept.live) - this.room;
    const count = each > 0 ? Math.min(all, Math.ceil(over / each)) : all;
    return { seconds: kept.seconds + (count / all) * (recomputed.seconds - kept.seconds), recomputed: count };
  }
}

/** Figures of a stage's parts: seconds and held bytes add up; of memory that is live while a part runs, the largest counts. */
class StageFigures {
  seconds = 0;
  resident = 0;
  saved = 0;
  transient = 0;
  gathered = 0;

  get live(): number {
    return this.transient + this.gathered;
  }

  /** @param flying micro-batches in flight */
  bytes(flying: number): number {
    return this.resident + flying * this.saved + this.live;
  }

  add({ forwardSeconds, backwardSeconds, bytes }: PartPrice, count: number): void {
    this.seconds += count * (forwardSeconds + backwardSeconds);
    this.resident += count * (bytes.parameters + bytes.gradients + bytes.optimizer);
    this.saved += count * bytes.saved;
    // The offloaded activations of two layers are on the device at a time.
    this.transient = Math.max(this.transient, bytes.transient + 2 * bytes.hostSaved);
    this.gathered = Math.max(this.gathered, bytes.gathered);
  }
}

/**
 * Bytes that a device has for tensors beside its context, communication library and fragmentation, plus a margin for rounding
 * in sums of so many: each cut is checked again exactly.
 */
function roomFor(limitBytes: number | null, { bundledRuntime, degrees }: StepConfiguration): number {
  if (limitBytes === null || bundledRuntime) return limitBytes ?? Number.POSITIVE_INFINITY;
  const { dp, tp, pp, sp } = degrees;
  return ((limitBytes - fixedBytesAmong(dp * tp * pp * sp)) / (1 + DEVICE_OVERHEAD.fragmentation)) * (1 + 1e-9);
}

/**
 * The least possible seconds of the slowest stage; infinite where no cut fits. Found by bisection between a pace that some cut
 * has and one that none has, each cut taking as many layers as the pace allows (Nicol 1994, the probe of chains-on-chains).
 */
function leastPace(stages: StageCosts): number {
  let least = slowest(stages, furthest(stages, Number.MAX_VALUE));
  let none = 0;
  while (least - none > least * HALVED) {
    const pace = (none + least) / 2;
    const ends = furthest(stages, pace);
    if (ends) least = slowest(stages, ends);
    else none = pace;
    if (least === Number.POSITIVE_INFINITY) break;
  }
  return least;
}

/** Paces as close as this count as equal: sums of the same seconds in another order differ by more. */
const HALVED = 1e-12;

/** Seconds of a cut's slowest stage; infinite without one. */
function slowest(stages: StageCosts, ends: readonly number[] | null): number {
  if (!ends) return Number.POSITIVE_INFINITY;
  return Math.max(...ends.map((end, stage) => stages.part(stage, ends[stage - 1] ?? 0, end).seconds));
}

/** Ends of stages if each takes as many layers as fit and takes at most `most` seconds; null where that is too few in all. */
function furthest(stages: StageCosts, most: number): readonly number[] | null {
  const { count, layers, fewest } = stages;
  let from = 0;
  let left = fewest.reduce((sum, own) => sum + own, 0);
  const ends: number[] = [];
  for (let stage = 0; stage < count; stage++) {
    const least = fewest[stage] as number;
    left -= least;
    let to = stage === count - 1 ? layers : from + least;
    if (to - from < least || stages.part(stage, from, to).seconds > most) return null;
    while (stage < count - 1 && to < layers - left && stages.part(stage, from, to + 1).seconds <= most) to++;
    ends.push(to);
    from = to;
  }
  return ends;
}

/** Starts of stages if the later ones take as many layers as fit and take at most `most` seconds, in possible cuts. */
function earliest(stages: StageCosts, most: number): readonly number[] {
  const { count, layers, fewest } = stages;
  let to = layers;
  let left = fewest.reduce((sum, own) => sum + own, 0);
  const starts: number[] = [];
  for (let stage = count - 1; stage >= 0; stage--) {
    left -= fewest[stage] as number;
    let from = to - (fewest[stage] as number);
    while (from > left && stages.part(stage, from - 1, to).seconds <= most) from--;
    starts.unshift(from);
    to = from;
  }
  return starts;
}

/** Weight of evenness beside seconds: less than any difference that matters. */
const EVENLY = 1e-6;

/**
 * Ends of stages in the cut with the least seconds of a micro-batch through all, the most even of equal cuts; null without any.
 * @param most seconds of a stage
 */
function leastThrough(stages: StageCosts, most: number): readonly number[] | null {
  const { count, layers, fewest } = stages;
  const last = furthest(stages, most);
  if (!last) return null;
  const first = earliest(stages, most);
  let later = new Float64Array(layers + 1).fill(Number.POSITIVE_INFINITY);
  later[layers] = 0;
  const choices: Int32Array[] = [];
  for (let stage = count - 1; stage >= 0; stage--) {
    const own = new Float64Array(layers + 1).fill(Number.POSITIVE_INFINITY);
    const end = new Int32Array(layers + 1);
    const [latest, least] = [stage === 0 ? 0 : (last[stage - 1] as number), fewest[stage] as number];
    for (let from = stage === 0 ? 0 : (first[stage] as number); from <= latest; from++) {
      const next = stage === count - 1 ? layers : Math.max(from + least, first[stage + 1] as number);
      for (let to = next; to <= (last[stage] as number); to++) {
        if (to - from < least) break;
        const rest = later[to] as number;
        if (rest === Number.POSITIVE_INFINITY) continue;
        const { seconds } = stages.part(stage, from, to);
        // More layers take longer.
        if (seconds > most) break;
        const sum = seconds + EVENLY * (seconds / most) * seconds + rest;
        if (sum >= (own[from] as number)) continue;
        own[from] = sum;
        end[from] = to;
      }
    }
    choices.unshift(end);
    later = own;
  }
  if (later[0] === Number.POSITIVE_INFINITY) return null;
  let from = 0;
  return choices.map((end) => {
    from = end[from] as number;
    return from;
  });
}

/** A cut as a configuration: layers of each chunk, and how many of each stage recompute. */
function configurationOf(
  ends: readonly number[],
  stages: StageCosts,
  { recomputedLayers: _, ...configuration }: StepConfiguration,
  { isMixed }: CutRequest,
): StepConfiguration {
  const { virtualStages: chunks } = configuration;
  const starts = [0, ...ends];
  const counts = ends.map((end, stage) => end - (starts[stage] as number));
  const placeOf = placesIn(configuration);
  const stageLayers = Array.from({ length: stages.count * chunks }, (_, index) => {
    const { stage, chunk } = placeOf(index);
    const count = counts[stage] as number;
    // The remainder goes to earlier chunks; on the first stage, whose first chunk has the embedding, to later ones.
    const place = stage === 0 ? chunks - 1 - chunk : chunk;
    return Math.floor(count / chunks) + (place < count % chunks ? 1 : 0);
  });
  if (!isMixed) return { ...configuration, stageLayers };
  const recomputed = ends.map((end, stage) => stages.part(stage, starts[stage] as number, end).recomputed);
  if (recomputed.every((count) => count === 0)) return { ...configuration, recompute: 'none', stageLayers };
  if (recomputed.every((count, stage) => count === counts[stage])) return { ...configuration, stageLayers };
  return { ...configuration, stageLayers, recomputedLayers: recomputed };
}
