/**
 * @file The cheapest bound of all: what one micro-batch takes through the whole model, whatever the schedule, what recomputes, how
 * layers are cut, and in which order the axes lie.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { MeshOrder, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import type { Held } from '../../cost-model/step/data-price.js';
import { gradientTransfer, hostUpdateSeconds, offloadsOptimizer } from '../../cost-model/step/offload.js';
import { type PartPrices, priceParts, updatedOf } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import { microBatches } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { quickestLevel } from './parts-of-step.js';
import { pipelineLeast, type Shares, sharesOf, unlikePipeline } from './unlike-stages.js';
import { ROUNDING, stepOf } from './variant-bound.js';

/**
 * Seconds that no variant of a configuration's degrees and micro-batch takes less than, whatever the order of the axes, with what
 * the configuration has on the host; `lightest` says what recomputes at least.
 */
export function wholeBound(
  cluster: Cluster,
  workOf: (configuration: StepConfiguration) => ModelWork,
): (lightest: StepConfiguration) => number {
  const models = new Map<Cluster, Map<string, Alone>>();
  const inner = new Map<MeshOrder, number>();
  /** The parts for one micro-batch alone. */
  const aloneOn = (own: Cluster, configuration: StepConfiguration, meshOrder: MeshOrder): Alone => {
    const { degrees, microBatch } = configuration;
    const { tp, sp, ep } = degrees;
    const onCluster = models.get(own) ?? new Map<string, Alone>();
    models.set(own, onCluster);
    const order = inner.get(meshOrder) ?? inner.size;
    inner.set(meshOrder, order);
    const key = `${order} ${tp} ${sp} ${ep} ${microBatch}`;
    const found = onCluster.get(key) ?? alone(workOf(configuration), configuration, meshOrder, own);
    onCluster.set(key, found);
    return found;
  };
  return (configuration) => {
    const clusters = cluster.kinds ? stageClusters(cluster, configuration) : [cluster];
    const bounds = innermost(configuration, cluster).map((meshOrder) => {
      const stages = clusters.map((own) => aloneOn(own, configuration, meshOrder));
      const host = clusters.map((own, stage) => onHost(stages[stage] as Alone, configuration, own));
      return pipelineAtLeast(stages, configuration) + Math.min(...host);
    });
    return stepOf(Math.min(...bounds), configuration, cluster);
  };
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

function alone(work: ModelWork, configuration: StepConfiguration, meshOrder: MeshOrder, own: Cluster): Alone {
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
  const prices = priceParts(work, one, own, STEP_CONSTANTS);
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

/** Seconds that the host takes at least to update a stage's share of the parameters, and to receive gradients that all else hides. */
function onHost({ held }: Alone, configuration: StepConfiguration, cluster: Cluster): number {
  if (!offloadsOptimizer(configuration)) return 0;
  const { pp } = configuration.degrees;
  // Whatever the ZeRO level: with state that is shared out each rank updates least.
  const share = updatedOf({ dense: held.dense / pp, experts: held.experts / pp }, { ...configuration, zero: 1 });
  const out = gradientTransfer(share, Number.MAX_VALUE, configuration, cluster, STEP_CONSTANTS);
  return (hostUpdateSeconds(share, configuration, cluster, STEP_CONSTANTS) + out.exposed) * ROUNDING;
}

/** Orders of tp and sp on the innermost ranks: no order puts both of them better than one of these. */
function innermost({ degrees, meshOrder }: StepConfiguration, { perNode }: Cluster): readonly MeshOrder[] {
  if (meshOrder) return [meshOrder];
  const { tp, sp } = degrees;
  return tp > 1 && sp > 1 && tp * sp > perNode ? EITHER : USUAL;
}

const USUAL: readonly MeshOrder[] = [AXIS_ORDER];
const EITHER: readonly MeshOrder[] = [AXIS_ORDER, ['pp', 'dp', 'tp', 'sp']];
