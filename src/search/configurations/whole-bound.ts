/**
 * @file The cheapest bound of all: what one micro-batch takes through the whole model, whatever the schedule, what recomputes, how
 * layers are cut, and in which order the axes lie.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { MeshOrder, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { hostUpdateSeconds, offloadsOptimizer } from '../../cost-model/step/offload.js';
import { type PartPrices, priceParts, updatedOf } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import { microBatches } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { quickestLevel } from './parts-of-step.js';
import { unlikePipeline } from './unlike-stages.js';
import { ROUNDING, stepOf } from './variant-bound.js';

/**
 * Seconds that no variant of a configuration's degrees and micro-batch takes less than, whatever the order of the axes, with what
 * the configuration has on the host; `lightest` says what recomputes at least.
 */
export function wholeBound(
  cluster: Cluster,
  workOf: (configuration: StepConfiguration) => ModelWork,
): (lightest: StepConfiguration) => number {
  const models = new Map<string, Map<Cluster, PartPrices>>();
  /** The parts for one micro-batch alone. */
  const alone = (configuration: StepConfiguration, meshOrder: MeshOrder, own: Cluster): PartPrices => {
    const { degrees, microBatch } = configuration;
    const { tp, sp, ep } = degrees;
    const key = `${tp} ${sp} ${ep} ${microBatch} ${meshOrder}`;
    const onClusters = models.get(key) ?? new Map<Cluster, PartPrices>();
    models.set(key, onClusters);
    const { offload: _, ...rest } = configuration;
    const one: StepConfiguration = {
      ...rest,
      ...{ meshOrder, degrees: { tp, sp, ep, dp: 1, pp: 1 }, globalBatch: microBatch },
      // Any layer may recompute where that is not decided.
      recompute: isFree(configuration) ? 'full' : configuration.recompute,
      zero: quickestLevel(configuration),
    };
    const found = onClusters.get(own) ?? priceParts(workOf(configuration), one, own, STEP_CONSTANTS);
    onClusters.set(own, found);
    return found;
  };
  return (configuration) => {
    const orders = innermost(configuration, cluster).map((meshOrder) => {
      const clusters = stageClusters(cluster, configuration);
      const stages = clusters.map((own) => alone(configuration, meshOrder, own));
      const host = [...new Set(clusters)].map((own) =>
        onHost(alone(configuration, meshOrder, own), configuration, own),
      );
      return pipelineAtLeast(stages, workOf(configuration), configuration) + Math.min(...host);
    });
    return stepOf(Math.min(...orders), configuration, cluster);
  };
}

/** Seconds of all micro-batches under whatever schedule waits least. */
function pipelineAtLeast(stages: readonly PartPrices[], work: ModelWork, configuration: StepConfiguration): number {
  const { pp } = configuration.degrees;
  const layers = work.layers.reduce((sum, { count }) => sum + count, 0);
  const chunks = Math.floor(layers / pp);
  const isChunked = pp > 1 && chunks > 1 && microBatches(configuration) % pp === 0;
  const own: StepConfiguration = {
    ...configuration,
    virtualStages: isChunked ? chunks : 1,
    schedule: isChunked ? 'interleaved-1f1b' : 'zero-bubble',
  };
  return unlikePipeline(stages, own, { isMixed: isFree(configuration), again: 0 });
}

function isFree({ recompute }: StepConfiguration): boolean {
  return recompute === 'none';
}

/** Seconds that the host takes at least to update a stage's share of the parameters. */
function onHost({ first, layers, last }: PartPrices, configuration: StepConfiguration, cluster: Cluster): number {
  if (!offloadsOptimizer(configuration)) return 0;
  const { pp } = configuration.degrees;
  const parts = [{ count: 1, kept: first }, ...layers, { count: 1, kept: last }];
  const dense = parts.reduce((sum, { count, kept }) => sum + count * kept.held.dense, 0);
  const experts = parts.reduce((sum, { count, kept }) => sum + count * kept.held.experts, 0);
  // Whatever the ZeRO level: with state that is shared out each rank updates least.
  const share = updatedOf({ dense: dense / pp, experts: experts / pp }, { ...configuration, zero: 1 });
  return hostUpdateSeconds(share, configuration, cluster, STEP_CONSTANTS) * ROUNDING;
}

/** Orders of tp and sp on the innermost ranks: no order puts both of them better than one of these. */
function innermost({ degrees, meshOrder }: StepConfiguration, { perNode }: Cluster): readonly MeshOrder[] {
  if (meshOrder) return [meshOrder];
  const { tp, sp } = degrees;
  return tp > 1 && sp > 1 && tp * sp > perNode ? [AXIS_ORDER, ['pp', 'dp', 'tp', 'sp']] : [AXIS_ORDER];
}
