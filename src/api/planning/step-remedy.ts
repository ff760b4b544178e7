/**
 * @file The cheapest single change with which a configuration fits: of recomputation, ZeRO, micro-batch, a degree, or offload to
 * the host.
 */

import type { Cluster } from '../../cost-model/cluster.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { hostMemory } from '../../cost-model/step/offload.js';
import { stageMemory } from '../../cost-model/step/step-memory.js';
import { hasSchedule, microBatches, priceStepExactly } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { interruptible } from '../../ir/interruption.js';
import { divisors, type ModelFacts } from '../../search/configurations/space.js';
import type { TpSequence } from '../../sharding-propagation/roles.js';
import { missingOf, stageMemoryLimits } from './missing-memory.js';

/** One change, as options to add, and the seconds of a step with it. */
export interface Remedy {
  readonly change: string;
  readonly stepSeconds: number;
}

/** The given options of the configuration: a change adds options whose values would otherwise follow from others. */
interface RequestedStep {
  /** Bytes per device; what the device has by default. */
  readonly memory?: number;
  readonly globalBatch?: number;
  readonly microBatch?: number;
  readonly microBatches?: number;
  readonly tpSequence?: TpSequence;
  readonly signal?: AbortSignal;
}

/** The data that changes are priced with. */
interface Remediable {
  readonly cluster: Cluster;
  /** Facts of the whole model. */
  readonly facts: ModelFacts;
  readonly works: (configuration: StepConfiguration) => Promise<ModelWork>;
}

/** The cheapest change that makes it fit; tensor parallelism across nodes only where nothing else does. */
export async function cheapestRemedy(
  options: RequestedStep,
  configuration: StepConfiguration,
  { cluster, facts, works }: Remediable,
): Promise<Remedy | null> {
  const changes = changesOf(options, configuration, cluster, facts);
  const isInside = ({ changed }: ConfigurationChange) => changed.degrees.tp <= cluster.perNode;
  for (const tried of [changes.filter(isInside), changes.filter((change) => !isInside(change))]) {
    let best: Remedy | null = null;
    for (const { change, changed } of tried) {
      await interruptible(options.signal);
      const work = await works(changed).catch(() => null);
      if (!work) continue;
      const layers = work.layers.reduce((sum, { count }) => sum + count, 0);
      if (changed.degrees.pp * changed.virtualStages > layers) continue;
      if (changed.degrees.pp > 1 && !hasSchedule(changed)) continue;
      const stages = stageMemory(work, changed);
      const host = hostMemory(stages, changed, cluster);
      if (missingOf(stages, stageMemoryLimits(options.memory, cluster, changed)).bytes > 0) continue;
      if (host && host.bytes > host.memoryBytes) continue;
      const { stepSeconds } = priceStepExactly(work, changed, cluster, STEP_CONSTANTS);
      if (!best || stepSeconds < best.stepSeconds) best = { change, stepSeconds };
    }
    if (best) return best;
  }
  return null;
}

/** A configuration that differs in one thing, and the options that make it so. */
interface ConfigurationChange {
  readonly change: string;
  readonly changed: StepConfiguration;
}

/** One change at a time. The batch stays the same, so options state it where it would follow from others. */
function changesOf(
  options: RequestedStep,
  configuration: StepConfiguration,
  { device }: Cluster,
  { sequence, experts }: ModelFacts,
): readonly ConfigurationChange[] {
  const { degrees, recompute, zero, inference } = configuration;
  const { dp, tp, pp, sp, ep } = degrees;
  const ranks = dp * sp;
  const changes: ConfigurationChange[] = [];
  const add = (change: string, part: Partial<StepConfiguration>) =>
    changes.push({ change, changed: { ...configuration, ...part } });
  if (!inference) {
    if (recompute === 'none') add('--recompute selective', { recompute: 'selective' });
    if (recompute === 'none' || recompute === 'selective') add('--recompute operators', { recompute: 'operators' });
    if (recompute !== 'full') add('--recompute full', { recompute: 'full' });
    for (const level of [1, 2, 3] as const) if (level > zero && ranks > 1) add(`--zero ${level}`, { zero: level });
  }
  const addBatched = (change: string, part: Partial<StepConfiguration>) => {
    const changed = { ...configuration, ...part };
    const says = [
      change,
      ...(options.globalBatch === undefined ? [`--global-batch ${changed.globalBatch}`] : []),
      ...(options.microBatch === undefined && part.microBatch === undefined
        ? [`--micro-batch ${changed.microBatch}`]
        : []),
      ...(options.microBatches === undefined ? [] : [`--micro-batches ${microBatches(changed)}`]),
    ];
    changes.push({ change: says.join(' '), changed });
  };
  const { microBatch } = configuration;
  for (const size of divisors(microBatch))
    if (size < microBatch) addBatched(`--micro-batch ${size}`, { microBatch: size });
  for (const factor of divisors(dp)) {
    if (factor === 1) continue;
    const fewer = { ...degrees, dp: dp / factor };
    if (sequence > 1 && sequence % (sp * factor) === 0)
      addBatched(`--dp ${fewer.dp} --sp ${sp * factor}`, { degrees: { ...fewer, sp: sp * factor } });
    if ((fewer.dp * sp) % ep !== 0) continue;
    const tpSequence = (options.tpSequence ?? 'auto') !== 'off';
    addBatched(`--dp ${fewer.dp} --tp ${tp * factor}`, { degrees: { ...fewer, tp: tp * factor }, tpSequence });
    addBatched(`--dp ${fewer.dp} --pp ${pp * factor}`, { degrees: { ...fewer, pp: pp * factor } });
  }
  for (const more of divisors(experts))
    if (more > ep && ranks % more === 0) add(`--ep ${more}`, { degrees: { ...degrees, ep: more } });
  if (!configuration.inference && device.host)
    for (const offload of ['optimizer', 'activations', 'all'] as const)
      if ((configuration.offload ?? 'none') !== offload) add(`--offload ${offload}`, { offload });
  return changes;
}
