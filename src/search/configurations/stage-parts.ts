/**
 * @file What a stage costs with the layers that it has: its seconds with as few layers recomputed as its memory needs, and what
 * it pays once per step.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import { inFlightOn } from '../../cost-model/step/step-memory.js';
import { microBatches } from '../../cost-model/step/step-price.js';
import type { BoundRequest } from './bound-request.js';
import type { LayerPositions } from './layer-positions.js';
import { roomFor } from './least-recomputed.js';
import { onceSeconds, secondsOf } from './variant-bound.js';

/** A stage with some layers. Seconds of a micro-batch through all its chunks. */
export interface StagePart {
  readonly forward: number;
  readonly backward: number;
  /** Layers that recompute. */
  readonly recomputed: number;
  /** Of backward the weight gradients; and backward with every layer recomputed that may. */
  readonly weight: number;
  readonly backwardMost: number;
  /** What it pays once per step: worked out when asked for, since most parts lie on no cut that is fast enough. */
  readonly paid: () => Paid;
}

/** What a stage pays once per step, in seconds. */
interface Paid {
  /** With as much backward to hide under as it can have. */
  readonly least: number;
  /** Backward with what it pays once, for each number of layers that may recompute: one where more only takes longer. */
  readonly ways: readonly { readonly backward: number; readonly once: number }[];
}

/** Of a stage that alone takes longer than was asked for. */
export const TOO_SLOW: StagePart = {
  forward: Number.POSITIVE_INFINITY,
  backward: Number.POSITIVE_INFINITY,
  recomputed: 0,
  weight: 0,
  backwardMost: Number.POSITIVE_INFINITY,
  paid: () => ({ least: Number.POSITIVE_INFINITY, ways: [] }),
};

export class StageParts {
  /** By stage. */
  readonly prices: readonly PartPrices[];
  private readonly known: readonly Map<number, StagePart | null>[];
  private readonly room: number;
  private readonly m: number;

  /**
   * @param pricesOf prices of the model's parts on the devices of a stage
   * @param most seconds of a micro-batch beyond which a stage is too slow
   */
  constructor(
    private readonly request: BoundRequest,
    private readonly positions: LayerPositions,
    pricesOf: (cluster: Cluster) => PartPrices,
    private readonly most: number,
  ) {
    const { configuration, cluster, limitBytes } = request;
    const on = new Map<Cluster, PartPrices>();
    this.prices = stageClusters(cluster, configuration).map((own) => {
      const found = on.get(own) ?? pricesOf(own);
      on.set(own, found);
      return found;
    });
    this.m = microBatches(configuration);
    this.room = limitBytes === null ? Number.POSITIVE_INFINITY : roomFor(limitBytes, configuration);
    const known = new Map<string, Map<number, StagePart | null>>();
    const clusters = [...on.values()];
    this.known = this.prices.map((prices, stage) => {
      const { first, last } = this.ends(stage);
      const key = `${clusters.indexOf(prices)} ${inFlightOn(stage, configuration)} ${this.growth(stage)} ${first} ${last}`;
      const parts = known.get(key) ?? new Map<number, StagePart | null>();
      known.set(key, parts);
      return parts;
    });
  }

  /** A stage with the layers between two positions; null where it does not fit. */
  part(stage: number, from: number, to: number): StagePart | null {
    const known = this.known[stage] as Map<number, StagePart | null>;
    const key = this.positions.key(from, to);
    const found = known.get(key);
    if (found !== undefined) return found;
    const made = this.makePart(stage, from, to);
    known.set(key, made);
    return made;
  }

  /** Layers that a stage has at least: every chunk has one, but for those that the embedding or the head make a chunk of. */
  fewestLayers(stage: number): number {
    const { first, last } = this.ends(stage);
    return this.request.configuration.virtualStages - (first || last ? 1 : 0);
  }

  private ends(stage: number): { readonly first: boolean; readonly last: boolean } {
    return { first: stage === 0, last: stage === this.request.configuration.degrees.pp - 1 };
  }

  private makePart(stage: number, from: number, to: number): StagePart | null {
    const { configuration, isMixed } = this.request;
    const prices = this.prices[stage] as PartPrices;
    const { first, last } = this.ends(stage);
    const ends = new Sums();
    if (first) ends.add(prices.first, 1);
    if (last) ends.add(prices.last, 1);
    const kept = new Sums();
    const recomputed = new Sums();
    const layers = this.positions.layersBetween(from, to);
    for (const [index, count] of this.positions.countsBetween(from, to).entries()) {
      const layer = prices.layers[index];
      if (count === 0 || !layer) continue;
      kept.add(isMixed ? layer.kept : layer.recomputed, count);
      recomputed.add(layer.recomputed, count);
    }
    if (ends.forward + ends.backward + kept.forward + kept.backward > this.most) return TOO_SLOW;
    const again = fewestRecomputed(ends, kept, recomputed, layers, inFlightOn(stage, configuration), this.room);
    if (again < 0) return null;
    const extra = recomputed.backward - kept.backward;
    const backward = (count: number) => kept.backward + (layers === 0 ? 0 : (count / layers) * extra);
    const held = { dense: ends.dense + kept.dense, experts: ends.experts + kept.experts };
    const onceWith = (count: number) => onceSeconds(held, kept.forward, backward(count), prices, configuration);
    const way = (count: number) => ({ backward: ends.backward + backward(count), once: onceWith(count) });
    const pay = (): Paid => {
      const own = way(again);
      // One layer more that recomputes gives gradients more to hide under, and takes longer itself: nearly always by more.
      const isBest = again === layers || own.once - onceWith(again + 1) <= (this.growth(stage) * extra) / layers;
      return {
        least: extra > 0 ? onceWith(layers) : own.once,
        ways: isBest ? [own] : Array.from({ length: layers - again + 1 }, (_, more) => way(again + more)),
      };
    };
    let paid: Paid | null = null;
    return {
      forward: ends.forward + kept.forward,
      backward: ends.backward + backward(again),
      recomputed: again,
      weight: ends.weight + kept.weight,
      backwardMost: ends.backward + recomputed.backward,
      paid: () => {
        paid ??= pay();
        return paid;
      },
    };
  }

  /** Layers that a stage has at most without being too slow. */
  mostLayers(stage: number): number {
    const { isMixed } = this.request;
    const { first, layers, last } = this.prices[stage] as PartPrices;
    const ends = this.ends(stage);
    const least = Math.min(...layers.map(({ kept, recomputed }) => secondsOf(isMixed ? kept : recomputed)));
    const left = this.most - (ends.first ? secondsOf(first) : 0) - (ends.last ? secondsOf(last) : 0);
    return Math.max(0, Math.floor(left / least + 1e-6));
  }

  /** By how much the span of a stage (`stageSpan`) grows at least with each second of its backward. */
  private growth(stage: number): number {
    const { degrees, virtualStages: v } = this.request.configuration;
    const later = degrees.pp - 1 - stage;
    const rest = this.m * v - 1 - (v === 1 ? later : 2 * later + (v - 1) * degrees.pp);
    return (Math.max(0, rest) / ((v === 1 ? 1 : 2) * later + 1) + 1) / v;
  }
}

/** Figures of parts on one stage: seconds and held bytes add up, of what is live while one runs the largest counts. */
class Sums {
  forward = 0;
  backward = 0;
  weight = 0;
  dense = 0;
  experts = 0;
  resident = 0;
  saved = 0;
  transient = 0;
  gathered = 0;

  add({ forward, backward, forwardSeconds, backwardSeconds, held, bytes }: PartPrice, count: number): void {
    this.forward += count * forwardSeconds;
    this.backward += count * backwardSeconds;
    this.weight += count * (forward.weightGradient + backward.weightGradient);
    this.dense += count * held.dense;
    this.experts += count * held.experts;
    this.resident += count * (bytes.parameters + bytes.gradients + bytes.optimizer);
    this.saved += count * bytes.saved;
    this.transient = Math.max(this.transient, bytes.transient);
    this.gathered = Math.max(this.gathered, bytes.gathered);
  }
}

/** The fewest of a stage's layers that recompute so that it fits; −1 where it does not with all of them. */
function fewestRecomputed(
  ends: Sums,
  kept: Sums,
  recomputed: Sums,
  layers: number,
  flying: number,
  room: number,
): number {
  const held = (saved: number, transient: number, gathered: number) =>
    ends.resident +
    kept.resident +
    flying * (ends.saved + saved) +
    Math.max(ends.transient, transient) +
    Math.max(ends.gathered, gathered);
  if (held(kept.saved, kept.transient, kept.gathered) <= room) return 0;
  // What is live while a layer recomputes is more: the first that does may need more than it frees.
  const both = held(
    kept.saved,
    Math.max(kept.transient, recomputed.transient),
    Math.max(kept.gathered, recomputed.gathered),
  );
  const each = layers === 0 ? 0 : (flying * (kept.saved - recomputed.saved)) / layers;
  const count = both <= room ? 1 : each > 0 ? Math.max(1, Math.ceil((both - room) / each - 1e-6)) : layers;
  if (count < layers) return count;
  return layers > 0 && held(recomputed.saved, recomputed.transient, recomputed.gathered) <= room ? layers : -1;
}
