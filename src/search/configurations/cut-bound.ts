/**
 * @file The least that a step of given degrees, micro-batch, schedule and ZeRO level takes over all cuts into stages and all
 * choices of layers that recompute, by dynamic programming on the very terms of its price.
 *
 * A price is the most that any stage waits for and does (`stageSpan`), and the most that any stage pays once per step. Each is a
 * bottleneck: with P(s, a) and S(s, b) the least seconds of the stages before and behind that hold the layers before a and from b on,
 *
 *     V(s, a) = min over b of max(span of stage s with layers a … b between P(s, a) and S(s + 1, b), V(s + 1, b))
 *
 * Every stage recomputes as few layers as its micro-batches in flight leave room for. Without recomputation P and S are exact, and
 * so is the answer where one cut is best by both terms; else it is a bound from below.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PartPrice, PartPrices } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import { inFlightOn } from '../../cost-model/step/step-memory.js';
import { microBatches, scheduleRequest } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { stageSpan, type Through, travelAdds } from '../../schedule/closed-form.js';
import { type BoundRequest, onceSeconds, pipelineOf, ROUNDING, roomFor, stepOf } from './variant-bound.js';

export interface CutBound {
  /** Seconds that every cut takes at least; infinite where none fits in less than was asked for. */
  readonly atLeast: number;
  /** The cuts that come nearest to it. */
  readonly configurations: readonly StepConfiguration[];
}

/** What one stage does with the layers that it has. */
interface Part {
  readonly forward: number;
  readonly backward: number;
  readonly recomputed: number;
  /** Of backward the weight gradients; and backward with every layer recomputed that may. */
  readonly weight: number;
  readonly backwardMost: number;
  /** Once per step, with as much backward to hide under as it can have. */
  readonly onceLeast: number;
  /** Backward with what it pays once, for each number of layers that may recompute: one where more only takes longer. */
  readonly ways: readonly { readonly backward: number; readonly once: number }[];
}

/** Seconds that a stage with the layers between two stands for. */
type Cost<Own = Part> = (part: Own, stage: number, from: number, to: number) => number;

/**
 * @param pricesOf prices of the model's parts on the devices of a stage
 * @param below seconds of a step: cuts that take longer are not looked for
 */
export function boundOfCuts(
  model: ModelWork,
  request: BoundRequest,
  pricesOf: (cluster: Cluster) => PartPrices,
  below: number,
): CutBound {
  return new CutBounds(model, request, pricesOf, below).bound();
}

/** Whether there are bounds by cut: chunks of layers that differ would have to be told apart. */
export function hasCutBound({ layers }: ModelWork, { virtualStages }: StepConfiguration): boolean {
  return layers.length === 1 || virtualStages === 1;
}

class CutBounds {
  private readonly stages: number;
  private readonly layers: number;
  private readonly chunks: number;
  private readonly m: number;
  private readonly prices: readonly PartPrices[];
  /** Stages of one kind have the same parts. */
  private readonly kinds: readonly number[];
  private readonly parts: Map<number, Part | null>[];
  /** By class of layers: how many there are before each layer. */
  private readonly before: readonly Int32Array[];
  private readonly room: number;
  private readonly most: number;
  private readonly through: Through;
  /** Least seconds of a micro-batch through the stages before, and from, a stage and a layer on. */
  private readonly ahead: readonly Float64Array[];
  private readonly behind: readonly Float64Array[];

  constructor(
    model: ModelWork,
    private readonly request: BoundRequest,
    pricesOf: (cluster: Cluster) => PartPrices,
    below: number,
  ) {
    const { configuration, cluster, limitBytes } = request;
    const { degrees, virtualStages } = configuration;
    this.stages = degrees.pp;
    this.chunks = virtualStages;
    this.m = microBatches(configuration);
    this.layers = model.layers.reduce((sum, { count }) => sum + count, 0);
    const clusters = stageClusters(cluster, degrees);
    const known = new Map<Cluster, PartPrices>();
    this.prices = clusters.map((own) => {
      const found = known.get(own) ?? pricesOf(own);
      known.set(own, found);
      return found;
    });
    const keys = this.prices.map((prices, stage) =>
      [
        [...known.values()].indexOf(prices),
        inFlightOn(stage, configuration),
        stage === 0,
        stage === this.stages - 1,
      ].join(),
    );
    this.kinds = keys.map((key) => keys.indexOf(key));
    this.parts = this.kinds.map(() => new Map());
    const order = model.order ?? model.layers.flatMap(({ count }, index) => Array.from({ length: count }, () => index));
    this.before = model.layers.map((_, index) => {
      const counts = new Int32Array(this.layers + 1);
      for (let layer = 0; layer < this.layers; layer++)
        counts[layer + 1] = (counts[layer] as number) + (order[layer] === index ? 1 : 0);
      return counts;
    });
    this.room = limitBytes === null ? Number.POSITIVE_INFINITY : roomFor(limitBytes, configuration);
    this.most = pipelineOf(below, configuration, cluster) / this.m;
    this.ahead = this.leastAhead();
    this.behind = this.leastBehind();
    this.through = this.wholeOf(configuration);
  }

  bound(): CutBound {
    const { configuration, cluster } = this.request;
    const nothing: CutBound = { atLeast: Number.POSITIVE_INFINITY, configurations: [] };
    if (!Number.isFinite(this.behind[0]?.[0] as number)) return nothing;
    const once = this.bottleneck((part) => part.onceLeast);
    const { seconds, cuts } = this.pipeline(once.seconds);
    const found = [...new Map(cuts.map((cut) => [cut.join(), cut])).values()];
    return {
      atLeast: stepOf(seconds, configuration, cluster),
      configurations: found.map((cut) => this.configurationOf(cut)),
    };
  }

  /** Least seconds of pipeline and what is paid once together, by what the schedule is made of. */
  private pipeline(once: number): { readonly seconds: number; readonly cuts: readonly (readonly number[])[] } {
    const { m, stages, chunks } = this;
    const { kind, training } = scheduleRequest(this.request.configuration);
    const { seconds: hop, blocks } = this.travel();
    if (kind === 'naive') {
      const slowest = this.bottleneck((part) => part.forward + part.backward);
      const through = (this.behind[0]?.[0] as number) * chunks + (training ? 2 : 1) * (stages - 1) * hop;
      return { seconds: m * through + once, cuts: [slowest.cut] };
    }
    if (kind === 'f-then-b' || !training) {
      // Forwards, then backwards, each at the pace of their slowest stage.
      const flow = (all: number, slowest: number) =>
        (all - slowest) / chunks +
        slowest +
        (m - 1) * Math.max(slowest + (blocks ? chunks * hop : 0), chunks * hop) +
        (stages - 1) * hop;
      const forward = this.bottleneck((part) => part.forward);
      const backward = this.bottleneck((part) => part.backward);
      const back = training ? flow(this.through.backward * chunks, backward.seconds) : 0;
      return {
        seconds: flow(this.through.forward * chunks, forward.seconds) + back + once,
        cuts: training ? [forward.cut, backward.cut] : [forward.cut],
      };
    }
    const span: Cost<Pick<Part, 'forward' | 'backward'>> = (part, stage, from, to) =>
      stageSpan(this.through, stage, part, this.ahead[stage]?.[from] as number, this.behind[stage + 1]?.[to] as number);
    const withOnce =
      (cost: typeof span): Cost =>
      ({ forward, ways }, stage, from, to) => {
        let least = Number.POSITIVE_INFINITY;
        for (const { backward, once: own } of ways)
          least = Math.min(least, cost({ forward, backward }, stage, from, to) + own);
        return least;
      };
    if (kind !== 'zero-bubble') {
      const length = this.bottleneck(span);
      const both = this.bottleneck(withOnce(span));
      return { seconds: Math.max(length.seconds + once, both.seconds), cuts: [both.cut, length.cut] };
    }
    // Of 1F1B's waiting a share is left: the slowest stage's, and no part that can be the slowest has a smaller one.
    const pace = ({ forward, backward }: Pick<Part, 'forward' | 'backward'>) => m * (forward + backward);
    const length = this.bottleneck(span);
    const slowest = this.bottleneck(pace);
    const kept = this.shareLeft((slowest.seconds / m) * ROUNDING);
    const hops = travelAdds(this.through);
    const both = this.bottleneck(
      withOnce((part, stage, from, to) => kept * span(part, stage, from, to) + (1 - kept) * (pace(part) + hops)),
    );
    const apart = kept * length.seconds + (1 - kept) * (slowest.seconds + hops) + once;
    return { seconds: Math.max(apart, both.seconds), cuts: [both.cut, length.cut] };
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

  /** The least of all cuts of the most that a stage costs; and the layers of each stage of such a cut. */
  private bottleneck(cost: Cost): {
    readonly seconds: number;
    readonly cut: readonly number[];
  } {
    const { stages, layers } = this;
    let later = new Float64Array(layers + 1).fill(Number.POSITIVE_INFINITY);
    later[layers] = 0;
    const ends: Int32Array[] = [];
    for (let stage = stages - 1; stage >= 0; stage--) {
      const least = new Float64Array(layers + 1).fill(Number.POSITIVE_INFINITY);
      const end = new Int32Array(layers + 1);
      this.each(stage, (part, from, to) => {
        const rest = later[to] as number;
        if (rest >= (least[from] as number)) return;
        const seconds = Math.max(rest, cost(part, stage, from, to));
        if (seconds >= (least[from] as number)) return;
        least[from] = seconds;
        end[from] = to;
      });
      ends.unshift(end);
      later = least;
    }
    const cut: number[] = [];
    let from = 0;
    for (const end of ends) {
      const to = end[from] as number;
      cut.push(to - from);
      from = to;
    }
    return { seconds: later[0] as number, cut };
  }

  /** Every part that a stage can have of a cut that may be fast enough. */
  private each(stage: number, look: (part: Part, from: number, to: number) => void): void {
    const { layers } = this;
    const ahead = this.ahead[stage] as Float64Array;
    const behind = this.behind[stage + 1] as Float64Array;
    for (let from = 0; from <= layers; from++) {
      if (!Number.isFinite(ahead[from] as number)) continue;
      for (let to = from + this.fewest(stage); to <= layers; to++) {
        const part = this.part(stage, from, to);
        if (part === null) continue;
        if (part === TOO_SLOW) break;
        if (Number.isFinite(behind[to] as number)) look(part, from, to);
      }
    }
  }

  /** Layers that a stage has at least: every chunk has one, but for those that the embedding or the head make a chunk of. */
  private fewest(stage: number): number {
    return this.chunks - (stage === 0 || stage === this.stages - 1 ? 1 : 0);
  }

  private leastAhead(): readonly Float64Array[] {
    const none = () => new Float64Array(this.layers + 1).fill(Number.POSITIVE_INFINITY);
    const all = [none()];
    (all[0] as Float64Array)[0] = 0;
    for (let stage = 0; stage < this.stages - 1; stage++) {
      const before = all[stage] as Float64Array;
      const next = none();
      for (let from = 0; from <= this.layers; from++) {
        const start = before[from] as number;
        if (start === Number.POSITIVE_INFINITY) continue;
        for (let to = from + this.fewest(stage); to <= this.layers; to++) {
          const part = this.part(stage, from, to);
          if (part === null) continue;
          if (part === TOO_SLOW) break;
          const seconds = start + (part.forward + part.backward) / this.chunks;
          if (seconds < (next[to] as number)) next[to] = seconds;
        }
      }
      all.push(next);
    }
    return all;
  }

  private leastBehind(): readonly Float64Array[] {
    const none = () => new Float64Array(this.layers + 1).fill(Number.POSITIVE_INFINITY);
    const all = [none()];
    (all[0] as Float64Array)[this.layers] = 0;
    for (let stage = this.stages - 1; stage >= 0; stage--) {
      const after = all[0] as Float64Array;
      const before = this.ahead[stage] as Float64Array;
      const own = none();
      for (let from = 0; from <= this.layers; from++) {
        if (before[from] === Number.POSITIVE_INFINITY) continue;
        for (let to = from + this.fewest(stage); to <= this.layers; to++) {
          if (after[to] === Number.POSITIVE_INFINITY) continue;
          const part = this.part(stage, from, to);
          if (part === null) continue;
          if (part === TOO_SLOW) break;
          const seconds = (after[to] as number) + (part.forward + part.backward) / this.chunks;
          if (seconds < (own[from] as number)) own[from] = seconds;
        }
      }
      all.unshift(own);
    }
    return all;
  }

  /** What all stages together do at least: forward it is the same for every cut, backward it is what must recompute. */
  private wholeOf({ degrees, virtualStages: v }: StepConfiguration): Through {
    const { prices } = this;
    const least = (of: (part: PartPrice) => number, which: 'kept' | 'recomputed') =>
      Math.min(
        ...[...new Set(prices)].map(({ first, layers, last }) =>
          layers.reduce((sum, layer) => sum + layer.count * of(layer[which]), of(first) + of(last)),
        ),
      );
    const which = this.request.isMixed ? 'kept' : 'recomputed';
    const forward = least((part) => part.forwardSeconds, which) / v;
    const backward = least((part) => part.backwardSeconds, which) / v;
    const alike = new Set(prices).size === 1;
    return {
      stages: degrees.pp,
      microBatches: this.m,
      virtualStages: v,
      travel: this.travel(),
      forward,
      backward: alike ? Math.max(backward, (this.behind[0]?.[0] as number) - forward) : backward,
    };
  }

  private travel(): Through['travel'] {
    return {
      seconds: Math.max(...this.prices.map(({ send }) => send.seconds)),
      blocks: this.prices[0]?.send.blocks ?? false,
    };
  }

  /** A stage with the layers between two; null where it does not fit. */
  private part(stage: number, from: number, to: number): Part | typeof TOO_SLOW | null {
    const parts = this.parts[this.kinds[stage] as number] as Map<number, Part | typeof TOO_SLOW | null>;
    const key = this.before.length === 1 ? to - from : from * (this.layers + 1) + to;
    const known = parts.get(key);
    if (known !== undefined) return known;
    const made = this.makePart(stage, from, to);
    parts.set(key, made);
    return made;
  }

  private makePart(stage: number, from: number, to: number): Part | typeof TOO_SLOW | null {
    const { configuration, isMixed } = this.request;
    const prices = this.prices[stage] as PartPrices;
    const layers = to - from;
    const all = new Sums();
    if (stage === 0) all.add(prices.first, 1);
    if (stage === this.stages - 1) all.add(prices.last, 1);
    const kept = new Sums();
    const recomputed = new Sums();
    for (const [index, layer] of prices.layers.entries()) {
      const counts = this.before[index] as Int32Array;
      const count = (counts[to] as number) - (counts[from] as number);
      if (count === 0) continue;
      kept.add(isMixed ? layer.kept : layer.recomputed, count);
      recomputed.add(layer.recomputed, count);
    }
    if (all.forward + all.backward + kept.forward + kept.backward > this.most) return TOO_SLOW;
    const flying = inFlightOn(stage, configuration);
    const again = fewest(all, kept, recomputed, layers, flying, this.room);
    if (again < 0) return null;
    const extra = recomputed.backward - kept.backward;
    const backward = (count: number) => kept.backward + (layers === 0 ? 0 : (count / layers) * extra);
    const held = { dense: all.dense + kept.dense, experts: all.experts + kept.experts };
    const onceWith = (count: number) => onceSeconds(held, kept.forward, backward(count), prices, configuration);
    const onceLeast = onceWith(layers);
    const way = (count: number) => ({ backward: all.backward + backward(count), once: onceWith(count) });
    const own = way(again);
    // One layer more that recomputes gives gradients more to hide under, and takes longer itself: nearly always by more.
    const isBest = again === layers || own.once - onceWith(again + 1) <= (this.growth(stage) * extra) / layers;
    const ways = isBest ? [own] : Array.from({ length: layers - again + 1 }, (_, more) => way(again + more));
    return {
      forward: all.forward + kept.forward,
      backward: own.backward,
      recomputed: again,
      weight: all.weight + kept.weight,
      backwardMost: all.backward + recomputed.backward,
      onceLeast,
      ways,
    };
  }

  /** By how much a stage's span grows at least with each second of its backward. */
  private growth(stage: number): number {
    const { stages: p, chunks: v, m } = this;
    const later = p - 1 - stage;
    const rest = m * v - 1 - (v === 1 ? later : 2 * later + (v - 1) * p);
    return (Math.max(0, rest) / ((v === 1 ? 1 : 2) * later + 1) + 1) / v;
  }

  /** A cut as a configuration: layers of each chunk, and how many of each stage recompute. */
  private configurationOf(cut: readonly number[]): StepConfiguration {
    const { configuration, isMixed } = this.request;
    const { stages, chunks } = this;
    const ends = cut.reduce<readonly number[]>((sums, count) => [...sums, (sums.at(-1) ?? 0) + count], [0]);
    const stageLayers = Array.from({ length: stages * chunks }, (_, index) => {
      const [stage, chunk] = [index % stages, Math.floor(index / stages)];
      const count = cut[stage] as number;
      // What does not divide goes to earlier chunks; on the first stage, whose first chunk has the embedding, to later ones.
      const place = stage === 0 ? chunks - 1 - chunk : chunk;
      return Math.floor(count / chunks) + (place < count % chunks ? 1 : 0);
    });
    const { recomputedLayers: _, ...plain } = configuration;
    if (!isMixed) return { ...plain, stageLayers };
    const recomputed = cut.map((_count, stage) => {
      const part = this.part(stage, ends[stage] as number, ends[stage + 1] as number);
      return part === null || part === TOO_SLOW ? 0 : part.recomputed;
    });
    if (recomputed.every((count) => count === 0)) return { ...plain, recompute: 'none', stageLayers };
    if (recomputed.every((count, stage) => count === cut[stage])) return { ...plain, stageLayers };
    return { ...plain, stageLayers, recomputedLayers: recomputed };
  }
}

/** Of a stage that alone takes longer than was asked for. */
const TOO_SLOW: Part = {
  forward: Number.POSITIVE_INFINITY,
  backward: Number.POSITIVE_INFINITY,
  recomputed: 0,
  weight: 0,
  backwardMost: Number.POSITIVE_INFINITY,
  onceLeast: Number.POSITIVE_INFINITY,
  ways: [],
};

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
function fewest(ends: Sums, kept: Sums, recomputed: Sums, layers: number, flying: number, room: number): number {
  const held = (saved: number, ...live: readonly Sums[]) =>
    ends.resident +
    kept.resident +
    flying * (ends.saved + saved) +
    Math.max(ends.transient, ...live.map(({ transient }) => transient)) +
    Math.max(ends.gathered, ...live.map(({ gathered }) => gathered));
  if (held(kept.saved, kept) <= room) return 0;
  // What is live while a layer recomputes is more: the first that does may need more than it frees.
  const over = held(kept.saved, kept, recomputed) - room;
  const each = layers === 0 ? 0 : (flying * (kept.saved - recomputed.saved)) / layers;
  const count = over <= 0 ? 1 : each > 0 ? Math.max(1, Math.ceil(over / each - 1e-6)) : layers;
  if (count < layers) return count;
  return layers > 0 && held(recomputed.saved, recomputed) <= room ? layers : -1;
}
