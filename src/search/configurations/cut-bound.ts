/**
 * @file The least that a step of given degrees, micro-batch, schedule and ZeRO level takes over all cuts into stages and all
 * choices of layers that recompute, by dynamic programming on the very terms of its price.
 *
 * A price is the most that any stage waits for and does (`stageSpan`), and the most that any stage pays once per step. Each is a
 * bottleneck: with P(s, a) and S(s, b) the least seconds of the stages before s, with the layers before a, and from s on, with
 * those from b on,
 *
 *     V(s, a) = min over b of max(span of stage s with layers a … b between P(s, a) and S(s + 1, b), V(s + 1, b))
 *
 * Every stage recomputes as few layers as its micro-batches in flight leave room for. Without recomputation P and S are exact,
 * and so is the answer where one cut is best by both terms; else it is a bound from below.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { microBatches, scheduleRequest } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { stageSpan, type Through, travelAdds } from '../../schedule/closed-form.js';
import { type BoundRequest, ROUNDING } from './bound-request.js';
import { type LayerPositions, layerPositions } from './layer-positions.js';
import { type StagePart, StageParts, TOO_SLOW } from './stage-parts.js';
import { pipelineOf, stepOf } from './variant-bound.js';

export interface CutBound {
  /** Seconds that every cut takes at least; infinite where none fits in less than was asked for. */
  readonly atLeast: number;
  /** The cuts that come nearest to it. */
  readonly configurations: readonly StepConfiguration[];
}

/**
 * @param pricesOf prices of the model's parts on the devices of a stage
 * @param below seconds of a step: cuts that take longer are not looked for
 * @returns null for chunks of a model with so many classes of layers that there is no such bound
 */
export function boundOfCuts(
  model: ModelWork,
  request: BoundRequest,
  pricesOf: (cluster: Cluster) => PartPrices,
  below: number,
): CutBound | null {
  const positions = layerPositions(model, request.configuration.virtualStages);
  return positions && new CutBounds(request, positions, pricesOf, below).bound();
}

/** Seconds that a stage with the layers between two positions stands for. */
type Cost<Own = StagePart> = (part: Own, stage: number, from: number, to: number) => number;

/** What a cost is least for, over all cuts of the most of any stage: layers of each stage, and the seconds. */
interface Bottleneck {
  readonly seconds: number;
  /** The position that each stage ends at. */
  readonly ends: readonly number[];
}

class CutBounds {
  private readonly stages: number;
  private readonly chunks: number;
  private readonly m: number;
  /** Seconds of pipeline and what is paid once that were asked for. */
  private readonly most: number;
  private readonly parts: StageParts;
  /** By stage, the position that it ends at at least: what is left must be no more than the later ones have time for. */
  private readonly soonest: readonly number[];
  private readonly through: Through;
  /** Least seconds of a micro-batch through the stages before, and from, a stage and a position on. */
  private readonly ahead: readonly Float64Array[];
  private readonly behind: readonly Float64Array[];

  constructor(
    private readonly request: BoundRequest,
    private readonly positions: LayerPositions,
    pricesOf: (cluster: Cluster) => PartPrices,
    below: number,
  ) {
    const { configuration, cluster } = request;
    this.stages = configuration.degrees.pp;
    this.chunks = configuration.virtualStages;
    this.m = microBatches(configuration);
    this.most = pipelineOf(below, configuration, cluster);
    this.parts = new StageParts(request, positions, pricesOf, this.most / this.m);
    this.soonest = this.soonestEnds();
    this.ahead = Array.from({ length: this.stages + 1 }, () => this.unreached());
    this.behind = Array.from({ length: this.stages + 1 }, () => this.unreached());
    this.reach();
    this.through = this.wholeOf();
  }

  bound(): CutBound {
    const { configuration, cluster } = this.request;
    if (!Number.isFinite(this.behind[0]?.[0] as number))
      return { atLeast: Number.POSITIVE_INFINITY, configurations: [] };
    const { seconds, cuts } = this.pipeline(() => this.bottleneck((part) => part.paid().least).seconds);
    const found = new Map(cuts.map(({ ends }) => [ends.join(), ends]));
    return {
      atLeast: stepOf(seconds, configuration, cluster),
      configurations: [...found.values()].map((ends) => this.configurationOf(ends)),
    };
  }

  /**
   * Least seconds of pipeline and what is paid once together, by what the schedule is made of; no cuts where that is more than
   * was asked for.
   */
  private pipeline(least: () => number): { readonly seconds: number; readonly cuts: readonly Bottleneck[] } {
    const { m, stages, chunks } = this;
    const { kind, training } = scheduleRequest(this.request.configuration);
    const { seconds: hop, blocks } = this.through.travel;
    if (kind === 'naive') {
      const slowest = this.bottleneck((part) => part.forward + part.backward);
      const through = (this.behind[0]?.[0] as number) * chunks + (training ? 2 : 1) * (stages - 1) * hop;
      return { seconds: m * through + least(), cuts: [slowest] };
    }
    if (kind === 'f-then-b' || !training) {
      // Forwards, then backwards, each at the pace of their slowest stage.
      const flow = (all: number, slowest: number) =>
        (all - slowest) / chunks +
        slowest +
        (m - 1) * Math.max(slowest + (blocks ? chunks * hop : 0), chunks * hop) +
        (stages - 1) * hop;
      const forward = this.bottleneck((part) => part.forward);
      const forwards = flow(this.through.forward * chunks, forward.seconds);
      const once = least();
      if (!training) return { seconds: forwards + once, cuts: [forward] };
      const backward = this.bottleneck((part) => part.backward);
      return {
        seconds: forwards + flow(this.through.backward * chunks, backward.seconds) + once,
        cuts: [forward, backward],
      };
    }
    const span: Cost<Pick<StagePart, 'forward' | 'backward'>> = (part, stage, from, to) =>
      stageSpan(this.through, stage, part, this.ahead[stage]?.[from] as number, this.behind[stage + 1]?.[to] as number);
    const length = this.bottleneck(span);
    if (kind !== 'zero-bubble') {
      if (length.seconds >= this.most) return { seconds: length.seconds, cuts: [] };
      const once = least();
      if (length.seconds + once >= this.most) return { seconds: length.seconds + once, cuts: [] };
      const both = this.bottleneck(withOnce(span));
      return { seconds: Math.max(length.seconds + once, both.seconds), cuts: [both, length] };
    }
    // Of 1F1B's waiting a share is left: the slowest stage's, and no part that can be the slowest has a smaller one.
    const pace = ({ forward, backward }: Pick<StagePart, 'forward' | 'backward'>) => m * (forward + backward);
    const slowest = this.bottleneck(pace);
    const left = this.shareLeft((slowest.seconds / m) * ROUNDING);
    const hops = travelAdds(this.through);
    const both = this.bottleneck(
      withOnce((part, stage, from, to) => left * span(part, stage, from, to) + (1 - left) * (pace(part) + hops)),
    );
    const apart = left * length.seconds + (1 - left) * (slowest.seconds + hops) + least();
    return { seconds: Math.max(apart, both.seconds), cuts: [both, length] };
  }

  /** The least share of its bubble that zero-bubble leaves to any stage that takes so many seconds at least. */
  private shareLeft(seconds: number): number {
    const { stages: p, m } = this;
    const unfilled = Math.max(0, p - m) / (p - 1);
    let least = 1;
    for (let stage = 0; stage < p; stage++) {
      this.each(stage, ({ forward, backward, weight, backwardMost }) => {
        if (forward + backwardMost < seconds) return;
        const filling = Math.max(0, Math.min(forward, backwardMost - weight, weight));
        const sure = Math.max(0, Math.min(forward, backward - weight, weight));
        const left = 1 - (weight + filling) / (forward + backward) + (unfilled * sure) / (forward + backwardMost);
        least = Math.min(least, left);
      });
    }
    return Math.max(0, least);
  }

  private bottleneck(cost: Cost): Bottleneck {
    let later = this.unreached();
    later[this.positions.last] = 0;
    const ends: Int32Array[] = [];
    for (let stage = this.stages - 1; stage >= 0; stage--) {
      const after = later;
      const least = this.unreached();
      const end = new Int32Array(least.length);
      this.each(stage, (part, from, to) => {
        const rest = after[to] as number;
        if (rest >= (least[from] as number)) return;
        const seconds = Math.max(rest, cost(part, stage, from, to));
        if (seconds >= (least[from] as number)) return;
        least[from] = seconds;
        end[from] = to;
      });
      ends.unshift(end);
      later = least;
    }
    let from = 0;
    const way = ends.map((end) => {
      from = end[from] as number;
      return from;
    });
    return { seconds: later[0] as number, ends: way };
  }

  /** Every part of a stage that lies on a cut which may be fast enough. */
  private each(stage: number, look: (part: StagePart, from: number, to: number) => void): void {
    const ahead = this.ahead[stage] as Float64Array;
    const behind = this.behind[stage + 1] as Float64Array;
    for (let from = 0; from < ahead.length; from++) {
      if (ahead[from] !== Number.POSITIVE_INFINITY) this.partsFrom(stage, from, behind, look);
    }
  }

  /** Every part of a stage from a position on, to where `behind` says that others go on. */
  private partsFrom(
    stage: number,
    from: number,
    behind: Float64Array | null,
    look: (part: StagePart, from: number, to: number) => void,
  ): void {
    const { positions, parts } = this;
    const fewest = parts.fewestLayers(stage);
    for (let to = Math.max(from, this.soonest[stage] as number); to <= positions.last; to++) {
      if (behind && behind[to] === Number.POSITIVE_INFINITY) continue;
      if (positions.layersBetween(from, to) < fewest) continue;
      const part = parts.part(stage, from, to);
      if (part === TOO_SLOW && positions.isRow) return;
      if (part && part !== TOO_SLOW) look(part, from, to);
    }
  }

  private unreached(): Float64Array {
    return new Float64Array(this.positions.last + 1).fill(Number.POSITIVE_INFINITY);
  }

  private soonestEnds(): readonly number[] {
    const { positions, parts, stages } = this;
    const found = Array.from({ length: stages }, () => 0);
    // Elsewhere positions are not counts of layers.
    if (!positions.isRow) return found;
    for (let stage = stages - 1, left = positions.last; stage >= 0; stage--) {
      found[stage] = left;
      left = Math.max(0, left - parts.mostLayers(stage));
    }
    return found;
  }

  /** Fills `ahead`, then `behind` along what was reached. */
  private reach(): void {
    const { ahead, behind, stages, chunks } = this;
    (ahead[0] as Float64Array)[0] = 0;
    for (let stage = 0; stage < stages; stage++) {
      const before = ahead[stage] as Float64Array;
      const next = ahead[stage + 1] as Float64Array;
      for (let start = 0; start < before.length; start++) {
        if (before[start] === Number.POSITIVE_INFINITY) continue;
        this.partsFrom(stage, start, null, ({ forward, backward }, from, to) => {
          const seconds = (before[from] as number) + (forward + backward) / chunks;
          if (seconds < (next[to] as number)) next[to] = seconds;
        });
      }
    }
    (behind[stages] as Float64Array)[this.positions.last] = 0;
    for (let stage = stages - 1; stage >= 0; stage--) {
      const own = behind[stage] as Float64Array;
      const after = behind[stage + 1] as Float64Array;
      this.each(stage, ({ forward, backward }, from, to) => {
        const seconds = (after[to] as number) + (forward + backward) / chunks;
        if (seconds < (own[from] as number)) own[from] = seconds;
      });
    }
  }

  /** What all stages together do at least: forward it is the same for every cut, backward it is what must recompute. */
  private wholeOf(): Through {
    const { configuration, isMixed } = this.request;
    const { virtualStages: v } = configuration;
    const prices = [...new Set(this.parts.prices)];
    const least = (of: (part: PartPrice) => number) =>
      Math.min(
        ...prices.map(({ first, layers, last }) =>
          layers.reduce(
            (sum, { count, kept, recomputed }) => sum + count * of(isMixed ? kept : recomputed),
            of(first) + of(last),
          ),
        ),
      ) / v;
    const forward = least((part) => part.forwardSeconds);
    const backward = least((part) => part.backwardSeconds);
    const through = (this.behind[0]?.[0] as number) - forward;
    return {
      stages: this.stages,
      microBatches: this.m,
      virtualStages: v,
      travel: {
        seconds: Math.max(...prices.map(({ send }) => send.seconds)),
        blocks: prices[0]?.send.blocks ?? false,
      },
      forward,
      backward: prices.length === 1 && Number.isFinite(through) ? Math.max(backward, through) : backward,
    };
  }

  /** A cut as a configuration: layers of each chunk, and how many of each stage recompute. */
  private configurationOf(ends: readonly number[]): StepConfiguration {
    const { configuration, isMixed } = this.request;
    const { stages, chunks, positions, parts } = this;
    const starts = [0, ...ends];
    const counts = ends.map((end, stage) => positions.layersBetween(starts[stage] as number, end));
    const stageLayers = Array.from({ length: stages * chunks }, (_, index) => {
      const [stage, chunk] = [index % stages, Math.floor(index / stages)];
      const count = counts[stage] as number;
      // What does not divide goes to earlier chunks; on the first stage, whose first chunk has the embedding, to later ones.
      const place = stage === 0 ? chunks - 1 - chunk : chunk;
      return Math.floor(count / chunks) + (place < count % chunks ? 1 : 0);
    });
    const { recomputedLayers: _, ...plain } = configuration;
    if (!isMixed) return { ...plain, stageLayers };
    const recomputed = ends.map((end, stage) => parts.part(stage, starts[stage] as number, end)?.recomputed ?? 0);
    if (recomputed.every((count) => count === 0)) return { ...plain, recompute: 'none', stageLayers };
    if (recomputed.every((count, stage) => count === counts[stage])) return { ...plain, stageLayers };
    return { ...plain, stageLayers, recomputedLayers: recomputed };
  }
}

/** The least of a stage's span and what it pays once together. */
function withOnce(cost: Cost<Pick<StagePart, 'forward' | 'backward'>>): Cost {
  return ({ forward, paid }, stage, from, to) => {
    let least = Number.POSITIVE_INFINITY;
    for (const { backward, once } of paid().ways)
      least = Math.min(least, cost({ forward, backward }, stage, from, to) + once);
    return least;
  };
}
