/**
 * @file Seconds of a micro-batch through the parts of a model, priced once for all combinations of degrees that put tp, sp and ep
 * in the same places: however many stages and replicas there are, a micro-batch's own work is the same.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { groupPlace } from '../../cost-model/group-place.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { groupRuns } from '../../cost-model/step/mesh-order.js';
import { type PartPhases, partPhases } from '../../cost-model/step/part-price.js';
import { accumulatesApart } from '../../cost-model/step/phase-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { madeOnce } from '../../ir/remembered.js';

/** Phases of a configuration's parts on devices of one kind. */
export type PhasesOfStep = (configuration: StepConfiguration, cluster: Cluster) => PartPhases;

/** @param workOf the work at a configuration's tp and micro-batch; other kernel settings must be equal in all configurations */
export function phasesOfStep(workOf: (configuration: StepConfiguration) => ModelWork): PhasesOfStep {
  const known = new Map<Cluster, Map<string, PartPhases>>();
  return (configuration, cluster) => {
    const { degrees, meshOrder, microBatch, tpSequence } = configuration;
    const { tp, sp, ep } = groupRuns(degrees, meshOrder);
    const places = [tp, sp, ep].map((runs) => groupPlace(runs, cluster.levels).key);
    const key =
      `${degrees.tp} ${degrees.sp} ${degrees.ep} ${microBatch} ${tpSequence} ` +
      `${accumulatesApart(configuration)} ${places.join(' ')}`;
    const own = madeOnce(known, cluster, () => new Map<string, PartPhases>());
    return madeOnce(own, key, () => partPhases(workOf(configuration), configuration, cluster, STEP_CONSTANTS));
  };
}
