/**
 * @file Seconds of a training step: a micro-batch's work per stage by kernel, through the pipeline, then gradients and the
 * optimizer. Pipelines by the closed forms of 1F1B and interleaved 1F1B (Narayanan et al. 2021):
 *
 *     step = Σ over stages (F + B) / v + (m − 1/v) · the slowest stage's (F + B)      roughly: one fill, m micro-batches
 */
import type { Cluster } from '../cluster.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { exchangeSeconds, type Place } from './exchange-price.js';
import { attentionLaunches, attentionSeconds, elementBytes, matmulSeconds, memorySeconds } from './kernel-price.js';
import { type GroupName, type GroupRuns, groupRuns, hopOf, placeOfRuns } from './mesh-order.js';
import type { AttentionWork, MatmulWork, ModelWork, PartWork, Work } from './work.js';

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

/** Time of one part for one micro-batch in one direction. */
interface PhaseTime {
  readonly matmul: number;
  readonly attention: number;
  readonly memory: number;
  readonly launch: number;
  readonly tp: number;
  readonly hiddenTp: number;
  readonly sp: number;
  readonly ep: number;
  readonly tpBytes: number;
  readonly spBytes: number;
  readonly epBytes: number;
}

const NOTHING: PhaseTime = {
  matmul: 0,
  attention: 0,
  memory: 0,
  launch: 0,
  tp: 0,
  hiddenTp: 0,
  sp: 0,
  ep: 0,
  tpBytes: 0,
  spBytes: 0,
  epBytes: 0,
};
const KEYS = Object.keys(NOTHING) as (keyof PhaseTime)[];

function sum(...times: readonly PhaseTime[]): PhaseTime {
  return Object.fromEntries(KEYS.map((key) => [key, times.reduce((total, time) => total + time[key], 0)])) as Record<
    keyof PhaseTime,
    number
  >;
}

function scaled(time: PhaseTime, factor: number): PhaseTime {
  return Object.fromEntries(KEYS.map((key) => [key, time[key] * factor])) as Record<keyof PhaseTime, number>;
}

function total({ matmul, attention, memory, launch, tp, sp, ep }: PhaseTime): number {
  return matmul + attention + memory + launch + tp + sp + ep;
}

export function priceStep(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  constants: StepConstants,
): StepPrice {
  const { degrees, recompute, virtualStages, zero } = configuration;
  const { tp, pp, dp, sp } = degrees;
  const m = microBatches(configuration);
  const pricing = new Pricing(model.hidden, model.chosen, configuration, cluster, constants);

  const layers = model.layers.map(({ count, part }) => {
    const forward = pricing.phase(part.forward);
    if (configuration.inference) return { count, part, forward, backward: NOTHING };
    const again = recomputed(part, recompute, pricing);
    return { count, part, forward, backward: sum(pricing.phase(part.backward), again) };
  });
  const layerCount = layers.reduce((all, { count }) => all + count, 0);
  const weighted = (of: (layer: (typeof layers)[number]) => PhaseTime) =>
    scaled(sum(...layers.map((layer) => scaled(of(layer), layer.count))), 1 / layerCount);
  const layer = { forward: weighted(({ forward }) => forward), backward: weighted(({ backward }) => backward) };
  const first = { forward: pricing.phase(model.first.forward), backward: pricing.phase(model.first.backward) };
  const last = { forward: pricing.phase(model.last.forward, true), backward: pricing.phase(model.last.backward, true) };

  // Chunks of whole layers: the largest one sets the pace.
  const perStage = Math.ceil(layerCount / (pp * virtualStages)) * virtualStages;
  const both = sum(layer.forward, layer.backward);
  const edge = { first: sum(first.forward, first.backward), last: sum(last.forward, last.backward) };
  const full = Math.min(perStage, layerCount);
  const stages =
    pp === 1
      ? [sum(scaled(both, layerCount), edge.first, edge.last)]
      : [sum(scaled(both, full), edge.first), scaled(both, full), sum(scaled(both, full), edge.last)];
  const slowest = stages.reduce((best, stage) => (total(stage) > total(best) ? stage : best));
  const whole = total(both) * layerCount + total(edge.first) + total(edge.last);

  // A send per chunk boundary each way.
  const boundaryBytes = (model.boundary * elementBytes(configuration.precision)) / sp;
  const sent = configuration.tpSequence || configuration.scatteredSends ? boundaryBytes / tp : boundaryBytes;
  const share =
    configuration.overlap.pipeline && virtualStages > 1 ? constants.overlappedSends : constants.exposedSends;
  const hop = hopOf(groupRuns(degrees, configuration.meshOrder).pp, cluster.perNode);
  const sends = pp === 1 ? 0 : 2 * virtualStages * exchangeSeconds('permute', sent, hop, cluster, constants) * share;

  const pace = total(slowest) + sends;
  const fill = Math.max(0, whole - total(slowest)) / virtualStages + (pp - 1) * (sends / virtualStages);
  const bubble = pp === 1 ? 0 : idleSeconds(configuration, fill, m * (whole - total(slowest)));

  // ZeRO-3 gathers every layer's parameters for each use; gradients leave once per micro-batch.
  const parameters = stageParameters(model, configuration);
  const trained = configuration.frozen || configuration.inference ? { dense: 0, experts: 0, perLayer: 0 } : parameters;
  const data = pricing.data(trained, {
    backward: total(scaled(layer.backward, full)),
    forward: total(scaled(layer.forward, full)),
    microBatches: m,
  });
  const shardedBy = zero === 0 ? 1 : (configuration.shardRanks ?? dp * sp);
  const updated = (trained.dense + trained.experts * (zero === 0 ? 1 : Math.max(1, degrees.ep))) / shardedBy;
  const optimizer = memorySeconds(updated * constants.optimizerBytes, cluster.device, constants);

  const stageSeconds = Array.from({ length: pp }, (_, stage) => {
    const own = Math.floor(layerCount / pp) + (stage < layerCount % pp ? 1 : 0);
    const edges = [...(stage === 0 ? [first] : []), ...(stage === pp - 1 ? [last] : [])];
    return {
      forward: own * total(layer.forward) + edges.reduce((all, edge) => all + total(edge.forward), 0),
      backward: own * total(layer.backward) + edges.reduce((all, edge) => all + total(edge.backward), 0),
    };
  });
  const steady = m * pace;
  const nodes = Math.max(1, (tp * pp * dp * sp) / cluster.perNode);
  const outside = configuration.inference ? 0 : constants.stepSeconds;
  const before = steady + bubble + data.exposed + optimizer + outside;
  const jitter = before * constants.jitter * Math.log2(nodes);
  return {
    stepSeconds: before + jitter,
    stageSeconds,
    sendSeconds: pp === 1 ? 0 : sends / (2 * virtualStages),
    parts: {
      matmul: m * slowest.matmul,
      attention: m * slowest.attention,
      memory: m * slowest.memory,
      launch: m * slowest.launch,
      tp: m * slowest.tp,
      sp: m * slowest.sp,
      ep: m * slowest.ep,
      pp: m * sends,
      dp: data.exposed,
      bubble,
      optimizer,
      other: outside + jitter,
    },
    hidden: { tp: m * slowest.hiddenTp, dp: data.hidden },
    bytes: {
      tp: m * slowest.tpBytes,
      sp: m * slowest.spBytes,
      ep: m * slowest.epBytes,
      pp: pp === 1 ? 0 : 2 * m * virtualStages * sent,
      dp: data.bytes,
    },
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

/** What backward does again of a layer's forward. */
function recomputed(part: PartWork, recompute: StepConfiguration['recompute'], pricing: Pricing): PhaseTime {
  if (recompute === 'full') return pricing.phase(part.forward);
  const attention = part.forward.filter(({ kind }) => kind === 'attention');
  if (recompute === 'selective') return pricing.phase(attention);
  if (recompute === 'operators') {
    // Every second product and all element-wise work (torch's selective checkpointing by operator); attention is saved.
    const products = scaled(pricing.phase(part.forward.filter(({ kind }) => kind === 'matmul')), 0.5);
    return sum(products, pricing.phase(part.forward.filter(({ kind }) => kind === 'memory')));
  }
  return NOTHING;
}

/** Parameters of the heaviest stage on one rank. */
function stageParameters(
  model: ModelWork,
  { degrees }: StepConfiguration,
): { readonly dense: number; readonly experts: number; readonly perLayer: number } {
  const { pp, ep } = degrees;
  const layers = model.layers.reduce((all, { count }) => all + count, 0);
  const all = model.layers.reduce((sum, { count, part }) => sum + count * part.parameters, 0);
  const experts = model.layers.reduce((sum, { count, part }) => sum + count * part.expertParameters, 0);
  const edges =
    pp === 1 ? model.first.parameters + model.last.parameters : Math.max(model.first.parameters, model.last.parameters);
  const share = pp === 1 ? 1 : Math.ceil(layers / pp) / layers;
  return {
    dense: (all - experts) * share + edges,
    experts: (experts * share) / ep,
    perLayer: (all - experts + experts / ep) / layers,
  };
}

class Pricing {
  private readonly runs: Readonly<Record<GroupName, GroupRuns>>;
  private readonly tensor: Place;
  private readonly passes: number;

  constructor(
    private readonly hidden: number,
    private readonly chosen: number,
    private readonly configuration: StepConfiguration,
    private readonly cluster: Cluster,
    private readonly constants: StepConstants,
  ) {
    this.runs = groupRuns(configuration.degrees, configuration.meshOrder);
    this.tensor = this.placeOf('tp');
    this.passes = constants.software[configuration.software].passes;
  }

  private placeOf(group: GroupName): Place {
    return placeOfRuns(this.runs[group], this.cluster.perNode);
  }

  /**
   * Kernels of one phase of one part. The host may be slower than the device: then its time counts. The head's products
   * stay in 16 bits in every 8-bit recipe.
   */
  phase(works: readonly Work[], head = false): PhaseTime {
    const { configuration, cluster, constants } = this;
    const { device } = cluster;
    const { degrees, tpSequence } = configuration;
    const narrow = configuration.precision === 'fp8' || configuration.precision === 'fp4';
    const precision = head && narrow ? 'bf16' : configuration.precision;
    const width = elementBytes(precision);
    const local = 1 / degrees.sp;
    let matmul = 0;
    let attention = 0;
    let memory = 0;
    let tp = 0;
    let sp = 0;
    let launches = 0;
    let exchanges = 0;
    let ep = 0;
    let expertParts = 0;
    let tpBytes = 0;
    let spBytes = 0;
    let epBytes = 0;
    for (const work of works) {
      switch (work.kind) {
        case 'matmul': {
          if (work.tokens === 'depth' && configuration.frozen) break;
          const own = along(work, degrees);
          matmul += matmulSeconds(own, device, precision, constants);
          launches++;
          if (work.tokens === 'depth') break;
          if (precision === 'fp8' || precision === 'fp4') {
            memory += memorySeconds(own.batch * own.rows * own.depth * constants.castBytes, device, constants);
          }
          if (work.experts) {
            expertParts++;
            const sent = (work.batch * work.rows * this.hidden * width) / degrees.sp / degrees.tp;
            ep += this.dispatch(sent);
            epBytes += (1 - 1 / degrees.ep) * sent;
          }
          break;
        }
        case 'attention': {
          const own = { ...work, queries: work.queries * local };
          attention += attentionSeconds(own, device, configuration, constants);
          launches += attentionLaunches(configuration.attention, work.backward);
          if (degrees.sp > 1) {
            sp += this.ring(work);
            spBytes += (1 - 1 / degrees.sp) * ringBytes(work);
          }
          break;
        }
        case 'memory': {
          const elements = work.elements * local * (work.repeated && tpSequence ? 1 / degrees.tp : 1);
          const passes = work.norm && !configuration.fusedNorms ? constants.plainNormPasses : this.passes;
          memory += memorySeconds(elements * (work.loss ? 4 : width) * passes, device, constants);
          launches++;
          break;
        }
        case 'exchange': {
          if (degrees.tp === 1) break;
          const bytes = work.elements * local * (work.activation ? width : 4);
          // Sequence parallelism: a scatter and a gather for each reduction, and the input gathered once more in backward.
          tp += exchangeSeconds(work.collective, bytes, this.tensor, cluster, constants);
          tpBytes += (work.collective === 'all-reduce' ? 2 : 1) * ((degrees.tp - 1) / degrees.tp) * bytes;
          exchanges += tpSequence && work.activation ? 2 : 1;
          break;
        }
      }
    }
    const hiddenTp = configuration.overlap.tensor ? tp * constants.hiddenTensor : 0;
    const busy = matmul + attention + memory + tp - hiddenTp + sp + ep;
    const software = constants.software[configuration.software];
    const host =
      launches * software.hostSeconds +
      exchanges * constants.exchangeSeconds +
      (expertParts / 2) * constants.expertSeconds * (configuration.overlap.experts ? 1 - constants.hiddenExperts : 1);
    const launch = Math.max(0, host - busy);
    return { matmul, attention, memory, launch, tp: tp - hiddenTp, hiddenTp, sp, ep, tpBytes, spBytes, epBytes };
  }

  /**
   * Tokens go to their experts' ranks, or come back: so many bytes leave each rank. A token that several experts of one
   * node take crosses the network once: N (1 − (1 − 1/N)^k) of its k copies, over N nodes.
   */
  private dispatch(bytes: number): number {
    if (this.configuration.degrees.ep === 1) return 0;
    const { cluster, constants, chosen } = this;
    const place = this.placeOf('ep');
    const inside = exchangeSeconds('all-to-all', bytes, { ...place, across: 1 }, cluster, constants);
    const copies = place.across * (1 - (1 - 1 / place.across) ** chosen);
    const across = exchangeSeconds(
      'all-to-all',
      (bytes * copies) / chosen,
      { ...place, inside: 1 },
      cluster,
      constants,
    );
    return (inside + across) * (this.configuration.overlap.experts ? 1 - constants.hiddenExperts : 1);
  }

  /** Keys and values of the other ranks, beside what attention hides of them. */
  private ring(work: AttentionWork): number {
    const place = this.placeOf('sp');
    return 0.3 * exchangeSeconds('all-gather', ringBytes(work), place, this.cluster, this.constants);
  }

  /** Reduction of gradients and gathering of parameters over the data-parallel ranks. */
  data(
    { dense, experts, perLayer }: { readonly dense: number; readonly experts: number; readonly perLayer: number },
    {
      forward,
      backward,
      microBatches: m,
    }: { readonly forward: number; readonly backward: number; readonly microBatches: number },
  ): { readonly exposed: number; readonly hidden: number; readonly bytes: number } {
    const { configuration, cluster, constants } = this;
    const { degrees, zero, gradientBytes, overlap } = configuration;
    const ranks = degrees.dp * degrees.sp;
    if (ranks === 1 || dense + experts === 0) return { exposed: 0, hidden: 0, bytes: 0 };
    const place = this.placeOf('dp');
    const width = elementBytes(configuration.precision);
    const replicas = ranks / degrees.ep;
    const expertPlace = this.placeOf('replicas');
    const move = (kind: 'all-reduce' | 'reduce-scatter' | 'all-gather', bytes: number) =>
      exchangeSeconds(kind, dense * bytes, place, cluster, constants) +
      (experts > 0 && replicas > 1 ? exchangeSeconds(kind, experts * bytes, expertPlace, cluster, constants) : 0);
    // Network cards move bytes without the processors; fast links do not.
    const contention = place.across === 1 ? constants.contention : 0;
    const wire = (dense + experts) * ((ranks - 1) / ranks);
    if (zero === 3) {
      // Two gathers and a scatter per micro-batch, each under the neighbouring layers' compute.
      const messages = ((dense + experts) / perLayer) * (configuration.gathersPerLayer ?? 1);
      const hops = messages * (configuration.shardRanks ?? ranks) * constants.ringHopSeconds;
      const gather = move('all-gather', width) + hops;
      const scatter = move('reduce-scatter', gradientBytes) + hops;
      const startup = (gather * perLayer) / (dense + experts);
      const hideable = overlap.data ? constants.hiddenData : 0;
      const exposed =
        Math.max(startup, gather - forward * hideable) + Math.max(0, gather + scatter - backward * hideable);
      const hidden = 2 * gather + scatter - exposed;
      return {
        exposed: m * (exposed + contention * hidden),
        hidden: m * hidden,
        bytes: m * wire * (2 * width + gradientBytes),
      };
    }
    const reduce = zero === 0 ? move('all-reduce', gradientBytes) : move('reduce-scatter', gradientBytes);
    const gather = zero === 0 ? 0 : move('all-gather', width);
    const hide = (seconds: number, under: number) =>
      overlap.data ? Math.max(seconds * 0.05, seconds - under * constants.hiddenData) : seconds;
    // Gradients that are kept in shards are scattered after every micro-batch; whole ones gather all of them first.
    const times = zero === 2 ? m : 1;
    const exposed = times * hide(reduce, backward) + hide(gather, forward);
    const hidden = times * reduce + gather - exposed;
    return {
      exposed: exposed + contention * hidden,
      hidden,
      bytes: wire * (zero === 0 ? 2 * gradientBytes : times * gradientBytes + width),
    };
  }
}

/** Keys and values of the whole sequence in 16 bits; their gradients too in backward. */
function ringBytes({ batch, keyHeads, keys, width, valueWidth, backward }: AttentionWork): number {
  return (backward ? 2 : 1) * 2 * batch * keyHeads * keys * (width + valueWidth);
}

/**
 * A product on a shard of the sequence; experts also take the tokens of the other ranks that share them, and each
 * tensor-parallel rank sends its share of the tokens.
 */
function along(work: MatmulWork, { sp, ep, tp }: StepConfiguration['degrees']): MatmulWork {
  const experts = work.experts ? Math.max(1, work.batch / ep) : work.batch;
  const share = work.batch / experts / sp / (work.experts ? tp : 1);
  return work.tokens === 'depth'
    ? { ...work, batch: experts, depth: work.depth * share }
    : { ...work, batch: experts, rows: work.rows * share };
}
