/**
 * @file The cheapest bound of all: what one micro-batch takes through the whole model, whatever the schedule, what recomputes, how
 * layers are cut, and in which order the axes lie. Where nodes differ it is the only one.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { onNodes } from '../../cost-model/node-kinds.js';
import type { MeshOrder, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import type { Held } from '../../cost-model/step/data-price.js';
import { hostUpdateSeconds, offloadsOptimizer } from '../../cost-model/step/offload.js';
import { priceParts, updatedOf } from '../../cost-model/step/part-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { ROUNDING } from './variant-bound.js';

/** Seconds that no variant takes less than, whatever the order of the axes. */
export function wholeBound(
  cluster: Cluster,
  workOf: (configuration: StepConfiguration) => ModelWork,
): (configuration: StepConfiguration) => number {
  const models = new Map<string, WholeModel>();
  /** One micro-batch alone, under each order that may be best for it. Of nodes that differ the fastest count: no stage is faster. */
  const alone = (configuration: StepConfiguration): readonly WholeModel[] => {
    const { degrees, microBatch } = configuration;
    const { tp, sp, ep } = degrees;
    const { offload: _, ...one } = { ...configuration, degrees: { tp, sp, ep, dp: 1, pp: 1 }, globalBatch: microBatch };
    return innermost(configuration, cluster).map((meshOrder) => {
      const key = `${tp} ${sp} ${ep} ${microBatch} ${meshOrder}`;
      const found = models.get(key) ?? wholeModel(workOf(configuration), { ...one, meshOrder }, kindsOf(cluster));
      models.set(key, found);
      return found;
    });
  };
  return (configuration) =>
    Math.min(
      ...alone(configuration).map(
        (model) => boundBy(model, workOf(configuration), configuration) + onHost(model, configuration, cluster),
      ),
    );
}

/** Seconds that the host takes at least to update a stage's share of the parameters. */
function onHost({ held }: WholeModel, configuration: StepConfiguration, cluster: Cluster): number {
  if (!offloadsOptimizer(configuration)) return 0;
  const { pp } = configuration.degrees;
  // Whatever the ZeRO level: with state that is shared out each rank updates least.
  const share = updatedOf({ dense: held.dense / pp, experts: held.experts / pp }, { ...configuration, zero: 1 });
  return hostUpdateSeconds(share, configuration, cluster, STEP_CONSTANTS) * ROUNDING;
}

/** Seconds that no variant takes less than, from one micro-batch's through the whole model. */
function boundBy({ whole, largest }: WholeModel, work: ModelWork, configuration: StepConfiguration): number {
  const { pp, dp } = configuration.degrees;
  const layers = work.layers.reduce((sum, { count }) => sum + count, 0);
  const times = configuration.globalBatch / (dp * configuration.microBatch);
  // The slowest stage takes its share at least, and waits for the others once: a third of that under zero-bubble, one
  // chunk's part under interleaving.
  const slowest = pp === 1 ? whole : Math.max(whole / pp, largest);
  const waits = (whole - slowest) * Math.min(1 / 3, 1 / Math.max(1, Math.floor(layers / pp)));
  return times * slowest + waits;
}

/** One micro-batch alone. */
interface WholeModel {
  /** Seconds through the whole model, and through its largest part, which no cut divides. */
  readonly whole: number;
  readonly largest: number;
  /** What a rank of one stage alone would hold. */
  readonly held: Held;
}

function wholeModel(work: ModelWork, configuration: StepConfiguration, clusters: readonly Cluster[]): WholeModel {
  const kinds = clusters.map((own) => {
    const { first, layers, last } = priceParts(work, configuration, own, STEP_CONSTANTS);
    const parts = [{ count: 1, kept: first }, ...layers, { count: 1, kept: last }].map(({ count, kept }) => ({
      count,
      held: kept.held,
      seconds: kept.forwardSeconds + kept.backwardSeconds,
    }));
    const sum = (of: (part: (typeof parts)[number]) => number) =>
      parts.reduce((total, part) => total + part.count * of(part), 0);
    return {
      held: { dense: sum(({ held }) => held.dense), experts: sum(({ held }) => held.experts) },
      whole: sum(({ seconds }) => seconds),
      largest: Math.max(...parts.map(({ seconds }) => seconds)),
    };
  });
  return {
    whole: Math.min(...kinds.map(({ whole }) => whole)),
    largest: Math.min(...kinds.map(({ largest }) => largest)),
    held: kinds[0]?.held ?? { dense: 0, experts: 0 },
  };
}

/** Orders of tp and sp on the innermost ranks: no order puts both of them better than one of these. */
function innermost({ degrees, meshOrder }: StepConfiguration, { perNode }: Cluster): readonly MeshOrder[] {
  if (meshOrder) return [meshOrder];
  const { tp, sp } = degrees;
  return tp > 1 && sp > 1 && tp * sp > perNode ? [AXIS_ORDER, ['pp', 'dp', 'tp', 'sp']] : [AXIS_ORDER];
}

/** One node of each kind; the cluster itself where nodes are alike. */
function kindsOf(cluster: Cluster): readonly Cluster[] {
  let node = 0;
  return (
    cluster.kinds?.map(({ nodes }) => {
      const own = onNodes(cluster, node, 1);
      node += nodes;
      return own;
    }) ?? [cluster]
  );
}
