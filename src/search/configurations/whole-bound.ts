/**
 * @file The cheapest bound of all: what one micro-batch takes through the whole model, whatever the schedule, what recomputes,
 * how layers are cut, and in which order the axes lie.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { collectiveSeconds } from '../../cost-model/collective-price.js';
import { evenPlace, isEven } from '../../cost-model/group-place.js';
import { nearerIsFaster } from '../../cost-model/place-dominance.js';
import type { Degrees, MeshOrder, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import type { Held } from '../../cost-model/step/data-price.js';
import { gradientTransfer, hostUpdateSeconds, offloadsOptimizer } from '../../cost-model/step/offload.js';
import { type PartPrices, priceParts, updatedOf } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import { microBatches } from '../../cost-model/step/step-price.js';
import type { ModelWork, Work } from '../../cost-model/step/work.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { ROUNDING } from './bound-request.js';
import { type InsidePlaces, insidePlaces } from './mesh-orders.js';
import { quickestLevel } from './parts-of-step.js';
import { type PhasesOfStep, phasesOfStep } from './phases-of-step.js';
import { pipelineLeast, type Shares, sharesOf, unlikePipeline } from './unlike-stages.js';
import { stepOf } from './variant-bound.js';

/**
 * Bounds by one micro-batch alone: seconds that no variant of a configuration's degrees and micro-batch takes less than, whatever
 * the order of the axes, with what the configuration has on the host; `lightest` says what recomputes at least.
 */
export function wholeBound(
  cluster: Cluster,
  workOf: (configuration: StepConfiguration) => ModelWork,
  phasesOf: PhasesOfStep = phasesOfStep(workOf),
): WholeBound {
  const models = new Map<Cluster, Map<string, Alone>>();
  const found = new Map<Degrees, Map<MeshOrder | undefined, readonly InsidePlaces[]>>();
  const isUsual = nearerIsFaster(cluster);
  const placesOf = (configuration: StepConfiguration): readonly InsidePlaces[] => {
    const { degrees, meshOrder } = configuration;
    if (isUsual && degrees.ep === 1 && liesEvenly(degrees, cluster)) return innermost(configuration, cluster);
    const ofDegrees = found.get(degrees) ?? new Map<MeshOrder | undefined, readonly InsidePlaces[]>();
    found.set(degrees, ofDegrees);
    const known = ofDegrees.get(meshOrder) ?? insidePlaces(degrees, cluster, meshOrder);
    ofDegrees.set(meshOrder, known);
    return known;
  };
  /** The parts for one micro-batch alone. */
  const aloneOn = (own: Cluster, configuration: StepConfiguration, { order, places }: InsidePlaces): Alone => {
    const { degrees, microBatch, tpSequence } = configuration;
    const { tp, sp, ep } = degrees;
    const onCluster = models.get(own) ?? new Map<string, Alone>();
    models.set(own, onCluster);
    const key = `${places} ${tp} ${sp} ${ep} ${microBatch} ${tpSequence}`;
    const known = onCluster.get(key) ?? alone(workOf(configuration), configuration, order, own, phasesOf);
    onCluster.set(key, known);
    return known;
  };
  const clustersOf = (configuration: StepConfiguration): readonly Cluster[] =>
    cluster.kinds ? stageClusters(cluster, configuration) : [cluster];
  const atLeast = (configuration: StepConfiguration): number => {
    const clusters = clustersOf(configuration);
    const bounds = placesOf(configuration).map((places) => {
      const stages = clusters.map((own) => aloneOn(own, configuration, places));
      const host = clusters.map((own, stage) => onHost(stages[stage] as Alone, configuration, own));
      return pipelineAtLeast(stages, configuration) + Math.min(...host);
    });
    return stepOf(Math.min(...bounds), configuration, cluster);
  };
  const gains = new Map<string, boolean>();
  const exchanges = new Map<ModelWork, number>();
  const gainsWhole = (configuration: StepConfiguration, seconds: number): boolean => {
    // Layers that were measured may differ by anything.
    if (cluster.layerFactors) return true;
    const { degrees, microBatch, meshOrder } = configuration;
    const { tp, sp, ep } = degrees;
    const work = workOf(configuration);
    const among = exchanges.get(work) ?? exchangesOf(work);
    exchanges.set(work, among);
    // Nowhere in the pipeline more than all of these can be saved.
    if (stepOf(microBatches(configuration) * among * STEP_CONSTANTS.exchangeSeconds, configuration, cluster) < seconds)
      return false;
    const key = `${tp} ${sp} ${ep} ${microBatch} ${meshOrder}`;
    const found =
      gains.get(key) ??
      placesOf(configuration).some((places) =>
        clustersOf(configuration).some((own) =>
          isQuicker(
            aloneOn(own, { ...configuration, tpSequence: false }, places).prices,
            aloneOn(own, { ...configuration, tpSequence: true }, places).prices,
          ),
        ),
      );
    gains.set(key, found);
    return found;
  };
  return { atLeast, gainsWhole };
}

export interface WholeBound {
  /** Seconds that no variant takes less than. */
  readonly atLeast: (lightest: StepConfiguration) => number;
  /**
   * Whether a step may take less, by so many seconds, with norms whole on every rank of tp. That saves the host a collective at
   * each exchange, and costs the device more: the busier it is the less that brings. So where it brings no part anything with
   * groups on the quickest links, it does on no others; and what is kept and sent is never less.
   */
  readonly gainsWhole: (lightest: StepConfiguration, seconds: number) => boolean;
}

/** Exchanges over tp of one micro-batch through all layers, where all recompute: each is one collective fewer at the most. */
function exchangesOf({ first, layers, last }: ModelWork): number {
  const parts = [{ count: 1, part: first }, ...layers, { count: 1, part: last }];
  const among = (works: readonly Work[]) => works.filter(({ kind }) => kind === 'exchange').length;
  return parts.reduce((sum, { count, part }) => sum + count * (2 * among(part.forward) + among(part.backward)), 0);
}

/** Whether a part takes less in either direction, kept or recomputed. */
function isQuicker(one: PartPrices, other: PartPrices): boolean {
  const parts = ({ first, layers, last }: PartPrices) => [
    first,
    ...layers.flatMap(({ kept, recomputed }) => [kept, recomputed]),
    last,
  ];
  const others = parts(other);
  return parts(one).some((part, index) => {
    const { forwardSeconds, backwardSeconds } = others[index] as (typeof others)[number];
    return part.forwardSeconds < ROUNDING * forwardSeconds || part.backwardSeconds < ROUNDING * backwardSeconds;
  });
}

/** One micro-batch alone on devices that are alike. */
interface Alone {
  readonly prices: PartPrices;
  /** By the number of stages. */
  readonly shares: Map<number, Shares>;
  /** Of a stage that would have all layers. */
  readonly held: Held;
  readonly layers: number;
}

function alone(
  work: ModelWork,
  configuration: StepConfiguration,
  meshOrder: MeshOrder,
  own: Cluster,
  phasesOf: PhasesOfStep,
): Alone {
  const { degrees, microBatch } = configuration;
  const { tp, sp, ep } = degrees;
  const { offload: _, ...rest } = configuration;
  const one: StepConfiguration = {
    ...rest,
    ...{ meshOrder, degrees: { tp, sp, ep, dp: 1, pp: 1 }, globalBatch: microBatch },
    // Any layer may recompute where that is not decided.
    recompute: isFree(configuration) ? 'full' : configuration.recompute,
    zero: quickestLevel(configuration),
  };
  // Groups lie where all axes put them; stages may be neighbours on any level.
  const phases = phasesOf({ ...one, degrees }, own);
  const priced = priceParts(work, one, own, STEP_CONSTANTS, { phases });
  const prices = { ...priced, send: { ...priced.send, seconds: quickestHop(priced.send.bytes, own) } };
  const { first, layers, last } = prices;
  const parts = [{ count: 1, kept: first }, ...layers, { count: 1, kept: last }];
  const sum = (of: (held: Held) => number) =>
    parts.reduce((total, { count, kept }) => total + count * of(kept.held), 0);
  return {
    prices,
    shares: new Map(),
    held: { dense: sum(({ dense }) => dense), experts: sum(({ experts }) => experts) },
    layers: layers.reduce((total, { count }) => total + count, 0),
  };
}

/** Seconds that an activation travels to the next stage, over the level where that is quickest. */
function quickestHop(bytes: number, { levels, device }: Cluster): number {
  const hops = levels.map((_, index) =>
    collectiveSeconds('permute', bytes, evenPlace(levels.map((_, level) => (level === index ? 2 : 1))), {
      levels,
      device,
    }),
  );
  return Math.min(...hops);
}

/** Seconds of all micro-batches under whatever schedule waits least. */
function pipelineAtLeast(stages: readonly Alone[], configuration: StepConfiguration): number {
  const { pp } = configuration.degrees;
  const [first] = stages as readonly [Alone];
  const chunks = Math.floor(first.layers / pp);
  const isChunked = pp > 1 && chunks > 1 && microBatches(configuration) % pp === 0;
  const own: StepConfiguration = {
    ...configuration,
    virtualStages: isChunked ? chunks : 1,
    schedule: isChunked ? 'interleaved-1f1b' : 'zero-bubble',
  };
  const recomputing = { isMixed: isFree(configuration), again: 0 };
  if (stages.length > 1)
    return unlikePipeline(
      stages.map(({ prices }) => prices),
      own,
      recomputing,
    );
  const shares = first.shares.get(pp) ?? sharesOf([first.prices], pp, recomputing);
  first.shares.set(pp, shares);
  return pipelineLeast(shares, own);
}

function isFree({ recompute }: StepConfiguration): boolean {
  return recompute === 'none';
}

/**
 * Seconds that the host takes at least to update a stage's share of the parameters, and to receive gradients that all else hides.
 */
function onHost({ held }: Alone, configuration: StepConfiguration, cluster: Cluster): number {
  if (!offloadsOptimizer(configuration)) return 0;
  const { pp } = configuration.degrees;
  // Whatever the ZeRO level: with state that is shared out each rank updates least.
  const share = updatedOf({ dense: held.dense / pp, experts: held.experts / pp }, { ...configuration, zero: 1 });
  const out = gradientTransfer(share, Number.MAX_VALUE, configuration, cluster, STEP_CONSTANTS);
  return (hostUpdateSeconds(share, configuration, cluster, STEP_CONSTANTS) + out.exposed) * ROUNDING;
}

/**
 * Whether no group of tp or sp straddles blocks of the cluster, whichever of them is inside: else further apart may be better.
 */
function liesEvenly({ tp, sp }: Degrees, { levels }: Cluster): boolean {
  return [
    { stride: 1, ranks: tp },
    { stride: tp, ranks: sp },
    { stride: 1, ranks: sp },
    { stride: sp, ranks: tp },
  ].every((run) => isEven([run], levels));
}

/**
 * Orders of tp and sp on the innermost ranks: no order puts both of them better than one of these, where the nearer ranks lie the
 * faster they are. (Experts' tokens are none the faster the nearer: where members have links of their own, more of them have
 * more.)
 */
function innermost({ degrees, meshOrder }: StepConfiguration, { perNode }: Cluster): readonly InsidePlaces[] {
  const { tp, sp } = degrees;
  if (!meshOrder) return tp > 1 && sp > 1 && tp * sp > perNode ? EITHER : USUAL;
  const order = meshOrder.filter((axis) => axis === 'tp' || axis === 'sp');
  return order[0] === 'sp' ? USUAL : [TP_OUTSIDE];
}

const SP_OUTSIDE: InsidePlaces = { order: AXIS_ORDER, places: 'sp tp' };
const TP_OUTSIDE: InsidePlaces = { order: ['pp', 'dp', 'tp', 'sp'], places: 'tp sp' };
const USUAL: readonly InsidePlaces[] = [SP_OUTSIDE];
const EITHER: readonly InsidePlaces[] = [SP_OUTSIDE, TP_OUTSIDE];
