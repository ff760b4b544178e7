/**
 * @file Seconds of one part of a model for one micro-batch in one direction on one rank: its kernels, its collectives, and
 * the time that the host's launches add.
 */
import { madeOnce } from '../../ir/remembered.js';
import type { Cluster } from '../cluster.js';
import { type CollectiveKind, collectiveOver, collectiveSeconds } from '../collective-price.js';
import { evenPlace, type GroupPlace, groupPlace } from '../group-place.js';
import { attentionLaunches, attentionSeconds, elementBytes, matmulSeconds, memorySeconds } from '../kernel-price.js';
import { together } from '../phase.js';
import type { StepConfiguration } from './configuration.js';
import type { StepConstants } from './constants.js';
import { groupRuns } from './mesh-order.js';
import { recipeOf } from './part-bytes.js';
import { NOTHING, type PhaseTime, plus } from './phase-time.js';
import type { MatmulWork, PartWork, StepAttentionWork, StepWork } from './work.js';

export class PhasePricing {
  private readonly runs: ReturnType<typeof groupRuns>;
  private readonly tensor: GroupPlace;
  private readonly collectives = new Map<CollectiveKind, (bytes: number) => number>();
  private readonly passes: number;
  private readonly exchanges: number;

  constructor(
    /** Experts per token. */
    private readonly chosen: number,
    private readonly configuration: StepConfiguration,
    private readonly cluster: Cluster,
    private readonly constants: StepConstants,
  ) {
    this.runs = groupRuns(configuration.degrees, configuration.meshOrder);
    this.tensor = groupPlace(this.runs.tp, cluster.levels);
    this.passes = constants.software[configuration.software].passes;
    this.exchanges = configuration.software.startsWith('megatron') ? 1 : constants.plainExchange;
  }

  /**
   * Kernels of one phase of one part. The host may be slower than the device: then its time counts, as `launch`. The head's
   * matmuls stay in 16 bits in every 8-bit recipe.
   */
  phase(works: readonly StepWork[], head = false): PhaseTime {
    const { configuration, cluster, constants } = this;
    const { device } = cluster;
    const { degrees, tpSequence } = configuration;
    const narrow = configuration.precision === 'fp8' || configuration.precision === 'fp4';
    const precision = head && narrow ? 'bf16' : configuration.precision;
    const width = elementBytes(precision);
    const local = 1 / degrees.sp;
    let matmul = 0;
    let weightGradient = 0;
    let attention = 0;
    let memory = 0;
    let tp = 0;
    let sp = 0;
    let launches = 0;
    let exchanges = 0;
    let ep = 0;
    let experts = 0;
    let tpBytes = 0;
    let spBytes = 0;
    let epBytes = 0;
    for (const work of works) {
      switch (work.kind) {
        case 'matmul': {
          const own = along(work, degrees);
          const format = work.wide && narrow ? 'bf16' : precision;
          const seconds = matmulSeconds(own, device, format, constants);
          matmul += seconds;
          launches++;
          // Transformer Engine multiplies expert by expert, other software all of a rank's experts in one kernel.
          if (work.experts && configuration.software.startsWith('megatron') && !configuration.program)
            experts += own.batch;
          if (work.tokens === 'depth') {
            weightGradient += seconds;
            memory += this.accumulation(own);
            break;
          }
          if (format === 'fp8' || format === 'fp4') {
            memory += memorySeconds(own.batch * own.rows * own.depth * constants.castBytes, device);
          }
          if (work.routed) {
            const sent = (work.batch * work.rows * work.routed * width) / degrees.sp / degrees.tp;
            ep += this.dispatch(sent);
            epBytes += (1 - 1 / degrees.ep) * sent;
            if (configuration.program && degrees.sp > 1) {
              sp += this.gathered(sent * degrees.sp);
              spBytes += (degrees.sp - 1) * sent;
            }
          }
          break;
        }
        case 'attention': {
          // Ranks have equal work, positions included, as those of a ring in zig-zag order have.
          const own = { ...work, batch: work.batch * local };
          attention += attentionSeconds(own, device, configuration, constants);
          launches += attentionLaunches(configuration, work.backward);
          if (degrees.sp > 1) {
            sp += this.ring(work);
            spBytes += (1 - 1 / degrees.sp) * ringBytes(work);
          }
          break;
        }
        case 'memory': {
          const elements = work.elements * local * (work.repeated && tpSequence ? 1 / degrees.tp : 1);
          const passes = work.norm && !configuration.fusedNorms ? constants.plainNormPasses : this.passes;
          memory += memorySeconds(elements * (work.loss ? 4 : width) * passes, device);
          launches++;
          break;
        }
        case 'exchange': {
          if (degrees.tp === 1) break;
          const bytes = work.elements * local * (work.loss ? 4 : width);
          // Sequence parallelism: a scatter and a gather for each reduction, and the input gathered once more in backward.
          tp += this.exchanges * this.overTensor(work.collective)(bytes);
          tpBytes += (work.collective === 'all-reduce' ? 2 : 1) * ((degrees.tp - 1) / degrees.tp) * bytes;
          exchanges += tpSequence && work.activation && work.elements > FEW_ELEMENTS ? 2 : 1;
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
      experts * constants.expertSeconds * (configuration.overlap.experts ? 1 - constants.hiddenExperts : 1);
    const launch = together(host, busy, constants.hostPower) - busy;
    return {
      matmul,
      attention,
      memory,
      launch,
      tp: tp - hiddenTp,
      sp,
      ep,
      host: 0,
      hiddenHost: 0,
      hiddenTp,
      weightGradient,
      tpBytes,
      spBytes,
      epBytes,
    };
  }

  /** Seconds of a collective over tp by its bytes: a layer has the same one many times. */
  private overTensor(kind: CollectiveKind): (bytes: number) => number {
    return madeOnce(this.collectives, kind, () => collectiveOver(kind, this.tensor, this.cluster));
  }

  /**
   * A gradient of a weight is read and added to its accumulator: by the matmul itself in newer software, and not at all where
   * ZeRO 3 reduce-scatters it at once.
   */
  private accumulation({ batch, rows, columns }: MatmulWork): number {
    const { configuration, cluster } = this;
    if (!accumulatesApart(configuration)) return 0;
    const bytes = elementBytes(configuration.precision) + 2 * recipeOf(configuration).gradient;
    return memorySeconds(batch * rows * columns * bytes, cluster.device);
  }

  /** Time of a part's forward that backward recomputes. */
  again(part: PartWork, recompute: StepConfiguration['recompute']): PhaseTime {
    if (recompute === 'none') return NOTHING;
    if (recompute === 'full') return this.phase(part.forward);
    if (recompute === 'selective') return this.phase(part.forward.filter(({ kind }) => kind === 'attention'));
    // Every second matmul and all elementwise work (torch's selective checkpointing by operator); attention is saved.
    const matmuls = this.phase(part.forward.filter(({ kind }) => kind === 'matmul'));
    return plus(this.phase(part.forward.filter(({ kind }) => kind === 'memory')), matmuls, 0.5);
  }

  /**
   * Tokens go to their experts' ranks, or come back: so many bytes leave each rank. A token that several experts of one
   * node take crosses the network once: N (1 − (1 − 1/N)^k) of its k copies, over N nodes. A program sends all copies.
   */
  private dispatch(bytes: number): number {
    if (this.configuration.degrees.ep === 1) return 0;
    const { cluster, constants, chosen } = this;
    const { members: place } = groupPlace(this.runs.ep, cluster.levels);
    const within = cluster.perNode === 1 ? 0 : 1;
    const nodes = place.slice(within).reduce((product, members) => product * members, 1);
    const inside = collectiveSeconds('all-to-all', bytes, evenPlace(place.slice(0, within)), cluster);
    const copies = this.configuration.program ? chosen : nodes * (1 - (1 - 1 / nodes) ** chosen);
    const between = evenPlace(place.map((members, level) => (level < within ? 1 : members)));
    const across = collectiveSeconds('all-to-all', (bytes * copies) / chosen, between, cluster);
    return (inside + across) * (this.configuration.overlap.experts ? 1 - constants.hiddenExperts : 1);
  }

  /** Seconds in which each rank of sp gathers so many bytes, inputs or results of its tokens' experts for the whole sequence. */
  private gathered(bytes: number): number {
    const place = groupPlace(this.runs.sp, this.cluster.levels);
    return collectiveSeconds('all-gather', bytes, place, this.cluster);
  }

  /** Seconds of the keys and values of the other ranks, without the share that attention hides. */
  private ring(work: StepAttentionWork): number {
    const place = groupPlace(this.runs.sp, this.cluster.levels);
    return 0.3 * collectiveSeconds('all-gather', ringBytes(work), place, this.cluster);
  }
}

/**
 * Sums of so few elements (a norm, a count) are reduced as they are. The limit is here and not where work is read, since samples
 * add elements.
 */
const FEW_ELEMENTS = 1e5;

/** Whether gradients of weights are added to their accumulators by kernels of their own. */
export function accumulatesApart(configuration: Pick<StepConfiguration, 'zero' | 'software' | 'tpSequence'>): boolean {
  return configuration.zero < 3 && mayAccumulateApart(configuration);
}

/**
 * The same for a software, unless ZeRO 3 reduce-scatters gradients at once: Megatron's matmuls add to the accumulator since early
 * 2022, when it got its sequence parallelism.
 */
export function mayAccumulateApart({
  software,
  tpSequence,
}: Pick<StepConfiguration, 'software' | 'tpSequence'>): boolean {
  return software !== 'megatron-core' && !(software === 'megatron' && tpSequence);
}

/** Keys and values of the whole sequence in 16 bits; their gradients too in backward. */
function ringBytes({ batch, keyHeads, keys, width, valueWidth, backward }: StepAttentionWork): number {
  return (backward ? 2 : 1) * 2 * batch * keyHeads * keys * (width + valueWidth);
}

/**
 * A matmul on a shard of the sequence; experts also take the tokens of the other ranks that share them, and each
 * tensor-parallel rank sends its share of the tokens.
 */
function along(work: MatmulWork, { sp, ep, tp }: StepConfiguration['degrees']): MatmulWork {
  const experts = work.experts ? Math.max(1, work.batch / ep) : work.batch;
  const share = work.batch / experts / sp / (work.experts ? tp : 1);
  return work.tokens === 'depth'
    ? { ...work, batch: experts, depth: work.depth * share }
    : { ...work, batch: experts, rows: work.rows * share };
}
