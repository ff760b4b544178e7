/**
 * @file What the parts of a model cost under the configurations that a search looks at: priced once for all that share them.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { MeshOrder, Offload, Recompute, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { type PartsBytes, partBytes } from '../../cost-model/step/part-bytes.js';
import { type PartPrices, priceParts } from '../../cost-model/step/part-price.js';
import { mayAccumulateApart } from '../../cost-model/step/phase-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-kinds.js';
import type { BoundRequest } from './bound-request.js';
import type { PhasesOfStep } from './phases-of-step.js';
import { unlikeBound, unlikePace } from './unlike-stages.js';
import { loosest, loosestRecompute, paceBound, variantBound } from './variant-bound.js';

/**
 * What the parts of a model cost, for one combination and micro-batch at a time: its variants share them, whatever their
 * schedule, chunks, and layers that recompute.
 */
export class PartsOfStep {
  private degrees: StepConfiguration['degrees'] | null = null;
  private microBatch = 0;
  private own = new Known();
  private readonly known = new Map<StepConfiguration['degrees'], Map<number, Known>>();

  constructor(
    private readonly workOf: (configuration: StepConfiguration) => ModelWork,
    private readonly phasesOf: PhasesOfStep,
  ) {}

  prices(configuration: StepConfiguration, cluster: Cluster): PartPrices {
    const key = this.keyOf(configuration);
    const onClusters = this.own.priced.get(key) ?? new Map<Cluster, PartPrices>();
    this.own.priced.set(key, onClusters);
    const known = onClusters.get(cluster);
    if (known) return known;
    const made = priceParts(this.workOf(configuration), configuration, cluster, STEP_CONSTANTS, {
      phases: this.phasesOf(configuration, cluster),
      bytes: this.bytes(configuration),
    });
    onClusters.set(cluster, made);
    return made;
  }

  /** Of each stage; one record where nodes are alike. */
  onStages(configuration: StepConfiguration, cluster: Cluster): readonly PartPrices[] {
    if (!cluster.kinds) return [this.prices(configuration, cluster)];
    return stageClusters(cluster, configuration).map((own) => this.prices(configuration, own));
  }

  /** The bound of one variant. */
  least(request: BoundRequest): number {
    return leastOf(this.onStages(request.configuration, request.cluster), request);
  }

  /** The same, worked out once: of requests that differ in nothing but the configuration. */
  leastOfVariant(request: BoundRequest): number {
    const { configuration } = request;
    const key = variantKey(this.keyOf(configuration), configuration);
    const known = this.own.variants.get(key);
    if (known !== undefined) return known;
    const found = this.least(request);
    this.own.variants.set(key, found);
    return found;
  }

  /** The bound of one variant by its micro-batches alone. */
  leastPace(request: BoundRequest): number {
    const { configuration, cluster } = request;
    const stages = this.onStages(configuration, cluster);
    return cluster.kinds ? unlikePace(stages, request) : paceBound(stages[0] as PartPrices, request);
  }

  /** The bound by its micro-batches alone, the same for every ZeRO level. */
  pace(configuration: StepConfiguration, request: BoundRequest): number {
    const { zero } = configuration;
    const quickest = quickestLevel(configuration);
    const key = variantKey(this.keyOf(configuration, configuration.recompute, quickest), configuration);
    const known = this.own.paces.get(key);
    if (known !== undefined) return known;
    const same = zero === quickest ? configuration : { ...configuration, zero: quickest };
    const found = this.leastPace({ ...request, configuration: same });
    this.own.paces.set(key, found);
    return found;
  }

  /** The bound of all that differ in chunks and recomputation. */
  bound(configuration: StepConfiguration, request: BoundRequest): number {
    const { schedule, zero } = configuration;
    const own = this.keyOf(configuration, loosestRecompute(configuration, request.isMixed), zero);
    const key = own * SCHEDULES.length + SCHEDULES.indexOf(schedule);
    const known = this.own.bounds.get(key);
    if (known !== undefined) return known;
    const found = this.least({ ...request, configuration: loosest(configuration, request.isMixed) });
    this.own.bounds.set(key, found);
    return found;
  }

  bytes(configuration: StepConfiguration): PartsBytes {
    const key = this.bytesKeyOf(configuration, configuration.recompute, configuration.zero);
    const found = this.own.bytes.get(key) ?? partBytes(this.workOf(configuration), configuration);
    this.own.bytes.set(key, found);
    return found;
  }

  private keyOf(
    configuration: StepConfiguration,
    recompute = configuration.recompute,
    zero = configuration.zero,
  ): number {
    const { meshOrder } = configuration;
    const key = this.bytesKeyOf(configuration, recompute, zero) * MOST;
    if (!meshOrder) return key;
    const order = this.own.orders.get(meshOrder) ?? this.own.orders.size + 1;
    this.own.orders.set(meshOrder, order);
    return key + order;
  }

  private bytesKeyOf(configuration: StepConfiguration, recompute: Recompute, zero: StepConfiguration['zero']): number {
    const { degrees, microBatch, tpSequence, virtualStages, offload = 'none' } = configuration;
    if (degrees !== this.degrees || microBatch !== this.microBatch) {
      const ofDegrees = this.known.get(degrees) ?? new Map<number, Known>();
      this.known.set(degrees, ofDegrees);
      this.own = ofDegrees.get(microBatch) ?? new Known();
      ofDegrees.set(microBatch, this.own);
      this.degrees = degrees;
      this.microBatch = microBatch;
    }
    const host = OFFLOADS.indexOf(offload) * LAYER_RECOMPUTE_KINDS.length + LAYER_RECOMPUTE_KINDS.indexOf(recompute);
    return ((host * ZERO_LEVELS + zero) * 2 + (tpSequence ? 1 : 0)) * 2 + (virtualStages > 1 ? 1 : 0);
  }
}

/** What is known of one combination and micro-batch. */
class Known {
  readonly bytes = new Map<number, PartsBytes>();
  readonly priced = new Map<number, Map<Cluster, PartPrices>>();
  readonly bounds = new Map<number, number>();
  readonly paces = new Map<number, number>();
  readonly variants = new Map<number, number>();
  readonly orders = new Map<MeshOrder, number>();
}

// Keys are numbers, since there are many: the choices' places in these, and more orders and chunks than there are.
const SCHEDULES: readonly StepConfiguration['schedule'][] = [
  undefined,
  ...(['naive', 'f-then-b', '1f1b', 'interleaved-1f1b', 'zero-bubble'] as const),
];
const OFFLOADS: readonly Offload[] = ['none', 'optimizer', 'activations', 'all'];
const ZERO_LEVELS = 4;
const MOST = 2 ** 16;

/** With its schedule and chunks. */
function variantKey(key: number, { schedule, virtualStages }: StepConfiguration): number {
  return (key * MOST + virtualStages) * SCHEDULES.length + SCHEDULES.indexOf(schedule);
}

/** The bound of a variant, by the prices of its stages: one record where they are alike. */
export function leastOf(stages: readonly PartPrices[], request: BoundRequest): number {
  return request.cluster.kinds ? unlikeBound(stages, request) : variantBound(stages[0] as PartPrices, request);
}

/** The ZeRO level under which micro-batches take least: all take the same, unless 3 leaves out what accumulates gradients. */
export function quickestLevel(configuration: StepConfiguration): 0 | 3 {
  return mayAccumulateApart(configuration) ? 3 : 0;
}
